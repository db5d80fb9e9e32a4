// Element by element: one command each, with any strides that are not negative.
#include "backends/echo/packets.h"

static uint32_t function_of(hy_op op) {
  switch (op) {
    case HY_OP_neg: return ECHO_NPU_FN_NEG;
    case HY_OP_abs: return ECHO_NPU_FN_ABS;
    case HY_OP_sqrt: return ECHO_NPU_FN_SQRT;
    case HY_OP_rsqrt: return ECHO_NPU_FN_RSQRT;
    case HY_OP_reciprocal: return ECHO_NPU_FN_RECIP;
    case HY_OP_exp: return ECHO_NPU_FN_EXP;
    case HY_OP_log: return ECHO_NPU_FN_LOG;
    case HY_OP_cos: return ECHO_NPU_FN_COS;
    case HY_OP_sin: return ECHO_NPU_FN_SIN;
    case HY_OP_tanh: return ECHO_NPU_FN_TANH;
    case HY_OP_sigmoid: return ECHO_NPU_FN_SIGMOID;
    case HY_OP_silu: return ECHO_NPU_FN_SILU;
    case HY_OP_gelu: return ECHO_NPU_FN_GELU;
    case HY_OP_relu: return ECHO_NPU_FN_RELU;
    case HY_OP_add: return ECHO_NPU_FN_ADD;
    case HY_OP_sub: return ECHO_NPU_FN_SUB;
    case HY_OP_mul:
    case HY_OP_mul_scalar: return ECHO_NPU_FN_MUL;
    case HY_OP_div:
    case HY_OP_div_scalar: return ECHO_NPU_FN_DIV;
    case HY_OP_pow:
    case HY_OP_pow_scalar:
    case HY_OP_rpow_scalar: return ECHO_NPU_FN_POW;
    case HY_OP_maximum: return ECHO_NPU_FN_MAX;
    case HY_OP_minimum: return ECHO_NPU_FN_MIN;
    case HY_OP_sigmoid_backward: return ECHO_NPU_FN_SIGMOID_BWD;
    case HY_OP_tanh_backward: return ECHO_NPU_FN_TANH_BWD;
    case HY_OP_silu_backward: return ECHO_NPU_FN_SILU_BWD;
    case HY_OP_gelu_backward: return ECHO_NPU_FN_GELU_BWD;
    default: return ECHO_NPU_FN_MOVE;
  }
}

hy_support hy__echo_elementwise(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x, y;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &x));
  if (call->n_in > 1) HY__ECHO_NEED(hy__echo_float(batch, &call->in[1], &y));
  uint32_t function = function_of(call->op);
  float alpha = 0;
  switch (call->op) {
    case HY_OP_gelu:
      if (call->attrs.gelu.approximate) function = ECHO_NPU_FN_GELU_TANH;
      break;
    case HY_OP_gelu_backward:
      if (call->attrs.gelu.approximate) return HY_SUPPORT_NO_ATTRIBUTE;
      break;
    case HY_OP_div:
      if (call->attrs.rounding.rounding != HY_ROUND_NONE) return HY_SUPPORT_NO_ATTRIBUTE;
      break;
    case HY_OP_add:
    case HY_OP_sub: {
      double factor = hy_scalar_f(call->attrs.alpha.alpha);
      if (factor == 1) break;
      function = ECHO_NPU_FN_AXPY;
      alpha = (float)(call->op == HY_OP_add ? factor : -factor);
      break;
    }
    default: break;
  }
  return hy__echo_map(batch, function, alpha, 0, &out, &x, call->n_in > 1 ? &y : NULL);
}

hy_support hy__echo_elementwise_scalar(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &x));
  // The kinds of attributes of these ops all begin with the value.
  double value = hy_scalar_f(call->attrs.value.value);
  switch (call->op) {
    case HY_OP_add_scalar:
    case HY_OP_sub_scalar: {
      double added = value * hy_scalar_f(call->attrs.value_alpha.alpha);
      if (call->op == HY_OP_sub_scalar) added = -added;
      return hy__echo_map_number(batch, ECHO_NPU_FN_ADD, (float)added, false, &out, &x);
    }
    case HY_OP_rsub_scalar:
      return hy__echo_map(batch, ECHO_NPU_FN_SCALE,
                          (float)-hy_scalar_f(call->attrs.value_alpha.alpha), (float)value, &out,
                          &x, NULL);
    case HY_OP_div_scalar:
      if (call->attrs.value_rounding.rounding != HY_ROUND_NONE) return HY_SUPPORT_NO_ATTRIBUTE;
      break;
    default: break;
  }
  return hy__echo_map_number(batch, function_of(call->op), (float)value,
                             call->op == HY_OP_rpow_scalar, &out, &x);
}

