// AVX2 helpers: eight floats at a time, loads that widen, bytes that end early.
#ifndef HALYARD_CPU_SIMD_AVX2_H_
#define HALYARD_CPU_SIMD_AVX2_H_

#include <immintrin.h>
#include <string.h>

#include "backends/cpu/runtime/target.h"
#include "halyard/tensor.h"

HY__TARGET_AVX2

// Selects the first n of eight lanes; n may be outside 0 .. 8.
HY__INLINE __m256i hy__first8(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// f32, bf16 or f16 in memory.
HY__INLINE __m256 hy__load8(const void* p, hy_dtype dtype) {
  if (dtype == HY_F32) return _mm256_loadu_ps(p);
  __m128i half = _mm_loadu_si128(p);
  if (dtype == HY_F16) return _mm256_cvtph_ps(half);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// Sixteen bytes, of which `left` exist; the others are not read and give 0.
HY__INLINE __m128i hy__load_bytes(const void* p, int64_t left) {
  if (left >= 16) return _mm_loadu_si128(p);
  unsigned char bytes[16] = {0};
  if (left > 0) memcpy(bytes, p, (size_t)left);
  return _mm_loadu_si128((const __m128i*)bytes);
}

// Of magnitudes as bits, in which a NaN is above an infinity, and that above all others.
HY__INLINE __m256i hy__greater_magnitude(__m256i most, __m256 x) {
  __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
  return _mm256_max_epi32(most, magnitude);
}

HY__INLINE uint32_t hy__greatest_lane(__m256i x) {
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  __m128i two = _mm_max_epi32(four, _mm_unpackhi_epi64(four, four));
  return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 1)));
}

HY__INLINE float hy__sum_of_lanes(__m256 x) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

HY__TARGET_END

#endif  // HALYARD_CPU_SIMD_AVX2_H_
