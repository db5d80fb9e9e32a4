// Elementwise arithmetic and comparison of two tensors, or of a tensor and a number. T is the type
// the op computes in; every op has a kernel for contiguous tensors of T (linear_<op>, and
// linear_<op>_scalar where b is a number), and one kernel takes any types and strides (any).
//
// types: f32 f64 f16 bf16 i8 i16 i32 i64 u8 b8
#include "dependent.cuh"

#ifdef WIDE  // an input is f64, though T is narrower
typedef f64 M;
#else
typedef traits<T>::math M;
#endif

enum { ROUND_NONE, ROUND_TRUNC, ROUND_FLOOR };

struct numbers {
  M alpha;
  int rounding;
  int op;
  hy_gpu_fault* fault;
};

#ifdef INTEGER
DEVICE M divide(M a, M b, const numbers& p) {
  if (b == 0) {
    fault(p.fault, HY_GPU_FAULT_DIVISION, p.op, 0, 0, 0);
    return 0;
  }
  if (b == -1) return (M)(0 - (u64)a);
  M quotient = a / b;
  return p.rounding == ROUND_FLOOR && a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

DEVICE M power(M base, M exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  u64 result = 1, square = (u64)base;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) result *= square;
    square *= square;
  }
  return (M)result;
}

DEVICE bool shift_inside(M b) {
  return b >= 0 && b < (M)(8 * sizeof(T));
}

#define ARITHMETIC(X)                                                            \
  X(add, (M)((u64)a + (u64)p.alpha * (u64)b))                                \
  X(sub, (M)((u64)a - (u64)p.alpha * (u64)b))                                \
  X(mul, (M)((u64)a * (u64)b))                                               \
  X(div, divide(a, b, p))                                                    \
  X(pow, power(a, b))                                                        \
  X(maximum, a > b ? a : b)                                                  \
  X(minimum, a < b ? a : b)                                                  \
  X(bitwise_and, a& b)                                                       \
  X(bitwise_or, a | b)                                                       \
  X(bitwise_xor, a ^ b)                                                      \
  X(shift_left, shift_inside(b) ? (M)((u64)a << b) : 0)                      \
  X(shift_right,                                                             \
    a >> (shift_inside(b) ? b : (M)(8 * sizeof(T)) - (same<T, u8>::value ? 0 : 1)))
#define REVERSED(X)                                  \
  X(rsub, (M)((u64)b - (u64)p.alpha * (u64)a))   \
  X(rpow, power(b, a))
#else
// Python's floor division: exact through the remainder, where a / b alone would round up to the next
// integer. In f64, where quotients of f32 keep all their digits.
DEVICE M divide(M a, M b, const numbers& p) {
  if (p.rounding == ROUND_NONE) return a / b;
  if (p.rounding == ROUND_TRUNC) return m_trunc(rounded<T>(a / b));
  if (b == 0) return a / b;
  f64 x = a, y = b, remainder = fmod(x, y), quotient = (x - remainder) / y;
  if (remainder != 0 && (y < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return (M)copysign(0.0, x / y);
  f64 whole = floor(quotient);
  return (M)(quotient - whole > 0.5 ? whole + 1 : whole);
}

#define ARITHMETIC(X)                                                  \
  X(add, a + p.alpha * b)                                          \
  X(sub, a - p.alpha * b)                                          \
  X(mul, a* b)                                                     \
  X(div, divide(a, b, p))                                          \
  X(pow, m_pow(a, b))                                              \
  X(maximum, is_nan(a) ? a : is_nan(b) ? b : a > b ? a : b)        \
  X(minimum, is_nan(a) ? a : is_nan(b) ? b : a < b ? a : b)
#define REVERSED(X)                 \
  X(rsub, b - p.alpha * a)      \
  X(rpow, m_pow(b, a))
#endif

#define COMPARISON(X)                               \
  X(eq, a == b)                                 \
  X(ne, a != b)                                 \
  X(lt, a < b)                                  \
  X(le, a <= b)                                 \
  X(gt, a > b)                                  \
  X(ge, a >= b)                                 \
  X(logical_and, a != 0 && b != 0)              \
  X(logical_or, a != 0 || b != 0)               \
  X(logical_xor, (a != 0) != (b != 0))

#define AS_FUNCTION(name, expression)            \
  struct name##_fn {                                     \
    typedef T out;                                       \
    DEVICE_MEMBER T of(M a, M b, const numbers& p) {     \
      return from<T>((M)(expression));                   \
    }                                                    \
  };
ARITHMETIC(AS_FUNCTION)
REVERSED(AS_FUNCTION)
#undef AS_FUNCTION
#define AS_FUNCTION(name, expression)            \
  struct name##_fn {                                     \
    typedef b8 out;                                      \
    DEVICE_MEMBER b8 of(M a, M b, const numbers& p) {    \
      return b8{(u8)(expression)};                       \
    }                                                    \
  };
COMPARISON(AS_FUNCTION)
#undef AS_FUNCTION

enum { N = lanes16<T>::n };
typedef vec<T, N> V;

template <class Op>
DEVICE void linear(typename Op::out* out, const T* x, const T* y, i64 n, const numbers& p) {
  typedef vec<typename Op::out, N> W;
  i64 whole = n / N;
  GRID_STRIDE(i, whole) {
    V a = ((const V*)x)[i], b = ((const V*)y)[i];
    W r;
#pragma unroll
    for (int k = 0; k < N; k++) r.at[k] = Op::of(to<M>(a.at[k]), to<M>(b.at[k]), p);
    ((W*)out)[i] = r;
  }
  i64 at = whole * N + (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) out[at] = Op::of(to<M>(x[at]), to<M>(y[at]), p);
}

