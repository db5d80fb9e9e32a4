// Quantised weights as floats in AVX2.
#ifndef HALYARD_CPU_QUANT_X86_WEIGHTS_AVX2_H_
#define HALYARD_CPU_QUANT_X86_WEIGHTS_AVX2_H_

#include "backends/cpu/quant/x86/weights_stream.h"
#include "backends/cpu/simd/avx2.h"

HY__TARGET_AVX2

// Sixteen bytes of e4m3 as halves, whose exponent has a bias of 15 instead of 7: each is 2^-8 of
// its number, and NaN stands as 480 * 2^-8.
HY__INLINE __m256i hy__e4m3_to_halves(__m128i bytes) {
  __m256i words = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  return _mm256_and_si256(words, _mm256_set1_epi16((short)0xbf80));
}

HY__INLINE void hy__halves_to_floats(__m256i halves, __m256 out[2]) {
  out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}

HY__INLINE void hy__e5m2_to_floats(__m128i bytes, __m256 out[2]) {
  out[0] = _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), bytes));
  out[1] = _mm256_cvtph_ps(_mm_unpackhi_epi8(_mm_setzero_si128(), bytes));
}

HY__INLINE __m256 hy__i8_to_floats(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}

HY__TARGET_END

#endif  // HALYARD_CPU_QUANT_X86_WEIGHTS_AVX2_H_
