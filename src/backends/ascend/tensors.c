// Formulas over tensors, of aclnn ops: what families whose op the vendor lacks are written in.
#include <string.h>

#include "backends/ascend/ascend.h"

static hy_tensor contiguous_view(void* data, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor t = {.data = data, .dtype = dtype, .ndim = ndim};
  int64_t stride = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    t.shape[d] = shape[d];
    t.stride[d] = stride;
    stride *= shape[d];
  }
  return t;
}

hy_tensor hy__ascend_temporary(hy__ascend_task* task, hy_dtype dtype, int ndim,
                               const int64_t* shape) {
  hy_tensor t = contiguous_view(NULL, dtype, ndim, shape);
  if (!task->stream || task->status != HY_OK) return t;
  int error = 0;
  t.data = hy__ascend_arena_take(&task->stream->arena, hy_tensor_bytes(&t) + 1, &error);
  if (error) task->status = hy__ascend_fail(error, "memory for a temporary tensor");
  return t;
}

bool hy__ascend_same_types(const hy_call* call) {
  hy_dtype dtype = HY_NONE;
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const hy_tensor* t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    if (t->dtype == HY_NONE) continue;
    if (dtype != HY_NONE && t->dtype != dtype) return false;
    dtype = t->dtype;
  }
  return true;
}

void hy__ascend_copy(hy__ascend_task* task, const hy_tensor* dst, const hy_tensor* src) {
  bool same_shape = dst->ndim == src->ndim;
  for (int d = 0; same_shape && d < dst->ndim; d++) same_shape = dst->shape[d] == src->shape[d];
  if (hy_tensor_numel(dst) == 0) return;
  if (dst->dtype != src->dtype && same_shape)
    ASCEND_RUN(task, Cast, ASCEND_T(src), hy__ascend_dtype(dst->dtype), ASCEND_T(dst));
  else
    ASCEND_RUN(task, InplaceCopy, ASCEND_T(dst), ASCEND_T(src));
}

hy_tensor hy__ascend_as(hy__ascend_task* task, const hy_tensor* t, hy_dtype dtype) {
  if (t->dtype == dtype) return *t;
  hy_tensor copy = hy__ascend_temporary(task, dtype, t->ndim, t->shape);
  hy__ascend_copy(task, &copy, t);
  return copy;
}

hy_tensor hy__ascend_contiguous(hy__ascend_task* task, const hy_tensor* t, hy_dtype dtype) {
  if (t->dtype == dtype && hy_tensor_is_contiguous(t))
    return contiguous_view(t->data, t->dtype, t->ndim, t->shape);
  hy_tensor copy = hy__ascend_temporary(task, dtype, t->ndim, t->shape);
  hy__ascend_copy(task, &copy, t);
  return copy;
}

void hy__ascend_fill(hy__ascend_task* task, const hy_tensor* t, hy_scalar value) {
  if (hy_tensor_numel(t) > 0)
    ASCEND_RUN(task, InplaceFillScalar, ASCEND_T(t), hy__ascend_scalar(task, value));
}

hy_tensor hy__ascend_filled(hy__ascend_task* task, hy_dtype dtype, int ndim, const int64_t* shape,
                            double value) {
  hy_tensor t = hy__ascend_temporary(task, dtype, ndim, shape);
  hy__ascend_fill(task, &t, hy_float(value));
  return t;
}

hy_tensor hy__ascend_range(hy__ascend_task* task, hy_dtype dtype, int64_t n) {
  hy_tensor t = hy__ascend_temporary(task, dtype, 1, &n);
  ASCEND_RUN(task, Arange, ASCEND_I(0), ASCEND_I(n), ASCEND_I(1), ASCEND_T(&t));
  return t;
}

// ---- Elementwise ----

// A new tensor of the shape that both broadcast to, which they do.
static hy_tensor broadcast(hy__ascend_task* task, hy_dtype dtype, const hy_tensor* a,
                           const hy_tensor* b) {
  int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < ndim; d++) {
    int da = d - (ndim - a->ndim), db = d - (ndim - b->ndim);
    int64_t na = da < 0 ? 1 : a->shape[da], nb = db < 0 ? 1 : b->shape[db];
    shape[d] = na == 1 ? nb : na;
  }
  return hy__ascend_temporary(task, dtype, ndim, shape);
}

