// Row kernels: elementwise maps, reductions, softmax, norms and optimizer steps on contiguous rows
// of f32 or bf16. One template (rows_tmpl.inc) over vectors whose width and instructions differ
// (simd/vec_avx512.h, simd/vec_generic.h). Other types and strides are converted to rows of f32 in
// L1 first, and back after.
#ifndef HALYARD_CPU_ROWS_ROWS_H_
#define HALYARD_CPU_ROWS_ROWS_H_

#include <stdbool.h>
#include <stdint.h>

#include "halyard/tensor.h"

// X(name, inputs, cost, ties, value): out = value, from the inputs a, b, c and the numbers p, q;
// the cost of an element is in additions. Ties: to EVEN, or AWAY from 0 in bf16 where the value is
// inexact anyway, since that takes a third of the instructions. First the maps that are an op of
// that name.
// clang-format off
#define HY__OP_MAPS(X)                                                  \
  X(add, 2, 1, EVEN, fma_(p, b, a))                                     \
  X(sub, 2, 1, EVEN, fma_(-p, b, a))                                    \
  X(mul, 2, 1, EVEN, a * b)                                             \
  X(div, 2, 1, EVEN, a / b)                                             \
  X(pow, 2, 32, EVEN, power_of(a, b))                                   \
  X(maximum, 2, 1, EVEN, choose(is_nan(a), a, larger(a, b)))            \
  X(minimum, 2, 1, EVEN, choose(is_nan(a), a, smaller(a, b)))           \
  X(addcmul, 3, 1, EVEN, fma_(p * b, c, a))                             \
  X(addcdiv, 3, 1, EVEN, fma_(p, b / c, a))                             \
  X(clamp, 1, 1, EVEN, smaller(q, larger(p, a)))                        \
  X(neg, 1, 1, EVEN, -a)                                                \
  X(abs, 1, 1, EVEN, absolute(a))                                       \
  X(sign, 1, 1, EVEN, sign_of(a))                                       \
  X(floor, 1, 1, EVEN, downward(a))                                     \
  X(ceil, 1, 1, EVEN, upward(a))                                        \
  X(round, 1, 1, EVEN, nearest(a))                                      \
  X(trunc, 1, 1, EVEN, toward_0(a))                                     \
  X(relu, 1, 1, EVEN, larger(splat(0), a))                              \
  X(sqrt, 1, 1, EVEN, root(a))                                          \
  X(rsqrt, 1, 1, EVEN, inverse_root(a, bf16))                           \
  X(reciprocal, 1, 1, EVEN, 1 / a)                                      \
  X(exp, 1, 4, AWAY, exponential(a, bf16))                              \
  X(log, 1, 4, AWAY, natural_log(a))                                    \
  X(sin, 1, 4, AWAY, sincos_of(a, 0))                                   \
  X(cos, 1, 4, AWAY, sincos_of(a, 1))                                   \
  X(tanh, 1, 4, AWAY, hyperbolic_tangent(a, bf16))                      \
  X(sigmoid, 1, 4, AWAY, logistic(a, bf16))                             \
  X(erf, 1, 4, AWAY, error_function(a))                                 \
  X(silu, 1, 4, AWAY, swish(a, bf16))                                   \
  X(gelu, 1, 1, AWAY, a * normal_cdf(a, bf16))                          \
  X(sigmoid_backward, 2, 1, EVEN, a * (b * (1 - b)))                    \
  X(tanh_backward, 2, 1, EVEN, a * fma_(-b, b, splat(1)))               \
  X(relu_backward, 2, 1, EVEN, choose(at_most(b, splat(0)), splat(0), a))\
  X(silu_backward, 2, 4, AWAY, a * silu_grad(b, false))                 \
  X(gelu_backward, 2, 1, AWAY, a * gelu_grad(b, false))

// What other ops are made of.
#define HY__OTHER_MAPS(X)                                               \
  X(identity, 1, 1, EVEN, a)                                            \
  X(scale, 1, 1, EVEN, a * p)                                           \
  X(affine, 1, 1, EVEN, fma_(a, p, q))                                  \
  X(softmax_grad, 2, 1, EVEN, b * (a - p))                              \
  X(log_softmax_grad, 2, 1, AWAY, fma_(-exponential(b, bf16), p, a))    \
  X(divide_by, 1, 1, EVEN, a / p)                                       \
  X(to_power, 1, 32, EVEN, power_of(a, p))                              \
  X(power_from, 1, 32, EVEN, power_of(p, a))                            \
  X(square, 1, 1, EVEN, a * a)                                          \
  X(cube, 1, 1, EVEN, a * a * a)                                        \
  X(gelu_tanh, 1, 1, AWAY, gelu_by_tanh(a, bf16))                       \
  X(gelu_tanh_backward, 2, 1, AWAY, a * gelu_tanh_grad(b, false))

