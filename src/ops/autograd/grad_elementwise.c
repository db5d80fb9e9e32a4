// Gradients of elementwise ops. Left the function, right its gradient; dy is the output's.
#include <math.h>

#include "ops/autograd/grad.h"

// ---- one input ----

// y = x, in another type or place            dx = dy
HY__RULE(copy, 0) {
  g_give(g, 0, g->dy);
}

// y = -x                                     dx = -dy
HY__RULE(neg, 0) {
  g_give(g, 0, g_neg(g, g->dy));
}

// y = |x|                                    dx = dy sign(x), 0 at 0
HY__RULE(abs, IN(0)) {
  g_give(g, 0, g_mul(g, g->dy, g_unary(g, HY_OP_sign, g_in(g, 0))));
}

// y = a staircase of x                       dx = 0
HY__RULE(zero, 0) {
  g_give(g, 0, g_zeros(g, g_shape(g, 0)));
}

// y = sqrt(x)                                dx = dy / (2 y)
HY__RULE(sqrt, OUT(0)) {
  g_give(g, 0, g_div(g, g->dy, g_scale(g, g_out(g, 0), 2)));
}

// y = 1 / sqrt(x)                            dx = -dy y^3 / 2
HY__RULE(rsqrt, OUT(0)) {
  g_give(g, 0, g_mul(g, g_scale(g, g->dy, -0.5), g_power(g, g_out(g, 0), 3)));
}

// y = 1 / x                                  dx = -dy y^2
HY__RULE(reciprocal, OUT(0)) {
  hy_array* y = g_out(g, 0);
  g_give(g, 0, g_mul(g, g_neg(g, g->dy), g_mul(g, y, y)));
}

// y = exp(x)                                 dx = dy y
HY__RULE(exp, OUT(0)) {
  g_give(g, 0, g_mul(g, g->dy, g_out(g, 0)));
}

// y = log(x)                                 dx = dy / x
HY__RULE(log, IN(0)) {
  g_give(g, 0, g_div(g, g->dy, g_in(g, 0)));
}

// y = cos(x)                                 dx = -dy sin(x)
HY__RULE(cos, IN(0)) {
  g_give(g, 0, g_mul(g, g_neg(g, g->dy), g_unary(g, HY_OP_sin, g_in(g, 0))));
}

// y = sin(x)                                 dx = dy cos(x)
HY__RULE(sin, IN(0)) {
  g_give(g, 0, g_mul(g, g->dy, g_unary(g, HY_OP_cos, g_in(g, 0))));
}

// y = tanh(x)                                dx = dy (1 - y^2)
HY__RULE(tanh, OUT(0)) {
  g_give(g, 0, g_binary(g, HY_OP_tanh_backward, g->dy, g_out(g, 0)));
}

// y = 1 / (1 + exp(-x))                      dx = dy y (1 - y)
HY__RULE(sigmoid, OUT(0)) {
  g_give(g, 0, g_binary(g, HY_OP_sigmoid_backward, g->dy, g_out(g, 0)));
}

// y = erf(x)                                 dx = dy exp(-x^2) 2 / sqrt(pi)
HY__RULE(erf, IN(0)) {
  hy_array* x = g_in(g, 0);
  hy_array* bell = g_unary(g, HY_OP_exp, g_neg(g, g_mul(g, x, x)));
  g_give(g, 0, g_mul(g, g->dy, g_scale(g, bell, M_2_SQRTPI)));
}

// y = x sigmoid(x)                           dx = dy sigmoid(x) (1 + x (1 - sigmoid(x)))
HY__RULE(silu, IN(0)) {
  g_give(g, 0, g_binary(g, HY_OP_silu_backward, g->dy, g_in(g, 0)));
}

// y = x Phi(x), or its tanh approximation    dx = dy (Phi(x) + x phi(x)), or its approximation's
HY__RULE(gelu, IN(0)) {
  g_give(g, 0, g_op(g, HY_OP_gelu_backward, g_attrs(g), G_LIST(g->dy, g_in(g, 0)), 0));
}

// y = max(x, 0)                              dx = dy where y > 0
HY__RULE(relu, OUT(0)) {
  g_give(g, 0, g_binary(g, HY_OP_relu_backward, g->dy, g_out(g, 0)));
}

