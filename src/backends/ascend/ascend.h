// Ascend backend: what its files share. CANN's libraries are bound at run time; every op is one or
// several aclnn ops, whose two phases ASCEND_RUN makes of one row of aclnn.def.
//
// A family is one function of a task, asked first and run later, as in the other backends. It goes
// through the same steps both times: asked (a task without a stream), nothing is created or
// enqueued, temporaries have shapes and no memory, and ASCEND_RUN only sees to it that the library
// has the op. So that "supports" and "run" cannot disagree:
//
//   hy_support hy__ascend_silu(hy__ascend_task* task, const hy_call* call) {
//     ASCEND_NEED(is_float(&call->in[0]), NO_DTYPE);
//     ASCEND_RUN(task, Silu, IN(0), OUT(0));
//     return task->answer;
//   }
//
// After a failure the helpers do nothing, and the task ends with the first failure's status.
#ifndef HALYARD_BACKENDS_ASCEND_H_
#define HALYARD_BACKENDS_ASCEND_H_

#include <pthread.h>

#include "backends/common/host.h"

// ---- The library ----

typedef struct hy__acl_executor hy__acl_executor;
typedef const struct aclTensor* acl_tensor;
typedef const struct aclTensorList* acl_list;
typedef const struct aclScalar* acl_scalar;
typedef const struct aclIntArray* acl_ints;
typedef const struct aclBoolArray* acl_bools;

typedef int (*hy__aclnn_run)(void* workspace, uint64_t bytes, hy__acl_executor* executor,
                             void* stream);

typedef struct hy__acl_api {
#define HY_ACL(type, name, arguments) type(*name) arguments;
#define HY_ACL_OPTIONAL(type, name, arguments) type(*name) arguments;
#define HY_ACL_META(type, name, arguments) type(*name) arguments;
#include "backends/ascend/acl.def"
} hy__acl_api;

#define HY__BARE(...) __VA_ARGS__
typedef struct hy__aclnn_api {
#define HY_ACLNN(name, arguments)                                             \
  struct {                                                                    \
    int (*plan)(HY__BARE arguments, uint64_t* workspace, hy__acl_executor**); \
    hy__aclnn_run run;                                                        \
  } name;
#include "backends/ascend/aclnn.def"
} hy__aclnn_api;
extern hy__acl_api hy__acl;
extern hy__aclnn_api hy__aclnn;

// acl/acl_base.h and acl/acl_rt.h.
enum {
  ACL_TYPE_FLOAT = 0,
  ACL_TYPE_FLOAT16 = 1,
  ACL_TYPE_INT8 = 2,
  ACL_TYPE_INT32 = 3,
  ACL_TYPE_UINT8 = 4,
  ACL_TYPE_INT16 = 6,
  ACL_TYPE_INT64 = 9,
  ACL_TYPE_DOUBLE = 11,
  ACL_TYPE_BOOL = 12,
  ACL_TYPE_BF16 = 27,
  ACL_TYPE_INT4 = 29,
};

// Loads and binds what is there; the report's stage is SYMBOLS after it.
hy_status hy__ascend_bind(hy_probe* report);
// Whether the library has every op of a list such as "Add Mul".
bool hy__ascend_has(const char* names);
// The status for an error of the vendor's, its message naming what was being done.
hy_status hy__ascend_fail(int error, const char* what);

// What a chip can do, by the name that aclrtGetSocName gives it.
typedef struct hy__ascend_chip {
  const char* prefix;
  const char* series;
  bool bf16, fp32_products, flash_attention;
} hy__ascend_chip;
const hy__ascend_chip* hy__ascend_chip_of(const char* soc_name);

// ---- Devices and streams ----

// Memory for temporaries and workspaces: taken during a call, all free again at the next one, for
// a stream's work is in order. Chunks are only added.
#define HY__ASCEND_CHUNKS 48
typedef struct hy__ascend_arena {
  char* chunk[HY__ASCEND_CHUNKS];
  size_t size[HY__ASCEND_CHUNKS], used;
  int count, current;
} hy__ascend_arena;

typedef struct hy__ascend_device {
  int index;  // AscendCL's
  const hy__ascend_chip* chip;
  void*
      float8;  // the values of e4m3 and e5m2 by their bits, f32 [2, 256]; NULL before the first use
  pthread_mutex_t mutex;  // guards float8
} hy__ascend_device;

// Indices out of range are found on the device: each check leaves a byte in `flags`, which is read
// when the stream is waited for.
#define HY__ASCEND_CHECKS 256
typedef struct hy__ascend_stream {
  hy__ascend_device* device;
  void* queue;  // AscendCL's
  hy__ascend_arena arena;
  char *flags, *flags_host;  // on the device, and pinned
  hy_op checked[HY__ASCEND_CHECKS];
  int n_checks;
  hy_op last_op;          // atomic: any thread may ask the stream
  void* capturing;        // the graph that is being made, or NULL
  pthread_mutex_t mutex;  // guards what follows
  hy_async_error error;   // the first
} hy__ascend_stream;

