// Elementwise ops of the cambricon backend. Inputs are made contiguous and of the output's shape
// first; types do not mix: promotion is left to the fallback, which is seen.
#include <math.h>

#include "backends/cambricon/cambricon.h"

#define PRECISE CNNL_E(CNNL_COMPUTATION_HIGH_PRECISION)
#define FLOATS_ALIKE TASK_NEED(hy__is_half_or_f32(&call->in[0]) && hy__same_types(call), NO_DTYPE)

static bool is_number(const hy_tensor* t) {
  return hy__is_half_or_f32(t) || t->dtype == HY_I32;
}

static bool inputs_alike(const hy_call* call) {
  for (int i = 1; i < call->n_in; i++)
    if (call->in[i].dtype != call->in[0].dtype) return false;
  return true;
}

// Factors and terms: f32 for floats, i32 for integers.
typedef union factor {
  float f;
  int32_t i;
} factor;

// Bounds beyond an i32 are as good as its own.
static factor factor_for(const hy_tensor* t, double value) {
  if (t->dtype != HY_I32) return (factor){.f = (float)value};
  return (factor){.i = value <= INT32_MIN   ? INT32_MIN
                       : value >= INT32_MAX ? INT32_MAX
                                            : (int32_t)value};
}

// ---- One input ----

hy_support hy__cambricon_unary(hy__task* task, const hy_call* call) {
  FLOATS_ALIKE;
  hy_tensor x = CNNL_IN(0), y = CNNL_OUT(0);
  switch (call->op) {
#define PLAIN(op, name)                           \
  case HY_OP_##op:                                \
    CNNL_RUN(task, name, CNNL_T(&x), CNNL_T(&y)); \
    break;
#define WITH_PREFERENCE(op, name) \
  case HY_OP_##op: CNNL_RUN(task, name, PRECISE, CNNL_T(&x), CNNL_T(&y)); break;
    PLAIN(neg, NegTensor)
    PLAIN(abs, Abs)
    PLAIN(sign, Sign)
    PLAIN(floor, Floor)
    PLAIN(ceil, Ceil)
    PLAIN(round, Round)
    PLAIN(trunc, Trunc)
    PLAIN(reciprocal, Reciprocal)
    WITH_PREFERENCE(sqrt, Sqrt_v2)
    WITH_PREFERENCE(rsqrt, Rsqrt_v2)
    WITH_PREFERENCE(exp, Exp_v2)
    WITH_PREFERENCE(cos, Cos_v2)
    WITH_PREFERENCE(sin, Sin_v2)
    WITH_PREFERENCE(erf, Erf_v2)
#undef PLAIN
#undef WITH_PREFERENCE
    case HY_OP_log:
      CNNL_RUN(task, Log_v2, PRECISE, CNNL_E(CNNL_LOG_E), CNNL_T(&x), CNNL_T(&y));
      break;
    default: return HY_SUPPORT_NO_OP;
  }
  CNNL_GIVE(0, y);
  return task->answer;
}

static int activation_mode(hy_op op) {
  switch (op) {
    case HY_OP_sigmoid:
    case HY_OP_sigmoid_backward: return CNNL_E(CNNL_ACTIVATION_SIGMOID);
    case HY_OP_tanh:
    case HY_OP_tanh_backward: return CNNL_E(CNNL_ACTIVATION_TANH);
    case HY_OP_silu:
    case HY_OP_silu_backward: return CNNL_E(CNNL_ACTIVATION_SILU);
    case HY_OP_gelu:
    case HY_OP_gelu_backward: return CNNL_E(CNNL_ACTIVATION_GELU);
    default: return CNNL_E(CNNL_ACTIVATION_RELU);
  }
}

static void* activation(hy__task* task, const hy_call* call) {
  bool gelu = call->op == HY_OP_gelu || call->op == HY_OP_gelu_backward;
  void* d =
      hy__cambricon_keep(task, "cnnlCreateActivationDescriptor",
                         hy__cnnl.CreateActivationDescriptor, hy__cnnl.DestroyActivationDescriptor);
  if (d)
    hy__cambricon_done(task, "cnnlSetActivationDescriptor_v6",
                       hy__cnnl.SetActivationDescriptor_v6(
                           d, activation_mode(call->op), PRECISE, CNNL_E(CNNL_PROPAGATE_NAN), 0, 0,
                           0, 0, false, gelu && call->attrs.gelu.approximate));
  return d;
}

