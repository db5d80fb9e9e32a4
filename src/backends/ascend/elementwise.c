// Elementwise ops of the ascend backend: one aclnn op each. Types do not mix: promotion is left to
// the fallback, which is seen.
#include <string.h>

#include "backends/ascend/ascend.h"

#define SAME_TYPES TASK_NEED(hy__same_types(call), NO_DTYPE)
#define INPUTS_ALIKE TASK_NEED(inputs_alike(call), NO_DTYPE)

static bool inputs_alike(const hy_call* call) {
  for (int i = 1; i < call->n_in; i++)
    if (call->in[i].dtype != call->in[0].dtype) return false;
  return true;
}

static bool is_number(const hy_tensor* t) {
  return hy__is_half_or_f32(t) || t->dtype == HY_I32 || t->dtype == HY_I64;
}

// A number whose kind does not change the tensor's type.
static bool fits(const hy_tensor* t, hy_scalar s) {
  return s.kind == HY_NONE || hy__is_half_or_f32(t) || s.kind != HY_F64;
}

hy_support hy__ascend_cast(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  TASK_NEED(hy__ascend_dtype(x->dtype) >= 0 && hy__ascend_dtype(out->dtype) >= 0, NO_DTYPE);
  TASK_NEED(x->dtype != HY_I4 && out->dtype != HY_I4, NO_DTYPE);
  // From a float to integers the chips saturate and the reference wraps, or the other way round.
  TASK_NEED(x->dtype == out->dtype || !hy_dtype_is_float(x->dtype) ||
                hy_dtype_is_float(out->dtype) || out->dtype == HY_BOOL || task->whole,
            NO_DTYPE);
  // Through another type the value rounds twice.
  TASK_NEED(call->op != HY_OP_cast || call->attrs.cast.dtype == out->dtype, NO_DTYPE);
  TASK_NEED(x->ndim == out->ndim || x->dtype == out->dtype, NO_SHAPE);
  for (int d = 0; d < x->ndim && x->dtype != out->dtype; d++)
    TASK_NEED(x->shape[d] == out->shape[d], NO_SHAPE);
  if (x->dtype != out->dtype)
    ASCEND_RUN(task, Cast, ASCEND_T(x), hy__ascend_dtype(out->dtype), ASCEND_T(out));
  else
    ASCEND_RUN(task, InplaceCopy, ASCEND_T(out), ASCEND_T(x));
  return task->answer;
}

// HY_OP, then the aclnn op.
// clang-format off
#define UNARY(X) \
  X(neg, Neg) X(abs, Abs) X(sign, Sign) X(floor, Floor) X(ceil, Ceil) X(round, Round) \
  X(trunc, Trunc) X(sqrt, Sqrt) X(rsqrt, Rsqrt) X(reciprocal, Reciprocal) X(exp, Exp) \
  X(log, Log) X(cos, Cos) X(sin, Sin) X(tanh, Tanh) X(sigmoid, Sigmoid) X(erf, Erf) \
  X(silu, Silu) X(relu, Relu) X(isfinite, IsFinite) X(logical_not, LogicalNot) \
  X(bitwise_not, BitwiseNot)
#define BINARY(X) \
  X(mul, Mul) X(pow, PowTensorTensor) X(maximum, Maximum) X(minimum, Minimum) \
  X(bitwise_and, BitwiseAndTensor) X(bitwise_or, BitwiseOrTensor) \
  X(bitwise_xor, BitwiseXorTensor) X(eq, EqTensor) X(ne, NeTensor) X(lt, LtTensor) \
  X(le, LeTensor) X(gt, GtTensor) X(ge, GeTensor) X(logical_and, LogicalAnd) \
  X(logical_or, LogicalOr) X(logical_xor, LogicalXor)
// clang-format on

static hy_support run_unary(hy__task* task, const hy_call* call) {
  switch (call->op) {
#define CASE(op, name) \
  case HY_OP_##op: ASCEND_RUN(task, name, ASCEND_IN(0), ASCEND_OUT(0)); break;
    UNARY(CASE)
#undef CASE
    default: return HY_SUPPORT_NO_OP;
  }
  return task->answer;
}

hy_support hy__ascend_unary(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  SAME_TYPES;
  bool whole = call->op == HY_OP_neg || call->op == HY_OP_abs || call->op == HY_OP_sign ||
               call->op == HY_OP_relu;
  if (call->op == HY_OP_bitwise_not)
    TASK_NEED(x->dtype == HY_I32 || x->dtype == HY_I64 || x->dtype == HY_BOOL, NO_DTYPE);
  else
    TASK_NEED(hy__is_half_or_f32(x) || (whole && is_number(x)), NO_DTYPE);
  return run_unary(task, call);
}

