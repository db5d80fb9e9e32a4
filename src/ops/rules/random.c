// Shapes and types of the random ops; their parameters are checked with the shapes.
#include <math.h>

#include "ops/rules/common.h"

hy_status hy__shape_dropout(const hy_call* call, hy_tensor* out) {
  double p = call->attrs.dropout.p;
  if (!(p >= 0 && p <= 1))
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "p must be in [0, 1], not %g", p);
  hy__copy_shape(&out[0], &call->in[0]);
  hy__copy_shape(&out[1], &call->in[0]);
  return HY_OK;
}

hy_status hy__dtype_dropout(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out[0].dtype = call->in[0].dtype;
  out[1].dtype = HY_BOOL;
  return HY_OK;
}

hy_status hy__shape_sample(const hy_call* call, hy_tensor* out) {
  enum { SETTINGS = 5 };
  HY_TRY(hy__need_ndim(call, 0, 2));
  const int64_t* shape = call->in[0].shape;
  HY_TRY(hy__need_shape(call, 1, 2, (int64_t[]){shape[0], SETTINGS}));
  HY_TRY(hy__need_shape(call, 2, 1, shape));
  HY_TRY(hy__need_shape(call, 3, 2, shape));
  out[0].ndim = 1;
  out[0].shape[0] = shape[0];
  return HY_OK;
}

hy_status hy__dtype_sample(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  HY_TRY(hy__check_dtypes_among(call, 1, 3, HY_DTYPE_BIT(HY_F32)));
  HY_TRY(hy__check_dtypes_among(call, 3, 4, HY_BOOLS));
  if (call->in[1].dtype != HY_NONE && call->in[2].dtype == HY_NONE)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "settings need a draw");
  out[0].dtype = HY_I64;
  return HY_OK;
}

// The integers that a type holds exactly, as doubles.
static void exact_range(hy_dtype dtype, double* low, double* high) {
  switch (dtype) {
    case HY_U8: *low = 0, *high = UINT8_MAX; return;
    case HY_I8: *low = INT8_MIN, *high = INT8_MAX; return;
    case HY_I16: *low = INT16_MIN, *high = INT16_MAX; return;
    case HY_I32: *low = INT32_MIN, *high = INT32_MAX; return;
    case HY_F16: *low = -0x1p11, *high = 0x1p11; return;
    case HY_BF16: *low = -0x1p8, *high = 0x1p8; return;
    case HY_F32: *low = -0x1p24, *high = 0x1p24; return;
    default: *low = -0x1p53, *high = 0x1p53; return;
  }
}

static hy_status check_randint(const hy_call* call) {
  double a = call->attrs.random.a, b = call->attrs.random.b, low, high;
  exact_range(call->out[0].dtype, &low, &high);
  if (!(a < b) || a != floor(a) || b != floor(b) || b - a > 0x1p32)
    return hy__call_fail(call, HY_INVALID_ARGUMENT,
                         "a and b are integers with a < b, at most 2^32 apart, not %g and %g", a,
                         b);
  if (a < low || b - 1 > high)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "%s does not hold all integers of [%g, %g)",
                         hy_dtype_name(call->out[0].dtype), a, b);
  return HY_OK;
}

hy_status hy__shape_random(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__shape_output(call, out));
  double a = call->attrs.random.a, b = call->attrs.random.b;
  switch (call->op) {
    case HY_OP_uniform:
      if (!(a <= b) || !isfinite(b - a))
        return hy__call_fail(call, HY_INVALID_ARGUMENT, "no interval [%g, %g)", a, b);
      return HY_OK;
    case HY_OP_normal:
      if (!(b >= 0))
        return hy__call_fail(call, HY_INVALID_ARGUMENT,
                             "b, the standard deviation, is not negative, as %g is", b);
      return HY_OK;
    case HY_OP_randint: return check_randint(call);
    default:
      if (!(a >= 0 && a <= 1))
        return hy__call_fail(call, HY_INVALID_ARGUMENT,
                             "a, the probability, must be in [0, 1], not %g", a);
      return HY_OK;
  }
}
