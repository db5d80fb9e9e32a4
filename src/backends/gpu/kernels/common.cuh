// Device code that every kernel source starts with: element types and their conversions, warp and
// block reductions, Philox, walking strided tensors, faults. No header is included, so that a
// run-time compiler needs none; CUDA and HIP differ in the macros of the first part alone.

// ---- CUDA and HIP ----

#if defined(__HIP__) || defined(__HIPCC__)
#include "hip.cuh"
#else
#define HY_HIP 0
#define HY_WARP 32
#define SHFL_XOR(value, mask) __shfl_xor_sync(0xffffffffu, value, mask)
#define SHFL_UP(value, delta) __shfl_up_sync(0xffffffffu, value, delta)
#define SHFL_DOWN(value, delta) __shfl_down_sync(0xffffffffu, value, delta)
#define SHFL(value, lane) __shfl_sync(0xffffffffu, value, lane)
#endif
// The instruction set that asm names.
#if !HY_HIP && !defined(HY_EMULATOR)
#define HY_PTX 1
#else
#define HY_PTX 0
#endif
#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__

// ---- Types ----

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8e4m3 {
  u8 bits;
};
struct f8e5m2 {
  u8 bits;
};
struct b8 {
  u8 bits;  // anything but 0 is true
};

// Values of hy_dtype.
enum {
  DT_F32 = 1,
  DT_F64,
  DT_F16,
  DT_BF16,
  DT_I8,
  DT_I16,
  DT_I32,
  DT_I64,
  DT_U8,
  DT_BOOL,
  DT_F8E4M3,
  DT_F8E5M2
};

#define INF_F32 __int_as_float(0x7f800000)
#define NAN_F32 __int_as_float(0x7fffffff)

// The type that T computes in (`math`), and whether it is a float.
template <class T>
struct traits {
  typedef i64 math;
  static const bool is_float = false;
};
#define FLOAT_TRAITS(T, M)              \
  template <>                           \
  struct traits<T> {                    \
    typedef M math;                     \
    static const bool is_float = true;  \
  };
FLOAT_TRAITS(f32, f32)
FLOAT_TRAITS(f64, f64)
FLOAT_TRAITS(f16, f32)
FLOAT_TRAITS(bf16, f32)
FLOAT_TRAITS(f8e4m3, f32)
FLOAT_TRAITS(f8e5m2, f32)
#undef FLOAT_TRAITS

template <class A, class B>
struct same {
  static const bool value = false;
};
template <class A>
struct same<A, A> {
  static const bool value = true;
};

// ---- Floats of 16 and 8 bits ----

DEVICE f32 f16_to_f32(u16 bits) {
#if HY_PTX
  f32 value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  return (f32)__builtin_bit_cast(_Float16, bits);
#endif
}

DEVICE u16 f32_to_f16(f32 value) {
#if HY_PTX
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  return __builtin_bit_cast(u16, (_Float16)value);
#endif
}

DEVICE f32 bf16_to_f32(u16 bits) {
  return __uint_as_float((u32)bits << 16);
}