#define HY__MAPS(X) HY__OP_MAPS(X) HY__OTHER_MAPS(X)

// X(name, inputs): maps of a few instructions, which a chain runs one after another without leaving the registers.
#define HY__LIGHT_MAPS(X)                                               \
  X(add, 2) X(sub, 2) X(mul, 2) X(div, 2) X(maximum, 2) X(minimum, 2)   \
  X(addcmul, 3) X(addcdiv, 3) X(clamp, 1) X(neg, 1) X(abs, 1)           \
  X(relu, 1) X(sqrt, 1) X(reciprocal, 1) X(scale, 1) X(affine, 1)       \
  X(divide_by, 1) X(square, 1) X(cube, 1) X(sigmoid_backward, 2)        \
  X(tanh_backward, 2) X(relu_backward, 2)

// X(name, inputs, flags): out = 1 where the flags are set, of f32. Each is an op of that name; a
// comparison is also the op name_scalar, whose second input is a number.
#define HY__COMPARISONS(X)                                              \
  X(eq, 2, same(a, b))                                                  \
  X(ne, 2, ~same(a, b))                                                 \
  X(lt, 2, below(a, b))                                                 \
  X(le, 2, at_most(a, b))                                               \
  X(gt, 2, below(b, a))                                                 \
  X(ge, 2, at_most(b, a))

#define HY__TESTS(X)                                                    \
  HY__COMPARISONS(X)                                                    \
  X(logical_and, 2, ~same(a, splat(0)) & ~same(b, splat(0)))            \
  X(logical_or, 2, ~same(a, splat(0)) | ~same(b, splat(0)))             \
  X(logical_xor, 2, same(a, splat(0)) ^ same(b, splat(0)))              \
  X(logical_not, 1, same(a, splat(0)))                                  \
  X(isnan, 1, is_nan(a))                                                \
  X(isfinite, 1, below(absolute(a), splat(INFINITY)))
// clang-format on

// The numbers of a step of AdamW, with what its bias corrections make of them.
typedef struct hy__adamw {
  float keep, step_size, inverse_root, beta1, beta2, rest1, rest2, eps;
} hy__adamw;

// The numbers of a step of SGD. `rest`: how much of the grad goes into the velocity.
typedef struct hy__sgd {
  float lr, sign, decay, momentum, rest;
  bool has_momentum, nesterov, first;
} hy__sgd;

// The output may be one of the inputs. `nontemporal`: stores pass the caches by, for outputs that
// are much larger; `out` is then aligned to 64 bytes and no input.
typedef void hy__map(int64_t n, const void* const* in, float p, float q, void* out,
                     bool nontemporal);
enum { HY__ROW_F32, HY__ROW_BF16, HY__ROW_TYPES, HY__ROW_SPARE = 32 };
typedef void hy__test(int64_t n, const float* const* in, uint8_t* out);

typedef enum hy__light {
#define HY__AS_ENUM(name, inputs) HY__LIGHT_##name,
  HY__LIGHT_MAPS(HY__AS_ENUM)
#undef HY__AS_ENUM
      HY__LIGHTS
} hy__light;

// A light map of rows of f32 in a chain.
typedef struct hy__light_step {
  int32_t map;         // hy__light
  const float* in[3];  // NULL: the result of the step before
  float p, q;
  float* out;  // NULL: only the next step wants it
} hy__light_step;

