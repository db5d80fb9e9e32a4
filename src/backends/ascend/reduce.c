// Reductions, scans, sorting and softmax of the ascend backend.
#include "backends/ascend/ascend.h"

// aclnn has no dimension to name in a tensor that has none.
static hy_tensor at_least_1d(const hy_tensor* t) {
  if (t->ndim > 0 || t->dtype == HY_NONE) return *t;
  return hy__view(t, 1, (const int64_t[]){1});
}

static int64_t wrapped(int64_t dim, const hy_tensor* t) {
  return dim < 0 ? dim + (t->ndim > 0 ? t->ndim : 1) : dim;
}

// The sum, mean, any and all of nothing.
static double of_nothing(hy_op op) {
  return op == HY_OP_mean ? __builtin_nan("") : op == HY_OP_all ? 1 : 0;
}

hy_support hy__ascend_reduce(hy__task* task, const hy_call* call) {
  const hy_tensor x = at_least_1d(&call->in[0]), *out = &call->out[0];
  hy_attrs_reduce a = call->attrs.reduce;
  bool truth = call->op == HY_OP_any || call->op == HY_OP_all;
  TASK_NEED(hy__is_half_or_f32(&x) || (truth && x.dtype == HY_BOOL), NO_DTYPE);
  TASK_NEED(out->dtype == (truth ? HY_BOOL : x.dtype), NO_DTYPE);
  if (hy_tensor_numel(&x) == 0) {
    double value = of_nothing(call->op);
    hy__task_fill(task, out, truth ? hy_bool(value != 0) : hy_float(value));
    return task->answer;
  }
  int64_t dims[HY_MAX_DIMS];
  int n = a.dims.n ? (int)a.dims.n : x.ndim;
  for (int i = 0; i < n; i++) dims[i] = a.dims.n ? wrapped(a.dims.dim[i], &x) : i;
  bool keep = a.keepdim && call->in[0].ndim > 0;
  int type = hy__ascend_dtype(out->dtype);
#define RUN(name)                                                                            \
  ASCEND_RUN(task, name, ASCEND_T(&x), hy__ascend_ints(task, dims, n), keep, ASCEND_T(out)); \
  break
#define RUN_TYPED(name)                                                                            \
  ASCEND_RUN(task, name, ASCEND_T(&x), hy__ascend_ints(task, dims, n), keep, type, ASCEND_T(out)); \
  break
  switch (call->op) {
    case HY_OP_sum: RUN_TYPED(ReduceSum);
    case HY_OP_mean: RUN_TYPED(Mean);
    case HY_OP_max: RUN(Amax);
    case HY_OP_min: RUN(Amin);
    case HY_OP_any: RUN(Any);
    default: RUN(All);
  }
#undef RUN
#undef RUN_TYPED
  return task->answer;
}

// argmax and its like: over one dimension, or over all as one.
hy_support hy__ascend_arg(hy__task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]);
  hy_tensor out = call->out[0], index = call->n_out > 1 ? call->out[1] : hy_tensor_absent();
  hy_attrs_reduce a = call->attrs.reduce;
  bool pair = call->op == HY_OP_max_dim || call->op == HY_OP_min_dim;
  TASK_NEED(hy__is_half_or_f32(&x) && (!pair || out.dtype == x.dtype), NO_DTYPE);
  bool keep = a.keepdim && call->in[0].ndim > 0;
  int64_t dim = a.dims.n ? wrapped(a.dims.dim[0], &x) : 0;
  if (a.dims.n == 0 && x.ndim > 1) {
    TASK_NEED(!pair, NO_ATTRIBUTE);
    x = hy__task_contiguous(task, &x, x.dtype);
    const int64_t all = hy_tensor_numel(&x);
    x = hy__view(&x, 1, &all);
    out = hy__view(&out, 0, NULL);
    keep = false;
  }
  switch (call->op) {
    case HY_OP_argmax: ASCEND_RUN(task, ArgMax, ASCEND_T(&x), dim, keep, ASCEND_T(&out)); break;
    case HY_OP_argmin: ASCEND_RUN(task, ArgMin, ASCEND_T(&x), dim, keep, ASCEND_T(&out)); break;
    case HY_OP_max_dim:
      ASCEND_RUN(task, MaxDim, ASCEND_T(&x), dim, keep, ASCEND_T(&out), ASCEND_T(&index));
      break;
    default: ASCEND_RUN(task, MinDim, ASCEND_T(&x), dim, keep, ASCEND_T(&out), ASCEND_T(&index));
  }
  return task->answer;
}

hy_support hy__ascend_cumsum(hy__task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]), out = at_least_1d(&call->out[0]);
  hy_attrs_scan a = call->attrs.scan;
  TASK_NEED(hy__is_half_or_f32(&x) && out.dtype == x.dtype, NO_DTYPE);
  ASCEND_RUN(task, CumsumV2, ASCEND_T(&x), wrapped(a.dim, &x), false, a.reverse, ASCEND_T(&out));
  return task->answer;
}

hy_support hy__ascend_sort(hy__task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]);
  hy_tensor out = at_least_1d(&call->out[0]), index = at_least_1d(&call->out[1]);
  hy_attrs_sort a = call->attrs.sort;
  TASK_NEED(hy__is_half_or_f32(&x) && out.dtype == x.dtype, NO_DTYPE);
  ASCEND_RUN(task, Sort, ASCEND_T(&x), true, wrapped(a.dim, &x), a.descending, ASCEND_T(&out),
             ASCEND_T(&index));
  return task->answer;
}

hy_support hy__ascend_topk(hy__task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]);
  hy_tensor out = at_least_1d(&call->out[0]), index = at_least_1d(&call->out[1]);
  hy_attrs_topk a = call->attrs.topk;
  TASK_NEED(hy__is_half_or_f32(&x) && out.dtype == x.dtype, NO_DTYPE);
  if (call->in[0].ndim == 0) a.k = 1;  // a number is its own first
  ASCEND_RUN(task, Topk, ASCEND_T(&x), a.k, wrapped(a.dim, &x), a.largest, a.sorted, ASCEND_T(&out),
             ASCEND_T(&index));
  return task->answer;
}

hy_support hy__ascend_softmax(hy__task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]), out = at_least_1d(&call->out[0]);
  hy_tensor y = call->n_in > 1 ? at_least_1d(&call->in[1]) : hy_tensor_absent();
  int64_t dim = wrapped(call->attrs.dim.dim, &x);
  TASK_NEED(hy__is_half_or_f32(&x) && hy__same_types(call), NO_DTYPE);
  switch (call->op) {
    case HY_OP_softmax: ASCEND_RUN(task, Softmax, ASCEND_T(&x), dim, ASCEND_T(&out)); break;
    case HY_OP_log_softmax: ASCEND_RUN(task, LogSoftmax, ASCEND_T(&x), dim, ASCEND_T(&out)); break;
    case HY_OP_softmax_backward:
      ASCEND_RUN(task, SoftmaxBackward, ASCEND_T(&x), ASCEND_T(&y), dim, ASCEND_T(&out));
      break;
    default: ASCEND_RUN(task, LogSoftmaxBackward, ASCEND_T(&x), ASCEND_T(&y), dim, ASCEND_T(&out));
  }
  return task->answer;
}