DEVICE u16 f32_to_bf16(f32 value) {
#if HY_PTX && __CUDA_ARCH__ >= 800
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
#else
  u32 bits = __float_as_uint(value);
  if (value != value) return (u16)(bits >> 16 | 0x40);
  return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

// A format of 8 bits by its exponent's and mantissa's widths. Without infinity, the largest number
// takes its place.
template <int E, int M, bool has_infinity>
DEVICE f32 f8_to_f32(u32 code) {
  const u32 all_ones = (1u << E) - 1;
  const int bias = (1 << (E - 1)) - 1;
  u32 sign = (code >> (E + M) & 1) << 31, mantissa = code & ((1u << M) - 1);
  u32 exponent = code >> M & all_ones;
  if (exponent == all_ones && (has_infinity || mantissa == (1u << M) - 1))
    return __uint_as_float(sign | 0x7f800000u | mantissa << (23 - M));
  if (exponent == 0) {
    f32 value = (f32)mantissa * __uint_as_float((u32)(127 + 1 - bias - M) << 23);
    return __uint_as_float(sign | __float_as_uint(value));
  }
  return __uint_as_float(sign | (exponent + 127 - bias) << 23 | mantissa << (23 - M));
}

template <int E, int M, bool has_infinity>
DEVICE u32 f32_to_f8(f32 value) {
  const u32 all_ones = (1u << E) - 1;
  const int bias = (1 << (E - 1)) - 1, least = 1 - bias;
  const u32 nan = all_ones << M | (has_infinity ? 1u << (M - 1) : (1u << M) - 1);
  const u32 overflow = has_infinity ? all_ones << M : nan - 1;
  const u32 largest = has_infinity ? (all_ones << M) - 1 : nan - 1;
  u32 bits = __float_as_uint(value), sign = (bits >> 31) << (E + M), magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | nan;
  if (magnitude == 0x7f800000u) return sign | overflow;
  int exponent = magnitude >> 23 ? (int)(magnitude >> 23) - 127 : -126;
  u32 significand = (magnitude & 0x7fffffu) | (magnitude >> 23 ? 0x800000u : 0);
  int drop = 23 - M + (exponent < least ? least - exponent : 0);
  if (drop > 25) return sign;
  u32 kept = significand >> drop, rest = significand & ((1u << drop) - 1), half = 1u << (drop - 1);
  if (rest > half || (rest == half && (kept & 1))) kept++;
  u32 code = exponent < least ? kept : ((u32)(exponent - least) << M) + kept;
  return sign | (code > largest ? overflow : code);
}

// ---- Conversions ----

// A float truncates to an integer, saturates at [low, high], and NaN gives 0.
template <class F>
DEVICE i64 saturate(F value, i64 low, i64 high) {
  if (value != value) return 0;
  if (value <= (F)low) return low;
  if (value >= (F)high) return high;
  return (i64)value;
}
#define I64_LOW (-9223372036854775807LL - 1)
#define I64_HIGH 9223372036854775807LL

// to<M>(x): an element as f32, f64 or i64. from<T>(m): the nearest element, ties to even.
template <class M>
struct to_;
template <class M, class T>
DEVICE M to(T x) {
  return to_<M>::of(x);
}
#define TO_FLOAT(M)                                                                       \
  template <>                                                                             \
  struct to_<M> {                                                                         \
    DEVICE_MEMBER M of(f32 x) { return (M)x; }                                            \
    DEVICE_MEMBER M of(f64 x) { return (M)x; }                                            \
    DEVICE_MEMBER M of(f16 x) { return (M)f16_to_f32(x.bits); }                           \
    DEVICE_MEMBER M of(bf16 x) { return (M)bf16_to_f32(x.bits); }                         \
    DEVICE_MEMBER M of(f8e4m3 x) { return (M)f8_to_f32<4, 3, false>(x.bits); }            \
    DEVICE_MEMBER M of(f8e5m2 x) { return (M)f8_to_f32<5, 2, true>(x.bits); }             \
    DEVICE_MEMBER M of(i8 x) { return (M)x; }                                             \
    DEVICE_MEMBER M of(i16 x) { return (M)x; }                                            \
    DEVICE_MEMBER M of(i32 x) { return (M)x; }                                            \
    DEVICE_MEMBER M of(i64 x) { return (M)x; }                                            \
    DEVICE_MEMBER M of(u8 x) { return (M)x; }                                             \
    DEVICE_MEMBER M of(b8 x) { return (M)(x.bits != 0); }                                 \
  };
#define DEVICE_MEMBER static __device__ __forceinline__
TO_FLOAT(f32)
TO_FLOAT(f64)
#undef TO_FLOAT
template <>
struct to_<i64> {
  DEVICE_MEMBER i64 of(f32 x) { return saturate(x, I64_LOW, I64_HIGH); }
  DEVICE_MEMBER i64 of(f64 x) { return saturate(x, I64_LOW, I64_HIGH); }
  DEVICE_MEMBER i64 of(f16 x) { return of(f16_to_f32(x.bits)); }
  DEVICE_MEMBER i64 of(bf16 x) { return of(bf16_to_f32(x.bits)); }
  DEVICE_MEMBER i64 of(f8e4m3 x) { return of(f8_to_f32<4, 3, false>(x.bits)); }
  DEVICE_MEMBER i64 of(f8e5m2 x) { return of(f8_to_f32<5, 2, true>(x.bits)); }
  DEVICE_MEMBER i64 of(i8 x) { return x; }
  DEVICE_MEMBER i64 of(i16 x) { return x; }
  DEVICE_MEMBER i64 of(i32 x) { return x; }
  DEVICE_MEMBER i64 of(i64 x) { return x; }
  DEVICE_MEMBER i64 of(u8 x) { return x; }
  DEVICE_MEMBER i64 of(b8 x) { return x.bits != 0; }
};

template <class T>
struct from_;
template <class T, class M>
DEVICE T from(M m) {
  return from_<T>::of(m);
}
#define FROM_NUMBER(T)                           \
  template <>                                    \
  struct from_<T> {                              \
    DEVICE_MEMBER T of(f32 m) { return (T)m; }   \
    DEVICE_MEMBER T of(f64 m) { return (T)m; }   \
    DEVICE_MEMBER T of(i64 m) { return (T)m; }   \
  };
FROM_NUMBER(f32)
FROM_NUMBER(f64)
#undef FROM_NUMBER
// Through f32, also from f64.
#define FROM_SMALL(T, encode)                                           \
  template <>                                                           \
  struct from_<T> {                                                     \
    DEVICE_MEMBER T of(f32 m) { return T{(decltype(T::bits))encode(m)}; } \
    DEVICE_MEMBER T of(f64 m) { return of((f32)m); }                    \
    DEVICE_MEMBER T of(i64 m) { return of((f32)m); }                    \
  };
FROM_SMALL(f16, f32_to_f16)
FROM_SMALL(bf16, f32_to_bf16)
FROM_SMALL(f8e4m3, (f32_to_f8<4, 3, false>))
FROM_SMALL(f8e5m2, (f32_to_f8<5, 2, true>))
#undef FROM_SMALL
#define FROM_INTEGER(T, low, high)                                   \
  template <>                                                        \
  struct from_<T> {                                                  \
    DEVICE_MEMBER T of(f32 m) { return (T)saturate(m, low, high); }  \
    DEVICE_MEMBER T of(f64 m) { return (T)saturate(m, low, high); }  \
    DEVICE_MEMBER T of(i64 m) { return (T)m; }                       \
  };
FROM_INTEGER(i8, -128, 127)
FROM_INTEGER(i16, -32768, 32767)
FROM_INTEGER(i32, -2147483648LL, 2147483647LL)
FROM_INTEGER(i64, I64_LOW, I64_HIGH)
FROM_INTEGER(u8, 0, 255)
#undef FROM_INTEGER
template <>
struct from_<b8> {
  DEVICE_MEMBER b8 of(f32 m) { return b8{(u8)(m != 0)}; }
  DEVICE_MEMBER b8 of(f64 m) { return b8{(u8)(m != 0)}; }
  DEVICE_MEMBER b8 of(i64 m) { return b8{(u8)(m != 0)}; }
};

// The element that T would hold, back in the type of computation.
template <class T, class M>
DEVICE M rounded(M m) {
  return to<M>(from<T>(m));
}

// Element i of memory whose type is known only at run time.
#define EACH_DTYPE(X)                                                                          \
  X(DT_F32, f32) X(DT_F64, f64) X(DT_F16, f16) X(DT_BF16, bf16) X(DT_I8, i8) X(DT_I16, i16)    \
  X(DT_I32, i32) X(DT_I64, i64) X(DT_U8, u8) X(DT_BOOL, b8) X(DT_F8E4M3, f8e4m3)               \
  X(DT_F8E5M2, f8e5m2)
template <class M>
DEVICE M load_any(int dtype, const char* data, i64 i) {
  switch (dtype) {
#define AS_CASE(value, type) \
  case value: return to<M>(((const type*)data)[i]);
    EACH_DTYPE(AS_CASE)
#undef AS_CASE
  }
  return 0;
}
template <class M>
DEVICE void store_any(int dtype, char* data, i64 i, M m) {
  switch (dtype) {
#define AS_CASE(value, type) \
  case value: ((type*)data)[i] = from<type>(m); return;
    EACH_DTYPE(AS_CASE)
#undef AS_CASE
  }
}
// An index of either integer type.
DEVICE i64 load_index(int dtype, const char* data, i64 i) {
  return dtype == DT_I64   ? ((const i64*)data)[i]
         : dtype == DT_I32 ? (i64)((const i32*)data)[i]
                           : load_any<i64>(dtype, data, i);
}

// An element of run-time type as an op that computes for T takes it: as T would hold it.
template <class T, class M>
DEVICE M operand(int dtype, const char* data, i64 i) {
  return rounded<T>(load_any<M>(dtype, data, i));
}

// N elements that load and store as one.
template <class T, int N>
struct alignas(sizeof(T) * N) vec {
  T at[N];
};
template <class T>
struct lanes16 {
  static const int n = 16 / sizeof(T);
};

// ---- Reductions ----

struct add_op {
  template <class M>
  static __device__ __forceinline__ M of(M a, M b) {
    return a + b;
  }
};
// NaN wins; which zero does is open. PTX has that for f32 in one instruction.
struct max_op {
  template <class M>
  static __device__ __forceinline__ M of(M a, M b) {
    return a != a || a > b ? a : b;
  }
#if HY_PTX && __CUDA_ARCH__ >= 800
  static __device__ __forceinline__ f32 of(f32 a, f32 b) {
    f32 most;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(a), "f"(b));
    return most;
  }
#endif
};
struct min_op {
  template <class M>
  static __device__ __forceinline__ M of(M a, M b) {
    return a != a || a < b ? a : b;
  }
#if HY_PTX && __CUDA_ARCH__ >= 800
  static __device__ __forceinline__ f32 of(f32 a, f32 b) {
    f32 least;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
    return least;
  }
#endif
};