// y = x inside [low, high]                   dx = dy inside, bounds included
HY__RULE(clamp, IN(0)) {
  const hy_attrs_clamp* a = &g_attrs(g)->clamp;
  hy_array *x = g_in(g, 0), *dx = g->dy;
  if (a->low.kind != HY_NONE)
    dx = g_mask(g, dx, g_not(g, g_compare(g, HY_OP_ge_scalar, x, hy_scalar_f(a->low))));
  if (a->high.kind != HY_NONE)
    dx = g_mask(g, dx, g_not(g, g_compare(g, HY_OP_le_scalar, x, hy_scalar_f(a->high))));
  g_give(g, 0, dx);
}

// ---- two inputs ----

// y = a + alpha b                            da = dy, db = alpha dy
HY__RULE(add, 0, 0) {
  g_give(g, 0, g->dy);
  if (g_wants(g, 1)) g_give(g, 1, g_scale(g, g->dy, hy_scalar_f(g_attrs(g)->alpha.alpha)));
}

// y = a - alpha b                            da = dy, db = -alpha dy
HY__RULE(sub, 0, 0) {
  g_give(g, 0, g->dy);
  if (g_wants(g, 1)) g_give(g, 1, g_scale(g, g->dy, -hy_scalar_f(g_attrs(g)->alpha.alpha)));
}

// y = a b                                    da = dy b, db = dy a
// db first: where a graph computes a again, as it does silu(x) of silu(x) y, one kernel makes both.
HY__RULE(mul, IN(1), IN(0)) {
  if (g_wants(g, 1)) g_give(g, 1, g_mul(g, g->dy, g_in(g, 0)));
  if (g_wants(g, 0)) g_give(g, 0, g_mul(g, g->dy, g_in(g, 1)));
}

// y = a / b                                  da = dy / b, db = -dy a / b^2; rounded: 0
HY__RULE(div, IN(1), IN(0) | IN(1)) {
  if (g_attrs(g)->rounding.rounding != HY_ROUND_NONE) {
    if (g_wants(g, 0)) g_give(g, 0, g_zeros(g, g_shape(g, 0)));
    if (g_wants(g, 1)) g_give(g, 1, g_zeros(g, g_shape(g, 1)));
    return;
  }
  hy_array* b = g_in(g, 1);
  hy_array* da = g_div(g, g->dy, b);
  g_give(g, 0, da);
  if (g_wants(g, 1)) g_give(g, 1, g_neg(g, g_mul(g, da, g_div(g, g_in(g, 0), b))));
}

// y = a^b                                    da = dy b a^(b - 1), 0 where b is 0
//                                            db = dy y log(a), 0 where a is 0 and b >= 0
HY__RULE(pow, IN(0) | IN(1), IN(0) | IN(1) | OUT(0)) {
  hy_array *a = g_in(g, 0), *b = g_in(g, 1);
  if (g_wants(g, 0)) {
    hy_array* less =
        g_op(g, HY_OP_sub_scalar, &(hy_attrs){.value_alpha = {hy_int(1), hy_int(1)}}, G_LIST(b), 0);
    hy_array* da = g_mul(g, g->dy, g_mul(g, b, g_binary(g, HY_OP_pow, a, less)));
    g_give(g, 0, g_mask(g, da, g_compare(g, HY_OP_eq_scalar, b, 0)));
  }
  if (g_wants(g, 1)) {
    // An integer a takes its logarithm in the type of y.
    hy_array* base = g_cast(g, a, g->dy->view.dtype);
    hy_array* db = g_mul(g, g->dy, g_mul(g, g_out(g, 0), g_unary(g, HY_OP_log, base)));
    hy_array* flat = g_binary(g, HY_OP_logical_and, g_compare(g, HY_OP_eq_scalar, a, 0),
                              g_compare(g, HY_OP_ge_scalar, b, 0));
    g_give(g, 1, g_mask(g, db, flat));
  }
}

// y = max(a, b) or min(a, b)                 dy goes to the one chosen, half to each on a tie
HY__RULE(maximum, IN(0) | IN(1), IN(0) | IN(1)) {
  hy_array *a = g_in(g, 0), *b = g_in(g, 1);
  hy_array* half = g_scale(g, g->dy, 0.5);
  hy_array* tie = g_binary(g, HY_OP_eq, a, b);
  hy_array* share = g_op(g, HY_OP_where, NULL, G_LIST(tie, half, g->dy), 0);
  bool is_maximum = g->node->op == HY_OP_maximum;
  hy_op a_loses = is_maximum ? HY_OP_lt : HY_OP_gt, b_loses = is_maximum ? HY_OP_gt : HY_OP_lt;
  if (g_wants(g, 0)) g_give(g, 0, g_mask(g, share, g_binary(g, a_loses, a, b)));
  if (g_wants(g, 1)) g_give(g, 1, g_mask(g, share, g_binary(g, b_loses, a, b)));
}

