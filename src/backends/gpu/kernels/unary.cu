// Elementwise ops of one input, and the gradients that need more than a product. T is the type the op
// computes in; every op has a kernel for contiguous tensors of T (linear_<op>), and one kernel takes
// any types and strides (any).
//
// types: f32 f64 f16 bf16 i8 i16 i32 i64 u8 b8

#ifdef WIDE  // an input is f64, though T is narrower
typedef f64 M;
#else
typedef traits<T>::math M;
#endif

#ifdef INTEGER
#define UNARY(X)                                    \
  X(neg, (M)(0 - (u64)x))                       \
  X(abs, x < 0 ? (M)(0 - (u64)x) : x)           \
  X(sign, (x > 0) - (x < 0))                    \
  X(floor, x)                                   \
  X(ceil, x)                                    \
  X(round, x)                                   \
  X(trunc, x)                                   \
  X(relu, x < 0 ? 0 : x)                        \
  X(bitwise_not, (same<T, b8>::value ? !x : ~x))
#define SLOPES(X)
#else
#include "sigmoid.cuh"

#define SQRT_HALF (M)0.70710678118654752440
#define SQRT_2_OVER_PI (M)0.79788456080286535588
#define ONE_OVER_SQRT_2_PI (M)0.39894228040143267794
#define GELU_CUBIC (M)0.044715

DEVICE M gelu(M x, bool approximate) {
  if (approximate)
    return (M)0.5 * x * (1 + m_tanh(SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x)));
  return (M)0.5 * x * (1 + m_erf(x * SQRT_HALF));
}

DEVICE M gelu_slope(M x, bool approximate) {
  if (!approximate)
    return (M)0.5 * (1 + m_erf(x * SQRT_HALF)) +
           x * ONE_OVER_SQRT_2_PI * m_exp((M)-0.5 * x * x);
  // From 40 on it is 0 or 1 in every digit, and further out the square overflows.
  M b = x > 40 ? (M)40 : x < -40 ? (M)-40 : x;
  M t = m_tanh(SQRT_2_OVER_PI * (b + GELU_CUBIC * b * b * b));
  M inner_slope = SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * b * b);
  return (M)0.5 * (1 + t) + (M)0.5 * b * (1 - t * t) * inner_slope + 0 * x;
}

// Number, op, and what becomes of x.
#define UNARY(X)                                          \
  X(neg, -x)                                          \
  X(abs, m_abs(x))                                    \
  X(sign, (M)((x > 0) - (x < 0)))                     \
  X(floor, m_floor(x))                                \
  X(ceil, m_ceil(x))                                  \
  X(round, m_round(x))                                \
  X(trunc, m_trunc(x))                                \
  X(sqrt, m_sqrt(x))                                  \
  X(rsqrt, 1 / m_sqrt(x))                             \
  X(reciprocal, 1 / x)                                \
  X(exp, m_exp(x))                                    \
  X(log, m_log(x))                                    \
  X(cos, m_cos(x))                                    \
  X(sin, m_sin(x))                                    \
  X(tanh, m_tanh(x))                                  \
  X(sigmoid, sigmoid(x))                              \
  X(erf, m_erf(x))                                    \
  X(silu, x * sigmoid(x))                             \
  X(gelu, gelu(x, attribute))                         \
  X(relu, x < 0 ? 0 : x)

// The same for a gradient dy and the op's output or input v.
#define SLOPES(X)                                                              \
  X(sigmoid_backward, dy * (v * (1 - v)))                                 \
  X(tanh_backward, dy * (1 - v * v))                                      \
  X(relu_backward, v <= 0 ? 0 : dy)                                       \
  X(silu_backward, dy * (sigmoid(v) * (1 + v * (1 - sigmoid(v)))))        \
  X(gelu_backward, dy * gelu_slope(v, attribute))
#endif

#define AS_FUNCTION(name, expression)          \
  struct name##_fn {                                   \
    DEVICE_MEMBER M of(M x, int attribute) {           \
      return expression;                               \
    }                                                  \
  };
UNARY(AS_FUNCTION)
#undef AS_FUNCTION
#define AS_FUNCTION(name, expression)          \
  struct name##_fn {                                   \
    DEVICE_MEMBER M of(M dy, M v, int attribute) {     \
      return expression;                               \
    }                                                  \
  };
