// AVX2 and FMA kernels.
#define NATIVE 1
#include <immintrin.h>

#include "echo_lanes.inc.h"

enum { MR = 6, NR = 16 };

static inline __m256 canonical_ps(__m256 v) {
  __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(ECHO_QNAN));
  return _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

#define TILE(ROWS)                                                                              \
  static void tile_f32_##ROWS(int64_t k, const float* a, const float* b, float* c, int64_t ldc, \
                              int canonical) {                                                  \
    __m256 acc[ROWS][2];                                                                        \
    _Pragma("GCC unroll 6") for (int m = 0; m < ROWS; ++m) {                                    \
      acc[m][0] = _mm256_loadu_ps(c + m * ldc);                                                 \
      acc[m][1] = _mm256_loadu_ps(c + m * ldc + 8);                                             \
    }                                                                                           \
    for (int64_t i = 0; i < k; ++i, a += MR, b += NR) {                                         \
      __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);                              \
      _Pragma("GCC unroll 6") for (int m = 0; m < ROWS; ++m) {                                  \
        __m256 x = _mm256_broadcast_ss(a + m);                                                  \
        acc[m][0] = _mm256_fmadd_ps(x, b0, acc[m][0]);                                          \
        acc[m][1] = _mm256_fmadd_ps(x, b1, acc[m][1]);                                          \
      }                                                                                         \
    }                                                                                           \
    _Pragma("GCC unroll 6") for (int m = 0; m < ROWS; ++m) for (int h = 0; h < 2; ++h)          \
        _mm256_storeu_ps(c + m * ldc + 8 * h, canonical ? canonical_ps(acc[m][h]) : acc[m][h]); \
  }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)

static void tile_f32(int64_t k, int rows, const float* a, const float* b, float* c, int64_t ldc,
                     int canonical) {
  switch (rows) {
    case 1: tile_f32_1(k, a, b, c, ldc, canonical); break;
    case 2: tile_f32_2(k, a, b, c, ldc, canonical); break;
    case 3: tile_f32_3(k, a, b, c, ldc, canonical); break;
    case 4: tile_f32_4(k, a, b, c, ldc, canonical); break;
    case 5: tile_f32_5(k, a, b, c, ldc, canonical); break;
    default: tile_f32_6(k, a, b, c, ldc, canonical); break;
  }
}

static void tile_i8(int64_t pairs, int rows, const int16_t* a, const int16_t* b, int32_t* c,
                    int64_t ldc) {
  for (int m = 0; m < rows; ++m) {
    __m256i* row = (__m256i*)(c + m * ldc);
    __m256i c0 = _mm256_loadu_si256(row), c1 = _mm256_loadu_si256(row + 1);
    for (int64_t i = 0; i < pairs; ++i) {
      int32_t pair;
      memcpy(&pair, a + (i * MR + m) * 2, 4);
      __m256i x = _mm256_set1_epi32(pair);
      const __m256i* y = (const __m256i*)(b + i * NR * 2);
      c0 = _mm256_add_epi32(c0, _mm256_madd_epi16(x, _mm256_loadu_si256(y)));
      c1 = _mm256_add_epi32(c1, _mm256_madd_epi16(x, _mm256_loadu_si256(y + 1)));
    }
    _mm256_storeu_si256(row, c0);
    _mm256_storeu_si256(row + 1, c1);
  }
}

static void pack_transposed(int64_t k, int n, const float* in, int64_t ld, float* out, int stride) {
  for (int64_t i0 = 0; i0 < k; i0 += 16) {
    int64_t i1 = i0 + 16 < k ? i0 + 16 : k;
    for (int j = 0; j < n; ++j)
      for (int64_t i = i0; i < i1; ++i) out[i * stride + j] = in[j * ld + i];
  }
}

const echo_kernels echo_kernels_avx2 = {
    "avx2", MR,        NR,         tile_f32,    tile_i8,      pack_transposed,
    NULL,   lanes_run, lanes_load, lanes_store, lanes_reduce, lanes_tree,
};
