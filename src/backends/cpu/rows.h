// Arithmetic on rows of floats that lie in the nearest cache: one body of plain C (rows_body.inc),
// compiled for each instruction set. What is in another type or not contiguous is widened into such
// rows first and narrowed after.
#ifndef HALYARD_CPU_ROWS_H_
#define HALYARD_CPU_ROWS_H_

#include <stdint.h>

// X(name, value): out[i] = value, from a[i], b[i] and the number p.
#define HY__MAPS(X)                                  \
  X(add, FMA(p, b, a))                               \
  X(sub, FMA(-p, b, a))                              \
  X(mul, a* b)                                       \
  X(scale, a* p)                                     \
  X(softmax_slope, b*(a - p))                        \
  X(log_softmax_slope, FMA(-exponential(b), p, a))   \
  X(div, a / b)                                      \
  X(maximum, a != a ? a : a > b ? a : b < a ? a : b) \
  X(minimum, a != a ? a : a < b ? a : b > a ? a : b) \
  X(neg, -a)                                         \
  X(abs, absolute(a))                                \
  X(relu, a < 0 ? 0 : a)                             \
  X(sqrt, SQRT(a))                                   \
  X(rsqrt, 1 / SQRT(a))                              \
  X(reciprocal, 1 / a)                               \
  X(exp, exponential(a))                             \
  X(tanh, hyperbolic_tangent(a))                     \
  X(sigmoid, logistic(a))                            \
  X(erf, error_function(a))                          \
  X(silu, a* logistic(a))                            \
  X(gelu, a* normal_cdf(a))                          \
  X(gelu_tanh, gelu_by_tanh(a))                      \
  X(sigmoid_backward, a*(b * (1 - b)))               \
  X(tanh_backward, a* FMA(-b, b, 1))                 \
  X(relu_backward, b <= 0 ? 0 : a)                   \
  X(silu_backward, a* silu_slope(b))                 \
  X(gelu_backward, a* gelu_slope(b))                 \
  X(gelu_tanh_backward, a* gelu_by_tanh_slope(b))

// The numbers of a step of AdamW, with what its bias corrections make of them.
typedef struct hy__adamw {
  float keep, step_size, inverse_root, beta1, beta2, rest1, rest2, eps;
} hy__adamw;

typedef void hy__map(int64_t n, const float* a, const float* b, float p, float* out);

typedef struct hy__rows {
#define HY__AS_MEMBER(name, value) hy__map* name;
  HY__MAPS(HY__AS_MEMBER)
#undef HY__AS_MEMBER
  float (*sum)(int64_t n, const float* x);
  float (*dot)(int64_t n, const float* x, const float* y);
  float (*spread)(int64_t n, const float* x, float centre);  // sum of (x - centre)^2
  float (*most)(int64_t n, const float* x);                  // the greatest, whatever NaN is among
  // out = exp(x - shift); returns their sum.
  float (*exp_sum)(int64_t n, const float* x, float shift, float* out);
  // out = (x - shift) - log_sum
  void (*shift_twice)(int64_t n, const float* x, float shift, float log_sum, float* out);
  // out = (x - centre) scale weight + bias; weight and bias may be NULL.
  void (*normalise)(int64_t n, const float* x, float centre, float scale, const float* weight,
                    const float* bias, float* out);
  // h = (x - centre) scale, g = dy weight; dweight += dy h, dbias += dy. What may be NULL: weight,
  // dweight, dbias. Returns sum(g), and sum(g h) in *g_h.
  float (*norm_slopes)(int64_t n, const float* dy, const float* x, float centre, float scale,
                       const float* weight, float* dweight, float* dbias, float* h, float* g,
                       float* g_h);
  // out = scale (g - mean_g - h mean_gh)
  void (*norm_backward)(int64_t n, const float* g, const float* h, float scale, float mean_g,
                        float mean_gh, float* out);
  // `half` pairs turned by angles, backwards where the direction is -1: i with i + half, or 2i with
  // 2i + 1.
  void (*turn_halves)(int64_t half, const float* x, const float* cosine, const float* sine,
                      float direction, float* out);
  void (*turn_pairs)(int64_t half, const float* x, const float* cosine, const float* sine,
                     float direction, float* out);
  void (*adamw)(int64_t n, const hy__adamw* a, float* param, float* m, float* v, const float* grad);
} hy__rows;

extern const hy__rows hy__rows_scalar, hy__rows_avx2, hy__rows_avx512;

#endif  // HALYARD_CPU_ROWS_H_
