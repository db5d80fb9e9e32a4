// Promotion, dimensions and indices of a checked call, as kernels need them.
#include "backends/gpu/rules.h"

// ---- Types ----

// 0 bool, 1 integer, 2 float.
static int category(hy_dtype dtype) {
  return dtype == HY_BOOL ? 0 : hy_dtype_is_float(dtype) ? 2 : 1;
}

hy_dtype hy__gpu_promote_tensors(const hy_tensor* tensors, int n) {
  hy_dtype with_dims = HY_NONE, without_dims = HY_NONE;
  for (int i = 0; i < n; i++) {
    hy_dtype* slot = tensors[i].ndim > 0 ? &with_dims : &without_dims;
    if (tensors[i].dtype != HY_NONE) *slot = hy_promote_dtypes(*slot, tensors[i].dtype);
  }
  if (with_dims == HY_NONE) return without_dims;
  if (without_dims == HY_NONE || category(with_dims) >= category(without_dims)) return with_dims;
  return without_dims;
}

hy_dtype hy__gpu_to_float(hy_dtype dtype) {
  return hy_dtype_is_float(dtype) ? dtype : HY_F32;
}

// An integer tensor and a float number give f32.
static hy_dtype with_number(hy_dtype dtype, hy_scalar s) {
  if (s.kind == HY_NONE || category(dtype) >= category(s.kind)) return dtype;
  return s.kind == HY_F64 ? HY_F32 : HY_I64;
}

hy_dtype hy__gpu_compute_dtype(const hy_call* call) {
  hy_dtype dtype = hy__gpu_promote_tensors(call->in, call->n_in);
  switch (call->op) {
    case HY_OP_add_scalar:
    case HY_OP_sub_scalar:
    case HY_OP_rsub_scalar:
    case HY_OP_mul_scalar:
    case HY_OP_pow_scalar:
    case HY_OP_rpow_scalar:
    case HY_OP_eq_scalar:
    case HY_OP_ne_scalar:
    case HY_OP_lt_scalar:
    case HY_OP_le_scalar:
    case HY_OP_gt_scalar:
    case HY_OP_ge_scalar:
      return with_number(dtype, call->attrs.value.value);  // the first field of all these kinds
    case HY_OP_clamp:
      return with_number(with_number(dtype, call->attrs.clamp.low), call->attrs.clamp.high);
    case HY_OP_div:
      return call->attrs.rounding.rounding == HY_ROUND_NONE ? hy__gpu_to_float(dtype) : dtype;
    case HY_OP_div_scalar:
      dtype = with_number(dtype, call->attrs.value_rounding.value);
      return call->attrs.value_rounding.rounding == HY_ROUND_NONE ? hy__gpu_to_float(dtype) : dtype;
    default: return dtype;
  }
}

double hy__gpu_number_f(hy_scalar s, hy_dtype as) {
  double value = hy_scalar_f(s);
  return as == HY_F64 ? value : (double)(float)value;
}

int64_t hy__gpu_number_i(hy_scalar s, hy_dtype as) {
  int64_t value = hy_scalar_i(s);
  switch (as) {
    case HY_I8: return (int8_t)value;
    case HY_I16: return (int16_t)value;
    case HY_I32: return (int32_t)value;
    case HY_U8: return (uint8_t)value;
    case HY_BOOL: return value != 0;
    default: return value;
  }
}

// ---- Dimensions ----

int hy__gpu_wrap_dim(int64_t dim, int ndim) {
  return (int)(dim < 0 ? dim + (ndim > 0 ? ndim : 1) : dim);
}

uint32_t hy__gpu_dims_mask(const hy_dims* dims, int ndim) {
  uint32_t mask = 0;
  for (int64_t i = 0; i < dims->n && ndim > 0; i++)
    mask |= 1u << hy__gpu_wrap_dim(dims->dim[i], ndim);
  return dims->n == 0 ? (1u << ndim) - 1 : mask;
}

// ---- Indices ----

static hy_tensor broadcast_indices(const hy_call* call, int first) {
  hy_tensor shape = {.ndim = 0};
  for (int i = first; i < call->n_in; i++)
    if (call->in[i].dtype != HY_NONE && call->in[i].ndim > shape.ndim)
      shape.ndim = call->in[i].ndim;
  for (int d = 0; d < shape.ndim; d++) {
    shape.shape[d] = 1;
    for (int i = first; i < call->n_in; i++) {
      int own = d - (shape.ndim - call->in[i].ndim);
      if (call->in[i].dtype != HY_NONE && own >= 0 && call->in[i].shape[own] != 1)
        shape.shape[d] = call->in[i].shape[own];
    }
  }
  return shape;
}

// The result's indexed dimensions stand where the indices stood when these are neighbours, else in
// front.
hy__gpu_index_plan hy__gpu_plan_index(const hy_call* call, int first) {
  const hy_tensor* x = &call->in[0];
  hy__gpu_index_plan plan = {.indexed = broadcast_indices(call, first)};
  int n = call->n_in - first, rest[HY_MAX_DIMS], n_rest = 0, begin = 0, runs = 0;
  for (int d = 0; d < x->ndim; d++) {
    bool indexed = d < n && call->in[first + d].dtype != HY_NONE;
    bool follows = indexed && d > 0 && call->in[first + d - 1].dtype != HY_NONE;
    if (!indexed) rest[n_rest++] = d;
    if (indexed && !follows && runs++ == 0) begin = d;
  }
  if (runs > 1) begin = 0;
  hy_tensor* result = &plan.result;
  for (int k = 0; k <= n_rest; k++) {
    for (int b = 0; k == begin && b < plan.indexed.ndim; b++) {
      plan.dim_of[result->ndim] = -1;
      result->shape[result->ndim++] = plan.indexed.shape[b];
    }
    if (k == n_rest) break;
    plan.dim_of[result->ndim] = rest[k];
    result->shape[result->ndim++] = x->shape[rest[k]];
  }
  return plan;
}