// Over the lanes of a warp; every lane gets the result.
template <class Op, class M>
DEVICE M warp_reduce(M value) {
#pragma unroll
  for (int mask = HY_WARP / 2; mask > 0; mask /= 2) value = Op::of(value, SHFL_XOR(value, mask));
  return value;
}

// Over the lanes of a warp, of N values at once, N a power of 2: lanes i * HY_WARP / N and those behind
// it get that of v[i]. Costs one shuffle for each step but the first, where it costs N / 2.
template <class Op, int N, class M>
DEVICE M warp_reduce_each(M (&v)[N]) {
  int bit = HY_WARP / 2;
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2, bit /= 2) {
    const bool upper = threadIdx.x % HY_WARP & bit;
#pragma unroll
    for (int i = 0; i < half; i++) {
      M gone = upper ? v[i] : v[i + half], kept = upper ? v[i + half] : v[i];
      v[i] = Op::of(kept, SHFL_XOR(gone, bit));
    }
  }
#pragma unroll
  for (; bit > 0; bit /= 2) v[0] = Op::of(v[0], SHFL_XOR(v[0], bit));
  return v[0];
}

// Over the threads of a block whose size is a multiple of the warp's, at most 1024; every thread gets
// the result. `partial` is shared memory for one value a warp; a block may use it again at once.
template <class Op, class M>
DEVICE M block_reduce(M value, M* partial) {
  int threads = blockDim.x * blockDim.y, id = threadIdx.x + threadIdx.y * blockDim.x;
  int warps = threads / HY_WARP, warp = id / HY_WARP, lane = id % HY_WARP;
  value = warp_reduce<Op>(value);
  if (warps == 1) return value;
  __syncthreads();
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = partial[0];
  for (int w = 1; w < warps; w++) value = Op::of(value, partial[w]);
  return value;
}