// The gradient passes wherever y is not below or at 0, NaN included; the hardware's own test is y >
// 0, so that it is given a number that says so.
hy_support hy__echo_relu_backward(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand dx, dy, y;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &dx));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &dy));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[1], &y));
  if (hy__echo_numel(&dx) == 0) return HY_SUPPORT_YES;
  hy__echo_operand passes = hy__echo_temporary(batch, ECHO_NPU_F32, dx.ndim, dx.shape);
  HY__ECHO_NEED(hy__echo_map_number(batch, ECHO_NPU_FN_LE, 0, false, &passes, &y));
  HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_SCALE, -1, 1, &passes, &passes, NULL));
  return hy__echo_map(batch, ECHO_NPU_FN_RELU_BWD, 0, 0, &dx, &dy, &passes);
}

// x + value * (a * b), or x + value * (a / b).
hy_support hy__echo_addc(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x, a, b;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &x));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[1], &a));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[2], &b));
  if (hy__echo_numel(&out) == 0) return HY_SUPPORT_YES;
  hy__echo_operand term = hy__echo_temporary(batch, ECHO_NPU_F32, out.ndim, out.shape);
  uint32_t function = call->op == HY_OP_addcmul ? ECHO_NPU_FN_MUL : ECHO_NPU_FN_DIV;
  HY__ECHO_NEED(hy__echo_map(batch, function, 0, 0, &term, &a, &b));
  float value = (float)hy_scalar_f(call->attrs.value.value);
  return hy__echo_map(batch, ECHO_NPU_FN_AXPY, value, 0, &out, &x, &term);
}

// Rounding to the output's type keeps the order, so that the first step may be stored in it.
hy_support hy__echo_clamp(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x;
  hy_scalar low = call->attrs.clamp.low, high = call->attrs.clamp.high;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &x));
  if (low.kind != HY_NONE) {
    HY__ECHO_NEED(
        hy__echo_map_number(batch, ECHO_NPU_FN_MAX, (float)hy_scalar_f(low), false, &out, &x));
    x = out;
  }
  if (high.kind == HY_NONE) return HY_SUPPORT_YES;
  return hy__echo_map_number(batch, ECHO_NPU_FN_MIN, (float)hy_scalar_f(high), false, &out, &x);
}

// The one chain that a function of the hardware computes: silu of one input times another, whatever
// the order, with nothing kept in between; and its beginning, from which it grows. The product is
// rounded once.
hy_support hy__echo_chain(hy__echo_batch* batch, const hy_chain* chain) {
  const hy_chain_step *silu = &chain->steps[0], *mul = &chain->steps[1];
  bool gates = chain->n_steps == 2;
  if (chain->n_steps > 2 || chain->n_out != 1 || silu->op != HY_OP_silu || silu->in[0] < 0)
    return HY_SUPPORT_NO_OP;
  int other = gates && mul->in[0] == -1 ? 1 : 0;
  if (gates && (mul->op != HY_OP_mul || mul->in[1 - other] != -1 || mul->in[other] < 0))
    return HY_SUPPORT_NO_OP;
  hy__echo_operand out, x, y;
  HY__ECHO_NEED(hy__echo_float(batch, &chain->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &chain->in[silu->in[0]], &x));
  if (!gates) return hy__echo_map(batch, ECHO_NPU_FN_SILU, 0, 0, &out, &x, NULL);
  HY__ECHO_NEED(hy__echo_float(batch, &chain->in[mul->in[other]], &y));
  return hy__echo_map(batch, ECHO_NPU_FN_SILU_MUL, 0, 0, &out, &x, &y);
}
