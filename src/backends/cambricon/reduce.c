// Reductions, scans, sorting and softmax of the cambricon backend.
#include <string.h>

#include "backends/cambricon/cambricon.h"

// CNNL has no dimension to name in a tensor that has none.
static hy_tensor at_least_1d(const hy_tensor* t) {
  if (t->ndim > 0 || t->dtype == HY_NONE) return *t;
  return hy__view(t, 1, (const int64_t[]){1});
}

static int reduce_of(hy_op op) {
  switch (op) {
    case HY_OP_sum: return CNNL_E(CNNL_REDUCE_ADD);
    case HY_OP_mean: return CNNL_E(CNNL_REDUCE_AVG);
    case HY_OP_max:
    case HY_OP_argmax:
    case HY_OP_max_dim: return CNNL_E(CNNL_REDUCE_MAX);
    case HY_OP_any: return CNNL_E(CNNL_REDUCE_OR);
    case HY_OP_all: return CNNL_E(CNNL_REDUCE_AND);
    default: return CNNL_E(CNNL_REDUCE_MIN);
  }
}

// Over `dims` of x, which out keeps with size 1; with the index of each result where `index` is not
// NULL, i32.
static void run_reduce(hy__task* task, hy_op op, const hy_tensor* x, int n, int* dims,
                       const hy_tensor* out, const hy_tensor* index) {
  const hy_tensor places = index ? *index : hy_tensor_absent();
  void* d = hy__cambricon_keep(task, "cnnlCreateReduceDescriptor", hy__cnnl.CreateReduceDescriptor,
                               hy__cnnl.DestroyReduceDescriptor);
  if (d)
    hy__cambricon_done(
        task, "cnnlSetReduceDescriptor_v2",
        hy__cnnl.SetReduceDescriptor_v2(
            d, dims, n, reduce_of(op), hy__cambricon_dtype(x->dtype), CNNL_E(CNNL_PROPAGATE_NAN),
            index ? CNNL_E(CNNL_REDUCE_FLATTENED_INDICES) : CNNL_E(CNNL_REDUCE_NO_INDICES),
            CNNL_E(CNNL_32BIT_INDICES), 0));
  size_t bytes = index ? hy_tensor_bytes(index) : 0;
  CNNL_PLAN(task, GetReduceOpWorkspaceSize, CNNL_D(x), CNNL_D(out), d);
  CNNL_RUN(task, Reduce, d, CNNL_WORKSPACE, NULL, CNNL_T(x), bytes, places.data, NULL, CNNL_T(out));
}

static void kept_shape(const hy_tensor* x, int n, const int* dims, int64_t* shape) {
  memcpy(shape, x->shape, sizeof x->shape);
  for (int i = 0; i < n; i++) shape[dims[i]] = 1;
}

hy_support hy__cambricon_reduce(hy__task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_tensor x = at_least_1d(&call->in[0]);
  hy_attrs_reduce a = call->attrs.reduce;
  bool truth = call->op == HY_OP_any || call->op == HY_OP_all;
  TASK_NEED(hy__is_half_or_f32(&x) || (truth && x.dtype == HY_BOOL), NO_DTYPE);
  TASK_NEED(out->dtype == (truth ? HY_BOOL : x.dtype), NO_DTYPE);
  if (hy_tensor_numel(&x) == 0) {  // the sum, mean, any and all of nothing
    hy__task_fill(task, out,
                  truth ? hy_bool(call->op == HY_OP_all)
                        : hy_float(call->op == HY_OP_mean ? __builtin_nan("") : 0));
    return task->answer;
  }
  int dims[HY_MAX_DIMS], n = a.dims.n ? (int)a.dims.n : x.ndim;
  for (int i = 0; i < n; i++) dims[i] = a.dims.n ? (int)hy__wrapped_dim(a.dims.dim[i], x.ndim) : i;
  x = hy__task_contiguous(task, &x, x.dtype);
  if (truth && x.dtype != HY_BOOL) x = hy__task_compare_to(task, HY_OP_ne_scalar, &x, 0);
  int64_t shape[HY_MAX_DIMS];
  kept_shape(&x, n, dims, shape);
  hy_tensor y = CNNL_OUT(0), kept = hy__view(&y, x.ndim, shape);
  run_reduce(task, call->op, &x, n, dims, &kept, NULL);
  CNNL_GIVE(0, y);
  return task->answer;
}