// Makes the device current for the calling thread where it is not; what it gives is for leave.
int hy__ascend_enter(const hy__ascend_device* device);
void hy__ascend_leave(const hy__ascend_device* device, int before);
// Runs `call`, an expression of the vendor's error, with the device current.
#define ASCEND_CALL(device, what, call)               \
  do {                                                \
    int before_ = hy__ascend_enter(device);           \
    int error_ = (call);                              \
    hy__ascend_leave(device, before_);                \
    if (error_) return hy__ascend_fail(error_, what); \
  } while (0)

void hy__ascend_arena_free(hy__ascend_arena* arena);
void* hy__ascend_arena_take(hy__ascend_arena* arena, size_t bytes, int* error);

// ---- Tasks ----

#define HY__ASCEND_HANDLES 80
typedef struct hy__ascend_task {
  hy__ascend_device* device;
  hy__ascend_stream* stream;  // NULL: a question
  hy_op op;
  hy_status status;   // the first failure
  hy_support answer;  // YES until the library is found to lack an op
  struct {
    char kind;
    uint64_t content;  // a hash
    const void* handle;
  } handles[HY__ASCEND_HANDLES];  // of the launch that is being put together
  int n_handles;
} hy__ascend_task;

typedef hy_support (*hy__ascend_family)(hy__ascend_task* task, const hy_call* call);

