// Shapes and types of the elementwise ops.
#include "ops/rules/common.h"
#include "ops/rules/promote.h"

// ---- shapes ----

// Broadcasts the shapes of n tensors, absent ones left out, into out[0].
static hy_status broadcast(const hy_call* call, const hy_tensor* tensors, int n, hy_tensor* out) {
  int ndim = 0;
  for (int i = 0; i < n; i++) {
    if (hy__present(&tensors[i]) && tensors[i].ndim > ndim) ndim = tensors[i].ndim;
  }
  out->ndim = ndim;
  for (int d = 0; d < ndim; d++) out->shape[d] = 1;
  for (int i = 0; i < n; i++) {
    if (!hy__present(&tensors[i])) continue;
    int lead = ndim - tensors[i].ndim;
    for (int d = lead; d < ndim; d++) {
      int64_t size = tensors[i].shape[d - lead];
      if (size == out->shape[d] || size == 1) continue;
      if (out->shape[d] != 1)
        return hy__call_fail(call, HY_SHAPE,
                             "sizes %lld and %lld of dimension %d differ and neither is 1",
                             (long long)out->shape[d], (long long)size, d);
      out->shape[d] = size;
    }
  }
  return HY_OK;
}

hy_status hy__shape_broadcast(const hy_call* call, hy_tensor* out) {
  return broadcast(call, call->in, call->n_in, out);
}

// The result has the first input's shape; the others broadcast to it.
hy_status hy__shape_broadcast_first(const hy_call* call, hy_tensor* out) {
  HY_TRY(broadcast(call, call->in, call->n_in, out));
  if (!hy__same_shape(out, &call->in[0]))
    return hy__call_fail(call, HY_SHAPE,
                         "the second input must broadcast to the shape of the first");
  return HY_OK;
}

hy_status hy__shape_matrix(const hy_call* call, hy_tensor* out) {
  if (call->in[0].ndim < 2)
    return hy__call_fail(call, HY_SHAPE, "at least 2 dimensions are needed");
  return broadcast(call, call->in, 1, out);
}

// Ops that create from nothing take the shape they are given.
hy_status hy__shape_output(const hy_call* call, hy_tensor* out) {
  if (!call->out)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the output is NULL", hy_op_name(call->op));
  return broadcast(call, call->out, 1, out);
}

hy_status hy__shape_vector(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__shape_output(call, out));
  if (out->ndim != 1)
    return hy__call_fail(call, HY_SHAPE, "the output has 1 dimension, not %d", out->ndim);
  return HY_OK;
}

// ---- types ----

hy_status hy__dtype_same(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}

hy_status hy__dtype_cast(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  hy_dtype to = call->attrs.cast.dtype;
  if (to <= HY_NONE || to >= HY_DTYPE_COUNT || to == HY_I4)
    return hy__call_fail(call, HY_DTYPE, "there is no cast to %s", hy_dtype_name(to));
  out->dtype = to;
  return HY_OK;
}

hy_status hy__dtype_float(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out->dtype = hy__to_float(call->in[0].dtype);
  return HY_OK;
}

hy_status hy__dtype_bool(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out->dtype = HY_BOOL;
  return HY_OK;
}

hy_status hy__dtype_promote(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, call->n_in));
  out->dtype = hy__compute_dtype(call);
  return HY_OK;
}

hy_status hy__dtype_compare(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, call->n_in));
  out->dtype = HY_BOOL;
  return HY_OK;
}

// All inputs have one type.
hy_status hy__dtype_alike(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, call->n_in));
  for (int i = 1; i < call->n_in; i++) {
    if (hy__present(&call->in[i]) && call->in[i].dtype != call->in[0].dtype)
      return hy__call_fail(call, HY_DTYPE,
                           "the inputs have the types %s and %s; one type is needed",
                           hy_dtype_name(call->in[0].dtype), hy_dtype_name(call->in[i].dtype));
  }
  int n = hy_op_describe(call->op)->n_outputs;
  for (int i = 0; i < n; i++) out[i].dtype = call->in[0].dtype;
  return HY_OK;
}

hy_status hy__dtype_where(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  HY_TRY(hy__check_dtypes_among(call, 1, 3, HY_ALL_DTYPES));
  out->dtype = hy__promote_tensors(call->in + 1, 2);
  return HY_OK;
}

hy_status hy__dtype_masked(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  if (call->in[1].dtype != HY_BOOL)
    return hy__call_fail(call, HY_DTYPE, "the mask is bool, not %s",
                         hy_dtype_name(call->in[1].dtype));
  hy_dtype promoted = hy__promote_scalar(call->in[0].dtype, call->attrs.value.value);
  if (!hy__can_cast(promoted, call->in[0].dtype))
    return hy__call_fail(call, HY_DTYPE, "the value cannot be stored in %s",
                         hy_dtype_name(call->in[0].dtype));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}

hy_status hy__dtype_output(const hy_call* call, hy_tensor* out) {
  if (!call->out)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the output is NULL", hy_op_name(call->op));
  hy_dtype dtype = call->out[0].dtype;
  if (dtype <= HY_NONE || dtype >= HY_DTYPE_COUNT ||
      !(hy_op_describe(call->op)->dtypes & HY_DTYPE_BIT(dtype)))
    return hy__call_fail(call, HY_DTYPE, "%s is not a type this op makes", hy_dtype_name(dtype));
  out->dtype = dtype;
  return HY_OK;
}