hy_support hy__cambricon_activation(hy__task* task, const hy_call* call) {
  FLOATS_ALIKE;
  hy_tensor x = CNNL_IN(0), y = CNNL_OUT(0);
  void* d = activation(task, call);
  CNNL_RUN(task, ActivationForward, d, NULL, CNNL_T(&x), NULL, CNNL_T(&y));
  CNNL_GIVE(0, y);
  return task->answer;
}

// sigmoid and tanh are given their output, the others their input.
hy_support hy__cambricon_activation_backward(hy__task* task, const hy_call* call) {
  FLOATS_ALIKE;
  const hy_tensor none = hy_tensor_absent();
  hy_tensor dy = CNNL_IN(0), other = CNNL_IN(1), dx = CNNL_OUT(0);
  bool by_output = call->op == HY_OP_sigmoid_backward || call->op == HY_OP_tanh_backward;
  hy_tensor y = by_output ? other : none, x = by_output ? none : other;
  if (call->op == HY_OP_relu_backward) {
    // relu's output is above 0 where its input is; 0 is 0 in every type
    const int64_t threshold = 0;
    CNNL_RUN(task, ThresholdBackward, CNNL_T(&x), CNNL_T(&dy), &threshold, CNNL_T(&dx));
  } else {
    void* d = activation(task, call);
    CNNL_RUN(task, ActivationBackward, d, NULL, CNNL_T(&y), CNNL_T(&dy), CNNL_T(&x), NULL,
             CNNL_T(&dx));
  }
  CNNL_GIVE(0, dx);
  return task->answer;
}

// Clips in f32 or i32: the bounds of halves would be halves on the host.
hy_support hy__cambricon_clamp(hy__task* task, const hy_call* call) {
  hy_attrs_clamp a = call->attrs.clamp;
  const hy_tensor* out = &call->out[0];
  TASK_NEED(is_number(&call->in[0]) && hy__same_types(call), NO_DTYPE);
  bool whole = out->dtype == HY_I32;
  TASK_NEED(!whole || (a.low.kind != HY_F64 && a.high.kind != HY_F64), NO_DTYPE);
  hy_tensor x = CNNL_IN(0);
  x = hy__task_as(task, &x, whole ? HY_I32 : HY_F32);
  hy_tensor y = out->dtype == x.dtype ? CNNL_OUT(0)
                                      : hy__task_temporary(task, x.dtype, out->ndim, out->shape);
  factor low = {0}, high = {0};
  if (a.low.kind != HY_NONE) low = factor_for(&x, hy_scalar_f(a.low));
  if (a.high.kind != HY_NONE) high = factor_for(&x, hy_scalar_f(a.high));
  CNNL_RUN(task, Clip_v2, CNNL_E(CNNL_POINTER_MODE_HOST), CNNL_T(&x),
           a.low.kind != HY_NONE ? &low : NULL, a.high.kind != HY_NONE ? &high : NULL, CNNL_T(&y));
  CNNL_GIVE(0, y);
  return task->answer;
}

// ---- Two inputs ----

static void op_tensor(hy__task* task, int op, const hy_tensor* a, const hy_tensor* b, double alpha,
                      const hy_tensor* c) {
  bool half = c->dtype == HY_F16 || c->dtype == HY_BF16;
  factor one = factor_for(c, 1), times = factor_for(c, alpha), zero = factor_for(c, 0);
  void* d =
      hy__cambricon_keep(task, "cnnlCreateOpTensorDescriptor", hy__cnnl.CreateOpTensorDescriptor,
                         hy__cnnl.DestroyOpTensorDescriptor);
  if (d)
    hy__cambricon_done(
        task, "cnnlSetOpTensorDescriptor",
        hy__cnnl.SetOpTensorDescriptor(d, op, hy__cambricon_dtype(half ? HY_F32 : c->dtype),
                                       CNNL_E(CNNL_PROPAGATE_NAN)));
  CNNL_PLAN(task, GetOpTensorWorkspaceSize_v2, d, &one, CNNL_T(a), &times, CNNL_T(b), &zero,
            CNNL_T(c));
  CNNL_RUN(task, OpTensor, d, &one, CNNL_T(a), &times, CNNL_T(b), CNNL_WORKSPACE, &zero, CNNL_T(c));
}