hy_support hy__ascend_predicate(hy__task* task, const hy_call* call) {
  TASK_NEED(call->out[0].dtype == HY_BOOL, NO_DTYPE);
  TASK_NEED(is_number(&call->in[0]) || call->in[0].dtype == HY_BOOL, NO_DTYPE);
  return run_unary(task, call);
}

hy_support hy__ascend_isnan(hy__task* task, const hy_call* call) {
  TASK_NEED(call->out[0].dtype == HY_BOOL && hy__is_half_or_f32(&call->in[0]), NO_DTYPE);
  ASCEND_RUN(task, NeTensor, ASCEND_IN(0), ASCEND_IN(0), ASCEND_OUT(0));
  return task->answer;
}

hy_support hy__ascend_gelu(hy__task* task, const hy_call* call) {
  SAME_TYPES;
  TASK_NEED(hy__is_half_or_f32(&call->in[0]), NO_DTYPE);
  ASCEND_RUN(task, GeluV2, ASCEND_IN(0), call->attrs.gelu.approximate ? 1 : 0, ASCEND_OUT(0));
  return task->answer;
}

hy_support hy__ascend_clamp(hy__task* task, const hy_call* call) {
  hy_attrs_clamp a = call->attrs.clamp;
  SAME_TYPES;
  TASK_NEED(is_number(&call->in[0]) && fits(&call->in[0], a.low) && fits(&call->in[0], a.high),
            NO_DTYPE);
  ASCEND_RUN(task, Clamp, ASCEND_IN(0), hy__ascend_scalar(task, a.low),
             hy__ascend_scalar(task, a.high), ASCEND_OUT(0));
  return task->answer;
}

// ---- two inputs ----

static hy_support run_binary(hy__task* task, const hy_call* call) {
  switch (call->op) {
#define CASE(op, name) \
  case HY_OP_##op: ASCEND_RUN(task, name, ASCEND_IN(0), ASCEND_IN(1), ASCEND_OUT(0)); break;
    BINARY(CASE)
#undef CASE
    default: return HY_SUPPORT_NO_OP;
  }
  return task->answer;
}

hy_support hy__ascend_binary_family(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  SAME_TYPES;
  bool bits = call->op >= HY_OP_bitwise_and && call->op <= HY_OP_bitwise_xor;
  if (bits)
    TASK_NEED(x->dtype == HY_BOOL || x->dtype == HY_I32 || x->dtype == HY_I64, NO_DTYPE);
  else
    TASK_NEED(hy__is_half_or_f32(x) || (call->op != HY_OP_pow && is_number(x)), NO_DTYPE);
  return run_binary(task, call);
}

hy_support hy__ascend_comparison(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  INPUTS_ALIKE;
  TASK_NEED(call->out[0].dtype == HY_BOOL, NO_DTYPE);
  TASK_NEED(is_number(x) || x->dtype == HY_BOOL, NO_DTYPE);
  return run_binary(task, call);
}

hy_support hy__ascend_alpha(hy__task* task, const hy_call* call) {
  hy_scalar alpha = call->attrs.alpha.alpha;
  SAME_TYPES;
  TASK_NEED(is_number(&call->in[0]) && fits(&call->in[0], alpha), NO_DTYPE);
  if (call->op == HY_OP_add)
    ASCEND_RUN(task, Add, ASCEND_IN(0), ASCEND_IN(1), hy__ascend_scalar(task, alpha),
               ASCEND_OUT(0));
  else
    ASCEND_RUN(task, Sub, ASCEND_IN(0), ASCEND_IN(1), hy__ascend_scalar(task, alpha),
               ASCEND_OUT(0));
  return task->answer;
}

// The modes of aclnnDivMod: 1 towards zero, 2 down.
static int mode_of(hy_rounding rounding) {
  return rounding == HY_ROUND_TRUNC ? 1 : 2;
}

hy_support hy__ascend_div(hy__task* task, const hy_call* call) {
  hy_rounding rounding = call->attrs.rounding.rounding;
  SAME_TYPES;
  TASK_NEED(hy__is_half_or_f32(&call->in[0]), NO_DTYPE);
  if (rounding == HY_ROUND_NONE)
    ASCEND_RUN(task, Div, ASCEND_IN(0), ASCEND_IN(1), ASCEND_OUT(0));
  else
    ASCEND_RUN(task, DivMod, ASCEND_IN(0), ASCEND_IN(1), mode_of(rounding), ASCEND_OUT(0));
  return task->answer;
}

