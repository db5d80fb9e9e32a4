// A call: an op, its tensors and its attributes, as plain data. Part of the plugin ABI.
#ifndef HALYARD_CALL_H_
#define HALYARD_CALL_H_

#include "halyard/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HY_MAX_INPUTS 64
#define HY_MAX_OUTPUTS 4
#define HY_MAX_EQUATION 96

// Op numbers come from ops.def; 0 is no op. They are part of the ABI and never reused.
typedef enum hy_op {
  HY_OP_NONE = 0,
#define HY_OP(id, name, ...) HY_OP_##name = id,
#include "halyard/ops.def"
  HY_OP_END  // one past the highest identifier
} hy_op;

// A number with its kind: 2 and 2.0 promote differently, and int64 stays exact.
typedef struct hy_scalar {
  union {
    double f;
    int64_t i;
  } as;
  hy_dtype kind;  // HY_F64, HY_I64, HY_BOOL; HY_NONE: absent
  int32_t reserved;
} hy_scalar;

// A list of dimensions; n == 0 means all of them.
typedef struct hy_dims {
  int64_t dim[HY_MAX_DIMS];
  int64_t n;
} hy_dims;

typedef struct hy_pair {
  int64_t h, w;
} hy_pair;

// Subscripts of einsum, such as "bij,bjk->bik".
typedef struct hy_equation {
  char text[HY_MAX_EQUATION];
} hy_equation;

typedef enum hy_rounding { HY_ROUND_NONE, HY_ROUND_TRUNC, HY_ROUND_FLOOR } hy_rounding;
typedef enum hy_reduction { HY_REDUCTION_NONE, HY_REDUCTION_MEAN, HY_REDUCTION_SUM } hy_reduction;
typedef enum hy_scatter_mode { HY_SCATTER_SET, HY_SCATTER_ADD } hy_scatter_mode;
// Which keys a query may see. With T queries and S keys, query i sees keys 0..i (TOP_LEFT,
// PyTorch's is_causal) or 0..i + S - T (BOTTOM_RIGHT: the queries are the last T positions, as in
// decoding with a cache).
typedef enum hy_causal { HY_CAUSAL_NONE, HY_CAUSAL_TOP_LEFT, HY_CAUSAL_BOTTOM_RIGHT } hy_causal;

// Attribute kinds. Each list has F(K, type, name) for each field; the structs, the parameters of
// the wrappers and the descriptions that tools print are generated from it.
// clang-format off
#define HY_ATTRS_none(F, K)
#define HY_ATTRS_alpha(F, K)          F(K, hy_scalar, alpha)
#define HY_ATTRS_value(F, K)          F(K, hy_scalar, value)
#define HY_ATTRS_value_alpha(F, K)    F(K, hy_scalar, value) F(K, hy_scalar, alpha)
#define HY_ATTRS_rounding(F, K)       F(K, hy_rounding, rounding)
#define HY_ATTRS_value_rounding(F, K) F(K, hy_scalar, value) F(K, hy_rounding, rounding)
#define HY_ATTRS_clamp(F, K)          F(K, hy_scalar, low) F(K, hy_scalar, high)
#define HY_ATTRS_gelu(F, K)           F(K, bool, approximate)
#define HY_ATTRS_cast(F, K)           F(K, hy_dtype, dtype)
#define HY_ATTRS_tri(F, K)            F(K, int64_t, diagonal)
#define HY_ATTRS_reduce(F, K)         F(K, hy_dims, dims) F(K, bool, keepdim)
#define HY_ATTRS_var(F, K)            F(K, hy_dims, dims) F(K, bool, keepdim) F(K, double, correction)
#define HY_ATTRS_dim(F, K)            F(K, int64_t, dim)
#define HY_ATTRS_scan(F, K)           F(K, int64_t, dim) F(K, bool, reverse)
#define HY_ATTRS_addmm(F, K)          F(K, hy_scalar, beta) F(K, hy_scalar, alpha)
#define HY_ATTRS_equation(F, K)       F(K, hy_equation, equation)
// dtype is the loss's: HY_NONE for that of the logits, or f32 where these are halves.
#define HY_ATTRS_cross_entropy(F, K) \
  F(K, int64_t, ignore_index) F(K, hy_reduction, reduction) F(K, double, label_smoothing) \
  F(K, hy_dtype, dtype)
#define HY_ATTRS_norm(F, K)           F(K, int64_t, norm_dims) F(K, double, eps)
#define HY_ATTRS_batch_norm(F, K)     F(K, bool, training) F(K, double, momentum) F(K, double, eps)
#define HY_ATTRS_attention(F, K)      F(K, double, scale) F(K, hy_causal, causal)
#define HY_ATTRS_scale(F, K)          F(K, double, scale)
#define HY_ATTRS_rope(F, K)           F(K, bool, interleaved) F(K, bool, inverse)
// A negative index: no row is padding.
#define HY_ATTRS_padding(F, K)        F(K, int64_t, padding_index)
#define HY_ATTRS_rows(F, K)           F(K, int64_t, rows) F(K, int64_t, padding_index)
#define HY_ATTRS_scatter(F, K)        F(K, int64_t, dim) F(K, hy_scatter_mode, mode)
#define HY_ATTRS_accumulate(F, K)     F(K, bool, accumulate)
#define HY_ATTRS_sort(F, K)           F(K, int64_t, dim) F(K, bool, descending)
#define HY_ATTRS_topk(F, K) \
  F(K, int64_t, k) F(K, int64_t, dim) F(K, bool, largest) F(K, bool, sorted)