// One aclnn op, with its arguments in the vendor's order. They are evaluated twice: first their
// handles are created, and only where all could be, they are passed on.
#define ASCEND_RUN(task, name, ...)                                                          \
  do {                                                                                       \
    if (!hy__aclnn.name.plan || !hy__aclnn.name.run) (task)->answer = HY_SUPPORT_NO_OP;      \
    if (hy__ascend_begin(task) && hy__ascend_created(task, __VA_ARGS__)) {                   \
      uint64_t bytes_ = 0;                                                                   \
      hy__acl_executor* executor_ = NULL;                                                    \
      int error_ = hy__aclnn.name.plan(__VA_ARGS__, &bytes_, &executor_);                    \
      hy__ascend_launch(task, "aclnn" #name, error_, hy__aclnn.name.run, bytes_, executor_); \
    }                                                                                        \
  } while (0)
bool hy__ascend_begin(hy__ascend_task* task);         // false: there is nothing to run
bool hy__ascend_created(hy__ascend_task* task, ...);  // false: a handle could not be created
void hy__ascend_launch(hy__ascend_task* task, const char* name, int error, hy__aclnn_run run,
                       uint64_t workspace, hy__acl_executor* executor);

// Handles for arguments, released after the launch. NULL for an absent tensor or scalar.
acl_tensor hy__ascend_tensor(hy__ascend_task* task, const hy_tensor* t);
acl_list hy__ascend_list(hy__ascend_task* task, const hy_tensor* tensors, int n);
acl_scalar hy__ascend_scalar(hy__ascend_task* task, hy_scalar value);
acl_ints hy__ascend_ints(hy__ascend_task* task, const int64_t* values, int n);
acl_bools hy__ascend_bools(hy__ascend_task* task, const bool* values, int n);
int hy__ascend_dtype(hy_dtype dtype);  // the vendor's number; -1: none

#define ASCEND_T(t) hy__ascend_tensor(task, t)
#define ASCEND_IN(i) hy__ascend_tensor(task, &call->in[i])
#define ASCEND_OUT(i) hy__ascend_tensor(task, &call->out[i])
#define ASCEND_F(x) hy__ascend_scalar(task, hy_float(x))
#define ASCEND_I(x) hy__ascend_scalar(task, hy_int(x))
#define ASCEND_NEED(condition, answer)            \
  do {                                            \
    if (!(condition)) return HY_SUPPORT_##answer; \
  } while (0)

// ---- Formulas over tensors (tensors.c) ----

// A contiguous tensor in the arena, until the end of the call.
hy_tensor hy__ascend_temporary(hy__ascend_task* task, hy_dtype dtype, int ndim,
                               const int64_t* shape);
// dst = src, converted and broadcast.
void hy__ascend_copy(hy__ascend_task* task, const hy_tensor* dst, const hy_tensor* src);
// The tensor itself where it has the type (and is contiguous), else a copy that has.
hy_tensor hy__ascend_as(hy__ascend_task* task, const hy_tensor* t, hy_dtype dtype);
hy_tensor hy__ascend_contiguous(hy__ascend_task* task, const hy_tensor* t, hy_dtype dtype);
void hy__ascend_fill(hy__ascend_task* task, const hy_tensor* t, hy_scalar value);
hy_tensor hy__ascend_filled(hy__ascend_task* task, hy_dtype dtype, int ndim, const int64_t* shape,
                            double value);
// 0, 1, 2 ... in a new vector.
hy_tensor hy__ascend_range(hy__ascend_task* task, hy_dtype dtype, int64_t n);
// f32 results of the shape that both broadcast to.
typedef enum hy__ascend_formula {
  ASCEND_ADD,
  ASCEND_SUB,
  ASCEND_MUL,
  ASCEND_DIV
} hy__ascend_formula;
hy_tensor hy__ascend_binary(hy__ascend_task* task, hy__ascend_formula f, const hy_tensor* a,
                            const hy_tensor* b);
// bool results.
typedef enum hy__ascend_test {
  ASCEND_EQ,
  ASCEND_NE,
  ASCEND_LT,
  ASCEND_LE,
  ASCEND_GE,
  ASCEND_AND,
  ASCEND_OR
} hy__ascend_test;
hy_tensor hy__ascend_compare(hy__ascend_task* task, hy__ascend_test test, const hy_tensor* a,
                             const hy_tensor* b);
hy_tensor hy__ascend_compare_to(hy__ascend_task* task, hy__ascend_test test, const hy_tensor* a,
                                double value);
hy_tensor hy__ascend_not(hy__ascend_task* task, const hy_tensor* t);
// Where the mask is true, in place.
void hy__ascend_masked_fill(hy__ascend_task* task, const hy_tensor* t, const hy_tensor* mask,
                            double value);
void hy__ascend_scale(hy__ascend_task* task, const hy_tensor* t, double factor);  // in place
// Over the last dimension, which is kept with size 1.
hy_tensor hy__ascend_row_sum(hy__ascend_task* task, const hy_tensor* t);
hy_tensor hy__ascend_row_max(hy__ascend_task* task, const hy_tensor* t);

// Views.
hy_tensor hy__ascend_view(const hy_tensor* t, int ndim, const int64_t* shape);  // contiguous
hy_tensor hy__ascend_permuted(const hy_tensor* t, const int* dims);
hy_tensor hy__ascend_transposed(const hy_tensor* t);  // the last two
hy_tensor hy__ascend_slice(const hy_tensor* t, int dim, int64_t start, int64_t size);

// Remembers that indices out of range were used where a byte of `bad` (bool, any shape) is true:
// the stream's error is then HY_INDEX.
void hy__ascend_check(hy__ascend_task* task, const hy_tensor* bad);
// Indices as i64 within [0, size), those outside checked; negative ones count from the end where
// `wraps` is set.
hy_tensor hy__ascend_indices(hy__ascend_task* task, const hy_tensor* index, int64_t size,
                             bool wraps);

static inline bool hy__ascend_present(const hy_tensor* t) {
  return t->dtype != HY_NONE;
}
bool hy__ascend_same_types(const hy_call* call);  // of all tensors that are present

// ---- The provider, and the functions of the backend's table ----

#define ASCEND_OP(op, family, dtypes, names) \
  hy_support hy__ascend_##family(hy__ascend_task* task, const hy_call* call);
#include "backends/ascend/ops.def"

extern hy_provider hy__ascend_provider;
// Declares what this library and this chip can do.
void hy__ascend_declare(const hy__ascend_chip* chip);

hy_status hy__ascend_device_open(int index, void** device);
void hy__ascend_device_close(void* device);
hy_status hy__ascend_device_sync(void* device);
hy_status hy__ascend_memory_alloc(void* device, size_t bytes, void** address);
void hy__ascend_memory_free(void* device, void* address);
hy_status hy__ascend_memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes);
hy_status hy__ascend_host_alloc(void* device, size_t bytes, void** address);
void hy__ascend_host_free(void* device, void* address);
hy_status hy__ascend_copy_bytes(void* device, void* stream, void* dst, const void* src,
                                size_t bytes, hy_copy_kind kind);
hy_status hy__ascend_set_bytes(void* device, void* stream, void* dst, int value, size_t bytes);
hy_status hy__ascend_stream_create(void* device, void** stream);
void hy__ascend_stream_destroy(void* device, void* stream);
hy_status hy__ascend_stream_sync(void* device, void* stream);
hy_status hy__ascend_stream_query(void* device, void* stream);
void hy__ascend_stream_error(void* device, void* stream, hy_async_error* error);
hy_status hy__ascend_stream_native(void* device, void* stream, void** native);
hy_status hy__ascend_event_create(void* device, void** event);
void hy__ascend_event_destroy(void* device, void* event);
hy_status hy__ascend_event_record(void* device, void* event, void* stream);
hy_status hy__ascend_event_query(void* device, void* event);
hy_status hy__ascend_event_sync(void* device, void* event);
hy_status hy__ascend_event_elapsed(void* device, void* start, void* stop, double* milliseconds);
hy_status hy__ascend_stream_wait_event(void* device, void* stream, void* event);
hy_status hy__ascend_capture_begin(void* device, void* stream);
hy_status hy__ascend_capture_end(void* device, void* stream, void** graph);
hy_status hy__ascend_graph_launch(void* device, void* graph, void* stream);
void hy__ascend_graph_destroy(void* device, void* graph);

#endif  // HALYARD_BACKENDS_ASCEND_H_
