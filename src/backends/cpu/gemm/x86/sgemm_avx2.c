// The sgemm microkernel in AVX2: MR x NR = 6 x 16, 12 accumulators.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "backends/cpu/runtime/target.h"

enum { MR = 6, NR = 16 };
HY__TARGET_AVX2

#include "backends/cpu/gemm/pack_generic.h"

// Eight columns of eight rows each along k, transposed.
static void pack_transposed(const hy__matrix* b, int64_t k, int depth, int64_t j, float* packed) {
  for (int at = 0; at < depth; at += 8) {
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++) {
      const char* p = hy__matrix_at(b, k + at, j + i);
      if (b->dtype == HY_F32)
        r[i] = _mm256_loadu_ps((const float*)p);
      else if (b->dtype == HY_F16)
        r[i] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
      else
        r[i] = _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
    }
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
      _mm256_storeu_ps(packed + (at + i) * NR, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
      _mm256_storeu_ps(packed + (at + i + 4) * NR, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
  }
}

// Weights run along k: whole blocks of them are transposed in registers.
static void pack_columns(const hy__matrix* b, int64_t k, int depth, int64_t j, int n,
                         float* packed) {
  int whole = b->row == 1 && n == NR ? depth / 8 * 8 : 0;
  for (int h = 0; whole > 0 && h < NR; h += 8) pack_transposed(b, k, whole, j + h, packed + h);
  if (whole < depth) pack_b(b, k + whole, depth - whole, j, n, packed + whole * NR);
}

HY__INLINE void tile(int m, int depth, const float* a, const float* b, float* c, int64_t stride,
                     int n, bool accumulate) {
  __m256 low[MR], high[MR];
  for (int i = 0; i < m; i++) low[i] = high[i] = _mm256_setzero_ps();
  for (int k = 0; k < depth; k++) {
    __m256 b0 = _mm256_load_ps(b + k * NR), b1 = _mm256_load_ps(b + k * NR + 8);
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      __m256 x = _mm256_broadcast_ss(a + k * MR + i);
      low[i] = _mm256_fmadd_ps(x, b0, low[i]);
      high[i] = _mm256_fmadd_ps(x, b1, high[i]);
    }
  }
  if (n == NR) {
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      float* row = c + i * stride;
      if (accumulate) {
        low[i] = _mm256_add_ps(low[i], _mm256_loadu_ps(row));
        high[i] = _mm256_add_ps(high[i], _mm256_loadu_ps(row + 8));
      }
      _mm256_storeu_ps(row, low[i]);
      _mm256_storeu_ps(row + 8, high[i]);
    }
    return;
  }
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) {
    float sums[NR], *row = c + i * stride;
    _mm256_storeu_ps(sums, low[i]);
    _mm256_storeu_ps(sums + 8, high[i]);
    for (int j = 0; j < n; j++) row[j] = accumulate ? row[j] + sums[j] : sums[j];
  }
}

static void multiply(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                     int n, bool accumulate) {
  switch (m) {
    case 1: tile(1, depth, a, b, c, stride, n, accumulate); return;
    case 2: tile(2, depth, a, b, c, stride, n, accumulate); return;
    case 3: tile(3, depth, a, b, c, stride, n, accumulate); return;
    case 4: tile(4, depth, a, b, c, stride, n, accumulate); return;
    case 5: tile(5, depth, a, b, c, stride, n, accumulate); return;
    default: tile(6, depth, a, b, c, stride, n, accumulate); return;
  }
}

HY__TARGET_END

const hy__gemm_kernel hy__sgemm_avx2 = {.mr = MR,
                                        .nr = NR,
                                        .kc = 384,
                                        .unit = 1,
                                        .align = 1,
                                        .pack_a = pack_a,
                                        .pack_b = pack_columns,
                                        .multiply = multiply};
#endif