SLOPES(AS_FUNCTION)
#undef AS_FUNCTION

enum { N = lanes16<T>::n };
typedef vec<T, N> V;

template <class Op>
DEVICE void linear1(T* out, const T* x, i64 n, int attribute) {
  i64 whole = n / N;
  GRID_STRIDE(i, whole) {
    V a = ((const V*)x)[i];
#pragma unroll
    for (int k = 0; k < N; k++) a.at[k] = from<T>(Op::of(to<M>(a.at[k]), attribute));
    ((V*)out)[i] = a;
  }
  i64 at = whole * N + (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) out[at] = from<T>(Op::of(to<M>(x[at]), attribute));
}

template <class Op>
DEVICE void linear2(T* out, const T* x, const T* y, i64 n, int attribute) {
  i64 whole = n / N;
  GRID_STRIDE(i, whole) {
    V a = ((const V*)x)[i], b = ((const V*)y)[i];
#pragma unroll
    for (int k = 0; k < N; k++)
      a.at[k] = from<T>(Op::of(to<M>(a.at[k]), to<M>(b.at[k]), attribute));
    ((V*)out)[i] = a;
  }
  i64 at = whole * N + (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) out[at] = from<T>(Op::of(to<M>(x[at]), to<M>(y[at]), attribute));
}

#define AS_KERNEL(name, expression)                                    \
  KERNEL void linear_##name(T* out, const T* x, i64 n, int attribute) {        \
    linear1<name##_fn>(out, x, n, attribute);                                  \
  }
UNARY(AS_KERNEL)
#undef AS_KERNEL
#define AS_KERNEL(name, expression)                                              \
  KERNEL void linear_##name(T* out, const T* x, const T* y, i64 n, int attribute) {      \
    linear2<name##_fn>(out, x, y, n, attribute);                                         \
  }
SLOPES(AS_KERNEL)
#undef AS_KERNEL

template <class I>
DEVICE void any_of(const hy_gpu_elementwise& e) {
  GRID_STRIDE(i, e.walk.n) {
    i64 at[3];
    walk_offsets<3>(e.walk, (I)i, at);
    M x = operand<T, M>(e.walk.dtype[1], e.walk.data[1], at[1]);
    M y = e.walk.count > 2 ? operand<T, M>(e.walk.dtype[2], e.walk.data[2], at[2]) : x;
    M result = x;
    int attribute = e.attribute;
    switch (e.op) {
#define AS_CASE(name, expression) \
  case OP_##name: result = name##_fn::of(x, attribute); break;
      UNARY(AS_CASE)
#undef AS_CASE
#define AS_CASE(name, expression) \
  case OP_##name: result = name##_fn::of(x, y, attribute); break;
      SLOPES(AS_CASE)
#undef AS_CASE
    }
    store_any(e.walk.dtype[0], e.walk.data[0], at[0], rounded<T>(result));
  }
}

KERNEL void any(const hy_gpu_elementwise e) {
  if (e.walk.n < 0x80000000ll)
    any_of<u32>(e);
  else
    any_of<i64>(e);
}

// Activations of one tensor of T whose innermost dimension is made of whole vectors, such as a slice
// of rows. (Every function here costs time to compile; others take `any`.)
#define ACTIVATION(X) X(silu) X(gelu) X(relu)
#ifndef INTEGER
KERNEL void rows(const hy_gpu_elementwise e) {
  int attribute = e.attribute;
  GRID_STRIDE(i, e.walk.n / N) {
    i64 at[2];
    if (e.walk.n < 0x80000000ll)
      walk_offsets<2>(e.walk, (u32)(i * N), at);
    else
      walk_offsets<2>(e.walk, i * N, at);
    V x = *(const V*)((const T*)e.walk.data[1] + at[1]);
    switch (e.op) {
#define AS_CASE(name)                                                                         \
  case OP_##name:                                                                             \
    for (int k = 0; k < N; k++) x.at[k] = from<T>(name##_fn::of(to<M>(x.at[k]), attribute));  \
    break;
      ACTIVATION(AS_CASE)
#undef AS_CASE
    }
    *(V*)((T*)e.walk.data[0] + at[0]) = x;
  }
}
#endif
