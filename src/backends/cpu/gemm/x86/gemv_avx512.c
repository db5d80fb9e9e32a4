// GEMV and skinny GEMM, epilogue and conversion of rows in AVX-512.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/gemm/x86/gemv_prefetch.h"
#include "backends/cpu/simd/avx512.h"

HY__TARGET_AVX512

enum { NR = 4, MR = 4 };  // of one block: their sums stay in registers
enum { AHEAD = 2048 };    // bytes by which weights are asked for before they are used

// The sums of four vectors' lanes.
HY__INLINE __m128 sum_lanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  __m512 sums = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

HY__INLINE void step(int n, int m, const char* const w[NR], hy_dtype dtype, int64_t at,
                     const float* x, int64_t ldx, __mmask16 mask, __m512 sums[MR][NR]) {
  __m512 weights[NR];
#pragma GCC unroll 4
  for (int r = 0; r < n; r++)
    weights[r] = hy__load16(w[r] + at * (dtype == HY_F32 ? 4 : 2), dtype, mask);
#pragma GCC unroll 4
  for (int l = 0; l < m; l++) {
    __m512 value = _mm512_maskz_loadu_ps(mask, x + l * ldx + at);
#pragma GCC unroll 4
    for (int r = 0; r < n; r++) sums[l][r] = _mm512_fmadd_ps(value, weights[r], sums[l][r]);
  }
}

// Sums of a piece of k, which are added to those of the pieces before it.
HY__INLINE void block(int n, int m, hy_dtype dtype, const char* const w[NR], int64_t k,
                      hy__gemv_ahead ahead, const float* x, int64_t ldx, float* out, int64_t ldo,
                      bool accumulate) {
  __m512 sums[MR][NR];
#pragma GCC unroll 4
  for (int l = 0; l < MR; l++) {
#pragma GCC unroll 4
    for (int r = 0; r < NR; r++) sums[l][r] = _mm512_setzero_ps();
  }
  int64_t at = 0;
  for (; at + 16 <= k; at += 16) {
    hy__gemv_prefetch(&ahead, 16 * (dtype == HY_F32 ? 4 : 2));
    step(n, m, w, dtype, at, x, ldx, 0xffff, sums);
  }
  if (at < k) step(n, m, w, dtype, at, x, ldx, hy__first16(k - at), sums);
  __mmask8 mask = (__mmask8)((1 << n) - 1);
#pragma GCC unroll 4
  for (int l = 0; l < m; l++) {
    __m128 total = sum_lanes(sums[l][0], sums[l][1], sums[l][2], sums[l][3]);
    if (accumulate) total = _mm_add_ps(total, _mm_maskz_loadu_ps(mask, out + l * ldo));
    _mm_mask_storeu_ps(out + l * ldo, mask, total);
  }
}

// One row of x with one row of weights, read in memory order.
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

HY__INLINE void one_row(int n, hy_dtype dtype, const char* const w[NR], int64_t k, const float* x,
                        float* out) {
  __m512 sums[NR];
#pragma GCC unroll 4
  for (int r = 0; r < NR; r++) sums[r] = r < n ? dot_row(dtype, w[r], k, x) : _mm512_setzero_ps();
  _mm_mask_storeu_ps(out, (__mmask8)((1 << n) - 1), sum_lanes(sums[0], sums[1], sums[2], sums[3]));
}

// `next`: the weights that are asked for.
HY__INLINE void rows_of(int n, int m, hy_dtype dtype, const char* const w[NR], const char* next,
                        int64_t row, int64_t k, const float* x, int64_t ldx, float* out,
                        int64_t ldo, bool add) {
  int l = 0;
  for (; l + MR <= m; l += MR)
    block(n, MR, dtype, w, k, hy__gemv_ahead_of(next, row, l / MR, m), x + l * ldx, ldx,
          out + l * ldo, ldo, add);
  hy__gemv_ahead ahead = hy__gemv_ahead_of(next, row, l / MR, m);
  x += l * ldx;
  out += l * ldo;
  switch (m - l) {
    case 1: block(n, 1, dtype, w, k, ahead, x, ldx, out, ldo, add); return;
    case 2: block(n, 2, dtype, w, k, ahead, x, ldx, out, ldo, add); return;
    case 3: block(n, 3, dtype, w, k, ahead, x, ldx, out, ldo, add); return;
    default: return;
  }
}