// ---- Philox4x32-10, as src/ops/philox.h ----

struct philox_block {
  u32 word[4];
};
DEVICE philox_block philox(u64 seed, u64 block) {
  u32 c0 = (u32)block, c1 = (u32)(block >> 32), c2 = 0, c3 = 0;
  u32 key0 = (u32)seed, key1 = (u32)(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    u64 a = (u64)0xd2511f53u * c0, b = (u64)0xcd9e8d57u * c2;
    c0 = (u32)(b >> 32) ^ c1 ^ key0;
    c1 = (u32)b;
    c2 = (u32)(a >> 32) ^ c3 ^ key1;
    c3 = (u32)a;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return philox_block{{c0, c1, c2, c3}};
}

// ---- Strided tensors ----

// Element i, in row-major order of the walk's shape, of the first K tensors. I is u32 where the
// walk's n allows it: division of 64 bits is slow.
template <int K, class I>
DEVICE void walk_offsets(const hy_gpu_walk& w, I i, i64* offset) {
#pragma unroll
  for (int k = 0; k < K; k++) offset[k] = 0;
  for (int d = w.ndim - 1; d > 0; d--) {
    I size = (I)w.shape[d], next = i / size, at = i - next * size;
#pragma unroll
    for (int k = 0; k < K; k++) offset[k] += (i64)at * w.stride[k][d];
    i = next;
  }
#pragma unroll
  for (int k = 0; k < K; k++) offset[k] += (i64)i * w.stride[k][0];
}

// Element i of a view in row-major order, in elements from its data.
DEVICE i64 view_offset(const hy_gpu_view& t, i64 i) {
  i64 offset = 0;
  for (int d = t.ndim - 1; d >= 0; d--) {
    i64 size = t.shape[d], next;
    if ((u64)i < 0x100000000ull && (u64)size < 0x100000000ull)
      next = (u32)i / (u32)size;
    else
      next = i / size;
    offset += (i - next * size) * t.stride[d];
    i = next;
  }
  return offset;
}

// A thread's first element and the step to its next, over the whole grid.
#define GRID_STRIDE(i, n)                                                    \
  for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, grid_step_ =      \
               (i64)gridDim.x * blockDim.x;                                  \
       i < (n); i += grid_step_)

