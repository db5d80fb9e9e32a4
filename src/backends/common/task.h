// Tasks: an op asked and run by the same steps, over a vendor's library that has many small ops.
//
// A family is one function of a task, asked first (a task without a stream) and run later. It goes
// through the same steps both times: asked, nothing is created or enqueued, temporaries have shapes
// and no memory, and a launch only sees to it that the library has what it needs. So "supports" and
// "run" cannot disagree. After a failure the helpers do nothing, and the task ends with the first.
//
// What a vendor has no op for is composed of its other ops: composed.h, of the helpers below, which
// make calls of plain ops that the backend's own families run.
#ifndef HALYARD_COMMON_TASK_H_
#define HALYARD_COMMON_TASK_H_

#include "backends/common/vendor_runtime.h"

typedef struct hy__task hy__task;
typedef hy_support (*hy__task_family)(hy__task* task, const hy_call* call);

// What differs between backends.
typedef struct hy__task_rules {
  const char* name;                 // the backend's
  hy_dtype index;                   // integers that the vendor computes with best: i64 or i32
  const hy__task_family* families;  // HY_OP_END of them, by op; NULL where there is none
  // YES, or why no family takes a tensor of this type and layout.
  hy_support (*gate)(const hy__vendor_device* device, const hy_tensor* t);
  void (*release)(hy__task* task);  // what a failure has left; NULL: nothing
} hy__task_rules;

struct hy__task {
  const hy__task_rules* rules;
  hy__vendor_device* device;
  hy__vendor_stream* stream;  // NULL: a question
  hy_op op;
  hy_status status;   // the first failure
  hy_support answer;  // YES until something is found to be missing
  bool trusts;        // indices have been looked at already
  bool whole;         // floats that become integers are whole numbers that fit
};

#define TASK_NEED(condition, answer)              \
  do {                                            \
    if (!(condition)) return HY_SUPPORT_##answer; \
  } while (0)

static inline bool hy__task_runs(const hy__task* task) {
  return task->stream && task->status == HY_OK && task->answer == HY_SUPPORT_YES;
}

// ---- A provider's supports and run ----

// An op by the backend's own families: asked where the task has no stream, otherwise run.
hy_support hy__task_ask(hy__task* task, const hy_call* call);
// A whole call on the task's stream, with the device current.
hy_status hy__task_run(hy__task* task, const hy_call* call);

// ---- Looking at tensors ----

static inline bool hy__present(const hy_tensor* t) {
  return t->dtype != HY_NONE;
}
static inline bool hy__is_half_or_f32(const hy_tensor* t) {
  return t->dtype == HY_F32 || t->dtype == HY_F16 || t->dtype == HY_BF16;
}
bool hy__same_types(const hy_call* call);  // of all tensors that are present
int64_t hy__wrapped_dim(int64_t dim, int ndim);

// ---- Calls ----

// One op by the backend's own families.
void hy__task_call(hy__task* task, hy_op op, int n_in, const hy_tensor* in, hy_tensor* out,
                   hy_attrs attrs);
void hy__task_unary(hy__task* task, hy_op op, const hy_tensor* x, const hy_tensor* out);
void hy__task_binary_to(hy__task* task, hy_op op, const hy_tensor* a, const hy_tensor* b,
                        const hy_tensor* out);
void hy__task_where(hy__task* task, const hy_tensor* condition, const hy_tensor* a,
                    const hy_tensor* b, const hy_tensor* out);
// dst = src, converted and broadcast.
void hy__task_copy(hy__task* task, const hy_tensor* dst, const hy_tensor* src);
void hy__task_fill(hy__task* task, const hy_tensor* t, hy_scalar value);
// Where the mask is true, in place.
void hy__task_masked_fill(hy__task* task, const hy_tensor* t, const hy_tensor* mask, double value);
void hy__task_scale(hy__task* task, const hy_tensor* t, double factor);  // in place
void hy__task_shift(hy__task* task, const hy_tensor* t, double term);    // in place
void hy__task_clamp(hy__task* task, const hy_tensor* x, hy_scalar low, hy_scalar high,
                    const hy_tensor* out);

// The last dimension of x, the largest first and equal ones as they stood; ids of rules->index.
void hy__task_sort(hy__task* task, const hy_tensor* x, const hy_tensor* sorted,
                   const hy_tensor* ids);

// ---- New tensors: contiguous, in the arena, until the end of the call ----

hy_tensor hy__task_temporary(hy__task* task, hy_dtype dtype, int ndim, const int64_t* shape);
hy_tensor hy__task_filled(hy__task* task, hy_dtype dtype, int ndim, const int64_t* shape,
                          double value);
hy_tensor hy__task_range(hy__task* task, hy_dtype dtype, int64_t n);  // 0, 1, 2 ...
// The tensor itself where it has the type (and is contiguous), else a copy that has.
hy_tensor hy__task_as(hy__task* task, const hy_tensor* t, hy_dtype dtype);
hy_tensor hy__task_contiguous(hy__task* task, const hy_tensor* t, hy_dtype dtype);
hy_tensor hy__task_index(hy__task* task, const hy_tensor* t);  // whole floats, as rules->index
// Of the type of a and the shape that both broadcast to; compare gives bool.
hy_tensor hy__task_binary(hy__task* task, hy_op op, const hy_tensor* a, const hy_tensor* b);
hy_tensor hy__task_compare(hy__task* task, hy_op op, const hy_tensor* a, const hy_tensor* b);
// `op` is one of those with a number, such as HY_OP_eq_scalar.
hy_tensor hy__task_compare_to(hy__task* task, hy_op op, const hy_tensor* a, double value);
hy_tensor hy__task_not(hy__task* task, const hy_tensor* t);
hy_tensor hy__task_softmax(hy__task* task, hy_op op, const hy_tensor* t);  // of the last dimension
hy_tensor hy__task_bmm(hy__task* task, const hy_tensor* a, const hy_tensor* b);
// Over the last dimension, or the first, which is kept with size 1.
hy_tensor hy__task_row_sum(hy__task* task, const hy_tensor* t);
hy_tensor hy__task_row_max(hy__task* task, const hy_tensor* t);
hy_tensor hy__task_column_sum(hy__task* task, const hy_tensor* t);

// ---- Views ----

hy_tensor hy__view(const hy_tensor* t, int ndim, const int64_t* shape);  // of a contiguous one
hy_tensor hy__permuted(const hy_tensor* t, const int* dims);
hy_tensor hy__transposed(const hy_tensor* t);  // the last two
hy_tensor hy__slice(const hy_tensor* t, int dim, int64_t start, int64_t size);
// src in the shape of dst, to which it broadcasts.
hy_tensor hy__widened(const hy_tensor* src, const hy_tensor* dst);

// ---- Indices ----

// Remembers that indices out of range were used where a byte of `bad` (bool, any shape) is true:
// the stream's error is then HY_INDEX.
void hy__task_check(hy__task* task, const hy_tensor* bad);
// Indices of the backend's own type within [0, size), those outside checked; negative ones count
// from the end where `wraps` is set.
hy_tensor hy__task_indices(hy__task* task, const hy_tensor* index, int64_t size, bool wraps);

#endif  // HALYARD_COMMON_TASK_H_
