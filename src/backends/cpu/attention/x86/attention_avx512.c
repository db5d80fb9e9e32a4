// Online softmax and weighted sum of attention in AVX-512.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/attention/x86/softmax_avx512.h"

HY__TARGET_AVX512

// e^(score - base) in place of `n` scores of a column of sixteen, `panel` apart, added to `sums`.
HY__INLINE void exp_lines(float* scores, int n, int panel, __m512 base, __m512* sums) {
  __m512 t[AT_ONCE];
#pragma GCC unroll 4
  for (int i = 0; i < n; i++)
    t[i] = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(scores + i * panel), base), LOG2_E);
  exp2_side_by_side(t, n);
#pragma GCC unroll 4
  for (int i = 0; i < n; i++) {
    _mm512_storeu_ps(scores + i * panel, t[i]);
    sums[i] = _mm512_add_ps(sums[i], t[i]);
  }
}

// The same of a whole column; gives their sum.
HY__INLINE __m512 exp_column(float* scores, int keys, int panel, __m512 base) {
  __m512 sums[AT_ONCE] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                          _mm512_setzero_ps()};
  int s = 0;
  for (; s + AT_ONCE <= keys; s += AT_ONCE)
    exp_lines(scores + s * panel, AT_ONCE, panel, base, sums);
  for (; s < keys; s++) exp_lines(scores + s * panel, 1, panel, base, sums);
  return _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
}

HY__INLINE void soften_column(float* scores, int keys, int panel, float* largest, float* total,
                              float* sums, int64_t rows) {
  __m512 none = _mm512_set1_ps(-__builtin_inff()), before = _mm512_loadu_ps(largest);
  __m512 most = most_of_column(scores, keys, panel, before);
  // Where nothing is visible yet, every weight is 0 and there is nothing to shrink.
  __mmask16 masked = _mm512_cmp_ps_mask(most, none, _CMP_EQ_OQ);
  __m512 base = _mm512_mask_mov_ps(most, masked, _mm512_setzero_ps());
  __m512 weights = exp_column(scores, keys, panel, base), so_far = _mm512_loadu_ps(total);
  __mmask16 moved = _mm512_cmp_ps_mask(before, most, _CMP_NEQ_UQ);
  if (moved) {
    __m512 shrink =
        _mm512_mask_mov_ps(_mm512_set1_ps(1), moved, hy__exp16(_mm512_sub_ps(before, base)));
    so_far = _mm512_mul_ps(so_far, shrink);
    for (int64_t r = 0; r < rows; r++)
      _mm512_storeu_ps(sums + r * panel, _mm512_mul_ps(_mm512_loadu_ps(sums + r * panel), shrink));
  }
  _mm512_storeu_ps(total, _mm512_add_ps(so_far, weights));
  _mm512_storeu_ps(largest, most);
}

void hy__online_softmax_avx512(float* scores, const int* seen, int keys, int panel, float* largest,
                               float* total, float* sums, int64_t rows) {
  for (int q = 0; q < panel; q += HY__QUERY_GROUP) {
    int visible = seen[q / HY__QUERY_GROUP];
    soften_column(scores + q, visible, panel, largest + q, total + q, sums + q, rows);
    for (int s = visible; s < keys; s++)
      _mm512_storeu_ps(scores + s * panel + q, _mm512_setzero_ps());
  }
}

void hy__exp_columns_avx512(float* scores, int keys, int panel, const float* base) {
  for (int q = 0; q < panel; q += 16) {
    __m512 b = _mm512_loadu_ps(base + q);
    exp_column(scores + q, keys, panel, b);
    __mmask16 masked = _mm512_cmp_ps_mask(b, _mm512_set1_ps(-__builtin_inff()), _CMP_EQ_OQ);
    for (int s = 0; s < keys && masked; s++)
      _mm512_mask_storeu_ps(scores + s * panel + q, masked, _mm512_setzero_ps());
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

void hy__weighted_sum_avx512(const hy__matrix* v, int rows, int64_t n, const float* p,
                             int64_t p_line, int lines, float* out, int64_t out_line) {
  if (v->column != 1) {
    hy__weighted_sum_generic(v, rows, n, p, p_line, lines, out, out_line);
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