// argmax and its like: over one dimension, or over all as one.
hy_support hy__cambricon_arg(hy__task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]);
  hy_attrs_reduce a = call->attrs.reduce;
  bool pair = call->op == HY_OP_max_dim || call->op == HY_OP_min_dim;
  const hy_tensor *out = pair ? &call->out[0] : NULL, *index = &call->out[pair ? 1 : 0];
  TASK_NEED(hy__is_half_or_f32(&x) && (!pair || out->dtype == x.dtype), NO_DTYPE);
  TASK_NEED(index->dtype == HY_I64, NO_DTYPE);
  TASK_NEED(hy_tensor_numel(&x) > 0 && hy_tensor_numel(&x) < INT32_MAX, NO_SHAPE);
  x = hy__task_contiguous(task, &x, x.dtype);
  if (a.dims.n == 0) {
    const int64_t all = hy_tensor_numel(&x);
    x = hy__view(&x, 1, &all);
  }
  int dim = a.dims.n ? (int)hy__wrapped_dim(a.dims.dim[0], x.ndim) : 0;
  int64_t shape[HY_MAX_DIMS];
  kept_shape(&x, 1, &dim, shape);
  hy_tensor values = hy__task_temporary(task, x.dtype, x.ndim, shape);
  hy_tensor places = hy__task_temporary(task, HY_I32, x.ndim, shape);
  run_reduce(task, call->op, &x, 1, &dim, &values, &places);
  places = hy__view(&places, index->ndim, index->shape);
  hy__task_copy(task, index, &places);
  if (!pair) return task->answer;
  values = hy__view(&values, out->ndim, out->shape);
  hy__task_copy(task, out, &values);
  return task->answer;
}

static hy_tensor flipped(hy__task* task, const hy_tensor* t, int dim) {
  hy_tensor back = hy__task_temporary(task, t->dtype, t->ndim, t->shape);
  CNNL_RUN(task, Flip, &dim, 1, CNNL_T(t), CNNL_T(&back));
  return back;
}

// In f32: CNNL sums halves in halves.
hy_support hy__cambricon_cumsum(hy__task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_tensor x = at_least_1d(&call->in[0]);
  int dim = (int)hy__wrapped_dim(call->attrs.scan.dim, x.ndim);
  TASK_NEED(hy__is_half_or_f32(&x) && out->dtype == x.dtype, NO_DTYPE);
  x = hy__task_contiguous(task, &x, HY_F32);
  if (call->attrs.scan.reverse) x = flipped(task, &x, dim);
  hy_tensor sum = hy__task_temporary(task, HY_F32, x.ndim, x.shape);
  CNNL_PLAN(task, GetCumsumWorkspaceSize, CNNL_D(&x), dim);
  CNNL_RUN(task, Cumsum_v2, CNNL_T(&x), dim, false, false, CNNL_E(CNNL_PROPAGATE_NAN), CNNL_T(&sum),
           CNNL_WORKSPACE);
  if (call->attrs.scan.reverse) sum = flipped(task, &sum, dim);
  sum = hy__view(&sum, out->ndim, out->shape);
  hy__task_copy(task, out, &sum);
  return task->answer;
}