hy_tensor hy__ascend_binary(hy__ascend_task* task, hy__ascend_formula f, const hy_tensor* a,
                            const hy_tensor* b) {
  hy_tensor out = broadcast(task, a->dtype, a, b);
  if (hy_tensor_numel(&out) == 0) return out;
  switch (f) {
    case ASCEND_ADD:
      ASCEND_RUN(task, Add, ASCEND_T(a), ASCEND_T(b), ASCEND_I(1), ASCEND_T(&out));
      break;
    case ASCEND_SUB:
      ASCEND_RUN(task, Sub, ASCEND_T(a), ASCEND_T(b), ASCEND_I(1), ASCEND_T(&out));
      break;
    case ASCEND_MUL: ASCEND_RUN(task, Mul, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out)); break;
    case ASCEND_DIV: ASCEND_RUN(task, Div, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out)); break;
  }
  return out;
}

hy_tensor hy__ascend_compare(hy__ascend_task* task, hy__ascend_test test, const hy_tensor* a,
                             const hy_tensor* b) {
  hy_tensor out = broadcast(task, HY_BOOL, a, b);
  if (hy_tensor_numel(&out) == 0) return out;
  switch (test) {
    case ASCEND_EQ: ASCEND_RUN(task, EqTensor, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out)); break;
    case ASCEND_NE: ASCEND_RUN(task, NeTensor, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out)); break;
    case ASCEND_LT: ASCEND_RUN(task, LtTensor, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out)); break;
    case ASCEND_LE: ASCEND_RUN(task, LeTensor, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out)); break;
    case ASCEND_GE: ASCEND_RUN(task, GeTensor, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out)); break;
    case ASCEND_AND: ASCEND_RUN(task, LogicalAnd, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out)); break;
    case ASCEND_OR: ASCEND_RUN(task, LogicalOr, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out)); break;
  }
  return out;
}

hy_tensor hy__ascend_compare_to(hy__ascend_task* task, hy__ascend_test test, const hy_tensor* a,
                                double value) {
  hy_tensor out = hy__ascend_temporary(task, HY_BOOL, a->ndim, a->shape);
  if (hy_tensor_numel(&out) == 0) return out;
  hy_scalar v = hy_dtype_is_int(a->dtype) ? hy_int((int64_t)value) : hy_float(value);
#define AGAINST(name)                                                              \
  ASCEND_RUN(task, name, ASCEND_T(a), hy__ascend_scalar(task, v), ASCEND_T(&out)); \
  break
  switch (test) {
    case ASCEND_EQ: AGAINST(EqScalar);
    case ASCEND_NE: AGAINST(NeScalar);
    case ASCEND_LT: AGAINST(LtScalar);
    case ASCEND_LE: AGAINST(LeScalar);
    default: AGAINST(GeScalar);
  }
#undef AGAINST
  return out;
}

hy_tensor hy__ascend_not(hy__ascend_task* task, const hy_tensor* t) {
  hy_tensor out = hy__ascend_temporary(task, HY_BOOL, t->ndim, t->shape);
  if (hy_tensor_numel(t) > 0) ASCEND_RUN(task, LogicalNot, ASCEND_T(t), ASCEND_T(&out));
  return out;
}

void hy__ascend_masked_fill(hy__ascend_task* task, const hy_tensor* t, const hy_tensor* mask,
                            double value) {
  hy_scalar v = hy_dtype_is_int(t->dtype) ? hy_int((int64_t)value) : hy_float(value);
  if (hy_tensor_numel(t) > 0)
    ASCEND_RUN(task, InplaceMaskedFillScalar, ASCEND_T(t), ASCEND_T(mask),
               hy__ascend_scalar(task, v));
}

void hy__ascend_scale(hy__ascend_task* task, const hy_tensor* t, double factor) {
  if (hy_tensor_numel(t) > 0) ASCEND_RUN(task, Muls, ASCEND_T(t), ASCEND_F(factor), ASCEND_T(t));
}

// ---- Rows ----

static hy_tensor row_result(hy__ascend_task* task, const hy_tensor* t) {
  int64_t shape[HY_MAX_DIMS];
  memcpy(shape, t->shape, sizeof shape);
  shape[t->ndim - 1] = 1;
  return hy__ascend_temporary(task, t->dtype, t->ndim, shape);
}

