// The sgemm microkernel in AVX2: MR x NR = 6 x 16, 12 accumulators.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/simd/avx2.h"

enum { MR = 6, NR = 16 };
HY__TARGET_AVX2

#include "backends/cpu/gemm/pack_generic.h"

// Eight columns of eight rows each along k, transposed.
static void pack_transposed(const hy__matrix* b, int64_t k, int depth, int64_t j, float* packed) {
  for (int at = 0; at < depth; at += 8) {
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++) r[i] = hy__load8(hy__matrix_at(b, k + at, j + i), b->dtype);
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
  enum { VECTORS = NR / 8 };
  __m256 sums[MR][VECTORS];
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) sums[i][0] = sums[i][1] = _mm256_setzero_ps();
  for (int k = 0; k < depth; k++, a += MR, b += NR) {
    __m256 columns[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) columns[v] = _mm256_load_ps(b + 8 * v);
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      __m256 x = _mm256_broadcast_ss(a + i);
#pragma GCC unroll 2
      for (int v = 0; v < VECTORS; v++) {
        sums[i][v] = _mm256_fmadd_ps(x, columns[v], sums[i][v]);
        __asm__("" : "+x"(sums[i][v]));  // or GCC copies every sum at every step
      }
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < VECTORS; v++) {
    __m256i mask = hy__first8(n - 8 * v);
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      float* to = c + i * stride + 8 * v;
      if (accumulate) sums[i][v] = _mm256_add_ps(sums[i][v], _mm256_maskload_ps(to, mask));
      if (n == NR)
        _mm256_storeu_ps(to, sums[i][v]);
      else
        _mm256_maskstore_ps(to, mask, sums[i][v]);
    }
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