// ---- an input and a number ----

// y = x + alpha v, y = x - alpha v           dx = dy
HY__RULE(add_scalar, 0) {
  g_give(g, 0, g->dy);
}

// y = v - alpha x                            dx = -alpha dy
HY__RULE(rsub_scalar, 0) {
  g_give(g, 0, g_scale(g, g->dy, -hy_scalar_f(g_attrs(g)->value_alpha.alpha)));
}

// y = x v                                    dx = dy v
HY__RULE(mul_scalar, 0) {
  g_give(g, 0, g_scale(g, g->dy, hy_scalar_f(g_attrs(g)->value.value)));
}

// y = x / v                                  dx = dy / v; rounded: 0
HY__RULE(div_scalar, 0) {
  if (g_attrs(g)->value_rounding.rounding == HY_ROUND_NONE) {
    g_give(g, 0, g_op(g, HY_OP_div_scalar, g_attrs(g), G_LIST(g->dy), 0));
  } else {
    g_give(g, 0, g_zeros(g, g_shape(g, 0)));
  }
}

// y = x^v                                    dx = dy v x^(v - 1), 0 where v is 0
HY__RULE(pow_scalar, IN(0)) {
  double v = hy_scalar_f(g_attrs(g)->value.value);
  if (v == 0) {
    g_give(g, 0, g_zeros(g, g_shape(g, 0)));
  } else {
    g_give(g, 0, g_mul(g, g->dy, g_scale(g, g_power(g, g_in(g, 0), v - 1), v)));
  }
}

// y = v^x                                    dx = dy y log(v), 0 where v is 0 and x >= 0
HY__RULE(rpow_scalar, IN(0) | OUT(0)) {
  double v = hy_scalar_f(g_attrs(g)->value.value);
  hy_array* dx = g_mul(g, g->dy, g_scale(g, g_out(g, 0), log(v)));
  if (v == 0) dx = g_mask(g, dx, g_compare(g, HY_OP_ge_scalar, g_in(g, 0), 0));
  g_give(g, 0, dx);
}

// ---- three inputs, and masks ----

// y = a where c, else b                      da = dy where c, db = dy elsewhere
HY__RULE(where, NO_GRADIENT, IN(0), IN(0)) {
  hy_array* c = g_in(g, 0);
  if (g_wants(g, 1)) g_give(g, 1, g_mask(g, g->dy, g_not(g, c)));
  if (g_wants(g, 2)) g_give(g, 2, g_mask(g, g->dy, c));
}

// y = v where the mask is set, else x        dx = dy where it is not
HY__RULE(masked_fill, IN(1), NO_GRADIENT) {
  g_give(g, 0, g_mask(g, g->dy, g_in(g, 1)));
}

// y = x + v a b                              dx = dy, da = v dy b, db = v dy a
HY__RULE(addcmul, 0, IN(2), IN(1)) {
  double v = hy_scalar_f(g_attrs(g)->value.value);
  g_give(g, 0, g->dy);
  if (g_wants(g, 1)) g_give(g, 1, g_mul(g, g_scale(g, g->dy, v), g_in(g, 2)));
  if (g_wants(g, 2)) g_give(g, 2, g_mul(g, g_scale(g, g->dy, v), g_in(g, 1)));
}

// y = x + v a / b                            dx = dy, da = v dy / b, db = -v dy a / b^2
HY__RULE(addcdiv, 0, IN(2), IN(1) | IN(2)) {
  double v = hy_scalar_f(g_attrs(g)->value.value);
  g_give(g, 0, g->dy);
  if (!g_wants(g, 1) && !g_wants(g, 2)) return;
  hy_array* b = g_in(g, 2);
  hy_array* da = g_div(g, g_scale(g, g->dy, v), b);
  g_give(g, 1, da);
  if (g_wants(g, 2)) g_give(g, 2, g_neg(g, g_mul(g, da, g_div(g, g_in(g, 1), b))));
}

// y = a triangle of x                        dx = the same triangle of dy
HY__RULE(tri, 0) {
  g_give(g, 0, g_op(g, g->node->op, g_attrs(g), G_LIST(g->dy), 0));
}

// y = x mask / (1 - p)                       dx = dy mask / (1 - p); p = 1: 0
HY__RULE(dropout, OUT(1)) {
  double p = g_attrs(g)->dropout.p;
  g_give(g, 0, g_scale(g, g_mul(g, g->dy, g_out(g, 1)), p < 1 ? 1 / (1 - p) : 0));
}
