// Quantised weights as floats in AVX-512: what the kernels that dequantise share.
#ifndef HALYARD_CPU_QUANT_X86_WEIGHTS_AVX512_H_
#define HALYARD_CPU_QUANT_X86_WEIGHTS_AVX512_H_

#include "backends/cpu/quant/x86/weights_stream.h"
#include "backends/cpu/simd/avx512.h"

HY__TARGET_AVX512

// The lanes whose sum is x times a row of weights; `context` is the kernel's own.
typedef __m512 hy__dot_row(const hy__quantized* w, const void* context, int64_t row,
                           const float* x);

// The sums of the lanes of sixteen vectors.
HY__INLINE __m512 hy__sum_lanes(__m512 v[16]) {
#define LO64(a, b) _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
#define HI64(a, b) _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++)
    v[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                         _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++)
    v[i] = _mm512_add_ps(LO64(v[2 * i], v[2 * i + 1]), HI64(v[2 * i], v[2 * i + 1]));
#undef LO64
#undef HI64
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++)
    v[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                         _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xee));
  return _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x88),
                       _mm512_shuffle_f32x4(v[0], v[1], 0xdd));
}

// GEMV: one row of weights after another, which is the order of memory.
HY__INLINE void hy__dot_rows(hy__dot_row* dot, const void* context, const hy__quantized* w,
                             int64_t first, int n, const float* x, float* out) {
  hy__scales_ahead ahead = hy__scales_ahead_of(w);
  for (int r = 0; r < n; r += 16) {
    __m512 sums[16];
    int rows = n - r < 16 ? n - r : 16;
    for (int i = 0; i < rows; i++) {
      int64_t row = first + r + i;
      hy__prefetch_scales(w, row, ahead);
      sums[i] = dot(w, context, row, x);
    }
    for (int i = rows; i < 16; i++) sums[i] = _mm512_setzero_ps();
    _mm512_mask_storeu_ps(out + r, hy__first16(rows), hy__sum_lanes(sums));
  }
}

// Sixteen elements of one byte each, not scaled.
HY__INLINE __m512 hy__bytes_to_floats(__m128i bytes, hy_dtype dtype) {
  if (dtype == HY_I8) return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  __m256i words = _mm256_cvtepu8_epi16(bytes);
  if (dtype == HY_F8E5M2) return _mm512_cvtph_ps(_mm256_slli_epi16(words, 8));
  // As a half, whose exponent has a bias of 15 instead of 7.
  __m256i magnitude = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(0x3f80));
  __m256i sign = _mm256_and_si256(_mm256_slli_epi16(words, 8), _mm256_set1_epi16((short)0x8000));
  __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x3f80));
  __m256i half =
      _mm256_mask_mov_epi16(_mm256_or_si256(magnitude, sign), nan, _mm256_set1_epi16(0x7e00));
  return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256));
}

// Sixteen nibbles in eight bytes, in order; `count` of them exist. The permute looks at the low
// four bits of each SIMD lane only.
HY__INLINE __m512 hy__nibbles_to_floats(const unsigned char* p, int64_t count) {
  __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  __m128i bytes = count >= 16 ? _mm_loadl_epi64((const __m128i*)p)
                              : _mm_maskz_loadu_epi8(hy__first16((count + 1) / 2), p);
  __m128i words = _mm_cvtepu8_epi16(bytes);
  __m128i each =
      _mm_and_si128(_mm_or_si128(words, _mm_slli_epi16(words, 4)), _mm_set1_epi16(0x0f0f));
  return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(each), table);
}

// The scales of a block of `length` elements in the lanes that hold them, a sixteenth in each, from
// the first one's place; `left` of the block's elements exist. The group is a quarter or half of
// the block, or a multiple of it, or the whole row.
HY__INLINE __m512 hy__block_scales(const float* scale, int64_t group, int64_t length,
                                   int64_t left) {
  if (4 * group == length) {
    __m128 four = left >= length ? _mm_loadu_ps(scale)
                                 : _mm_maskz_loadu_ps(
                                       (__mmask8)hy__first16((left + group - 1) / group), scale);
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                 _mm512_castps128_ps512(four));
  }
  if (2 * group == length) {
    __m256 low = _mm256_set1_ps(scale[0]);
    __m256 high = left > group ? _mm256_set1_ps(scale[1]) : low;
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
  }
  return _mm512_set1_ps(*scale);
}

// Whether hy__block_scales can.
static inline bool hy__block_takes(int64_t group, int64_t k, int64_t length) {
  return group == k || 4 * group == length || 2 * group == length || group % length == 0;
}

HY__TARGET_END

#endif  // HALYARD_CPU_QUANT_X86_WEIGHTS_AVX512_H_
