// Shapes and types of reductions, scans and sorts.
#include "ops/rules/common.h"

// ---- shapes ----

static void drop_dims(const hy_tensor* x, uint32_t mask, bool keepdim, hy_tensor* out) {
  out->ndim = 0;
  for (int d = 0; d < x->ndim; d++) {
    bool reduced = mask >> d & 1;
    if (!reduced || keepdim) out->shape[out->ndim++] = reduced ? 1 : x->shape[d];
  }
}

// `var` begins with the same two attributes.
hy_status hy__shape_reduce(const hy_call* call, hy_tensor* out) {
  uint32_t mask;
  HY_TRY(hy__dims_mask(call, &call->attrs.reduce.dims, call->in[0].ndim, &mask));
  drop_dims(&call->in[0], mask, call->attrs.reduce.keepdim, out);
  return HY_OK;
}

// A maximum over no elements has no value.
hy_status hy__shape_reduce_nonempty(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  uint32_t mask;
  HY_TRY(hy__dims_mask(call, &call->attrs.reduce.dims, x->ndim, &mask));
  for (int d = 0; d < x->ndim; d++) {
    if ((mask >> d & 1) && x->shape[d] == 0)
      return hy__call_fail(call, HY_SHAPE, "dimension %d is reduced and has no elements", d);
  }
  drop_dims(x, mask, call->attrs.reduce.keepdim, out);
  return HY_OK;
}

// One dimension; argmax and argmin also take none, for an index into the flattened tensor.
hy_status hy__shape_reduce_one(const hy_call* call, hy_tensor* out) {
  bool may_flatten = call->op == HY_OP_argmax || call->op == HY_OP_argmin;
  int64_t n = call->attrs.reduce.dims.n;
  if (n != 1 && !(n == 0 && may_flatten))
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "exactly one dimension is reduced, not %lld",
                         (long long)n);
  HY_TRY(hy__shape_reduce_nonempty(call, &out[0]));
  if (!may_flatten) hy__copy_shape(&out[1], &out[0]);
  return HY_OK;
}

hy_status hy__shape_along(const hy_call* call, hy_tensor* out) {
  int dim;
  HY_TRY(hy__one_dim(call, call->attrs.dim.dim, call->in[0].ndim, &dim));
  hy__copy_shape(out, &call->in[0]);
  return HY_OK;
}

hy_status hy__shape_along_alike(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__need_shape(call, 1, call->in[0].ndim, call->in[0].shape));
  return hy__shape_along(call, out);
}

hy_status hy__shape_sort(const hy_call* call, hy_tensor* out) {
  int dim;
  HY_TRY(hy__one_dim(call, call->attrs.sort.dim, call->in[0].ndim, &dim));
  for (int i = 0; i < 2; i++) hy__copy_shape(&out[i], &call->in[0]);
  return HY_OK;
}

hy_status hy__shape_topk(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  int64_t k = call->attrs.topk.k;
  int dim;
  HY_TRY(hy__one_dim(call, call->attrs.topk.dim, x->ndim, &dim));
  int64_t size = x->ndim > 0 ? x->shape[dim] : 1;
  if (k < 0 || k > size)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "k is %lld and dimension %d has %lld elements",
                         (long long)k, dim, (long long)size);
  for (int i = 0; i < 2; i++) {
    hy__copy_shape(&out[i], x);
    if (x->ndim > 0) out[i].shape[dim] = k;
  }
  return HY_OK;
}

// ---- types ----

// Integers and bool accumulate in i64.
hy_status hy__dtype_accumulate(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  hy_dtype dtype = call->in[0].dtype;
  out->dtype = hy_dtype_is_float(dtype) ? dtype : HY_I64;
  return HY_OK;
}

// PyTorch answers u8 for u8, from the time before it had bool.
hy_status hy__dtype_truth(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out->dtype = call->in[0].dtype == HY_U8 ? HY_U8 : HY_BOOL;
  return HY_OK;
}

hy_status hy__dtype_index(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out->dtype = HY_I64;
  return HY_OK;
}

hy_status hy__dtype_same_index(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out[0].dtype = call->in[0].dtype;
  out[1].dtype = HY_I64;
  return HY_OK;
}