template <class Op>
DEVICE void linear_number(typename Op::out* out, const T* x, M b, i64 n, const numbers& p) {
  typedef vec<typename Op::out, N> W;
  i64 whole = n / N;
  GRID_STRIDE(i, whole) {
    V a = ((const V*)x)[i];
    W r;
#pragma unroll
    for (int k = 0; k < N; k++) r.at[k] = Op::of(to<M>(a.at[k]), b, p);
    ((W*)out)[i] = r;
  }
  i64 at = whole * N + (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) out[at] = Op::of(to<M>(x[at]), b, p);
}

// The numbers of a call, in the domain of M.
DEVICE numbers numbers_of(const hy_gpu_elementwise& e) {
  return numbers{traits<T>::is_float ? (M)e.f[1] : (M)e.i[1], e.attribute, e.op, e.fault};
}
DEVICE M value_of(const hy_gpu_elementwise& e) {
  if (!traits<T>::is_float) return (M)e.i[0];
  return e.rounds ? to<M>(from<T>(e.f[0])) : (M)e.f[0];
}

#define AS_KERNEL(name, expression)                                              \
  KERNEL void linear_##name(const hy_gpu_elementwise e) {                                \
    launch_dependents();                                                                 \
    wait_for_previous();                                                                 \
    linear<name##_fn>((name##_fn::out*)e.walk.data[0], (const T*)e.walk.data[1],         \
                      (const T*)e.walk.data[2], e.walk.n, numbers_of(e));                \
  }
ARITHMETIC(AS_KERNEL)
COMPARISON(AS_KERNEL)
#undef AS_KERNEL
#define AS_KERNEL(name, expression)                                              \
  KERNEL void linear_##name##_scalar(const hy_gpu_elementwise e) {                       \
    launch_dependents();                                                                 \
    wait_for_previous();                                                                 \
    linear_number<name##_fn>((name##_fn::out*)e.walk.data[0], (const T*)e.walk.data[1],  \
                             value_of(e), e.walk.n, numbers_of(e));                      \
  }
ARITHMETIC(AS_KERNEL)
REVERSED(AS_KERNEL)
COMPARISON(AS_KERNEL)
#undef AS_KERNEL

template <class I>
DEVICE void any_of(const hy_gpu_elementwise& e) {
  numbers p = numbers_of(e);
  GRID_STRIDE(i, e.walk.n) {
    i64 at[3];
    walk_offsets<3>(e.walk, (I)i, at);
    M a = operand<T, M>(e.walk.dtype[1], e.walk.data[1], at[1]), b = value_of(e);
    if (e.walk.count > 2) b = operand<T, M>(e.walk.dtype[2], e.walk.data[2], at[2]);
    M result = 0;
    switch (e.which) {
#define AS_CASE(name, expression) \
  case OP_##name: result = to<M>(name##_fn::of(a, b, p)); break;
      ARITHMETIC(AS_CASE)
      COMPARISON(AS_CASE)
#undef AS_CASE
#define AS_CASE(name, expression) \
  case OP_##name##_scalar: result = to<M>(name##_fn::of(a, b, p)); break;
      REVERSED(AS_CASE)
#undef AS_CASE
    }
    store_any(e.walk.dtype[0], e.walk.data[0], at[0], result);
  }
}

KERNEL void any(const hy_gpu_elementwise e) {
  if (e.walk.n < 0x80000000ll)
    any_of<u32>(e);
  else
    any_of<i64>(e);
}

// ---- Rows ----

// N elements from `at`, neighbours in memory or one for all.
DEVICE V row_vector(const hy_gpu_walk& w, int k, i64 at) {
  const T* x = (const T*)w.data[k] + at;
  if (w.stride[k][w.ndim - 1] != 0) return *(const V*)x;
  V all;
#pragma unroll
  for (int i = 0; i < N; i++) all.at[i] = *x;
  return all;
}

// Arithmetic of tensors of T whose innermost dimension is made of whole vectors: slices of rows, a
// row or a column broadcast to all. (Every function here costs time to compile; others take `any`.)
#define ROW_ARITHMETIC(X) X(add) X(sub) X(mul) X(maximum) X(minimum)
KERNEL void rows(const hy_gpu_elementwise e) {
  numbers p = numbers_of(e);
  GRID_STRIDE(i, e.walk.n / N) {
    i64 at[3];
    if (e.walk.n < 0x80000000ll)
      walk_offsets<3>(e.walk, (u32)(i * N), at);
    else
      walk_offsets<3>(e.walk, i * N, at);
    V a = row_vector(e.walk, 1, at[1]), b = row_vector(e.walk, 2, at[2]), r;
    switch (e.which) {
#define AS_CASE(name)                                                                        \
  case OP_##name:                                                                            \
    for (int k = 0; k < N; k++) r.at[k] = name##_fn::of(to<M>(a.at[k]), to<M>(b.at[k]), p);  \
    break;
      ROW_ARITHMETIC(AS_CASE)
#undef AS_CASE
    }
    *(V*)((T*)e.walk.data[0] + at[0]) = r;
  }
}