#define HY_ATTRS_conv(F, K) \
  F(K, hy_pair, stride) F(K, hy_pair, padding) F(K, hy_pair, dilation) F(K, int64_t, groups)
#define HY_ATTRS_max_pool(F, K) \
  F(K, hy_pair, kernel) F(K, hy_pair, stride) F(K, hy_pair, padding) F(K, hy_pair, dilation) \
  F(K, bool, ceil_mode)
#define HY_ATTRS_avg_pool(F, K) \
  F(K, hy_pair, kernel) F(K, hy_pair, stride) F(K, hy_pair, padding) F(K, bool, ceil_mode) \
  F(K, bool, count_padding) F(K, int64_t, divisor)
#define HY_ATTRS_arange(F, K)         F(K, hy_scalar, start) F(K, hy_scalar, step)
// Element i of the output takes word i % 4 of Philox block offset + i / 4 under the key `seed`.
// uniform draws from [a, b), normal with mean a and standard deviation b, randint from the integers
// of [a, b), bernoulli 1 with probability a; src/ops/reference/random.c defines the exact bits.
#define HY_ATTRS_random(F, K) \
  F(K, uint64_t, seed) F(K, uint64_t, offset) F(K, double, a) F(K, double, b)
#define HY_ATTRS_dropout(F, K)        F(K, uint64_t, seed) F(K, uint64_t, offset) F(K, double, p)
#define HY_ATTRS_quantize(F, K)       F(K, hy_dtype, dtype) F(K, int64_t, group)
#define HY_ATTRS_adamw(F, K) \
  F(K, double, lr) F(K, double, beta1) F(K, double, beta2) F(K, double, eps) \
  F(K, double, weight_decay) F(K, int64_t, step) F(K, bool, maximize)
#define HY_ATTRS_sgd(F, K) \
  F(K, double, lr) F(K, double, momentum) F(K, double, dampening) F(K, double, weight_decay) \
  F(K, bool, nesterov) F(K, bool, first) F(K, bool, maximize)
#define HY_ATTRS_fused_linear(F, K)   F(K, double, eps) F(K, bool, gated) F(K, hy_dtype, dtype)

#define HY_ATTR_KINDS(X) \
  X(alpha) X(value) X(value_alpha) X(rounding) X(value_rounding) X(clamp) X(gelu) X(cast) X(tri) \
  X(reduce) X(var) X(dim) X(scan) X(addmm) X(equation) X(cross_entropy) X(norm) X(batch_norm) \
  X(attention) X(scale) X(rope) X(padding) X(rows) X(scatter) X(accumulate) X(sort) X(topk) \
  X(conv) X(max_pool) X(avg_pool) X(arange) X(random) X(dropout) X(quantize) X(adamw) X(sgd) \
  X(fused_linear)
// clang-format on

#define HY_AS_MEMBER(kind, type, name) type name;
#define HY_AS_STRUCT(kind)              \
  typedef struct hy_attrs_##kind {      \
    HY_ATTRS_##kind(HY_AS_MEMBER, kind) \
  } hy_attrs_##kind;
HY_ATTR_KINDS(HY_AS_STRUCT)
#undef HY_AS_STRUCT
#undef HY_AS_MEMBER
typedef struct hy_attrs_none {
  char unused;  // C has no empty struct
} hy_attrs_none;

// The attributes of a call; the op's attribute kind says which member is valid.
typedef union hy_attrs {
#define HY_AS_UNION(kind) hy_attrs_##kind kind;
  HY_ATTR_KINDS(HY_AS_UNION)
#undef HY_AS_UNION
  hy_attrs_none none;
  uint64_t words[16];  // fixes the size, so that a kind may grow
} hy_attrs;

// Inputs and outputs in the order of the op's row; absent optional tensors have dtype HY_NONE. Owns
// nothing.
typedef struct hy_call {
  hy_op op;
  int32_t n_in, n_out;
  int32_t reserved;
  const hy_tensor* in;
  hy_tensor* out;
  hy_attrs attrs;
} hy_call;

static inline hy_scalar hy_float(double value) {
  hy_scalar s = {{0}, HY_F64, 0};
  s.as.f = value;
  return s;
}

static inline hy_scalar hy_int(int64_t value) {
  hy_scalar s = {{0}, HY_I64, 0};
  s.as.i = value;
  return s;
}

static inline hy_scalar hy_bool(bool value) {
  hy_scalar s = {{0}, HY_BOOL, 0};
  s.as.i = value;
  return s;
}

static inline hy_scalar hy_no_scalar(void) {
  hy_scalar s = {{0}, HY_NONE, 0};
  return s;
}

// The value as a double, whatever its kind.
static inline double hy_scalar_f(hy_scalar s) {
  return s.kind == HY_F64 ? s.as.f : (double)s.as.i;
}

// The value as an int64; a float out of range is clamped, NaN gives 0.
static inline int64_t hy_scalar_i(hy_scalar s) {
  if (s.kind != HY_F64) return s.as.i;
  if (s.as.f != s.as.f) return 0;
  if (s.as.f >= 9223372036854775808.0) return INT64_MAX;
  if (s.as.f < -9223372036854775808.0) return INT64_MIN;
  return (int64_t)s.as.f;
}

static inline hy_dims hy_all_dims(void) {
  hy_dims d = {{0}, 0};
  return d;
}

static inline hy_dims hy_one_dim(int64_t dim) {
  hy_dims d = {{0}, 1};
  d.dim[0] = dim;
  return d;
}

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_CALL_H_
