// AVX-512 helpers: sixteen floats at a time, loads that widen and stores that narrow.
#ifndef HALYARD_CPU_SIMD_AVX512_H_
#define HALYARD_CPU_SIMD_AVX512_H_

#include <immintrin.h>

#include "backends/cpu/runtime/target.h"
#include "halyard/tensor.h"

HY__TARGET_AVX512

// The first n of sixteen lanes; n may be outside 0 .. 16.
HY__INLINE __mmask16 hy__first16(int64_t n) {
  return n >= 16 ? 0xffff : (__mmask16)((1u << (n > 0 ? n : 0)) - 1);
}

// f32, bf16 or f16 in memory; lanes outside the mask are not read and give 0.
HY__INLINE __m512 hy__load16(const void* p, hy_dtype dtype, __mmask16 mask) {
  if (dtype == HY_F32) return _mm512_maskz_loadu_ps(mask, p);
  __m256i half = _mm256_maskz_loadu_epi16(mask, p);
  if (dtype == HY_F16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Rounded to bf16, to nearest, ties to even, in the upper halves; NaN stays NaN.
HY__INLINE __m512i hy__rounded_bf16(__m512 x) {
  __m512i bits = _mm512_castps_si512(x);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc00000));
}

HY__INLINE __m256i hy__to_bf16(__m512 x) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(hy__rounded_bf16(x), 16));
}

HY__INLINE void hy__store16(void* p, hy_dtype dtype, __mmask16 mask, __m512 x) {
  if (dtype == HY_F32)
    _mm512_mask_storeu_ps(p, mask, x);
  else if (dtype == HY_F16)
    _mm256_mask_storeu_epi16(p, mask, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  else
    _mm256_mask_storeu_epi16(p, mask, hy__to_bf16(x));
}

// e^x, within 1.01 units in the last place; the argument is split as n ln 2 + r with |r| <= ln 2
// / 2. -inf gives 0, NaN stays NaN.
HY__INLINE __m512 hy__exp16(__m512 x) {
  __m512 low = _mm512_set1_ps(-150.0f), high = _mm512_set1_ps(130.0f);
  x = _mm512_min_ps(high, _mm512_max_ps(low, x));  // keeps a NaN in x, the second operand
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p+0f)),
                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
  __m512 p = _mm512_set1_ps(0x1.6850e4p-10f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.123bccp-7f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.555b98p-5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.55548ep-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.fffff8p-2f));
  p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), p, r);
  return _mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1)), n);
}

// Rows of `in` become columns.
HY__INLINE void hy__transpose16(__m512 in[16]) {
  __m512 t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_ps(in[2 * i], in[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(in[2 * i], in[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 1]);
    __m512d c = _mm512_castps_pd(t[4 * i + 2]), d = _mm512_castps_pd(t[4 * i + 3]);
    in[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    in[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    in[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    in[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_f32x4(in[i], in[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(in[i], in[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(in[8 + i], in[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(in[8 + i], in[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    in[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    in[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    in[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    in[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

// Four words of each of the lines `first`, 4 + first, 8 + first and 12 + first that there are.
HY__INLINE __m512 hy__load_quarters(const char* from, int64_t line, int first, int lines) {
  from += first * line;
  __m512 x = _mm512_castps128_ps512(_mm_loadu_ps((const float*)from));
  if (first + 4 >= lines) return x;
  x = _mm512_insertf32x4(x, _mm_loadu_ps((const float*)(from + 4 * line)), 1);
  if (first + 8 >= lines) return x;
  x = _mm512_insertf32x4(x, _mm_loadu_ps((const float*)(from + 8 * line)), 2);
  if (first + 12 >= lines) return x;
  return _mm512_insertf32x4(x, _mm_loadu_ps((const float*)(from + 12 * line)), 3);
}

// Sixteen words of each of 4 to 16 lines, `line` bytes apart, as sixteen vectors across the lines;
// lanes past the last line are undefined. Loads of quarters do half of what a transposition of
// whole vectors takes.
HY__INLINE void hy__load_across(const char* from, int64_t line, int lines, __m512 block[16]) {
#pragma GCC unroll 4
  for (int q = 0; q < 4; q++, from += 16) {
    __m512 a = hy__load_quarters(from, line, 0, lines), b = hy__load_quarters(from, line, 1, lines);
    __m512 c = hy__load_quarters(from, line, 2, lines), d = hy__load_quarters(from, line, 3, lines);
    __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
    __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
    block[4 * q] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
    block[4 * q + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
    ab = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    cd = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    block[4 * q + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
    block[4 * q + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
  }
}

HY__TARGET_END

#endif  // HALYARD_CPU_SIMD_AVX512_H_
