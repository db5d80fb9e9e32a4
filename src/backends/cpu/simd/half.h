// bf16 and f16 in plain C, one element at a time.
#ifndef HALYARD_CPU_SIMD_HALF_H_
#define HALYARD_CPU_SIMD_HALF_H_

#include <string.h>

#include "halyard/tensor.h"

static inline float hy__bits_to_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline uint32_t hy__float_to_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float hy__from_bf16(uint16_t h) {
  return hy__bits_to_float((uint32_t)h << 16);
}

static inline uint16_t hy__float_to_bf16(float x) {
  uint32_t bits = hy__float_to_bits(x);
  if (x != x) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A subnormal half is its fraction times 2^-24; others are rebiased.
static inline float hy__from_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 0) {
    float tiny = (float)fraction * 0x1p-24f;
    return sign ? -tiny : tiny;
  }
  if (exponent == 31) return hy__bits_to_float(sign | 0x7f800000 | fraction << 13);
  return hy__bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t hy__float_to_f16(float x) {
  uint32_t bits = hy__float_to_bits(x), magnitude = bits & 0x7fffffff;
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 2^16 or beyond
  if (magnitude < 0x38800000) {
    // Adding 0.5 moves the fraction's last bit to 2^-24 and rounds there.
    float shifted = hy__bits_to_float(magnitude) + 0.5f;
    return sign | (uint16_t)(hy__float_to_bits(shifted) - 0x3f000000);
  }
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return sign | (uint16_t)((rounded - 0x38000000) >> 13);
}

// f32, bf16 or f16 at p.
static inline float hy__load1(const void* p, hy_dtype dtype) {
  if (dtype == HY_F32) return *(const float*)p;
  uint16_t h = *(const uint16_t*)p;
  return dtype == HY_BF16 ? hy__from_bf16(h) : hy__from_f16(h);
}

static inline void hy__store1(void* p, hy_dtype dtype, float x) {
  if (dtype == HY_F32)
    *(float*)p = x;
  else
    *(uint16_t*)p = dtype == HY_BF16 ? hy__float_to_bf16(x) : hy__float_to_f16(x);
}

#endif  // HALYARD_CPU_SIMD_HALF_H_
