// Test library for Cambricon: a call of CNNL on its way to the queue, the descriptors, and what the
// ops are made of.
#ifndef HALYARD_TESTS_VENDORS_CNNL_H_
#define HALYARD_TESTS_VENDORS_CNNL_H_

#include "cambricon.h"
#include "capture.h"

enum { MAX_ARGUMENTS = 24, MAX_LIST = 64 };

// ---- descriptors, which are opaque to callers ----

typedef struct cnnlContext {
  void* queue;  // NULL: none was set
} cnnlContext;
typedef struct cnnlTensorStruct {
  hy_tensor view;  // data: NULL
  bool is_set;
} cnnlTensorStruct;
// Of an op: what kind it is of is what it is alive as ("OpTensor", "Reduce" ...).
typedef struct op_desc {
  bool is_set;
  int op, dtype, nan;              // OpTensor, Reduce, Activation (its mode)
  int axes[8], n_axes, indices;    // Reduce
  bool approximate;                // Activation
  int trans_a, trans_b, use_beta;  // MatMul
  bool proposed, batched;          // an algorithm, a heuristic result
} op_desc;

// ---- calls ----

typedef struct job job;
// Checks a call's arguments (addresses of the device), or computes it (on a worker, addresses of
// the host). Not 0: the status that is returned, or that breaks the queue.
typedef int (*job_function)(const job* j, bool check);

typedef struct cnnl_row {
  const char* name;
  uint32_t types;  // of the first tensor
  job_function run;
  hy_op op;
} cnnl_row;

// A call, flat: it is copied into the queue.
struct job {
  const cnnl_row* row;
  int n, device, n_tensors, n_listed;
  char* workspace;
  size_t workspace_bytes;
  struct {
    char kind;
    int64_t integer;
    double real;
    bool present;
    char bytes[8];   // of a number on the host
    op_desc desc;    // X
    int numbers[8];  // A
    char* memory;    // U
  } args[MAX_ARGUMENTS];
  hy_tensor tensors[6];        // D and O in their order, with the pointer behind each
  hy_tensor listed[MAX_LIST];  // L, with the pointers of M
};

// The i-th tensor; negative ones from the end. Absent tensors have dtype HY_NONE.
hy_tensor job_tensor(const job* j, int i);
// The i-th argument.
int64_t job_integer(const job* j, int i);
const op_desc* job_desc(const job* j, int i);
hy_scalar job_factor(const job* j,
                     int i);  // V: f32, or i32 where the last tensor is; none for NULL
hy_scalar job_number(const job* j, int i);  // C: of the type of the last tensor

// The row's op, or another: checked, or computed.
int job_reference(const job* j, bool check, int n_in, const hy_tensor* in, int n_out,
                  hy_tensor* out, hy_attrs attrs);
int job_reference_of(const job* j, bool check, hy_op op, int n_in, const hy_tensor* in, int n_out,
                     hy_tensor* out, hy_attrs attrs);

// Some ask for none, as on the chip.
size_t workspace_of(const char* name);

// The type of a vendor's number; HY_NONE where it has none.
hy_dtype cnnl_type(int dtype);

#define RULE(condition, ...) DEMAND(condition, CNNL_STATUS_BAD_PARAM, __VA_ARGS__)

#endif  // HALYARD_TESTS_VENDORS_CNNL_H_