// ---- Faults ----

// Says that a value is bad; the stream fails with it once the host looks. The kernel goes on.
DEVICE void fault(hy_gpu_fault* where, int kind, int op, i64 value, i64 dim, i64 size) {
  volatile hy_gpu_fault* f = where;
  if (f->op) return;
  f->kind = kind;
  f->value = value;
  f->dim = dim;
  f->size = size;
  __threadfence_system();
  f->op = op;
}

// Whether `index` is one of `size` positions; a negative one counts from the end with `wrap`.
DEVICE bool check_index(hy_gpu_fault* where, int op, i64* index, i64 dim, i64 size, bool wrap) {
  if (*index >= size || *index < (wrap ? -size : 0)) {
    fault(where, HY_GPU_FAULT_INDEX, op, *index, dim, size);
    return false;
  }
  if (*index < 0) *index += size;
  return true;
}

// ---- Functions of both floating types ----

#define BOTH_FLOATS(name, of_f32, of_f64)        \
  DEVICE f32 name(f32 x) { return of_f32(x); }   \
  DEVICE f64 name(f64 x) { return of_f64(x); }
BOTH_FLOATS(m_exp, expf, exp)
BOTH_FLOATS(m_log, logf, log)
BOTH_FLOATS(m_sqrt, sqrtf, sqrt)
BOTH_FLOATS(m_sin, sinf, sin)
BOTH_FLOATS(m_cos, cosf, cos)
BOTH_FLOATS(m_tanh, tanhf, tanh)
BOTH_FLOATS(m_erf, erff, erf)
BOTH_FLOATS(m_abs, fabsf, fabs)
BOTH_FLOATS(m_floor, floorf, floor)
BOTH_FLOATS(m_ceil, ceilf, ceil)
BOTH_FLOATS(m_round, rintf, rint)
BOTH_FLOATS(m_trunc, truncf, trunc)
#undef BOTH_FLOATS
DEVICE f32 m_pow(f32 x, f32 y) { return powf(x, y); }
DEVICE f64 m_pow(f64 x, f64 y) { return pow(x, y); }
template <class M>
DEVICE bool is_nan(M x) {
  return x != x;
}
template <class M>
DEVICE bool is_finite(M x) {
  return x - x == 0;
}