hy_support hy__cambricon_arithmetic(hy__task* task, const hy_call* call) {
  bool product = call->op == HY_OP_mul;
  hy_scalar alpha = product ? hy_int(1) : call->attrs.alpha.alpha;
  TASK_NEED(is_number(&call->in[0]) && hy__same_types(call), NO_DTYPE);
  TASK_NEED(hy__is_half_or_f32(&call->in[0]) ||
                (alpha.kind != HY_F64 && fabs(hy_scalar_f(alpha)) < INT32_MAX),
            NO_DTYPE);
  hy_tensor a = CNNL_IN(0), b = CNNL_IN(1), c = CNNL_OUT(0);
  int op = product                 ? CNNL_E(CNNL_OP_TENSOR_MUL)
           : call->op == HY_OP_add ? CNNL_E(CNNL_OP_TENSOR_ADD)
                                   : CNNL_E(CNNL_OP_TENSOR_SUB);
  op_tensor(task, op, &a, &b, hy_scalar_f(alpha), &c);
  CNNL_GIVE(0, c);
  return task->answer;
}

static void divide(hy__task* task, hy_rounding rounding, const hy_tensor* a, const hy_tensor* b,
                   const hy_tensor* c) {
  if (rounding == HY_ROUND_NONE) {
    CNNL_PLAN(task, GetDivWorkspaceSize, CNNL_D(a), CNNL_D(b), CNNL_D(c));
    CNNL_RUN(task, Div_v2, PRECISE, CNNL_T(a), CNNL_T(b), CNNL_WORKSPACE, CNNL_T(c));
  } else if (rounding == HY_ROUND_FLOOR) {
    CNNL_PLAN(task, GetFloorDivWorkspaceSize, CNNL_D(a), CNNL_D(b), CNNL_D(c));
    CNNL_RUN(task, FloorDivV2, PRECISE, CNNL_T(a), CNNL_T(b), CNNL_T(c), CNNL_WORKSPACE);
  } else {
    CNNL_PLAN(task, GetFloorDivTruncWorkspaceSize, CNNL_D(a), CNNL_D(b), CNNL_D(c));
    CNNL_RUN(task, FloorDivTrunc, PRECISE, CNNL_T(a), CNNL_T(b), CNNL_T(c), CNNL_WORKSPACE);
  }
}

hy_support hy__cambricon_div(hy__task* task, const hy_call* call) {
  FLOATS_ALIKE;
  hy_tensor a = CNNL_IN(0), b = CNNL_IN(1), c = CNNL_OUT(0);
  divide(task, call->attrs.rounding.rounding, &a, &b, &c);
  CNNL_GIVE(0, c);
  return task->answer;
}

static void power(hy__task* task, const hy_tensor* a, const hy_tensor* b, const hy_tensor* c) {
  CNNL_PLAN(task, GetPowWorkspaceSize, CNNL_D(a), CNNL_D(b), CNNL_D(c));
  CNNL_RUN(task, Pow, PRECISE, CNNL_T(a), CNNL_T(b), CNNL_WORKSPACE, CNNL_T(c));
}

hy_support hy__cambricon_binary(hy__task* task, const hy_call* call) {
  TASK_NEED(hy__same_types(call), NO_DTYPE);
  TASK_NEED(
      hy__is_half_or_f32(&call->in[0]) || (call->op != HY_OP_pow && call->in[0].dtype == HY_I32),
      NO_DTYPE);
  hy_tensor a = CNNL_IN(0), b = CNNL_IN(1), c = CNNL_OUT(0);
  if (call->op == HY_OP_pow) {
    power(task, &a, &b, &c);
  } else if (call->op == HY_OP_maximum) {
    CNNL_PLAN(task, GetMaximumWorkspaceSize, CNNL_D(&c));
    CNNL_RUN(task, Maximum, CNNL_T(&a), CNNL_T(&b), CNNL_T(&c), CNNL_WORKSPACE);
  } else {
    CNNL_PLAN(task, GetMinimumWorkspaceSize, CNNL_D(&c));
    CNNL_RUN(task, Minimum, CNNL_T(&a), CNNL_T(&b), CNNL_T(&c), CNNL_WORKSPACE);
  }
  CNNL_GIVE(0, c);
  return task->answer;
}

