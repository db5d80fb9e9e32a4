// Shapes and types of the normalisations.
#include "ops/rules/common.h"

// ---- shapes ----

// The trailing dimensions that a layer norm runs over, as a shape.
static hy_status normalized_shape(const hy_call* call, const hy_tensor* x, hy_tensor* shape) {
  int64_t n = call->attrs.norm.norm_dims;
  if (n < 1 || n > x->ndim)
    return hy__call_fail(call, HY_SHAPE, "norm_dims is %lld and x has %d dimensions", (long long)n,
                         x->ndim);
  shape->ndim = (int)n;
  for (int d = 0; d < n; d++) shape->shape[d] = x->shape[x->ndim - n + d];
  return HY_OK;
}

// One statistic for each slice: x's shape with the normalised dimensions of size 1.
static void statistic_shape(const hy_call* call, const hy_tensor* x, hy_tensor* out) {
  hy__copy_shape(out, x);
  for (int64_t d = x->ndim - call->attrs.norm.norm_dims; d < x->ndim; d++) out->shape[d] = 1;
}

hy_status hy__shape_layer_norm(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  hy_tensor shape;
  HY_TRY(normalized_shape(call, x, &shape));
  HY_TRY(hy__need_shape(call, 1, shape.ndim, shape.shape));
  HY_TRY(hy__need_shape(call, 2, shape.ndim, shape.shape));
  hy__copy_shape(&out[0], x);
  statistic_shape(call, x, &out[1]);
  statistic_shape(call, x, &out[2]);
  return HY_OK;
}

hy_status hy__shape_rms_norm(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  hy_tensor shape;
  HY_TRY(normalized_shape(call, x, &shape));
  HY_TRY(hy__need_shape(call, 1, shape.ndim, shape.shape));
  hy__copy_shape(&out[0], x);
  statistic_shape(call, x, &out[1]);
  return HY_OK;
}

hy_status hy__shape_layer_norm_backward(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[1];
  hy_tensor shape, statistic;
  HY_TRY(hy__need_shape(call, 0, x->ndim, x->shape));
  HY_TRY(normalized_shape(call, x, &shape));
  statistic_shape(call, x, &statistic);
  int weight = call->n_in - 1;
  for (int i = 2; i < weight; i++) HY_TRY(hy__need_shape(call, i, statistic.ndim, statistic.shape));
  HY_TRY(hy__need_shape(call, weight, shape.ndim, shape.shape));
  hy__copy_shape(&out[0], x);
  for (int i = 1; i < hy_op_describe(call->op)->n_outputs; i++) hy__copy_shape(&out[i], &shape);
  return HY_OK;
}

hy_status hy__shape_rms_norm_backward(const hy_call* call, hy_tensor* out) {
  return hy__shape_layer_norm_backward(call, out);
}

static hy_status expect_channels(const hy_call* call, const hy_tensor* x) {
  if (x->ndim < 2)
    return hy__call_fail(call, HY_SHAPE, "x is [N, C, ...], with at least 2 dimensions");
  return HY_OK;
}

static hy_status expect_samples(const hy_call* call, const hy_tensor* x) {
  if (x->shape[1] > 0 && hy_tensor_numel(x) == 0)
    return hy__call_fail(call, HY_SHAPE, "no elements to take the statistics of");
  return HY_OK;
}

static void set_vector(hy_tensor* out, int64_t size) {
  out->ndim = 1;
  out->shape[0] = size;
}

hy_status hy__shape_batch_norm(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  HY_TRY(expect_channels(call, x));
  int64_t size = x->shape[1];
  for (int i = 1; i < 5; i++) HY_TRY(hy__need_shape(call, i, 1, &size));
  if (call->attrs.batch_norm.training)
    HY_TRY(expect_samples(call, x));
  else if (!hy__present(&call->in[3]) || !hy__present(&call->in[4]))
    return hy__call_fail(call, HY_INVALID_ARGUMENT,
                         "running_mean and running_var are needed when not training");
  hy__copy_shape(&out[0], x);
  set_vector(&out[1], size);
  set_vector(&out[2], size);
  return HY_OK;
}

hy_status hy__shape_batch_norm_update(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[2];
  HY_TRY(expect_channels(call, x));
  int64_t size = x->shape[1];
  HY_TRY(expect_samples(call, x));
  HY_TRY(hy__need_shape(call, 0, 1, &size));
  HY_TRY(hy__need_shape(call, 1, 1, &size));
  set_vector(&out[0], size);
  set_vector(&out[1], size);
  return HY_OK;
}

hy_status hy__shape_batch_norm_backward(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[1];
  HY_TRY(expect_channels(call, x));
  int64_t size = x->shape[1];
  HY_TRY(hy__need_shape(call, 0, x->ndim, x->shape));
  for (int i = 2; i < 5; i++) HY_TRY(hy__need_shape(call, i, 1, &size));
  hy__copy_shape(&out[0], x);
  set_vector(&out[1], size);
  set_vector(&out[2], size);
  return HY_OK;
}

// ---- types ----

// Statistics are kept in f32 where x is narrower.
static hy_dtype statistic_dtype(hy_dtype x) {
  return x == HY_F64 ? HY_F64 : HY_F32;
}

// Parameters have x's type, or f32 beside an x of 16 bits.
static hy_status check_parameter(const hy_call* call, int i, hy_dtype x) {
  hy_dtype dtype = call->in[i].dtype;
  if (dtype == HY_NONE || dtype == x || dtype == statistic_dtype(x)) return HY_OK;
  return hy__call_fail(call, HY_DTYPE, "a parameter of type %s beside an x of type %s",
                       hy_dtype_name(dtype), hy_dtype_name(x));
}

hy_status hy__dtype_norm(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, call->n_in));
  hy_dtype x = call->in[0].dtype;
  for (int i = 1; i < call->n_in; i++) HY_TRY(check_parameter(call, i, x));
  out[0].dtype = x;
  for (int i = 1; i < hy_op_describe(call->op)->n_outputs; i++) out[i].dtype = statistic_dtype(x);
  return HY_OK;
}

// The weight is the last input; between x and it are the statistics.
hy_status hy__dtype_norm_backward(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, call->n_in));
  hy_dtype dy = call->in[0].dtype, x = call->in[1].dtype;
  int weight = call->n_in - 1;
  if (dy != x)
    return hy__call_fail(call, HY_DTYPE, "dy is %s and x is %s; one type is needed",
                         hy_dtype_name(dy), hy_dtype_name(x));
  for (int i = 2; i < weight; i++) {
    if (call->in[i].dtype != statistic_dtype(x))
      return hy__call_fail(call, HY_DTYPE, "the statistics of %s are %s, not %s", hy_dtype_name(x),
                           hy_dtype_name(statistic_dtype(x)), hy_dtype_name(call->in[i].dtype));
  }
  HY_TRY(check_parameter(call, weight, x));
  out[0].dtype = x;
  for (int i = 1; i < hy_op_describe(call->op)->n_outputs; i++)
    out[i].dtype = hy__present(&call->in[weight]) ? call->in[weight].dtype : x;
  return HY_OK;
}

hy_status hy__dtype_batch_norm_update(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, call->n_in));
  for (int i = 0; i < 2; i++) {
    HY_TRY(check_parameter(call, i, call->in[2].dtype));
    out[i].dtype = call->in[i].dtype;
  }
  return HY_OK;
}