HY__INLINE void gemv_of(hy_dtype dtype, const hy__matrix* w, int64_t first, int n, int64_t k,
                        const float* x, int64_t ldx, int m, float* out, int64_t ldo) {
  int64_t size = dtype == HY_F32 ? 4 : 2, row = w->row * size;
  int64_t depth = m == 1 ? k : hy__gemv_depth(k, size);
  for (int64_t p = 0; p < k; p += depth) {
    int64_t here = k - p < depth ? k - p : depth;
    const char* data = hy__matrix_at(w, first, p);
    for (int r = 0; r < n;) {
      int rows = n - r < NR ? 1 : NR;
      const char* four[NR];
      for (int i = 0; i < NR; i++) four[i] = data + (r + (i < rows ? i : 0)) * row;
      // After the last rows of this piece come the first ones of the next.
      const char* next =
          r + rows < n || p + depth >= k ? four[0] + rows * row : data + depth * size;
      if (m == 1 && rows == NR)
        one_row(NR, dtype, four, k, x, out + r);
      else if (m == 1)
        one_row(1, dtype, four, k, x, out + r);
      else if (rows == NR)
        rows_of(NR, m, dtype, four, next, row, here, x + p, ldx, out + r, ldo, p > 0);
      else
        rows_of(1, m, dtype, four, next, row, here, x + p, ldx, out + r, ldo, p > 0);
      r += rows;
    }
  }
}

void hy__gemv_avx512(const hy__matrix* w, int64_t first, int n, int64_t k, const float* x,
                     int64_t ldx, int m, float* out, int64_t ldo) {
  switch (w->dtype) {
    case HY_F32: gemv_of(HY_F32, w, first, n, k, x, ldx, m, out, ldo); return;
    case HY_BF16: gemv_of(HY_BF16, w, first, n, k, x, ldx, m, out, ldo); return;
    default: gemv_of(HY_F16, w, first, n, k, x, ldx, m, out, ldo); return;
  }
}

// The numbers of two vectors as bf16.
HY__INLINE __m512i pair_to_bf16(__m512 low, __m512 high) {
  static const uint16_t upper_halves[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                            23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                            45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(hy__rounded_bf16(low), _mm512_loadu_si512(upper_halves),
                                   hy__rounded_bf16(high));
}

HY__INLINE void epilogue(int64_t n, const float* sums, float alpha, float beta, const char* addend,
                         char* out, hy_dtype dtype) {
  const int64_t size = dtype == HY_F32 ? 4 : 2;
  const __m512 a = _mm512_set1_ps(alpha), b = _mm512_set1_ps(beta);
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m512 low = _mm512_mul_ps(a, _mm512_loadu_ps(sums + i));
    __m512 high = _mm512_mul_ps(a, _mm512_loadu_ps(sums + i + 16));
    if (addend) {
      low = _mm512_fmadd_ps(b, hy__load16(addend + i * size, dtype, 0xffff), low);
      high = _mm512_fmadd_ps(b, hy__load16(addend + (i + 16) * size, dtype, 0xffff), high);
    }
    if (dtype == HY_BF16) {
      _mm512_storeu_si512(out + i * size, pair_to_bf16(low, high));
      continue;
    }
    hy__store16(out + i * size, dtype, 0xffff, low);
    hy__store16(out + (i + 16) * size, dtype, 0xffff, high);
  }
  for (; i < n; i += 16) {
    __mmask16 mask = hy__first16(n - i);
    __m512 value = _mm512_mul_ps(a, _mm512_maskz_loadu_ps(mask, sums + i));
    if (addend) value = _mm512_fmadd_ps(b, hy__load16(addend + i * size, dtype, mask), value);
    hy__store16(out + i * size, dtype, mask, value);
  }
}

void hy__epilogue_avx512(int64_t n, const float* sums, float alpha, float beta, const void* addend,
                         int64_t addend_step, void* out, int64_t out_step, hy_dtype dtype) {
  if (out_step != 1 || (addend && addend_step != 1)) {
    hy__epilogue_generic(n, sums, alpha, beta, addend, addend_step, out, out_step, dtype);
    return;
  }
  switch (dtype) {
    case HY_F32: epilogue(n, sums, alpha, beta, addend, out, HY_F32); return;
    case HY_BF16: epilogue(n, sums, alpha, beta, addend, out, HY_BF16); return;
    default: epilogue(n, sums, alpha, beta, addend, out, HY_F16); return;
  }
}

void hy__widen_avx512(int64_t n, const void* from, int64_t step, hy_dtype dtype, float* x) {
  if (step != 1) {
    hy__widen_generic(n, from, step, dtype, x);
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