// ---- a tensor and a number ----

hy_support hy__ascend_scalar_alpha(hy__task* task, const hy_call* call) {
  hy_attrs_value_alpha a = call->attrs.value_alpha;
  SAME_TYPES;
  TASK_NEED(is_number(&call->in[0]) && fits(&call->in[0], a.value) && fits(&call->in[0], a.alpha),
            NO_DTYPE);
#define RUN(name)                                                        \
  ASCEND_RUN(task, name, ASCEND_IN(0), hy__ascend_scalar(task, a.value), \
             hy__ascend_scalar(task, a.alpha), ASCEND_OUT(0))
  if (call->op == HY_OP_add_scalar)
    RUN(Adds);
  else if (call->op == HY_OP_sub_scalar)
    RUN(Subs);
  else
    RUN(Rsubs);
#undef RUN
  return task->answer;
}

#define WITH_VALUE(name) \
  ASCEND_RUN(task, name, ASCEND_IN(0), hy__ascend_scalar(task, value), ASCEND_OUT(0))

hy_support hy__ascend_scalar_family(hy__task* task, const hy_call* call) {
  hy_scalar value = call->attrs.value.value;
  SAME_TYPES;
  TASK_NEED(hy__is_half_or_f32(&call->in[0]), NO_DTYPE);
  if (call->op == HY_OP_mul_scalar)
    WITH_VALUE(Muls);
  else if (call->op == HY_OP_pow_scalar)
    WITH_VALUE(PowTensorScalar);
  else
    ASCEND_RUN(task, PowScalarTensor, hy__ascend_scalar(task, value), ASCEND_IN(0), ASCEND_OUT(0));
  return task->answer;
}

hy_support hy__ascend_scalar_div(hy__task* task, const hy_call* call) {
  hy_attrs_value_rounding a = call->attrs.value_rounding;
  hy_scalar value = a.value;
  SAME_TYPES;
  TASK_NEED(hy__is_half_or_f32(&call->in[0]), NO_DTYPE);
  if (a.rounding == HY_ROUND_NONE)
    WITH_VALUE(Divs);
  else
    ASCEND_RUN(task, DivMods, ASCEND_IN(0), hy__ascend_scalar(task, value), mode_of(a.rounding),
               ASCEND_OUT(0));
  return task->answer;
}

hy_support hy__ascend_scalar_test(hy__task* task, const hy_call* call) {
  hy_scalar value = call->attrs.value.value;
  const hy_tensor* x = &call->in[0];
  TASK_NEED(call->out[0].dtype == HY_BOOL, NO_DTYPE);
  // A number that the type does not hold would round on its way, and a comparison must not.
  TASK_NEED(hy__is_half_or_f32(x) || (is_number(x) && value.kind != HY_F64), NO_DTYPE);
  switch (call->op) {
    case HY_OP_eq_scalar: WITH_VALUE(EqScalar); break;
    case HY_OP_ne_scalar: WITH_VALUE(NeScalar); break;
    case HY_OP_lt_scalar: WITH_VALUE(LtScalar); break;
    case HY_OP_le_scalar: WITH_VALUE(LeScalar); break;
    case HY_OP_gt_scalar: WITH_VALUE(GtScalar); break;
    default: WITH_VALUE(GeScalar); break;
  }
  return task->answer;
}

// ---- three inputs, masks, gradients, creation ----

hy_support hy__ascend_where(hy__task* task, const hy_call* call) {
  const hy_tensor* a = &call->in[1];
  TASK_NEED(a->dtype == call->in[2].dtype && a->dtype == call->out[0].dtype, NO_DTYPE);
  TASK_NEED(is_number(a) || a->dtype == HY_BOOL, NO_DTYPE);
  ASCEND_RUN(task, SWhere, ASCEND_IN(0), ASCEND_IN(1), ASCEND_IN(2), ASCEND_OUT(0));
  return task->answer;
}

hy_support hy__ascend_masked_fill_family(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy_scalar value = call->attrs.value.value;
  TASK_NEED(x->dtype == out->dtype && call->in[1].dtype == HY_BOOL, NO_DTYPE);
  TASK_NEED(is_number(x) && fits(x, value), NO_DTYPE);
  if (x->data != out->data || !task->stream) hy__task_copy(task, out, x);
  ASCEND_RUN(task, InplaceMaskedFillScalar, ASCEND_T(out), ASCEND_IN(1),
             hy__ascend_scalar(task, value));
  return task->answer;
}

