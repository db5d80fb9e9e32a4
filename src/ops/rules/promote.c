// Type promotion by PyTorch's table.
#include "ops/rules/promote.h"

// 0 bool, 1 integer, 2 float.
static int category(hy_dtype dtype) {
  return dtype == HY_BOOL ? 0 : hy_dtype_is_float(dtype) ? 2 : 1;
}

hy_dtype hy__promote_tensors(const hy_tensor* tensors, int n) {
  bool alike = n > 0;
  for (int i = 1; i < n; i++) alike = alike && tensors[i].dtype == tensors[0].dtype;
  if (alike) return tensors[0].dtype;
  hy_dtype with_dims = HY_NONE, without_dims = HY_NONE;
  for (int i = 0; i < n; i++) {
    hy_dtype* slot = tensors[i].ndim > 0 ? &with_dims : &without_dims;
    if (hy__present(&tensors[i])) *slot = hy_promote_dtypes(*slot, tensors[i].dtype);
  }
  if (with_dims == HY_NONE) return without_dims;
  if (without_dims == HY_NONE || category(with_dims) >= category(without_dims)) return with_dims;
  return without_dims;
}

hy_dtype hy__promote_scalar(hy_dtype dtype, hy_scalar s) {
  if (s.kind == HY_NONE || category(dtype) >= category(s.kind)) return dtype;
  return s.kind == HY_F64 ? HY_F32 : HY_I64;
}

hy_dtype hy__to_float(hy_dtype dtype) {
  return hy_dtype_is_float(dtype) ? dtype : HY_F32;
}

bool hy__can_cast(hy_dtype from, hy_dtype to) {
  return category(from) <= category(to);
}

hy_dtype hy__compute_dtype(const hy_call* call) {
  hy_dtype dtype = hy__promote_tensors(call->in, call->n_in);
  switch (call->op) {
    case HY_OP_add_scalar:
    case HY_OP_sub_scalar:
    case HY_OP_rsub_scalar: return hy__promote_scalar(dtype, call->attrs.value_alpha.value);
    case HY_OP_mul_scalar:
    case HY_OP_pow_scalar:
    case HY_OP_rpow_scalar:
    case HY_OP_eq_scalar:
    case HY_OP_ne_scalar:
    case HY_OP_lt_scalar:
    case HY_OP_le_scalar:
    case HY_OP_gt_scalar:
    case HY_OP_ge_scalar: return hy__promote_scalar(dtype, call->attrs.value.value);
    case HY_OP_clamp:
      return hy__promote_scalar(hy__promote_scalar(dtype, call->attrs.clamp.low),
                                call->attrs.clamp.high);
    case HY_OP_div:
      return call->attrs.rounding.rounding == HY_ROUND_NONE ? hy__to_float(dtype) : dtype;
    case HY_OP_div_scalar: {
      hy_dtype promoted = hy__promote_scalar(dtype, call->attrs.value_rounding.value);
      return call->attrs.value_rounding.rounding == HY_ROUND_NONE ? hy__to_float(promoted)
                                                                  : promoted;
    }
    default: return dtype;
  }
}
