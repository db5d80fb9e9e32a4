// Softmax of attention and its gradient in AVX-512 BF16: weights in pairs, ready for dot products.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/attention/x86/softmax_avx512.h"

HY__TARGET_BF16

// Two rows of sixteen as pairs of bf16, rounded to nearest.
HY__INLINE __m512i pairs_of(__m512 first, __m512 second) {
  const __m512i interleaved = _mm512_add_epi32(
      _mm512_set1_epi32(16 << 16),
      _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
  return _mm512_permutexvar_epi16(interleaved, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

// 2^(score * factor - base) of `n` rows of scores, an even number of them, as pairs in `to`.
HY__INLINE void exp_pairs(const float* scores, int n, int panel, __m512 factor, __m512 base,
                          float* to, __m512* sums) {
  __m512 t[AT_ONCE];
#pragma GCC unroll 4
  for (int i = 0; i < n; i++)
    t[i] = _mm512_fmsub_ps(_mm512_loadu_ps(scores + i * panel), factor, base);
  exp2_side_by_side(t, n);
#pragma GCC unroll 4
  for (int i = 0; i < n; i++) sums[i] = _mm512_add_ps(sums[i], t[i]);
#pragma GCC unroll 2
  for (int i = 0; i < n; i += 2) _mm512_storeu_si512(to + i / 2 * panel, pairs_of(t[i], t[i + 1]));
}

// Of a whole column in place; gives the sum of the weights. A row of pairs is written when both
// rows of its scores, and that whose place it takes, have been read.
HY__INLINE __m512 exp_column_pairs(float* scores, int keys, int panel, __m512 factor, __m512 base) {
  __m512 sums[AT_ONCE] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                          _mm512_setzero_ps()};
  int s = 0;
  for (; s + AT_ONCE <= keys; s += AT_ONCE)
    exp_pairs(scores + s * panel, AT_ONCE, panel, factor, base, scores + s / 2 * panel, sums);
  for (; s + 2 <= keys; s += 2)
    exp_pairs(scores + s * panel, 2, panel, factor, base, scores + s / 2 * panel, sums);
  if (s < keys) {
    __m512 t = _mm512_fmsub_ps(_mm512_loadu_ps(scores + s * panel), factor, base);
    exp2_side_by_side(&t, 1);
    sums[0] = _mm512_add_ps(sums[0], t);
    _mm512_storeu_si512(scores + s / 2 * panel, pairs_of(t, _mm512_setzero_ps()));
  }
  return _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
}

HY__INLINE void soften_column(float* scores, int keys, int panel, float scale, float* largest,
                              float* total, float* sums, int64_t rows) {
  __m512 none = _mm512_set1_ps(-__builtin_inff()), before = _mm512_loadu_ps(largest);
  __m512 here = _mm512_mul_ps(most_of_column(scores, keys, panel, none), _mm512_set1_ps(scale));
  __m512 most = _mm512_max_ps(before, here), so_far = _mm512_loadu_ps(total);
  // Where nothing is visible yet, every weight is 0 and there is nothing to shrink.
  __mmask16 masked = _mm512_cmp_ps_mask(most, none, _CMP_EQ_OQ);
  __m512 base = _mm512_mul_ps(_mm512_mask_mov_ps(most, masked, _mm512_setzero_ps()), LOG2_E);
  __m512 factor = _mm512_mul_ps(_mm512_set1_ps(scale), LOG2_E);
  __m512 weights = exp_column_pairs(scores, keys, panel, factor, base);
  __mmask16 moved = _mm512_cmp_ps_mask(before, most, _CMP_NEQ_UQ);
  if (moved) {
    __m512 shrink = _mm512_fmsub_ps(before, LOG2_E, base);
    exp2_side_by_side(&shrink, 1);
    shrink = _mm512_mask_mov_ps(_mm512_set1_ps(1), moved, shrink);
    so_far = _mm512_mul_ps(so_far, shrink);
    for (int64_t r = 0; r < rows; r++)
      _mm512_storeu_ps(sums + r * panel, _mm512_mul_ps(_mm512_loadu_ps(sums + r * panel), shrink));
  }
  _mm512_storeu_ps(total, _mm512_add_ps(so_far, weights));
  _mm512_storeu_ps(largest, most);
}

void hy__online_softmax_bf16_avx512(float* scores, const int* seen, int keys, int panel,
                                    float scale, float* largest, float* total, float* sums,
                                    int64_t rows) {
  for (int q = 0; q < panel; q += HY__QUERY_GROUP) {
    int visible = seen[q / HY__QUERY_GROUP];
    soften_column(scores + q, visible, panel, scale, largest + q, total + q, sums + q, rows);
    for (int s = (visible + 1) / 2; s < (keys + 1) / 2; s++)
      _mm512_storeu_si512(scores + s * panel + q, _mm512_setzero_si512());
  }
}

// ---- backward ----

enum { COLUMNS = 32 };  // of two vectors, which become one of bf16

typedef struct grad_columns {
  __m512 factor, scale, base[2], delta[2];  // the base in powers of 2; delta with the scale
} grad_columns;

// One or two rows of scores and grads.
HY__INLINE void grad_rows(const grad_columns* c, int n, const float* scores, const float* grads,
                          int panel, uint16_t* p, uint16_t* ds, int64_t ld, float* pairs) {
  __m512 t[AT_ONCE], slope[AT_ONCE];
  __m512i rows[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
#pragma GCC unroll 4
  for (int i = 0; i < 2 * n; i++) {
    int at = i / 2 * panel + i % 2 * 16;
    t[i] = _mm512_fmsub_ps(_mm512_loadu_ps(scores + at), c->factor, c->base[i % 2]);
    slope[i] = _mm512_fmsub_ps(_mm512_loadu_ps(grads + at), c->scale, c->delta[i % 2]);
  }
  exp2_side_by_side(t, 2 * n);
#pragma GCC unroll 2
  for (int i = 0; i < n; i++) {
    _mm512_storeu_si512(p + i * ld, (__m512i)_mm512_cvtne2ps_pbh(t[2 * i + 1], t[2 * i]));
    rows[i] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(t[2 * i + 1], slope[2 * i + 1]),
                                           _mm512_mul_ps(t[2 * i], slope[2 * i]));
    _mm512_storeu_si512(ds + i * ld, rows[i]);
  }
  const __m512i both = _mm512_add_epi32(
      _mm512_set1_epi32(32 << 16),
      _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
  const __m512i upper = _mm512_add_epi16(both, _mm512_set1_epi16(16));
  _mm512_storeu_si512(pairs, _mm512_permutex2var_epi16(rows[0], both, rows[1]));
  _mm512_storeu_si512(pairs + 16, _mm512_permutex2var_epi16(rows[0], upper, rows[1]));
}

void hy__softmax_grad_bf16_avx512(const float* scores, float* grads, int keys, int panel,
                                  float factor, float scale, const float* lse, const float* delta,
                                  uint16_t* p, uint16_t* ds, int64_t ld) {
  const __m512 infinity = _mm512_set1_ps(__builtin_inff());
  for (int q = 0; q < panel; q += COLUMNS) {
    grad_columns c = {.factor = _mm512_mul_ps(_mm512_set1_ps(factor), LOG2_E),
                      .scale = _mm512_set1_ps(scale)};
    for (int h = 0; h < 2; h++) {
      __m512 base = _mm512_loadu_ps(lse + q + 16 * h);
      // A query that sees nothing has -inf: with +inf its weights are 0.
      c.base[h] = _mm512_mul_ps(base, LOG2_E);
      __mmask16 none =
          _mm512_cmp_ps_mask(base, _mm512_sub_ps(_mm512_setzero_ps(), infinity), _CMP_EQ_OQ);
      c.base[h] = _mm512_mask_mov_ps(c.base[h], none, infinity);
      c.delta[h] = _mm512_mul_ps(_mm512_loadu_ps(delta + q + 16 * h), c.scale);
    }
    int s = 0;
    for (; s + 2 <= keys; s += 2)
      grad_rows(&c, 2, scores + s * panel + q, grads + s * panel + q, panel, p + s * ld + q,
                ds + s * ld + q, ld, grads + s / 2 * panel + q);
    if (s < keys)
      grad_rows(&c, 1, scores + s * panel + q, grads + s * panel + q, panel, p + s * ld + q,
                ds + s * ld + q, ld, grads + s / 2 * panel + q);
  }
}

HY__TARGET_END
#endif
