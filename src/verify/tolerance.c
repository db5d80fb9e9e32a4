// Every tolerance of conformance, with its reason.
//
// Two sizes enter. The precision of the output's type: half a unit is lost by the final rounding of
// each side, so that two right answers may be one unit apart. The precision of the arithmetic
// inside, which is f32 for every type but f64, times the size of what is added up: a sum of n terms
// of size s, in any order, is off by at most about n * s units of the arithmetic, however small the
// sum itself is (cancellation), which is why this part is absolute. Reference and kernel may add in
// different orders; nothing else is excused.
#include "verify/tolerance.h"

#include <math.h>

// The distance from 1 to the next number: the unit of the type at 1.
static double unit(hy_dtype dtype) {
  switch (dtype) {
    case HY_F64: return 0x1p-52;
    case HY_F32: return 0x1p-23;
    case HY_F16: return 0x1p-10;
    case HY_BF16: return 0x1p-7;
    case HY_F8E4M3: return 0x1p-3;
    case HY_F8E5M2: return 0x1p-2;
    default: return 0;
  }
}

// The smallest step of the type, between subnormals.
static double step(hy_dtype dtype) {
  switch (dtype) {
    case HY_F64: return 0x1p-1074;
    case HY_F32: return 0x1p-149;
    case HY_F16: return 0x1p-24;
    case HY_BF16: return 0x1p-133;
    case HY_F8E4M3: return 0x1p-9;
    case HY_F8E5M2: return 0x1p-16;
    default: return 0;
  }
}

// What may be flushed to zero where the op has a sum: the arithmetic inside it may take subnormals
// for zeros, as matrix units do, and terms of that size are lost beside the others anyway.
static double flushed(hy_dtype dtype) {
  return dtype == HY_F64 ? 0x1p-1022 : fmax(0x1p-126, step(dtype));
}

// The tolerance column of the op table.
typedef enum op_class {
  EXACT,       // moves, compares or decides: nothing is rounded but by a conversion
  ROUNDED,     // * / sqrt: each step rounds right, and nothing cancels
  ADDED,       // + - of a few terms: a fused multiply-add may skip a rounding
  FUNCTION,    // exp, tanh, pow ...: device libraries promise a few units
  FORMULA,     // functions, products and sums in one: gelu, derivatives, optimizers
  SUM,         // sums of many terms, each perhaps a product
  PRODUCT,     // products of many factors, whose roundings multiply
  NORMALISED,  // softmax and norms: a sum, then functions of it
  ATTENTION,   // products, softmax, products; probabilities may be held in the output's type
  QUANTISED    // a value on the border of two steps may fall to either side
} op_class;

static const op_class classes[HY_OP_END] = {
#define HY_OP(id, name, outputs, inputs, attrs, dtypes, dtype_rule, shape_rule, alias, kernel, \
              split, grad, cases, tolerance)                                                   \
  [id] = tolerance,
#include "halyard/ops.def"
};

bool hy__knows_terms(const hy__case* c) {
  switch (c->call.op) {
    case HY_OP_add:
    case HY_OP_sub:
    case HY_OP_add_scalar:
    case HY_OP_sub_scalar:
    case HY_OP_rsub_scalar:
    case HY_OP_addcmul:
    case HY_OP_addcdiv:
    case HY_OP_gelu:
    case HY_OP_sigmoid_backward:
    case HY_OP_tanh_backward:
    case HY_OP_silu_backward:
    case HY_OP_gelu_backward: return true;
    default: return false;
  }
}

double hy__size_of_terms(const hy__case* c, const double* in) {
  const hy_attrs* a = &c->call.attrs;
  switch (c->call.op) {
    case HY_OP_add:
    case HY_OP_sub: return fmax(fabs(in[0]), fabs(hy_scalar_f(a->alpha.alpha) * in[1]));
    case HY_OP_add_scalar:
    case HY_OP_sub_scalar:
      return fmax(fabs(in[0]),
                  fabs(hy_scalar_f(a->value_alpha.value) * hy_scalar_f(a->value_alpha.alpha)));
    case HY_OP_rsub_scalar:
      return fmax(fabs(hy_scalar_f(a->value_alpha.value)),
                  fabs(hy_scalar_f(a->value_alpha.alpha) * in[0]));
    case HY_OP_addcmul: return fmax(fabs(in[0]), fabs(hy_scalar_f(a->value.value) * in[1] * in[2]));
    case HY_OP_addcdiv: return fmax(fabs(in[0]), fabs(hy_scalar_f(a->value.value) * in[1] / in[2]));
    case HY_OP_gelu: return fabs(in[0]);
    default: return fabs(in[0]) * fmax(1, fabs(in[1]));  // a gradient and what it multiplies
  }
}

