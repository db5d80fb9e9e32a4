// Softmax and weighted sum of decode attention in AVX-512 BF16: rows of values are interleaved in
// registers, two products to a lane.
#include <string.h>

#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/attention/x86/softmax_avx512.h"

HY__TARGET_BF16

enum { LANES = 32, LINES = 8 };
enum { ROWS_AHEAD = 16 };  // rows of values to ask the memory for
#define FEWER_LINES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

HY__INLINE __m512 load_scores(const float* scores, int left) {
  return _mm512_mask_loadu_ps(_mm512_set1_ps(-__builtin_inff()), hy__first16(left), scores);
}

void hy__softmax_row_bf16_avx512(const float* scores, int n, uint16_t* p, float* total,
                                 float* largest) {
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  __m512 most[2] = {none, none}, sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int i = 0; i < n; i += LANES) {
    most[0] = _mm512_max_ps(most[0], load_scores(scores + i, n - i));
    most[1] = _mm512_max_ps(most[1], load_scores(scores + i + 16, n - i - 16));
  }
  float max = _mm512_reduce_max_ps(_mm512_max_ps(most[0], most[1]));
  __m512 base = _mm512_set1_ps(max == -__builtin_inff() ? 0 : max);
  for (int i = 0; i < n; i += 2 * LANES) {
    __m512 t[AT_ONCE];
#pragma GCC unroll 4
    for (int h = 0; h < AT_ONCE; h++)
      t[h] = _mm512_mul_ps(_mm512_sub_ps(load_scores(scores + i + 16 * h, n - i - 16 * h), base),
                           LOG2_E);
    exp2_side_by_side(t, AT_ONCE);
    sums[0] = _mm512_add_ps(sums[0], _mm512_add_ps(t[0], t[1]));
    sums[1] = _mm512_add_ps(sums[1], _mm512_add_ps(t[2], t[3]));
    _mm512_storeu_si512(p + i, (__m512i)_mm512_cvtne2ps_pbh(t[1], t[0]));
    if (n - i > LANES) _mm512_storeu_si512(p + i + LANES, (__m512i)_mm512_cvtne2ps_pbh(t[3], t[2]));
  }
  *total = _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
  *largest = max;
}

// Lines of weights with two rows of values, by 32 columns.
HY__INLINE void add_pair(int lines, __m512i first, __m512i second, const uint16_t* p, int64_t ldp,
                         __m512 sums[LINES][2]) {
  const __m512i low = _mm512_add_epi32(
      _mm512_set1_epi32(32 << 16),
      _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  __m512bh v0 = (__m512bh)_mm512_permutex2var_epi16(first, low, second);
  __m512bh v1 = (__m512bh)_mm512_permutex2var_epi16(first, high, second);
#pragma GCC unroll 8
  for (int l = 0; l < lines; l++) {
    int pair;
    memcpy(&pair, p + l * ldp, sizeof pair);
    __m512bh weights = (__m512bh)_mm512_set1_epi32(pair);
    sums[l][0] = _mm512_dpbf16_ps(sums[l][0], weights, v0);
    sums[l][1] = _mm512_dpbf16_ps(sums[l][1], weights, v1);
  }
}

HY__INLINE void add_rows(int lines, const hy__matrix* v, int rows, int64_t column, int64_t n,
                         const uint16_t* p, int64_t ldp, float* out, int64_t ldo) {
  __m512 sums[LINES][2];
  __mmask32 used = n >= LANES ? 0xffffffffu : (1u << n) - 1;
  __mmask16 left = hy__first16(n), right = hy__first16(n - 16);
#pragma GCC unroll 8
  for (int l = 0; l < lines; l++) {
    sums[l][0] = _mm512_maskz_loadu_ps(left, out + l * ldo);
    sums[l][1] = _mm512_maskz_loadu_ps(right, out + l * ldo + 16);
  }
  const uint16_t* row = (const uint16_t*)hy__matrix_at(v, 0, column);
  int r = 0;
  for (; r + 2 <= rows; r += 2, row += 2 * v->row) {
    _mm_prefetch(row + ROWS_AHEAD * v->row, _MM_HINT_T0);
    _mm_prefetch(row + (ROWS_AHEAD + 1) * v->row, _MM_HINT_T0);
    add_pair(lines, _mm512_maskz_loadu_epi16(used, row),
             _mm512_maskz_loadu_epi16(used, row + v->row), p + r, ldp, sums);
  }
  if (r < rows)
    add_pair(lines, _mm512_maskz_loadu_epi16(used, row), _mm512_setzero_si512(), p + r, ldp, sums);
#pragma GCC unroll 8
  for (int l = 0; l < lines; l++) {
    _mm512_mask_storeu_ps(out + l * ldo, left, sums[l][0]);
    _mm512_mask_storeu_ps(out + l * ldo + 16, right, sums[l][1]);
  }
}

void hy__weighted_sum_bf16_avx512(const hy__matrix* v, int rows, int64_t n, const uint16_t* p,
                                  int64_t ldp, int m, float* out, int64_t ldo) {
  for (int64_t c = 0; c < n; c += LANES) {
    for (int l = 0; l < m; l += LINES) {
      const uint16_t* weights = p + l * ldp;
      float* to = out + l * ldo + c;
      switch (m - l) {
#define AS_CASE(lines) \
  case lines: add_rows(lines, v, rows, c, n - c, weights, ldp, to, ldo); break;
        FEWER_LINES(AS_CASE)
#undef AS_CASE
        default: add_rows(LINES, v, rows, c, n - c, weights, ldp, to, ldo); break;
      }
    }
  }
}

HY__TARGET_END
#endif