static void logic(hy__task* task, int op, const hy_tensor* a, const hy_tensor* b,
                  const hy_tensor* c) {
  CNNL_PLAN(task, GetLogicOpWorkspaceSize, CNNL_D(a), CNNL_D(b), CNNL_D(c));
  CNNL_RUN(task, LogicOp, op, CNNL_T(a), CNNL_T(b), CNNL_WORKSPACE, CNNL_T(c));
}

static int logic_of(hy_op op) {
  switch (op) {
    case HY_OP_eq:
    case HY_OP_eq_scalar: return CNNL_E(CNNL_LOGIC_OP_EQ);
    case HY_OP_ne:
    case HY_OP_ne_scalar:
    case HY_OP_isnan:
    case HY_OP_logical_xor: return CNNL_E(CNNL_LOGIC_OP_NE);
    case HY_OP_lt:
    case HY_OP_lt_scalar:
    case HY_OP_isfinite: return CNNL_E(CNNL_LOGIC_OP_LT);
    case HY_OP_le:
    case HY_OP_le_scalar: return CNNL_E(CNNL_LOGIC_OP_LE);
    case HY_OP_gt:
    case HY_OP_gt_scalar: return CNNL_E(CNNL_LOGIC_OP_GT);
    case HY_OP_ge:
    case HY_OP_ge_scalar: return CNNL_E(CNNL_LOGIC_OP_GE);
    case HY_OP_logical_and: return CNNL_E(CNNL_LOGIC_OP_AND);
    default: return CNNL_E(CNNL_LOGIC_OP_OR);
  }
}

static hy_tensor is_not_zero(hy__task* task, const hy_tensor* t) {
  if (t->dtype == HY_BOOL) return *t;
  hy_tensor zero = hy__task_filled(task, t->dtype, t->ndim, t->shape, 0);
  return hy__task_compare(task, HY_OP_ne, t, &zero);
}

hy_support hy__cambricon_comparison(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  TASK_NEED(inputs_alike(call) && call->out[0].dtype == HY_BOOL, NO_DTYPE);
  TASK_NEED(is_number(x) || x->dtype == HY_BOOL, NO_DTYPE);
  hy_tensor a = CNNL_IN(0), b = CNNL_IN(1), c = CNNL_OUT(0);
  if (call->op == HY_OP_logical_xor) {
    a = is_not_zero(task, &a);
    b = is_not_zero(task, &b);
  }
  logic(task, logic_of(call->op), &a, &b, &c);
  CNNL_GIVE(0, c);
  return task->answer;
}

// not x: x == 0; is NaN: x != x; is finite: |x| < infinity.
hy_support hy__cambricon_predicate(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  TASK_NEED(call->out[0].dtype == HY_BOOL, NO_DTYPE);
  TASK_NEED(hy__is_half_or_f32(x) ||
                (call->op == HY_OP_logical_not && (x->dtype == HY_I32 || x->dtype == HY_BOOL)),
            NO_DTYPE);
  hy_tensor a = CNNL_IN(0), b = a, c = CNNL_OUT(0);
  int op = logic_of(call->op);
  if (call->op == HY_OP_logical_not) {
    op = CNNL_E(CNNL_LOGIC_OP_EQ);
    b = hy__task_temporary(task, a.dtype, a.ndim, a.shape);
    hy__task_fill(task, &b, a.dtype == HY_BOOL ? hy_bool(false) : hy_int(0));
  } else if (call->op == HY_OP_isfinite) {
    hy_tensor size = hy__task_temporary(task, a.dtype, a.ndim, a.shape);
    hy__task_unary(task, HY_OP_abs, &a, &size);
    a = size;
    b = hy__task_filled(task, a.dtype, a.ndim, a.shape, INFINITY);
  }
  logic(task, op, &a, &b, &c);
  CNNL_GIVE(0, c);
  return task->answer;
}

