// Dot products and conversions of lines in AVX-512.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/simd/avx512.h"

HY__TARGET_AVX512

enum { ROWS = 4, LINES = 4 };  // of one block: their sums stay in registers
enum { AHEAD = 2048 };         // bytes by which weights are asked for before they are used

// The sums of four vectors' lanes.
HY__INLINE __m128 sum_lanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  __m512 sums = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

HY__INLINE void step(int rows, int lines, const char* const w[ROWS], hy_dtype dtype, int64_t at,
                     const float* x, int64_t x_line, __mmask16 mask, __m512 sums[LINES][ROWS]) {
  __m512 weights[ROWS];
#pragma GCC unroll 4
  for (int r = 0; r < rows; r++)
    weights[r] = hy__load16(w[r] + at * (dtype == HY_F32 ? 4 : 2), dtype, mask);
#pragma GCC unroll 4
  for (int l = 0; l < lines; l++) {
    __m512 value = _mm512_maskz_loadu_ps(mask, x + l * x_line + at);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) sums[l][r] = _mm512_fmadd_ps(value, weights[r], sums[l][r]);
  }
}

HY__INLINE void block(int rows, int lines, hy_dtype dtype, const char* const w[ROWS], int64_t k,
                      const float* x, int64_t x_line, float* out, int64_t out_line) {
  __m512 sums[LINES][ROWS];
#pragma GCC unroll 4
  for (int l = 0; l < LINES; l++) {
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) sums[l][r] = _mm512_setzero_ps();
  }
  int64_t at = 0;
  for (; at + 16 <= k; at += 16) step(rows, lines, w, dtype, at, x, x_line, 0xffff, sums);
  if (at < k) step(rows, lines, w, dtype, at, x, x_line, hy__first16(k - at), sums);
#pragma GCC unroll 4
  for (int l = 0; l < lines; l++)
    _mm_mask_storeu_ps(out + l * out_line, (__mmask8)((1 << rows) - 1),
                       sum_lanes(sums[l][0], sums[l][1], sums[l][2], sums[l][3]));
}

// One line with one row, whose elements are read in the order they lie in.
HY__INLINE __m512 dot_row(hy_dtype dtype, const char* w, int64_t k, const float* x) {
  int64_t size = dtype == HY_F32 ? 4 : 2, at = 0;
  __m512 sums[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) sums[i] = _mm512_setzero_ps();
  for (; at + 64 <= k; at += 64) {
    _mm_prefetch(w + at * size + AHEAD, _MM_HINT_T0);
    _mm_prefetch(w + at * size + AHEAD + 64, _MM_HINT_T0);
    if (dtype == HY_F32) {
      _mm_prefetch(w + at * size + AHEAD + 128, _MM_HINT_T0);
      _mm_prefetch(w + at * size + AHEAD + 192, _MM_HINT_T0);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
      sums[i] = _mm512_fmadd_ps(_mm512_loadu_ps(x + at + 16 * i),
                                hy__load16(w + (at + 16 * i) * size, dtype, 0xffff), sums[i]);
  }
  for (; at < k; at += 16) {
    __mmask16 mask = hy__first16(k - at);
    sums[0] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, x + at),
                              hy__load16(w + at * size, dtype, mask), sums[0]);
  }
  return _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
}

HY__INLINE void lines_of(int rows, int lines, hy_dtype dtype, const char* const w[ROWS], int64_t k,
                         const float* x, int64_t x_line, float* out, int64_t out_line) {
  if (lines == 1) {
    __m512 sums[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++)
      sums[r] = r < rows ? dot_row(dtype, w[r], k, x) : _mm512_setzero_ps();
    _mm_mask_storeu_ps(out, (__mmask8)((1 << rows) - 1),
                       sum_lanes(sums[0], sums[1], sums[2], sums[3]));
    return;
  }
  int l = 0;
  for (; l + 4 <= lines; l += 4)
    block(rows, 4, dtype, w, k, x + l * x_line, x_line, out + l * out_line, out_line);
  x += l * x_line;
  out += l * out_line;
  switch (lines - l) {
    case 1: block(rows, 1, dtype, w, k, x, x_line, out, out_line); return;
    case 2: block(rows, 2, dtype, w, k, x, x_line, out, out_line); return;
    case 3: block(rows, 3, dtype, w, k, x, x_line, out, out_line); return;
    default: return;
  }
}

HY__INLINE void rows_of(hy_dtype dtype, const hy__matrix* w, int64_t first, int rows, int64_t k,
                        const float* x, int64_t x_line, int lines, float* out, int64_t out_line) {
  int r = 0;
  for (; r + ROWS <= rows; r += ROWS) {
    const char* four[ROWS];
    for (int i = 0; i < ROWS; i++) four[i] = hy__matrix_at(w, first + r + i, 0);
    lines_of(ROWS, lines, dtype, four, k, x, x_line, out + r, out_line);
  }
  for (; r < rows; r++) {
    const char* one[ROWS] = {hy__matrix_at(w, first + r, 0)};
    lines_of(1, lines, dtype, one, k, x, x_line, out + r, out_line);
  }
}

void hy__dot_avx512(const hy__matrix* w, int64_t first, int rows, int64_t k, const float* x,
                    int64_t x_line, int lines, float* out, int64_t out_line) {
  switch (w->dtype) {
    case HY_F32: rows_of(HY_F32, w, first, rows, k, x, x_line, lines, out, out_line); return;
    case HY_BF16: rows_of(HY_BF16, w, first, rows, k, x, x_line, lines, out, out_line); return;
    default: rows_of(HY_F16, w, first, rows, k, x, x_line, lines, out, out_line); return;
  }
}

void hy__finish_avx512(int64_t n, const float* sums, float alpha, float beta, const void* addend,
                       int64_t addend_step, void* out, int64_t out_step, hy_dtype dtype) {
  if (out_step != 1 || (addend && addend_step != 1)) {
    hy__finish_scalar(n, sums, alpha, beta, addend, addend_step, out, out_step, dtype);
    return;
  }
  int64_t size = dtype == HY_F32 ? 4 : 2;
  for (int64_t i = 0; i < n; i += 16) {
    __mmask16 mask = hy__first16(n - i);
    __m512 value = _mm512_mul_ps(_mm512_set1_ps(alpha), _mm512_maskz_loadu_ps(mask, sums + i));
    if (addend)
      value = _mm512_fmadd_ps(_mm512_set1_ps(beta),
                              hy__load16((const char*)addend + i * size, dtype, mask), value);
    hy__store16((char*)out + i * size, dtype, mask, value);
  }
}

void hy__widen_avx512(int64_t n, const void* from, int64_t step, hy_dtype dtype, float* x) {
  if (step != 1) {
    hy__widen_scalar(n, from, step, dtype, x);
    return;
  }
  int64_t size = dtype == HY_F32 ? 4 : 2;
  for (int64_t i = 0; i < n; i += 16) {
    __mmask16 mask = hy__first16(n - i);
    _mm512_mask_storeu_ps(x + i, mask, hy__load16((const char*)from + i * size, dtype, mask));
  }
}

HY__TARGET_END
#endif
