// GEMV of bf16 in AVX-512 BF16: two products to a lane, each row of weights read in memory order.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/simd/avx512.h"

HY__TARGET_BF16

enum { NR = 4, LANES = 32 };
enum { AHEAD = 2048 };  // bytes by which weights are asked for before they are used

HY__INLINE __m512bh load32(const uint16_t* from, int64_t left) {
  __mmask32 mask = left >= LANES ? 0xffffffffu : (1u << left) - 1;
  return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
}

HY__INLINE __m512 dot_row(const char* row, int64_t k, const uint16_t* x) {
  const uint16_t* w = (const uint16_t*)row;
  __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
  int64_t at = 0;
  for (; at + 2 * LANES <= k; at += 2 * LANES) {
    _mm_prefetch((const char*)(w + at) + AHEAD, _MM_HINT_T0);
    _mm_prefetch((const char*)(w + at) + AHEAD + 64, _MM_HINT_T0);
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

void hy__gemv_bf16_avx512(const hy__matrix* w, int64_t first, int n, int64_t k, const uint16_t* x,
                          float* out) {
  for (int r = 0; r < n; r += NR) {
    __m512 sums[NR];
    int rows = n - r < NR ? n - r : NR;
#pragma GCC unroll 4
    for (int i = 0; i < NR; i++)
      sums[i] = i < rows ? dot_row(hy__matrix_at(w, first + r + i, 0), k, x) : _mm512_setzero_ps();
    _mm_mask_storeu_ps(out + r, (__mmask8)((1 << rows) - 1), sum_lanes(sums));
  }
}

HY__TARGET_END
#endif