static int bits_of(hy_op op) {
  return op == HY_OP_bitwise_and  ? CNNL_E(CNNL_CYCLE_BAND_OP)
         : op == HY_OP_bitwise_or ? CNNL_E(CNNL_CYCLE_BOR_OP)
                                  : CNNL_E(CNNL_CYCLE_BXOR_OP);
}

// Those of bools are logic; not x is x xor -1.
hy_support hy__cambricon_bitwise(hy__task* task, const hy_call* call) {
  TASK_NEED(hy__same_types(call), NO_DTYPE);
  TASK_NEED(call->in[0].dtype == HY_I32 || call->in[0].dtype == HY_BOOL, NO_DTYPE);
  hy_tensor a = CNNL_IN(0), b = a, c = CNNL_OUT(0);
  if (call->op != HY_OP_bitwise_not) b = CNNL_IN(1);
  if (a.dtype == HY_BOOL) {
    hy_op op = call->op == HY_OP_bitwise_and  ? HY_OP_logical_and
               : call->op == HY_OP_bitwise_or ? HY_OP_logical_or
                                              : HY_OP_logical_xor;
    if (call->op == HY_OP_bitwise_not)
      hy__task_unary(task, HY_OP_logical_not, &a, &c);
    else
      hy__task_binary_to(task, op, &a, &b, &c);
  } else {
    CNNL_KNOWN(CNNL_CYCLE_BXOR_OP);
    if (call->op == HY_OP_bitwise_not) b = hy__task_filled(task, HY_I32, a.ndim, a.shape, -1);
    CNNL_PLAN(task, GetBitComputeWorkspaceSize, CNNL_D(&a), CNNL_D(&b), CNNL_D(&c));
    CNNL_RUN(task, BitCompute_v2, bits_of(call->op), CNNL_T(&a), CNNL_T(&b), CNNL_T(&c),
             CNNL_WORKSPACE);
  }
  CNNL_GIVE(0, c);
  return task->answer;
}

// ---- A tensor and a number ----

// factor x + term
static void transform(hy__task* task, const hy_tensor* x, double times, double plus,
                      const hy_tensor* y) {
  factor alpha = factor_for(x, times), beta = factor_for(x, plus);
  CNNL_RUN(task, Transform_v2, CNNL_E(CNNL_POINTER_MODE_HOST), &alpha, CNNL_T(x), &beta, CNNL_T(y));
}

hy_support hy__cambricon_linear_function(hy__task* task, const hy_call* call) {
  hy_attrs_value_alpha a = call->attrs.value_alpha;
  bool product = call->op == HY_OP_mul_scalar;
  if (product) a = (hy_attrs_value_alpha){call->attrs.value.value, hy_int(1)};
  TASK_NEED(is_number(&call->in[0]) && hy__same_types(call), NO_DTYPE);
  TASK_NEED(hy__is_half_or_f32(&call->in[0]) || (a.value.kind != HY_F64 && a.alpha.kind != HY_F64),
            NO_DTYPE);
  double value = hy_scalar_f(a.value), alpha = hy_scalar_f(a.alpha);
  TASK_NEED(call->in[0].dtype != HY_I32 || (fabs(value) < INT32_MAX && fabs(alpha) < INT32_MAX &&
                                            fabs(alpha * value) < INT32_MAX),
            NO_ATTRIBUTE);
  hy_tensor x = CNNL_IN(0), y = CNNL_OUT(0);
  if (product)
    transform(task, &x, value, 0, &y);
  else if (call->op == HY_OP_add_scalar)
    transform(task, &x, 1, alpha * value, &y);
  else if (call->op == HY_OP_sub_scalar)
    transform(task, &x, 1, -alpha * value, &y);
  else
    transform(task, &x, -alpha, value, &y);
  CNNL_GIVE(0, y);
  return task->answer;
}

// In f32, where the number is not rounded to a half first.
hy_support hy__cambricon_scalar_div(hy__task* task, const hy_call* call) {
  FLOATS_ALIKE;
  hy_attrs_value_rounding a = call->attrs.value_rounding;
  const hy_tensor* out = &call->out[0];
  hy_tensor narrow = CNNL_IN(0), x = hy__task_as(task, &narrow, HY_F32);
  hy_tensor y = hy__task_temporary(task, HY_F32, out->ndim, out->shape);
  hy_tensor by = hy__task_filled(task, HY_F32, x.ndim, x.shape, hy_scalar_f(a.value));
  bool trunc = a.rounding == HY_ROUND_TRUNC;  // of a quotient that has the type
  divide(task, trunc ? HY_ROUND_NONE : a.rounding, &x, &by, &y);
  hy_tensor quotient = hy__task_as(task, &y, out->dtype);
  if (trunc)
    hy__task_unary(task, HY_OP_trunc, &quotient, out);
  else
    hy__task_copy(task, out, &quotient);
  return task->answer;
}