hy_tensor hy__ascend_row_sum(hy__ascend_task* task, const hy_tensor* t) {
  const int64_t last = t->ndim - 1;
  hy_tensor out = row_result(task, t);
  if (hy_tensor_numel(t) == 0)
    hy__ascend_fill(task, &out, hy_float(0));
  else
    ASCEND_RUN(task, ReduceSum, ASCEND_T(t), hy__ascend_ints(task, &last, 1), true,
               hy__ascend_dtype(t->dtype), ASCEND_T(&out));
  return out;
}

hy_tensor hy__ascend_row_max(hy__ascend_task* task, const hy_tensor* t) {
  const int64_t last = t->ndim - 1;
  hy_tensor out = row_result(task, t);
  ASCEND_RUN(task, Amax, ASCEND_T(t), hy__ascend_ints(task, &last, 1), true, ASCEND_T(&out));
  return out;
}

// ---- Views ----

hy_tensor hy__ascend_view(const hy_tensor* t, int ndim, const int64_t* shape) {
  return contiguous_view(t->data, t->dtype, ndim, shape);
}

hy_tensor hy__ascend_permuted(const hy_tensor* t, const int* dims) {
  hy_tensor view = *t;
  for (int d = 0; d < t->ndim; d++) {
    view.shape[d] = t->shape[dims[d]];
    view.stride[d] = t->stride[dims[d]];
  }
  return view;
}

hy_tensor hy__ascend_transposed(const hy_tensor* t) {
  hy_tensor view = *t;
  int a = t->ndim - 2, b = t->ndim - 1;
  view.shape[a] = t->shape[b];
  view.shape[b] = t->shape[a];
  view.stride[a] = t->stride[b];
  view.stride[b] = t->stride[a];
  return view;
}

hy_tensor hy__ascend_slice(const hy_tensor* t, int dim, int64_t start, int64_t size) {
  hy_tensor view = *t;
  view.shape[dim] = size;
  if (t->data)
    view.data = (char*)t->data + start * t->stride[dim] * (int64_t)hy_dtype_size(t->dtype);
  return view;
}

// ---- Checks of indices ----

void hy__ascend_check(hy__ascend_task* task, const hy_tensor* bad) {
  hy__ascend_stream* s = task->stream;
  int64_t dims[HY_MAX_DIMS];
  if (hy_tensor_numel(bad) == 0) return;
  for (int d = 0; d < bad->ndim; d++) dims[d] = d;
  hy_tensor answer = {.dtype = HY_BOOL};
  if (s && s->capturing)
    return;  // a graph has nobody to tell; its indices are clamped all the same
  if (s && task->status == HY_OK) {
    if (s->n_checks == HY__ASCEND_CHECKS) task->status = hy__ascend_stream_sync(s->device, s);
    answer.data = s->flags + s->n_checks;
    s->checked[s->n_checks] = task->op;
  }
  ASCEND_RUN(task, Any, ASCEND_T(bad), hy__ascend_ints(task, dims, bad->ndim), false,
             ASCEND_T(&answer));
  if (s && task->status == HY_OK) s->n_checks++;
}

hy_tensor hy__ascend_indices(hy__ascend_task* task, const hy_tensor* index, int64_t size,
                             bool wraps) {
  hy_tensor wide = hy__ascend_contiguous(task, index, HY_I64);
  if (hy_tensor_numel(&wide) == 0) return wide;
  if (wraps) {
    // x + size where x < 0
    hy_tensor below = hy__ascend_compare_to(task, ASCEND_LT, &wide, 0);
    hy_tensor up = hy__ascend_temporary(task, HY_I64, wide.ndim, wide.shape);
    hy_tensor wrapped = hy__ascend_temporary(task, HY_I64, wide.ndim, wide.shape);
    ASCEND_RUN(task, Adds, ASCEND_T(&wide), ASCEND_I(size), ASCEND_I(1), ASCEND_T(&up));
    ASCEND_RUN(task, SWhere, ASCEND_T(&below), ASCEND_T(&up), ASCEND_T(&wide), ASCEND_T(&wrapped));
    wide = wrapped;
  }
  hy_tensor inside = hy__ascend_temporary(task, HY_I64, wide.ndim, wide.shape);
  ASCEND_RUN(task, Clamp, ASCEND_T(&wide), ASCEND_I(0), ASCEND_I(size - 1), ASCEND_T(&inside));
  hy_tensor bad = hy__ascend_compare(task, ASCEND_NE, &inside, &wide);
  hy__ascend_check(task, &bad);
  return inside;
}
