// Test library for Ascend: a call of aclnn between its two phases, and what the ops are made of.
#ifndef HALYARD_TESTS_VENDORS_ACLNN_H_
#define HALYARD_TESTS_VENDORS_ACLNN_H_

#include "ascend.h"
#include "capture.h"

enum { MAX_ARGUMENTS = 48 };

typedef struct job job;

// Checks a call's arguments (phase 1, addresses of the device), or computes it (on a worker,
// addresses of the host). Not 0: the code that is returned, or that breaks the queue.
typedef int (*job_function)(const job* j, bool check);

typedef struct aclnn_row {
  const char* name;
  uint32_t types;  // of the first tensor
  job_function run;
  hy_op op;
} aclnn_row;

// A call, flat: it is copied into the queue, and once more for each launch of a graph.
struct job {
  const aclnn_row* row;
  size_t bytes;  // of all
  int n, device;
  char* workspace;
  size_t workspace_bytes;
  struct {
    char kind;
    uint32_t at, count;  // in the pool: tensors, a scalar, integers, a text; count 0: absent
    int64_t integer;
    double real;
  } args[MAX_ARGUMENTS];
  _Alignas(16) char pool[];
};

// The i-th argument; the last ones with a negative number. Absent tensors have dtype HY_NONE.
hy_tensor job_tensor(const job* j, int i);
const hy_tensor* job_list(const job* j, int i, int* n);
const int64_t* job_ints(const job* j, int i, int* n);  // NULL: absent
hy_scalar job_scalar(const job* j, int i);
const char* job_text(const job* j, int i);
int64_t job_integer(const job* j, int i);
double job_real(const job* j, int i);

// The row's op, or another: checked, or computed.
int job_reference(const job* j, bool check, int n_in, const hy_tensor* in, int n_out,
                  hy_tensor* out, hy_attrs attrs);
int job_reference_of(const job* j, bool check, hy_op op, int n_in, const hy_tensor* in, int n_out,
                     hy_tensor* out, hy_attrs attrs);

// A rule of the vendor's documents.
#define RULE(condition, ...) DEMAND(condition, ACLNN_ERR_PARAM_INVALID, __VA_ARGS__)

#endif  // HALYARD_TESTS_VENDORS_ACLNN_H_