hy_support hy__cambricon_scalar_pow(hy__task* task, const hy_call* call) {
  FLOATS_ALIKE;
  const hy_tensor* out = &call->out[0];
  hy_tensor narrow = CNNL_IN(0), x = hy__task_as(task, &narrow, HY_F32);
  hy_tensor y = hy__task_temporary(task, HY_F32, out->ndim, out->shape);
  hy_tensor number =
      hy__task_filled(task, HY_F32, x.ndim, x.shape, hy_scalar_f(call->attrs.value.value));
  if (call->op == HY_OP_pow_scalar)
    power(task, &x, &number, &y);
  else
    power(task, &number, &x, &y);
  hy__task_copy(task, out, &y);
  return task->answer;
}

// In the tensor's type, to which the number rounds.
hy_support hy__cambricon_scalar_test(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  hy_scalar value = call->attrs.value.value;
  TASK_NEED(call->out[0].dtype == HY_BOOL, NO_DTYPE);
  TASK_NEED(hy__is_half_or_f32(x) || (x->dtype == HY_I32 && value.kind != HY_F64), NO_DTYPE);
  hy_tensor a = CNNL_IN(0), c = CNNL_OUT(0);
  hy_tensor b = hy__task_filled(task, a.dtype, a.ndim, a.shape, hy_scalar_f(value));
  logic(task, logic_of(call->op), &a, &b, &c);
  CNNL_GIVE(0, c);
  return task->answer;
}

// ---- Masks, three inputs, creation ----

// Of bools: (condition and a) or (not condition and b).
hy_support hy__cambricon_where(hy__task* task, const hy_call* call) {
  TASK_NEED(call->in[1].dtype == call->in[2].dtype && call->in[1].dtype == call->out[0].dtype,
            NO_DTYPE);
  TASK_NEED(is_number(&call->in[1]) || call->in[1].dtype == HY_BOOL, NO_DTYPE);
  hy_tensor condition = CNNL_IN(0), a = CNNL_IN(1), b = CNNL_IN(2), y = CNNL_OUT(0);
  if (a.dtype == HY_BOOL) {
    hy_tensor first = hy__task_compare(task, HY_OP_logical_and, &condition, &a);
    hy_tensor rest = hy__task_not(task, &condition);
    rest = hy__task_compare(task, HY_OP_logical_and, &rest, &b);
    hy__task_binary_to(task, HY_OP_logical_or, &first, &rest, &y);
  } else {
    CNNL_PLAN(task, GetSelectV2WorkspaceSize, CNNL_D(&condition), CNNL_D(&a), CNNL_D(&b));
    CNNL_RUN(task, SelectV2, CNNL_T(&condition), CNNL_T(&a), CNNL_T(&b), CNNL_WORKSPACE,
             CNNL_T(&y));
  }
  CNNL_GIVE(0, y);
  return task->answer;
}

hy_support hy__cambricon_masked_fill(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy_scalar value = call->attrs.value.value;
  TASK_NEED(x->dtype == out->dtype && call->in[1].dtype == HY_BOOL, NO_DTYPE);
  TASK_NEED(hy__is_half_or_f32(x) || (x->dtype == HY_I32 && value.kind != HY_F64), NO_DTYPE);
  hy_tensor filled = hy__task_filled(task, x->dtype, out->ndim, out->shape, hy_scalar_f(value));
  hy__task_where(task, &call->in[1], &filled, x, out);
  return task->answer;
}