// A sort is the top-k of all, equal ones as they stood.
hy_support hy__cambricon_topk(hy__task* task, const hy_call* call) {
  const hy_tensor *out = &call->out[0], *index = &call->out[1];
  hy_tensor x = at_least_1d(&call->in[0]);
  bool sort = call->op == HY_OP_sort;
  int dim = (int)hy__wrapped_dim(sort ? call->attrs.sort.dim : call->attrs.topk.dim, x.ndim);
  TASK_NEED(hy__is_half_or_f32(&x) && out->dtype == x.dtype, NO_DTYPE);
  TASK_NEED(hy_tensor_numel(&x) > 0 && hy_tensor_numel(out) > 0, NO_SHAPE);
  bool largest = sort ? call->attrs.sort.descending : call->attrs.topk.largest;
  hy_tensor to = at_least_1d(out);
  int k = (int)to.shape[dim];
  x = hy__task_contiguous(task, &x, x.dtype);
  hy_tensor values = hy__task_temporary(task, x.dtype, to.ndim, to.shape);
  hy_tensor places = hy__task_temporary(task, HY_I32, to.ndim, to.shape);
  CNNL_PLAN(task, GetTopKTensorWorkspaceSize, CNNL_D(&x), k, dim, largest, CNNL_D(&values),
            CNNL_D(&places));
  CNNL_RUN(task, TopKTensor_v3, CNNL_T(&x), k, dim, largest, sort || call->attrs.topk.sorted, true,
           CNNL_WORKSPACE, CNNL_T(&values), CNNL_T(&places));
  values = hy__view(&values, out->ndim, out->shape);
  places = hy__view(&places, index->ndim, index->shape);
  hy__task_copy(task, out, &values);
  hy__task_copy(task, index, &places);
  return task->answer;
}

// The dimension moved to the end, as [1, rows, n].
static hy_tensor dim_last(hy__task* task, const hy_tensor* t, int dim, int64_t* shape) {
  int dims[HY_MAX_DIMS], n = 0;
  for (int d = 0; d < t->ndim; d++)
    if (d != dim) dims[n++] = d;
  dims[n] = dim;
  hy_tensor moved = hy__permuted(t, dims);
  memcpy(shape, moved.shape, sizeof moved.shape);
  moved = hy__task_contiguous(task, &moved, t->dtype);
  int64_t last = t->shape[dim];
  return hy__view(&moved, 3, (const int64_t[]){1, hy_tensor_numel(t) / last, last});
}

hy_support hy__cambricon_softmax(hy__task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]), out = at_least_1d(&call->out[0]);
  int dim = (int)hy__wrapped_dim(call->attrs.dim.dim, x.ndim);
  bool backward = call->op == HY_OP_softmax_backward || call->op == HY_OP_log_softmax_backward;
  bool log = call->op == HY_OP_log_softmax || call->op == HY_OP_log_softmax_backward;
  TASK_NEED(hy__is_half_or_f32(&x) && hy__same_types(call), NO_DTYPE);
  CNNL_KNOWN(CNNL_SOFTMAX_ACCURATE);
  CNNL_KNOWN(CNNL_SOFTMAX_LOG);
  CNNL_KNOWN(CNNL_SOFTMAX_MODE_LOW_DIMENSION);
  if (hy_tensor_numel(&x) == 0) return task->answer;
  int algorithm = log ? CNNL_E(CNNL_SOFTMAX_LOG) : CNNL_E(CNNL_SOFTMAX_ACCURATE);
  int mode = CNNL_E(CNNL_SOFTMAX_MODE_LOW_DIMENSION);
  int64_t shape[HY_MAX_DIMS];
  hy_tensor rows = dim_last(task, &x, dim, shape);
  hy_tensor result = hy__task_temporary(task, x.dtype, 3, rows.shape);
  if (backward) {
    hy_tensor whole = at_least_1d(&call->in[1]), y = dim_last(task, &whole, dim, shape);
    CNNL_RUN(task, SoftmaxBackward, algorithm, mode, NULL, CNNL_T(&y), CNNL_T(&rows), NULL,
             CNNL_T(&result));
  } else {
    CNNL_RUN(task, SoftmaxForward, algorithm, mode, NULL, CNNL_T(&rows), NULL, CNNL_T(&result));
  }
  result = hy__view(&result, x.ndim, shape);
  // Back to where the dimension was.
  int dims[HY_MAX_DIMS];
  for (int d = 0; d < x.ndim; d++) dims[d] = d < dim ? d : d == dim ? x.ndim - 1 : d - 1;
  result = hy__permuted(&result, dims);
  hy__task_copy(task, &out, &result);
  return task->answer;
}