hy_support hy__ascend_addc(hy__task* task, const hy_call* call) {
  hy_scalar value = call->attrs.value.value;
  SAME_TYPES;
  TASK_NEED(hy__is_half_or_f32(&call->in[0]), NO_DTYPE);
  if (call->op == HY_OP_addcmul)
    ASCEND_RUN(task, Addcmul, ASCEND_IN(0), ASCEND_IN(1), ASCEND_IN(2),
               hy__ascend_scalar(task, value), ASCEND_OUT(0));
  else
    ASCEND_RUN(task, Addcdiv, ASCEND_IN(0), ASCEND_IN(1), ASCEND_IN(2),
               hy__ascend_scalar(task, value), ASCEND_OUT(0));
  return task->answer;
}

hy_support hy__ascend_tri(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  int64_t diagonal = call->attrs.tri.diagonal;
  SAME_TYPES;
  TASK_NEED(is_number(x) || x->dtype == HY_BOOL, NO_DTYPE);
  if (call->op == HY_OP_tril)
    ASCEND_RUN(task, Tril, ASCEND_IN(0), diagonal, ASCEND_OUT(0));
  else
    ASCEND_RUN(task, Triu, ASCEND_IN(0), diagonal, ASCEND_OUT(0));
  return task->answer;
}

hy_support hy__ascend_unary_backward(hy__task* task, const hy_call* call) {
  SAME_TYPES;
  TASK_NEED(hy__is_half_or_f32(&call->in[0]), NO_DTYPE);
#define BACKWARD(name) ASCEND_RUN(task, name, ASCEND_IN(0), ASCEND_IN(1), ASCEND_OUT(0))
  switch (call->op) {
    case HY_OP_sigmoid_backward: BACKWARD(SigmoidBackward); break;
    case HY_OP_tanh_backward: BACKWARD(TanhBackward); break;
    case HY_OP_silu_backward: BACKWARD(SiluBackward); break;
    case HY_OP_gelu_backward:
      ASCEND_RUN(task, GeluBackwardV2, ASCEND_IN(0), ASCEND_IN(1),
                 call->attrs.gelu.approximate ? "tanh" : "none", ASCEND_OUT(0));
      break;
    default:  // relu's output is above 0 where its input is
      ASCEND_RUN(task, ThresholdBackward, ASCEND_IN(0), ASCEND_IN(1), ASCEND_I(0), ASCEND_OUT(0));
  }
#undef BACKWARD
  return task->answer;
}

hy_support hy__ascend_fill_family(hy__task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_scalar value = call->attrs.value.value;
  TASK_NEED(hy__ascend_dtype(out->dtype) >= 0 && out->dtype != HY_I4, NO_DTYPE);
  TASK_NEED(hy__is_half_or_f32(out) || value.kind != HY_F64, NO_DTYPE);
  TASK_NEED(out->dtype != HY_I8 && out->dtype != HY_U8 && out->dtype != HY_I16, NO_DTYPE);
  ASCEND_RUN(task, InplaceFillScalar, ASCEND_T(out), hy__ascend_scalar(task, value));
  return task->answer;
}

// aclnnArange has an end where the op has a size. For integers that a double holds the two agree.
hy_support hy__ascend_arange(hy__task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_attrs_arange a = call->attrs.arange;
  TASK_NEED(out->dtype == HY_I32 || out->dtype == HY_I64, NO_DTYPE);
  TASK_NEED(a.start.kind == HY_I64 && a.step.kind == HY_I64 && a.step.as.i != 0, NO_ATTRIBUTE);
  const int64_t most = INT64_C(1) << 53;
  int64_t end, length;
  bool fits_double = a.start.as.i > -most && a.start.as.i < most &&
                     !__builtin_mul_overflow(out->shape[0], a.step.as.i, &length) &&
                     !__builtin_add_overflow(a.start.as.i, length, &end) && end > -most &&
                     end < most;
  TASK_NEED(fits_double, NO_ATTRIBUTE);
  ASCEND_RUN(task, Arange, hy__ascend_scalar(task, a.start), ASCEND_I(end),
             hy__ascend_scalar(task, a.step), ASCEND_OUT(0));
  return task->answer;
}