hy_support hy__cambricon_addc(hy__task* task, const hy_call* call) {
  FLOATS_ALIKE;
  float value = (float)hy_scalar_f(call->attrs.value.value);
  hy_tensor x = CNNL_IN(0), a = CNNL_IN(1), b = CNNL_IN(2), y = CNNL_OUT(0);
  if (call->op == HY_OP_addcmul) {
    CNNL_PLAN(task, GetAddcmulWorkspaceSize_v2, CNNL_D(&x), CNNL_D(&a), CNNL_D(&b), CNNL_D(&y));
    CNNL_RUN(task, Addcmul, CNNL_T(&x), &value, CNNL_T(&a), CNNL_T(&b), CNNL_WORKSPACE, CNNL_T(&y));
  } else {
    CNNL_PLAN(task, GetAddcdivWorkspaceSize_v2, CNNL_D(&x), CNNL_D(&a), CNNL_D(&b), CNNL_D(&y));
    CNNL_RUN(task, Addcdiv, CNNL_T(&x), &value, CNNL_T(&a), CNNL_T(&b), CNNL_WORKSPACE, CNNL_T(&y));
  }
  CNNL_GIVE(0, y);
  return task->answer;
}

hy_support hy__cambricon_tri(hy__task* task, const hy_call* call) {
  int64_t diagonal = call->attrs.tri.diagonal;
  TASK_NEED(hy__same_types(call), NO_DTYPE);
  TASK_NEED(is_number(&call->in[0]) || call->in[0].dtype == HY_BOOL, NO_DTYPE);
  TASK_NEED(diagonal > INT32_MIN && diagonal < INT32_MAX, NO_ATTRIBUTE);
  hy_tensor x = CNNL_IN(0), y = CNNL_OUT(0);
  CNNL_RUN(task, Tri_v2, (int)diagonal, call->op == HY_OP_triu, CNNL_T(&x), CNNL_T(&y));
  CNNL_GIVE(0, y);
  return task->answer;
}

// Halves by way of f32, i64 by way of i32: the number is f32, i32 or bool on the host.
hy_support hy__cambricon_fill(hy__task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_scalar value = call->attrs.value.value;
  hy_dtype dtype = hy__is_half_or_f32(out) ? HY_F32 : out->dtype == HY_I64 ? HY_I32 : out->dtype;
  TASK_NEED(dtype == HY_F32 || dtype == HY_I32 || dtype == HY_BOOL, NO_DTYPE);
  TASK_NEED(dtype != HY_I32 || (value.kind != HY_F64 && hy_scalar_i(value) >= INT32_MIN &&
                                hy_scalar_i(value) <= INT32_MAX),
            NO_ATTRIBUTE);
  hy_tensor y =
      out->dtype == dtype ? CNNL_OUT(0) : hy__task_temporary(task, dtype, out->ndim, out->shape);
  factor number = {0};
  bool truth = hy_scalar_f(value) != 0;
  if (dtype == HY_F32) number.f = (float)hy_scalar_f(value);
  if (dtype == HY_I32) number.i = (int32_t)hy_scalar_i(value);
  CNNL_RUN(task, Fill_v3, CNNL_E(CNNL_POINTER_MODE_HOST),
           dtype == HY_BOOL ? (const void*)&truth : (const void*)&number, CNNL_T(&y));
  CNNL_GIVE(0, y);
  return task->answer;
}

hy_support hy__cambricon_arange(hy__task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_attrs_arange a = call->attrs.arange;
  TASK_NEED(out->dtype == HY_I32 || out->dtype == HY_I64, NO_DTYPE);
  TASK_NEED(a.start.kind == HY_I64 && a.step.kind == HY_I64, NO_ATTRIBUTE);
  const int64_t most = INT32_MAX;
  int64_t end;
  TASK_NEED(a.start.as.i >= -most && a.start.as.i <= most && a.step.as.i >= -most &&
                a.step.as.i <= most && !__builtin_mul_overflow(out->shape[0], a.step.as.i, &end) &&
                end >= -most && end <= most && a.start.as.i + end >= -most &&
                a.start.as.i + end <= most,
            NO_ATTRIBUTE);
  int32_t start = (int32_t)a.start.as.i, step = (int32_t)a.step.as.i;
  hy_tensor y =
      out->dtype == HY_I32 ? CNNL_OUT(0) : hy__task_temporary(task, HY_I32, out->ndim, out->shape);
  CNNL_RUN(task, Arange_v2, PRECISE, &start, &step, CNNL_T(&y));
  CNNL_GIVE(0, y);
  return task->answer;
}
