// GEMV and skinny GEMM of bf16 in AVX-512 BF16: two products to a lane. One row of x reads each row
// of weights in memory order, which hardware prefetches better than code does where L1 has no room
// for what code would ask for; more take four of both at once.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/gemm/x86/gemv_prefetch.h"
#include "backends/cpu/runtime/caches.h"
#include "backends/cpu/simd/avx512.h"

HY__TARGET_BF16

enum { NR = 4, MR = 4, LANES = 32, AHEAD = 2048 };

HY__INLINE __m512bh load32(const uint16_t* from, int64_t left) {
  __mmask32 mask = left >= LANES ? 0xffffffffu : (1u << left) - 1;
  return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
}

HY__INLINE __m512 dot_row(bool ahead, const char* row, int64_t k, const uint16_t* x) {
  const uint16_t* w = (const uint16_t*)row;
  __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
  int64_t at = 0;
  for (; at + 2 * LANES <= k; at += 2 * LANES) {
    if (ahead) {
      _mm_prefetch((const char*)(w + at) + AHEAD, _MM_HINT_T0);
      _mm_prefetch((const char*)(w + at) + AHEAD + 64, _MM_HINT_T0);
    }
    even = _mm512_dpbf16_ps(even, load32(x + at, LANES), load32(w + at, LANES));
    odd = _mm512_dpbf16_ps(odd, load32(x + at + LANES, LANES), load32(w + at + LANES, LANES));
  }
  for (; at < k; at += LANES)
    even = _mm512_dpbf16_ps(even, load32(x + at, k - at), load32(w + at, k - at));
  return _mm512_add_ps(even, odd);
}

// The sums of four vectors' lanes.
HY__INLINE __m128 sum_lanes(const __m512 v[NR]) {
  __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  __m512 sums = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

HY__INLINE void one_row(bool ahead, int n, const char* const w[NR], int64_t k, const uint16_t* x,
                        float* out) {
  __m512 sums[NR];
#pragma GCC unroll 4
  for (int i = 0; i < NR; i++) sums[i] = i < n ? dot_row(ahead, w[i], k, x) : _mm512_setzero_ps();
  _mm_mask_storeu_ps(out, (__mmask8)((1 << n) - 1), sum_lanes(sums));
}

HY__INLINE void step(int m, const char* const w[NR], int64_t at, int64_t left, const uint16_t* x,
                     int64_t ldx, __m512 sums[MR][NR]) {
  __m512bh weights[NR];
#pragma GCC unroll 4
  for (int r = 0; r < NR; r++) weights[r] = load32((const uint16_t*)w[r] + at, left);
#pragma GCC unroll 4
  for (int l = 0; l < m; l++) {
    __m512bh value = load32(x + l * ldx + at, left);
#pragma GCC unroll 4
    for (int r = 0; r < NR; r++) sums[l][r] = _mm512_dpbf16_ps(sums[l][r], value, weights[r]);
  }
}

// Sums of a piece of k, which are added to those of the pieces before it.
HY__INLINE void block(int n, int m, const char* const w[NR], hy__gemv_ahead ahead, int64_t k,
                      const uint16_t* x, int64_t ldx, float* out, int64_t ldo, bool accumulate) {
  __m512 sums[MR][NR];
#pragma GCC unroll 4
  for (int l = 0; l < MR; l++) {
#pragma GCC unroll 4
    for (int r = 0; r < NR; r++) sums[l][r] = _mm512_setzero_ps();
  }
  int64_t at = 0;
  for (; at + LANES <= k; at += LANES) {
    hy__gemv_prefetch(&ahead, LANES * (int64_t)sizeof *x);
    step(m, w, at, LANES, x, ldx, sums);
  }
  if (at < k) step(m, w, at, k - at, x, ldx, sums);
  __mmask8 mask = (__mmask8)((1 << n) - 1);
#pragma GCC unroll 4
  for (int l = 0; l < m; l++) {
    __m128 total = sum_lanes(sums[l]);
    if (accumulate) total = _mm_add_ps(total, _mm_maskz_loadu_ps(mask, out + l * ldo));
    _mm_mask_storeu_ps(out + l * ldo, mask, total);
  }
}

// `next`: the weights that are asked for.
static void rows_of(int n, const char* const w[NR], const char* next, int64_t row, int64_t k,
                    const uint16_t* x, int64_t ldx, int m, float* out, int64_t ldo, bool add) {
  int l = 0;
  for (; l + MR <= m; l += MR)
    block(n, MR, w, hy__gemv_ahead_of(next, row, l / MR, m), k, x + l * ldx, ldx, out + l * ldo,
          ldo, add);
  hy__gemv_ahead ahead = hy__gemv_ahead_of(next, row, l / MR, m);
  x += l * ldx;
  out += l * ldo;
  switch (m - l) {
    case 1: block(n, 1, w, ahead, k, x, ldx, out, ldo, add); return;
    case 2: block(n, 2, w, ahead, k, x, ldx, out, ldo, add); return;
    case 3: block(n, 3, w, ahead, k, x, ldx, out, ldo, add); return;
    default: return;
  }
}

void hy__gemv_bf16_avx512(const hy__matrix* w, int64_t first, int n, int64_t k, const uint16_t* x,
                          int64_t ldx, int m, float* out, int64_t ldo) {
  int64_t size = sizeof *x, row = w->row * size;
  int64_t depth = m == 1 ? k : hy__gemv_depth(k, size);
  for (int64_t p = 0; p < k; p += depth) {
    int64_t here = k - p < depth ? k - p : depth;
    const char* data = hy__matrix_at(w, first, p);
    for (int r = 0; r < n; r += NR) {
      int rows = n - r < NR ? n - r : NR;
      const char* four[NR];  // past the last row the last one again
      for (int i = 0; i < NR; i++) four[i] = data + (r + (i < rows ? i : rows - 1)) * row;
      // After the last rows of this piece come the first ones of the next.
      const char* next = r + NR < n || p + depth >= k ? four[0] + NR * row : data + depth * size;
      if (m == 1 && hy__prefetch_into_l1)
        one_row(true, rows, four, k, x, out + r);
      else if (m == 1)
        one_row(false, rows, four, k, x, out + r);
      else
        rows_of(rows, four, next, row, here, x + p, ldx, m, out + r, ldo, p > 0);
    }
  }
}

HY__TARGET_END
#endif
