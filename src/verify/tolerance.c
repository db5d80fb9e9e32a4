// Every tolerance of conformance, with its reason.
//
// Two sizes enter. The precision of the output's type: half a unit is lost by the final rounding of
// each side, so that two right answers may lie one unit apart. The precision of the arithmetic
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

typedef enum op_class {
  EXACT,       // moves, compares or decides: nothing is rounded but by a conversion
  ROUNDED,     // + - * /: each step rounds right, a fused multiply-add may skip one rounding
  FUNCTION,    // exp, tanh, pow ...: device libraries promise a few units
  SLOPE,       // a function's derivative times a gradient
  SUM,         // sums of many terms, each perhaps a product
  PRODUCT,     // products of many factors, whose roundings multiply
  NORMALISED,  // softmax and norms: a sum, then functions of it
  ATTENTION,   // products, softmax, products; probabilities may be held in the output's type
  QUANTISED    // a value on the border of two steps may fall to either side
} op_class;

static op_class class_of(hy_op op) {
  switch (op) {
    case HY_OP_copy:
    case HY_OP_cast:
    case HY_OP_clone:
    case HY_OP_neg:
    case HY_OP_abs:
    case HY_OP_sign:
    case HY_OP_floor:
    case HY_OP_ceil:
    case HY_OP_round:
    case HY_OP_trunc:
    case HY_OP_relu:
    case HY_OP_clamp:
    case HY_OP_maximum:
    case HY_OP_minimum:
    case HY_OP_where:
    case HY_OP_masked_fill:
    case HY_OP_tril:
    case HY_OP_triu:
    case HY_OP_relu_backward:
    case HY_OP_fill:
    case HY_OP_randint:
    case HY_OP_bernoulli:
    case HY_OP_max:
    case HY_OP_min:
    case HY_OP_max_dim:
    case HY_OP_min_dim:
    case HY_OP_sort:
    case HY_OP_topk:
    case HY_OP_embedding:
    case HY_OP_gather:
    case HY_OP_index_select:
    case HY_OP_index:
    case HY_OP_cat:
    case HY_OP_stack:
    case HY_OP_max_pool2d:
    case HY_OP_sparsify_2_4: return EXACT;
    case HY_OP_add:
    case HY_OP_sub:
    case HY_OP_mul:
    case HY_OP_div:
    case HY_OP_add_scalar:
    case HY_OP_sub_scalar:
    case HY_OP_rsub_scalar:
    case HY_OP_mul_scalar:
    case HY_OP_div_scalar:
    case HY_OP_addcmul:
    case HY_OP_addcdiv:
    case HY_OP_arange:
    case HY_OP_uniform:
    case HY_OP_dropout:
    case HY_OP_sqrt:
    case HY_OP_reciprocal:
    case HY_OP_rope:
    case HY_OP_dequantize: return ROUNDED;
    case HY_OP_silu_backward:
    case HY_OP_gelu_backward: return SLOPE;
    case HY_OP_sum:
    case HY_OP_mean:
    case HY_OP_cumsum:
    case HY_OP_mm:
    case HY_OP_bmm:
    case HY_OP_addmm:
    case HY_OP_linear:
    case HY_OP_einsum:
    case HY_OP_conv2d:
    case HY_OP_conv2d_backward:
    case HY_OP_avg_pool2d:
    case HY_OP_avg_pool2d_backward:
    case HY_OP_max_pool2d_backward:
    case HY_OP_embedding_backward:
    case HY_OP_scatter:
    case HY_OP_index_add:
    case HY_OP_index_put:
    case HY_OP_linear_quantized:
    case HY_OP_linear_int8:
    case HY_OP_linear_sparse_2_4: return SUM;
    case HY_OP_prod: return PRODUCT;
    case HY_OP_var:
    case HY_OP_softmax:
    case HY_OP_log_softmax:
    case HY_OP_softmax_backward:
    case HY_OP_log_softmax_backward:
    case HY_OP_cross_entropy:
    case HY_OP_cross_entropy_backward:
    case HY_OP_layer_norm:
    case HY_OP_layer_norm_backward:
    case HY_OP_rms_norm:
    case HY_OP_rms_norm_backward:
    case HY_OP_batch_norm:
    case HY_OP_batch_norm_update:
    case HY_OP_batch_norm_backward: return NORMALISED;
    case HY_OP_sdpa:
    case HY_OP_sdpa_backward:
    case HY_OP_paged_attention:
    case HY_OP_fused_moe: return ATTENTION;
    case HY_OP_quantize: return QUANTISED;
    default: return FUNCTION;
  }
}

hy__tolerance hy__tolerance_of(const hy__case* c, int output) {
  // An output wider than what is computed is no more exact for it.
  hy_dtype dtype = c->out[output].dtype, result = c->result[output];
  double one = fmax(unit(dtype), unit(result)), inside = fmin(one, 0x1p-23);
  double sum = inside * (double)c->terms * c->scale;
  op_class class = class_of(c->call.op);
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
    case SLOPE: return (hy__tolerance){one + 8 * inside, 8 * inside * c->scale + floor};
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
  double steps = class_of(c->call.op) == PRODUCT ? (double)c->terms * fmin(one, 0x1p-23) : 0;
  return (hy__tolerance){16 * one + steps,
                         4 * one * fmax(c->scale, 1) * sqrt(terms) + least(dtype)};
}