typedef struct hy__rows {
#define HY__AS_MEMBER(name, inputs, cost, ties, value) hy__map* name[HY__ROW_TYPES];
  HY__MAPS(HY__AS_MEMBER)
#undef HY__AS_MEMBER
#define HY__AS_MEMBER(name, inputs, value) hy__test* name;
  HY__TESTS(HY__AS_MEMBER)
#undef HY__AS_MEMBER
  // Values are those of the maps; `nontemporal` is of the last step's output. An output is apart
  // from the inputs of later steps.
  void (*light_chain)(int64_t n, const hy__light_step* steps, int n_steps, bool nontemporal);
  // Of rows of `dtype`, f32 or bf16. Where `next` is not 0, what is so many bytes further is
  // prefetched while the row is worked on.
  float (*sum)(int64_t n, const void* x, hy_dtype dtype);
  float (*sum_sq_dev)(int64_t n, const void* x, hy_dtype dtype,
                      float centre);  // sum of (x - centre)^2
  float (*product)(int64_t n, const void* x, hy_dtype dtype);
  float (*max)(int64_t n, const void* x, hy_dtype dtype);  // the greatest, whatever NaN is among
  // NaN where one is among them.
  float (*max_or_nan)(int64_t n, const void* x, hy_dtype dtype);
  float (*min_or_nan)(int64_t n, const void* x, hy_dtype dtype);
  float (*dot)(int64_t n, const float* x, const float* y);
  void (*add_into)(int64_t n, const void* x, hy_dtype dtype, float* sums);  // sums += x
  // bf16 as f32 and back.
  void (*widen)(int64_t n, const uint16_t* x, float* out, bool nontemporal);
  void (*narrow)(int64_t n, const float* x, uint16_t* out, bool nontemporal);
  // Waits for the stores past the caches of the functions below, at the end of many rows; maps and
  // conversions do so themselves.
  void (*nontemporal_fence)(void);
  // Returns the sum of exp(x - shift). `terms`, unless NULL, gets them, in an order that is only
  // scale_terms' to know unless the type is f32; it has room for HY__ROW_SPARE more than n. Terms
  // of bf16 and their sum may be off by one common factor.
  float (*exp_sum)(int64_t n, const void* x, hy_dtype dtype, float shift, float* terms,
                   int64_t next);
  void (*scale_terms)(int64_t n, const float* terms, float scale, void* out, hy_dtype dtype,
                      bool nontemporal);
  // out = x - shift - log_sum
  void (*shift_twice)(int64_t n, const void* x, hy_dtype dtype, float shift, float log_sum,
                      void* out, bool nontemporal);
  // out = (x - centre) scale weight + bias, all of one type; weight and bias may be NULL.
  void (*normalise)(int64_t n, const void* x, hy_dtype dtype, float centre, float scale,
                    const void* weight, const void* bias, void* out, int64_t next,
                    bool nontemporal);
  // h = (x - centre) scale, g = dy weight; dweight += dy h, dbias += dy. What may be NULL: weight,
  // dweight, dbias. Returns sum(g), and sum(g h) in *g_h.
  float (*norm_grads)(int64_t n, const float* dy, const float* x, float centre, float scale,
                      const float* weight, float* dweight, float* dbias, float* h, float* g,
                      float* g_h);
  // out = scale (g - mean_g - h mean_gh)
  void (*norm_backward)(int64_t n, const float* g, const float* h, float scale, float mean_g,
                        float mean_gh, float* out);
  // Returns sum(dy), and sum(dy (x - centre)) in *dot.
  float (*grad_sums)(int64_t n, const void* dy, const void* x, hy_dtype dtype, float centre,
                     int64_t next, float* dot);
  // out = of_dy dy + of_x (x - centre) + shift
  void (*mix_grads)(int64_t n, const void* dy, const void* x, hy_dtype dtype, float centre,
                    float of_dy, float of_x, float shift, void* out);
  // Cosines or sines times a factor, in the order in which rows of `dtype` are turned by them.
  // `out` has room for HY__ROW_SPARE more than n.
  void (*order_angles)(int64_t n, const float* angles, hy_dtype dtype, bool interleaved,
                       float factor, float* out);
  // `half` pairs turned by angles: i with i + half, or 2i with 2i + 1.
  void (*rotate_half)(int64_t half, const void* x, hy_dtype dtype, const float* cosine,
                      const float* sine, void* out, bool nontemporal);
  void (*rotate_interleaved)(int64_t half, const void* x, hy_dtype dtype, const float* cosine,
                             const float* sine, void* out, bool nontemporal);
  // in: parameter, both moments, gradient; out: the first three, updated.
  void (*adamw)(int64_t n, const hy__adamw* a, hy_dtype dtype, const void* const* in,
                void* const* out);
  void (*sgd)(int64_t n, const hy__sgd* s, float* param, float* velocity, const float* grad);
} hy__rows;

extern const hy__rows hy__rows_generic, hy__rows_avx2, hy__rows_avx512;

// The best for those feature bits (runtime/isa.h).
const hy__rows* hy__rows_for(uint32_t isa);

#endif  // HALYARD_CPU_ROWS_ROWS_H_
