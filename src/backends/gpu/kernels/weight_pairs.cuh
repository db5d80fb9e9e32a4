// Weights of any storage as pairs of halves: eight neighbours along k become four registers, in
// order, exactly. Small integers are put into the mantissa of a power of 2, from which one
// multiply-add takes the power away again.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_WEIGHT_PAIRS_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_WEIGHT_PAIRS_CUH_

#include "quantized_types.cuh"
#include "tensor_core.cuh"

// Bytes of eight numbers.
template <class Weight>
struct eight {
  static const int BYTES = 8 * sizeof(Weight);
};
template <>
struct eight<i4> {
  static const int BYTES = 4;
};

template <class Half>
DEVICE void weight_pairs(u32 (&pair)[4], const Half* at) {
  vec<u32, 4> words = *(const vec<u32, 4>*)at;
#pragma unroll
  for (int i = 0; i < 4; i++) pair[i] = words.at[i];
}

// 128 + n in bf16, 1024 + n in f16: n is the nibble with its sign bit flipped, q + 8.
DEVICE void unpack_nibbles(bf16, u32 (&pair)[4], u32 word) {
  u32 low = word ^ 0x88888888u, high = low >> 4;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 two = __byte_perm(low, high, i | (i + 4) << 8) & 0x000f000fu;
    pair[i] = fma_pair(bf16(), two | 0x43004300u, 0x3f803f80u, 0xc308c308u);
  }
}

DEVICE void unpack_nibbles(f16, u32 (&pair)[4], u32 word) {
  u32 low = word ^ 0x88888888u, high = low >> 4;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 two = __byte_perm(low, high, i | (i + 4) << 8) & 0x000f000fu;
    pair[i] = fma_pair(f16(), two | 0x64006400u, 0x3c003c00u, 0xe408e408u);
  }
}

// 8388608 + n in f32 has n, q + 128, in its low byte; a byte fits a bf16.
DEVICE u32 byte_pair(bf16, u32 word, int first) {
  f32 a = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 | first)) - 8388736.0f;
  f32 b = __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7440 | (first + 1))) - 8388736.0f;
  return __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x7632);
}

DEVICE u32 byte_pair(f16, u32 word, int first) {
  u32 two = __byte_perm(word, 0x64u, 0x4040 | first | (first + 1) << 8);
  return fma_pair(f16(), two, 0x3c003c00u, 0xe480e480u);
}

template <class Half>
DEVICE void weight_pairs(u32 (&pair)[4], const i4* at) {
  unpack_nibbles(Half(), pair, *(const u32*)at);
}

template <class Half>
DEVICE void weight_pairs(u32 (&pair)[4], const i8* at) {
  vec<u32, 2> words = *(const vec<u32, 2>*)at;
#pragma unroll
  for (int i = 0; i < 4; i++)
    pair[i] = byte_pair(Half(), words.at[i / 2] ^ 0x80808080u, i % 2 * 2);
}

// The same, shared by the four lanes of a quad, which have eight each that follow one another: lane
// t gets the t-th pair of every eight, as mma takes them where k is in order.
template <class Half>
DEVICE void quad_pairs(u32 (&pair)[4], const i4* at) {
  const int t = threadIdx.x % 4;
  u32 word = *(const u32*)at, other = SHFL_XOR(word, 2);
  word = __byte_perm(word, other, t & 2 ? 0x3276 : 0x5410);
  other = SHFL_XOR(word, 1);
  unpack_nibbles(Half(), pair, __byte_perm(word, other, t & 1 ? 0x3715 : 0x6240));
}

template <class Half>
DEVICE void quad_pairs(u32 (&pair)[4], const i8* at) {
  const int t = threadIdx.x % 4;
  vec<u32, 2> words = *(const vec<u32, 2>*)at;
  u32 low = words.at[0], high = words.at[1], other = SHFL_XOR(t & 2 ? low : high, 2);
  (t & 2 ? low : high) = other;
  other = SHFL_XOR(__byte_perm(low, high, t & 1 ? 0x5410 : 0x7632), 1);
  low = __byte_perm(low, other, t & 1 ? 0x3254 : 0x5410) ^ 0x80808080u;
  high = __byte_perm(high, other, t & 1 ? 0x3276 : 0x7610) ^ 0x80808080u;
#pragma unroll
  for (int i = 0; i < 4; i++) pair[i] = byte_pair(Half(), i < 2 ? low : high, i % 2 * 2);
}

// Two 8-bit floats as halves.
DEVICE u32 float8_pair(f16, f8e5m2, u32 two) { return __byte_perm(two, 0, 0x1404); }
DEVICE u32 float8_pair(f16, f8e4m3, u32 two) {
#if HY_PTX && __CUDA_ARCH__ >= 890
  u32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((u16)two));
  return pair;
#else
  return pack_pair(f16(), f8_to_f32<4, 3, false>(two & 255), f8_to_f32<4, 3, false>(two >> 8));
#endif
}
template <class Float8>
DEVICE u32 float8_pair(bf16, Float8, u32 two) {
  u32 half = float8_pair(f16(), Float8(), two);
  return pack_pair(bf16(), f16_to_f32((u16)half), f16_to_f32((u16)(half >> 16)));
}

template <class Half, class Float8>
DEVICE void float8_pairs(u32 (&pair)[4], const Float8* at) {
  vec<u32, 2> words = *(const vec<u32, 2>*)at;
#pragma unroll
  for (int i = 0; i < 4; i++)
    pair[i] = float8_pair(Half(), Float8(), words.at[i / 2] >> (i % 2 * 16) & 0xffffu);
}
template <class Half>
DEVICE void weight_pairs(u32 (&pair)[4], const f8e4m3* at) {
  float8_pairs<Half>(pair, at);
}
template <class Half>
DEVICE void weight_pairs(u32 (&pair)[4], const f8e5m2* at) {
  float8_pairs<Half>(pair, at);
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_WEIGHT_PAIRS_CUH_
