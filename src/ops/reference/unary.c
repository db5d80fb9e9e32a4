// Elementwise ops of one input, and the gradients that need more than a product.
#include <math.h>

#include "ops/reference/operand.h"
#include "ops/rules/promote.h"

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_OVER_PI 0.79788456080286535588
#define ONE_OVER_SQRT_2_PI 0.39894228040143267794
#define GELU_CUBIC 0.044715

static double gelu(double x, bool approximate) {
  if (approximate) return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)));
  return 0.5 * x * (1 + erf(x * SQRT_HALF));
}

static double gelu_slope(double x, bool approximate) {
  if (!approximate)
    return 0.5 * (1 + erf(x * SQRT_HALF)) + x * ONE_OVER_SQRT_2_PI * exp(-0.5 * x * x);
  // From 40 on it is 0 or 1 in every digit, and further out the square overflows.
  double b = x > 40 ? 40 : x < -40 ? -40 : x;
  double t = tanh(SQRT_2_OVER_PI * (b + GELU_CUBIC * b * b * b));
  double inner_slope = SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * b * b);
  return 0.5 * (1 + t) + 0.5 * b * (1 - t * t) * inner_slope + 0 * x;
}

static double unary_f(const hy_call* call, double x) {
  switch (call->op) {
    case HY_OP_neg: return -x;
    case HY_OP_abs: return fabs(x);
    case HY_OP_sign: return (x > 0) - (x < 0);
    case HY_OP_floor: return floor(x);
    case HY_OP_ceil: return ceil(x);
    case HY_OP_round: return nearbyint(x);
    case HY_OP_trunc: return trunc(x);
    case HY_OP_sqrt: return sqrt(x);
    case HY_OP_rsqrt: return 1 / sqrt(x);
    case HY_OP_reciprocal: return 1 / x;
    case HY_OP_exp: return exp(x);
    case HY_OP_log: return log(x);
    case HY_OP_cos: return cos(x);
    case HY_OP_sin: return sin(x);
    case HY_OP_tanh: return tanh(x);
    case HY_OP_sigmoid: return sigmoid(x);
    case HY_OP_erf: return erf(x);
    case HY_OP_silu: return x * sigmoid(x);
    case HY_OP_gelu: return gelu(x, call->attrs.gelu.approximate);
    case HY_OP_relu: return x < 0 ? 0 : x;  // NaN stays NaN
    default: return x;
  }
}

static int64_t unary_i(const hy_call* call, int64_t x) {
  switch (call->op) {
    case HY_OP_neg: return (int64_t)(0 - (uint64_t)x);
    case HY_OP_abs: return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
    case HY_OP_sign: return (x > 0) - (x < 0);
    case HY_OP_relu: return x < 0 ? 0 : x;
    case HY_OP_bitwise_not: return call->in[0].dtype == HY_BOOL ? !x : ~x;
    default: return x;  // floor, ceil, round, trunc
  }
}

hy_status hy__ref_unary(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  // sqrt and its like make floats of integers.
  bool makes_float = hy__op_row(call->op)->dtype_rule == hy__dtype_float;
  hy_dtype type = makes_float ? hy__to_float(x->dtype) : x->dtype;
  hy__walk w;
  hy__walk_begin(&w, out, 2, (const hy_tensor*[]){out, x});
  while (hy__walk_next(&w)) {
    if (hy__in_double(type)) {
      double row[HY__ROW];
      hy__operand_f(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) row[i] = unary_f(call, row[i]);
      hy__result_f(&w, type, out->dtype, row);
    } else {
      int64_t row[HY__ROW];
      hy__operand_i(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) row[i] = unary_i(call, row[i]);
      hy__result_i(&w, type, out->dtype, row);
    }
  }
  return HY_OK;
}

hy_status hy__ref_predicate(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy__walk w;
  hy__walk_begin(&w, out, 2, (const hy_tensor*[]){out, x});
  while (hy__walk_next(&w)) {
    double row[HY__ROW];
    hy__operand_f(&w, 1, x->dtype, x->dtype, row);
    for (int64_t i = 0; i < w.n; i++) {
      row[i] = call->op == HY_OP_isnan      ? isnan(row[i])
               : call->op == HY_OP_isfinite ? isfinite(row[i])
                                            : row[i] == 0;
    }
    hy__store_row_f(out->dtype, w.at[0], w.step[0], w.n, row);
  }
  return HY_OK;
}

hy_status hy__ref_clamp(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy_scalar low = call->attrs.clamp.low, high = call->attrs.clamp.high;
  hy_dtype type = hy__compute_dtype(call);
  hy__walk w;
  hy__walk_begin(&w, out, 2, (const hy_tensor*[]){out, x});
  while (hy__walk_next(&w)) {
    if (hy__in_double(type)) {
      double row[HY__ROW], least = hy__number_f(low, type), most = hy__number_f(high, type);
      hy__operand_f(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) {
        // A NaN on either side wins; where the bounds cross, the upper one does.
        if (low.kind != HY_NONE && (row[i] < least || isnan(least)))
          row[i] = isnan(row[i]) ? row[i] : least;
        if (high.kind != HY_NONE && (row[i] > most || isnan(most)))
          row[i] = isnan(row[i]) ? row[i] : most;
      }
      hy__result_f(&w, type, out->dtype, row);
    } else {
      int64_t row[HY__ROW], least = hy__number_i(low, type), most = hy__number_i(high, type);
      hy__operand_i(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) {
        if (low.kind != HY_NONE && row[i] < least) row[i] = least;
        if (high.kind != HY_NONE && row[i] > most) row[i] = most;
      }
      hy__result_i(&w, type, out->dtype, row);
    }
  }
  return HY_OK;
}

// dx from dy and, by the op, the output y or the input x.
static double slope(const hy_call* call, double v) {
  switch (call->op) {
    case HY_OP_sigmoid_backward: return v * (1 - v);
    case HY_OP_tanh_backward: return 1 - v * v;
    case HY_OP_silu_backward: return sigmoid(v) * (1 + v * (1 - sigmoid(v)));
    default: return gelu_slope(v, call->attrs.gelu.approximate);
  }
}

hy_status hy__ref_unary_backward(const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *v = &call->in[1], *dx = &call->out[0];
  hy__walk w;
  hy__walk_begin(&w, dx, 3, (const hy_tensor*[]){dx, dy, v});
  while (hy__walk_next(&w)) {
    double a[HY__ROW], b[HY__ROW];
    hy__operand_f(&w, 1, dy->dtype, dy->dtype, a);
    hy__operand_f(&w, 2, v->dtype, v->dtype, b);
    for (int64_t i = 0; i < w.n; i++) {
      if (call->op == HY_OP_relu_backward)
        a[i] = b[i] <= 0 ? 0 : a[i];
      else
        a[i] *= slope(call, b[i]);
    }
    hy__store_row_f(dx->dtype, w.at[0], w.step[0], w.n, a);
  }
  return HY_OK;
}
