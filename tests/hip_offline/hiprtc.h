// What hiprtc brings without an include, as far as the kernels use it: for compiling them ahead of
// time with clang alone, where there is no ROCm. Functions of mathematics are clang's own headers
// over ROCm's device library. Written from HIP's documentation; the program that runs is compiled
// by hiprtc with its own.
#ifndef HALYARD_TESTS_HIP_OFFLINE_HIPRTC_H_
#define HALYARD_TESTS_HIP_OFFLINE_HIPRTC_H_

#define __HIPCC_RTC__ 1
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define OFFLINE static inline __device__ __attribute__((always_inline, unused))

#define INT_MAX __INT_MAX__
typedef __SIZE_TYPE__ size_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#include <__clang_hip_libdevice_declares.h>
#include <__clang_hip_math.h>

struct uint3 {
  unsigned x, y, z;
};
struct offline_thread {
  __declspec(property(get = get_x)) unsigned x;
  __declspec(property(get = get_y)) unsigned y;
  __declspec(property(get = get_z)) unsigned z;
  __device__ unsigned get_x() const { return __builtin_amdgcn_workitem_id_x(); }
  __device__ unsigned get_y() const { return __builtin_amdgcn_workitem_id_y(); }
  __device__ unsigned get_z() const { return __builtin_amdgcn_workitem_id_z(); }
};
struct offline_block {
  __declspec(property(get = get_x)) unsigned x;
  __declspec(property(get = get_y)) unsigned y;
  __declspec(property(get = get_z)) unsigned z;
  __device__ unsigned get_x() const { return __builtin_amdgcn_workgroup_id_x(); }
  __device__ unsigned get_y() const { return __builtin_amdgcn_workgroup_id_y(); }
  __device__ unsigned get_z() const { return __builtin_amdgcn_workgroup_id_z(); }
};
struct offline_block_size {
  __declspec(property(get = get_x)) unsigned x;
  __declspec(property(get = get_y)) unsigned y;
  __declspec(property(get = get_z)) unsigned z;
  __device__ unsigned get_x() const { return __builtin_amdgcn_workgroup_size_x(); }
  __device__ unsigned get_y() const { return __builtin_amdgcn_workgroup_size_y(); }
  __device__ unsigned get_z() const { return __builtin_amdgcn_workgroup_size_z(); }
};
struct offline_grid_size {
  __declspec(property(get = get_x)) unsigned x;
  __declspec(property(get = get_y)) unsigned y;
  __declspec(property(get = get_z)) unsigned z;
  __device__ unsigned get_x() const {
    return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x();
  }
  __device__ unsigned get_y() const {
    return __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y();
  }
  __device__ unsigned get_z() const {
    return __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z();
  }
};
static const __device__ offline_thread threadIdx = {};
static const __device__ offline_block blockIdx = {};
static const __device__ offline_block_size blockDim = {};
static const __device__ offline_grid_size gridDim = {};

#define OFFLINE_VECTORS(T, name)                         \
  typedef T name##2 __attribute__((ext_vector_type(2))); \
  typedef T name##4 __attribute__((ext_vector_type(4))); \
  OFFLINE name##2 make_##name##2(T x, T y) {             \
    return name##2 {x, y};                               \
  }                                                      \
  OFFLINE name##4 make_##name##4(T x, T y, T z, T w) {   \
    return name##4 {x, y, z, w};                         \
  }
OFFLINE_VECTORS(float, float)
OFFLINE_VECTORS(int, int)
OFFLINE_VECTORS(unsigned, uint)
#undef OFFLINE_VECTORS

OFFLINE void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
OFFLINE void __threadfence() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
OFFLINE void __threadfence_system() {
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
}
template <class T>
OFFLINE T atomicAdd(T* at, T value) {
  return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// ---- shuffles: of a word by ds_bpermute, of more by words ----

OFFLINE int offline_lane() {
  return (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}
template <class T>
OFFLINE T offline_from(T value, int lane) {
  static_assert(sizeof(T) % 4 == 0, "whole words");
  struct words {
    int at[sizeof(T) / 4];
  } w = __builtin_bit_cast(words, value);
  for (unsigned i = 0; i < sizeof(T) / 4; i++)
    w.at[i] = __builtin_amdgcn_ds_bpermute(lane << 2, w.at[i]);
  return __builtin_bit_cast(T, w);
}
template <class T>
OFFLINE T __shfl(T value, int lane, int width) {
  int self = offline_lane();
  return offline_from(value, (lane & (width - 1)) + (self & ~(width - 1)));
}
template <class T>
OFFLINE T __shfl_xor(T value, int mask, int width) {
  int self = offline_lane(), other = self ^ mask;
  return offline_from(value, other >= ((self + width) & ~(width - 1)) ? self : other);
}
template <class T>
OFFLINE T __shfl_up(T value, unsigned delta, int width) {
  int self = offline_lane(), other = self - (int)delta;
  return offline_from(value, other < (self & ~(width - 1)) ? self : other);
}
template <class T>
OFFLINE T __shfl_down(T value, unsigned delta, int width) {
  int self = offline_lane();
  return offline_from(value, (self & (width - 1)) + (int)delta >= width ? self : self + (int)delta);
}

// ---- bits ----

OFFLINE float __int_as_float(int v) {
  return __builtin_bit_cast(float, v);
}
OFFLINE float __uint_as_float(unsigned v) {
  return __builtin_bit_cast(float, v);
}
OFFLINE unsigned __float_as_uint(float v) {
  return __builtin_bit_cast(unsigned, v);
}
OFFLINE long long __double_as_longlong(double v) {
  return __builtin_bit_cast(long long, v);
}
OFFLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned which) {
  unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; i++) r |= (unsigned)(both >> (8 * (which >> 4 * i & 7)) & 255) << 8 * i;
  return r;
}

#undef OFFLINE
#endif  // HALYARD_TESTS_HIP_OFFLINE_HIPRTC_H_
