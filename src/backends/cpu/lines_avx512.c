// Dot products and conversions of lines, and the softmax of attention, in AVX-512.
#include "backends/cpu/kernels.h"

#if defined(__x86_64__)
#include "backends/cpu/avx512.h"

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

HY__INLINE bool soften_column(float* scores, int keys, int panel, float* largest, float* total,
                              float* factor) {
  __m512 none = _mm512_set1_ps(-__builtin_inff());
  __m512 before = _mm512_loadu_ps(largest), most = before, also = none;
  int s = 0;
  for (; s + 2 <= keys; s += 2) {
    most = _mm512_max_ps(most, _mm512_loadu_ps(scores + s * panel));
    also = _mm512_max_ps(also, _mm512_loadu_ps(scores + (s + 1) * panel));
  }
  if (s < keys) most = _mm512_max_ps(most, _mm512_loadu_ps(scores + s * panel));
  most = _mm512_max_ps(most, also);
  // Where nothing is visible yet, every weight is 0 and there is nothing to shrink.
  __mmask16 blind = _mm512_cmp_ps_mask(most, none, _CMP_EQ_OQ);
  __m512 base = _mm512_mask_mov_ps(most, blind, _mm512_setzero_ps());
  __mmask16 moved = _mm512_cmp_ps_mask(before, most, _CMP_NEQ_UQ);
  __m512 shrink =
      _mm512_mask_mov_ps(_mm512_set1_ps(1), moved, hy__exp16(_mm512_sub_ps(before, base)));
  __m512 sum = _mm512_mul_ps(_mm512_loadu_ps(total), shrink);
  for (s = 0; s < keys; s++) {
    __m512 weight = hy__exp16(_mm512_sub_ps(_mm512_loadu_ps(scores + s * panel), base));
    _mm512_storeu_ps(scores + s * panel, weight);
    sum = _mm512_add_ps(sum, weight);
  }
  _mm512_storeu_ps(total, sum);
  _mm512_storeu_ps(largest, most);
  _mm512_storeu_ps(factor, shrink);
  return moved;
}

bool hy__soften_avx512(float* scores, int keys, int panel, float* largest, float* total,
                       float* factor) {
  bool shrinks = false;
  for (int q = 0; q < panel; q += 16)
    shrinks |= soften_column(scores + q, keys, panel, largest + q, total + q, factor + q);
  return shrinks;
}

void hy__exp_columns_avx512(float* scores, int keys, int panel, const float* base) {
  for (int q = 0; q < panel; q += 16) {
    __m512 b = _mm512_loadu_ps(base + q);
    __mmask16 seen = _mm512_cmp_ps_mask(b, _mm512_set1_ps(-__builtin_inff()), _CMP_NEQ_UQ);
    for (int s = 0; s < keys; s++) {
      float* at = scores + s * panel + q;
      __m512 e = hy__exp16(_mm512_sub_ps(_mm512_loadu_ps(at), b));
      _mm512_storeu_ps(at, _mm512_maskz_mov_ps(seen, e));
    }
  }
}

// Up to four lines by 64 columns: sixteen sums in registers, each row of v read once.
HY__INLINE void mix_block(int lines, hy_dtype dtype, const char* v, int64_t v_row, int rows,
                          int64_t n, const float* p, int64_t p_line, float* out, int64_t out_line) {
  __m512 sums[4][4];
  __mmask16 mask[4];
  int64_t size = dtype == HY_F32 ? 4 : 2;
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
    mask[c] = hy__first16(n - 16 * c);
#pragma GCC unroll 4
    for (int l = 0; l < lines; l++)
      sums[l][c] = _mm512_maskz_loadu_ps(mask[c], out + l * out_line + 16 * c);
  }
  for (int r = 0; r < rows; r++) {
    const char* row = v + r * v_row * size;
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
      __m512 value = hy__load16(row + 16 * c * size, dtype, mask[c]);
#pragma GCC unroll 4
      for (int l = 0; l < lines; l++)
        sums[l][c] = _mm512_fmadd_ps(_mm512_set1_ps(p[l * p_line + r]), value, sums[l][c]);
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; c++) {
#pragma GCC unroll 4
    for (int l = 0; l < lines; l++)
      _mm512_mask_storeu_ps(out + l * out_line + 16 * c, mask[c], sums[l][c]);
  }
}

HY__INLINE void mix(hy_dtype dtype, const hy__matrix* v, int rows, int64_t n, const float* p,
                    int64_t p_line, int lines, float* out, int64_t out_line) {
  for (int64_t c = 0; c < n; c += 64) {
    const char* from = hy__matrix_at(v, 0, c);
    int l = 0;
    for (; l + 4 <= lines; l += 4)
      mix_block(4, dtype, from, v->row, rows, n - c, p + l * p_line, p_line, out + l * out_line + c,
                out_line);
    const float* weights = p + l * p_line;
    float* to = out + l * out_line + c;
    switch (lines - l) {
      case 1: mix_block(1, dtype, from, v->row, rows, n - c, weights, p_line, to, out_line); break;
      case 2: mix_block(2, dtype, from, v->row, rows, n - c, weights, p_line, to, out_line); break;
      case 3: mix_block(3, dtype, from, v->row, rows, n - c, weights, p_line, to, out_line); break;
      default: break;
    }
  }
}

void hy__mix_avx512(const hy__matrix* v, int rows, int64_t n, const float* p, int64_t p_line,
                    int lines, float* out, int64_t out_line) {
  if (v->column != 1) {
    hy__mix_scalar(v, rows, n, p, p_line, lines, out, out_line);
    return;
  }
  switch (v->dtype) {
    case HY_F32: mix(HY_F32, v, rows, n, p, p_line, lines, out, out_line); return;
    case HY_BF16: mix(HY_BF16, v, rows, n, p, p_line, lines, out, out_line); return;
    default: mix(HY_F16, v, rows, n, p, p_line, lines, out, out_line); return;
  }
}

HY__TARGET_END
#endif
