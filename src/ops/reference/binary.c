// Elementwise ops of two inputs, and of an input and a number.
#include <math.h>

#include "ops/reference/arithmetic.h"
#include "ops/reference/operand.h"
#include "ops/rules/promote.h"

double hy__divide_f(double a, double b, hy_rounding rounding, hy_dtype type) {
  if (rounding == HY_ROUND_NONE) return a / b;
  if (rounding == HY_ROUND_TRUNC) return trunc(hy__round_to(type, a / b));
  if (b == 0) return a / b;
  // Python's floor division: exact through the remainder, where a / b alone would round up to the
  // next integer.
  double remainder = fmod(a, b), quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return copysign(0, a / b);
  double whole = floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

int64_t hy__divide_i(int64_t a, int64_t b, hy_rounding rounding) {
  if (b == -1) return (int64_t)(0 - (uint64_t)a);  // INT64_MIN / -1 wraps
  int64_t quotient = a / b;
  return rounding == HY_ROUND_FLOOR && a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t hy__power_i(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  int64_t result = 1;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result = hy__mul_i(result, base);
    base = hy__mul_i(base, base);
  }
  return result;
}

static int64_t shift(hy_op op, int64_t a, int64_t b, hy_dtype type) {
  int bits = hy_dtype_bits(type);
  bool inside = b >= 0 && b < bits;
  if (op == HY_OP_shift_left) return inside ? (int64_t)((uint64_t)a << b) : 0;
  return a >> (inside ? b : type == HY_U8 ? bits : bits - 1);
}

static double binary_f(const hy_call* call, double a, double b, double alpha, hy_dtype type) {
  switch (call->op) {
    case HY_OP_add: return a + alpha * b;
    case HY_OP_sub: return a - alpha * b;
    case HY_OP_mul: return a * b;
    case HY_OP_div: return hy__divide_f(a, b, call->attrs.rounding.rounding, type);
    case HY_OP_pow: return pow(a, b);
    case HY_OP_maximum: return isnan(a) ? a : isnan(b) ? b : a > b ? a : b;
    default: return isnan(a) ? a : isnan(b) ? b : a < b ? a : b;
  }
}

static int64_t binary_i(const hy_call* call, int64_t a, int64_t b, int64_t alpha, hy_dtype type) {
  switch (call->op) {
    case HY_OP_add: return hy__add_i(a, hy__mul_i(alpha, b));
    case HY_OP_sub: return hy__add_i(a, hy__mul_i(-alpha, b));
    case HY_OP_mul: return hy__mul_i(a, b);
    case HY_OP_div: return hy__divide_i(a, b, call->attrs.rounding.rounding);
    case HY_OP_pow: return hy__power_i(a, b);
    case HY_OP_maximum: return a > b ? a : b;
    case HY_OP_minimum: return a < b ? a : b;
    case HY_OP_bitwise_and: return a & b;
    case HY_OP_bitwise_or: return a | b;
    case HY_OP_bitwise_xor: return a ^ b;
    default: return shift(call->op, a, b, type);
  }
}

hy_status hy__ref_binary(const hy_call* call) {
  const hy_tensor *a = &call->in[0], *b = &call->in[1], *out = &call->out[0];
  hy_dtype type = hy__compute_dtype(call);
  bool has_alpha = call->op == HY_OP_add || call->op == HY_OP_sub;
  hy_scalar alpha = has_alpha ? call->attrs.alpha.alpha : hy_int(1);
  if (!hy__in_double(type) && alpha.kind == HY_F64)
    return hy__call_fail(call, HY_DTYPE, "integer inputs need an integer alpha");
  hy__walk w;
  hy__walk_begin(&w, out, 3, (const hy_tensor*[]){out, a, b});
  while (hy__walk_next(&w)) {
    if (hy__in_double(type)) {
      double x[HY__ROW], y[HY__ROW], scale = hy__number_f(alpha, type);
      hy__operand_f(&w, 1, a->dtype, type, x);
      hy__operand_f(&w, 2, b->dtype, type, y);
      for (int64_t i = 0; i < w.n; i++) x[i] = binary_f(call, x[i], y[i], scale, type);
      hy__result_f(&w, type, out->dtype, x);
    } else {
      int64_t x[HY__ROW], y[HY__ROW], scale = hy__number_i(alpha, type);
      hy__operand_i(&w, 1, a->dtype, type, x);
      hy__operand_i(&w, 2, b->dtype, type, y);
      for (int64_t i = 0; i < w.n; i++) {
        if (call->op == HY_OP_div && y[i] == 0)
          return hy__call_fail(call, HY_INVALID_ARGUMENT, "integer division by zero");
        x[i] = binary_i(call, x[i], y[i], scale, type);
      }
      hy__result_i(&w, type, out->dtype, x);
    }
  }
  return HY_OK;
}

static double scalar_f(const hy_call* call, double x, double value, double alpha, hy_dtype type) {
  switch (call->op) {
    case HY_OP_add_scalar: return x + alpha * value;
    case HY_OP_sub_scalar: return x - alpha * value;
    case HY_OP_rsub_scalar: return value - alpha * x;
    case HY_OP_mul_scalar: return x * value;
    case HY_OP_div_scalar: return hy__divide_f(x, value, call->attrs.value_rounding.rounding, type);
    case HY_OP_pow_scalar: return pow(x, value);
    default: return pow(value, x);
  }
}

static int64_t scalar_i(const hy_call* call, int64_t x, int64_t value, int64_t alpha) {
  switch (call->op) {
    case HY_OP_add_scalar: return hy__add_i(x, hy__mul_i(alpha, value));
    case HY_OP_sub_scalar: return hy__add_i(x, hy__mul_i(-alpha, value));
    case HY_OP_rsub_scalar: return hy__add_i(value, hy__mul_i(-alpha, x));
    case HY_OP_mul_scalar: return hy__mul_i(x, value);
    case HY_OP_div_scalar: return hy__divide_i(x, value, call->attrs.value_rounding.rounding);
    case HY_OP_pow_scalar: return hy__power_i(x, value);
    default: return hy__power_i(value, x);
  }
}

hy_status hy__ref_scalar(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy_dtype type = hy__compute_dtype(call);
  bool has_alpha =
      call->op == HY_OP_add_scalar || call->op == HY_OP_sub_scalar || call->op == HY_OP_rsub_scalar;
  hy_scalar value = call->attrs.value.value;  // the first field of each of these kinds
  hy_scalar alpha = has_alpha ? call->attrs.value_alpha.alpha : hy_int(1);
  bool in_double = hy__in_double(type);
  if (!in_double && alpha.kind == HY_F64)
    return hy__call_fail(call, HY_DTYPE, "integer inputs need an integer alpha");
  if (!in_double && call->op == HY_OP_div_scalar && hy__number_i(value, type) == 0)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "integer division by zero");
  if (!in_double && call->op == HY_OP_pow_scalar && hy_scalar_i(value) < 0)
    return hy__call_fail(call, HY_INVALID_ARGUMENT,
                         "an integer has no negative integer powers; cast it first");
  hy__walk w;
  hy__walk_begin(&w, out, 2, (const hy_tensor*[]){out, x});
  while (hy__walk_next(&w)) {
    if (in_double) {
      double row[HY__ROW], number = hy__number_f(value, type), scale = hy__number_f(alpha, type);
      hy__operand_f(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) row[i] = scalar_f(call, row[i], number, scale, type);
      hy__result_f(&w, type, out->dtype, row);
    } else {
      int64_t row[HY__ROW], number = hy__number_i(value, type), scale = hy__number_i(alpha, type);
      hy__operand_i(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) row[i] = scalar_i(call, row[i], number, scale);
      hy__result_i(&w, type, out->dtype, row);
    }
  }
  return HY_OK;
}
