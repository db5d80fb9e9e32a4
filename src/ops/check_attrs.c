// Attributes that mean nothing are refused: a number of no kind, an enum beyond its values. What
// else an attribute must be (a dimension, a size, a probability) is in the rules of the ops that
// have it.
#include "ops/internal.h"

static hy_status check_number(const hy_call* call, const char* name, hy_scalar s) {
  switch (s.kind) {
    case HY_F64:
    case HY_I64:
    case HY_BOOL: return HY_OK;
    case HY_NONE:
      if (call->op == HY_OP_clamp) return HY_OK;  // a side without a bound
      return hy_fail(HY_INVALID_ARGUMENT, "%s: the number %s is absent", hy_op_name(call->op),
                     name);
    default:
      return hy_fail(HY_INVALID_ARGUMENT,
                     "%s: the number %s is of the kind %s; hy_float, hy_int and hy_bool make one",
                     hy_op_name(call->op), name, hy_dtype_name(s.kind));
  }
}

static hy_status check_choice(const hy_call* call, const char* name, int value, int last) {
  if (value >= 0 && value <= last) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT, "%s: %s is %d; it must be in 0 .. %d", hy_op_name(call->op),
                 name, value, last);
}

#define CHECK_hy_scalar(name, value) HY_TRY(check_number(call, name, value));
#define CHECK_CHOICE(name, value, last) HY_TRY(check_choice(call, name, (int)(value), last));
#define CHECK_hy_rounding(name, value) CHECK_CHOICE(name, value, HY_ROUND_FLOOR)
#define CHECK_hy_reduction(name, value) CHECK_CHOICE(name, value, HY_REDUCTION_SUM)
#define CHECK_hy_scatter_mode(name, value) CHECK_CHOICE(name, value, HY_SCATTER_ADD)
#define CHECK_hy_causal(name, value) CHECK_CHOICE(name, value, HY_CAUSAL_BOTTOM_RIGHT)
#define CHECK_hy_dtype(name, value)
#define CHECK_hy_dims(name, value)
#define CHECK_hy_pair(name, value)
#define CHECK_hy_equation(name, value)
#define CHECK_bool(name, value)
#define CHECK__Bool(name, value)
#define CHECK_double(name, value)
#define CHECK_int64_t(name, value)
#define CHECK_uint64_t(name, value)

#define CHECK_FIELD(kind, type, name) CHECK_##type(#name, call->attrs.kind.name)
#define AS_CHECK(kind)                                    \
  hy_status hy__check_attrs_##kind(const hy_call* call) { \
    (void)call;                                           \
    HY_ATTRS_##kind(CHECK_FIELD, kind) return HY_OK;      \
  }
HY_ATTR_KINDS(AS_CHECK)
AS_CHECK(none)