bool hy__mixes_magnitudes(const hy__case* c) {
  op_class class = classes[c->call.op];
  return class == EXACT || class == ROUNDED || class == FUNCTION || hy__knows_terms(c);
}

hy__tolerance hy__tolerance_of(const hy__case* c, int output) {
  // An output wider than what is computed is no more exact for it.
  hy_dtype dtype = c->out[output].dtype, result = c->result[output];
  double one = fmax(unit(dtype), unit(result)), inside = fmin(one, 0x1p-23);
  double terms = (double)c->terms, sum = inside * terms * c->scale;
  op_class class = classes[c->call.op];
  // Integers, bool and indices are right or wrong; only a quantised value may be one step off.
  if (unit(dtype) == 0 || unit(result) == 0)
    return (hy__tolerance){.absolute = class == QUANTISED ? 1 : 0};
  // Without a sum even the smallest result is a rounded one: half a step on each side.
  double least = fmax(step(dtype), step(result)), flush = fmax(flushed(dtype), flushed(result));
  if (c->key.narrow) least = flush;
  // At the size of the terms, where they are known element by element, else of the largest.
  double of_terms = hy__knows_terms(c) ? 0 : c->scale;
  switch (class) {
    case EXACT: return (hy__tolerance){.signed_zero = true};
    // One unit by the final rounding.
    case ROUNDED: return (hy__tolerance){.relative = one, .absolute = least};
    // And one of the arithmetic, where a product is rounded before the sum or not.
    case ADDED:
      return (hy__tolerance){
          .relative = one, .absolute = 2 * inside * of_terms + flush, .of_terms = 2 * inside};
    // CUDA's pow and tgamma are the loosest in use at 8 units. Its argument is exact, so that this
    // holds near a root as well. What is subnormal on the way, as the sigmoid inside silu, is off
    // by a step, which the argument multiplies.
    case FUNCTION: {
      double vanished = c->key.narrow ? flush : step(dtype == HY_F64 ? HY_F64 : HY_F32);
      return (hy__tolerance){.relative = one + 8 * inside, .absolute = fmax(least, 128 * vanished)};
    }
    // As FUNCTION, and terms that cancel leave what they are off by: two functions' worth.
    case FORMULA:
      return (hy__tolerance){.relative = one + 8 * inside,
                             .absolute = 16 * inside * of_terms + flush,
                             .of_terms = 16 * inside};
    // One unit of the output, and the sum's own.
    case SUM: return (hy__tolerance){.relative = one + terms * inside, .absolute = sum + flush};
    // One unit of the output, and one of the arithmetic for each factor; nothing cancels, but a
    // product on the way may be smaller than the whole.
    case PRODUCT: return (hy__tolerance){.relative = one + terms * inside, .absolute = flush};
    // The sum's error passes through exp or rsqrt, whose slope is below 8 on the data used.
    case NORMALISED:
      return (hy__tolerance){.relative = 2 * one + 16 * inside, .absolute = 8 * sum + flush};
    // As NORMALISED; a probability held in the output's type is one unit off before it weighs the
    // values, twice over in the backward.
    case ATTENTION:
      return (hy__tolerance){.relative = 4 * one, .absolute = 8 * sum + 4 * one * c->scale + flush};
    // One step of the type: the scale may differ by its own rounding, which moves borders.
    case QUANTISED: return (hy__tolerance){.relative = one, .absolute = flush};
  }
  return (hy__tolerance){0};
}

// A gradient is a chain of a few ops. Steps in between round to the gradient's type, which a sum
// over what was broadcast then adds up; the data keeps slopes below 16. f64 has no wider type to
// add up in, so that long chains of additions round their partial sums. The gradient of a product
// holds that product, with all its roundings.
hy__tolerance hy__gradient_tolerance(const hy__case* c, int input) {
  const hy_tensor* t = &c->in[input];
  double spread = (double)hy_tensor_numel(&c->out[0]) / fmax((double)hy_tensor_numel(t), 1);
  double one = unit(t->dtype), terms = fmax(fmax((double)c->terms, spread), 16);
  double steps = classes[c->call.op] == PRODUCT ? (double)c->terms * fmin(one, 0x1p-23) : 0;
  double chain = t->dtype == HY_F64 ? fmax(1, sqrt(terms) / 16) : 1;
  return (hy__tolerance){
      .relative = 16 * one + steps,
      .absolute = 8 * one * fmax(c->scale, 1) * sqrt(terms) * chain + flushed(t->dtype)};
}
