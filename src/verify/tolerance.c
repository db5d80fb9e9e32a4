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

// The smallest step of the type: a result below it may round to 0 on one side.
static double least(hy_dtype dtype) {
  switch (dtype) {
    case HY_F64: return 0x1p-1022;
    case HY_F32: return 0x1p-126;
    case HY_F16: return 0x1p-24;
    case HY_BF16: return 0x1p-126;
    case HY_F8E4M3: return 0x1p-9;
    case HY_F8E5M2: return 0x1p-16;
    default: return 0;
  }
}

// The tolerance column of the op table.
typedef enum op_class {
  EXACT,       // moves, compares or decides: nothing is rounded but by a conversion
  ROUNDED,     // + - * /: each step rounds right, a fused multiply-add may skip one rounding
  FUNCTION,    // exp, tanh, pow ...: device libraries promise a few units
  DERIVATIVE,  // a function's derivative times a gradient
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

hy__tolerance hy__tolerance_of(const hy__case* c, int output) {
  // An output wider than what is computed is no more exact for it.
  hy_dtype dtype = c->out[output].dtype, result = c->result[output];
  double one = fmax(unit(dtype), unit(result)), inside = fmin(one, 0x1p-23);
  double sum = inside * (double)c->terms * c->scale;
  op_class class = classes[c->call.op];
  // Integers, bool and indices are right or wrong; only a quantised value may be one step off.
  if (unit(dtype) == 0 || unit(result) == 0) return (hy__tolerance){0, class == QUANTISED ? 1 : 0};
  double floor = fmax(least(dtype), least(result));
  switch (class) {
    case EXACT: return (hy__tolerance){0, 0};
    // One unit by the final rounding; one of the arithmetic, at the size of the operands, where a
    // product is rounded before the sum or not.
    case ROUNDED: return (hy__tolerance){one, 2 * inside * c->scale + floor};
    // CUDA's pow and tgamma are the loosest in use at 8 units; near a root the argument's own
    // rounding counts.
    case FUNCTION: return (hy__tolerance){one + 8 * inside, 8 * inside + floor};
    // As FUNCTION, and what the derivative is off by grows with the gradient that it multiplies.
    case DERIVATIVE: return (hy__tolerance){one + 8 * inside, 8 * inside * c->scale + floor};
    // One unit of the output, and the sum's own.
    case SUM: return (hy__tolerance){one + (double)c->terms * inside, sum + floor};
    // One unit of the output, and one of the arithmetic for each factor; nothing cancels.
    case PRODUCT: return (hy__tolerance){one + (double)c->terms * inside, floor};
    // The sum's error passes through exp or rsqrt, whose slope is below 8 on the data used.
    case NORMALISED: return (hy__tolerance){2 * one + 16 * inside, 8 * sum + floor};
    // As NORMALISED; a probability held in the output's type is one unit off before it weighs the
    // values, twice over in the backward.
    case ATTENTION: return (hy__tolerance){4 * one, 8 * sum + 4 * one * c->scale + floor};
    // One step of the type: the scale may differ by its own rounding, which moves borders.
    case QUANTISED: return (hy__tolerance){one, floor};
  }
  return (hy__tolerance){0, 0};
}

// A gradient is a chain of a few ops. Steps in between round to the gradient's type, which a sum
// over what was broadcast then adds up; the data keeps slopes below 16. The gradient of a product
// holds that product, with all its roundings.
hy__tolerance hy__gradient_tolerance(const hy__case* c, hy_dtype dtype) {
  double one = unit(dtype), terms = fmax((double)c->terms, 16);
  double steps = classes[c->call.op] == PRODUCT ? (double)c->terms * fmin(one, 0x1p-23) : 0;
  return (hy__tolerance){16 * one + steps,
                         4 * one * fmax(c->scale, 1) * sqrt(terms) + least(dtype)};
}
