// AVX-512 kernels (F, BW, DQ, VL).
#define NATIVE 1
#include <immintrin.h>

#include "echo_lanes.inc.h"

enum { MR = 14, NR = 32 };

static inline __m512 canonical_ps(__m512 v) {
  __m512 nan = _mm512_castsi512_ps(_mm512_set1_epi32(ECHO_QNAN));
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), v, nan);
}

#define TILE(ROWS)                                                                               \
  static void tile_f32_##ROWS(int64_t k, const float* a, const float* b, float* c, int64_t ldc,  \
                              int canonical) {                                                   \
    __m512 acc[ROWS][2];                                                                         \
    _Pragma("GCC unroll 14") for (int m = 0; m < ROWS; ++m) {                                    \
      acc[m][0] = _mm512_loadu_ps(c + m * ldc);                                                  \
      acc[m][1] = _mm512_loadu_ps(c + m * ldc + 16);                                             \
    }                                                                                            \
    for (int64_t i = 0; i < k; ++i, a += MR, b += NR) {                                          \
      __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);                              \
      _mm_prefetch((const char*)(b + 8 * NR), _MM_HINT_T0);                                      \
      _mm_prefetch((const char*)(b + 8 * NR + 16), _MM_HINT_T0);                                 \
      _Pragma("GCC unroll 14") for (int m = 0; m < ROWS; ++m) {                                  \
        __m512 x = _mm512_set1_ps(a[m]);                                                         \
        acc[m][0] = _mm512_fmadd_ps(x, b0, acc[m][0]);                                           \
        acc[m][1] = _mm512_fmadd_ps(x, b1, acc[m][1]);                                           \
      }                                                                                          \
    }                                                                                            \
    _Pragma("GCC unroll 14") for (int m = 0; m < ROWS; ++m) for (int h = 0; h < 2; ++h)          \
        _mm512_storeu_ps(c + m * ldc + 16 * h, canonical ? canonical_ps(acc[m][h]) : acc[m][h]); \
  }
TILE(1)
TILE(2)
TILE(4)
TILE(8)
TILE(11)
TILE(14)

// Rows that the tile height covers beyond `rows` would touch memory outside c, so a tile is cut in
// exact pieces.
static void tile_f32(int64_t k, int rows, const float* a, const float* b, float* c, int64_t ldc,
                     int canonical) {
  static const struct {
    int rows;
    void (*tile)(int64_t, const float*, const float*, float*, int64_t, int);
  } pieces[] = {{14, tile_f32_14}, {11, tile_f32_11}, {8, tile_f32_8},
                {4, tile_f32_4},   {2, tile_f32_2},   {1, tile_f32_1}};
  for (int p = 0; rows; ++p)
    while (rows >= pieces[p].rows) {
      pieces[p].tile(k, a, b, c, ldc, canonical);
      a += pieces[p].rows;
      c += pieces[p].rows * ldc;
      rows -= pieces[p].rows;
    }
}

static void tile_i8(int64_t pairs, int rows, const int16_t* a, const int16_t* b, int32_t* c,
                    int64_t ldc) {
  for (int m0 = 0; m0 < rows; m0 += 7) {
    int count = rows - m0 < 7 ? rows - m0 : 7;
    __m512i acc[7][2];
    for (int m = 0; m < count; ++m) {
      acc[m][0] = _mm512_loadu_si512(c + (m0 + m) * ldc);
      acc[m][1] = _mm512_loadu_si512(c + (m0 + m) * ldc + 16);
    }
    for (int64_t i = 0; i < pairs; ++i) {
      __m512i b0 = _mm512_loadu_si512(b + i * NR * 2), b1 = _mm512_loadu_si512(b + i * NR * 2 + 32);
      for (int m = 0; m < count; ++m) {
        int32_t pair;
        memcpy(&pair, a + (i * MR + m0 + m) * 2, 4);
        __m512i x = _mm512_set1_epi32(pair);
        acc[m][0] = _mm512_add_epi32(acc[m][0], _mm512_madd_epi16(x, b0));
        acc[m][1] = _mm512_add_epi32(acc[m][1], _mm512_madd_epi16(x, b1));
      }
    }
    for (int m = 0; m < count; ++m) {
      _mm512_storeu_si512(c + (m0 + m) * ldc, acc[m][0]);
      _mm512_storeu_si512(c + (m0 + m) * ldc + 16, acc[m][1]);
    }
  }
}

static inline void transpose16(__m512 r[16]) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]),
            c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

static void pack_transposed(int64_t k, int n, const float* in, int64_t ld, float* out, int stride) {
  int64_t i = 0;
  const __mmask16 columns = (__mmask16)((1u << n) - 1);
  for (; i + 16 <= k; i += 16) {
    __m512 r[16];
    _Pragma("GCC unroll 16") for (int j = 0; j < 16; ++j) r[j] =
        j < n ? _mm512_loadu_ps(in + j * ld + i) : _mm512_setzero_ps();
    transpose16(r);
    _Pragma("GCC unroll 16") for (int j = 0; j < 16; ++j)
        _mm512_mask_storeu_ps(out + (i + j) * stride, columns, r[j]);
  }
  for (; i < k; ++i)
    for (int j = 0; j < n; ++j) out[i * stride + j] = in[j * ld + i];
}

static inline __attribute__((always_inline)) void finish(float* c, __m512 v, int canonical) {
  _mm512_storeu_ps(c, canonical ? canonical_ps(v) : v);
}

// Sixteen columns at a time, transposed in registers on their way to the multiplier.
static inline __attribute__((always_inline)) void skinny_transposed(int64_t k, int rows,
                                                                    const float* a, const float* b,
                                                                    int64_t ldb, float* c,
                                                                    int64_t ldc, int canonical) {
  for (int g = 0; g < ECHO_SKINNY_COLS; g += 16) {
    const float* from = b + g * ldb;
    __m512 acc[ECHO_SKINNY_ROWS];
    for (int m = 0; m < rows; ++m) acc[m] = _mm512_loadu_ps(c + m * ldc + g);
    for (int64_t i = 0; i < k; i += 16) {
      const int left = k - i < 16 ? (int)(k - i) : 16;
      const __mmask16 mask = (__mmask16)((1u << left) - 1);
      __m512 r[16];
      _Pragma("GCC unroll 16") for (int j = 0; j < 16; ++j) r[j] =
          _mm512_maskz_loadu_ps(mask, from + j * ldb + i);
      transpose16(r);
      if (left == 16) {
        _Pragma("GCC unroll 16") for (int q = 0; q < 16; ++q) for (int m = 0; m < rows; ++m)
            acc[m] = _mm512_fmadd_ps(_mm512_set1_ps(a[(i + q) * MR + m]), r[q], acc[m]);
      } else {
        for (int q = 0; q < left; ++q)
          for (int m = 0; m < rows; ++m)
            acc[m] = _mm512_fmadd_ps(_mm512_set1_ps(a[(i + q) * MR + m]), r[q], acc[m]);
      }
    }
    for (int m = 0; m < rows; ++m) finish(c + m * ldc + g, acc[m], canonical);
  }
}

static inline __attribute__((always_inline)) void skinny_plain(int64_t k, int rows, const float* a,
                                                               const float* b, int64_t ldb,
                                                               float* c, int64_t ldc,
                                                               int canonical) {
  enum { V = ECHO_SKINNY_COLS / 16 };
  __m512 acc[ECHO_SKINNY_ROWS][V];
  for (int m = 0; m < rows; ++m)
    _Pragma("GCC unroll 8") for (int v = 0; v < V; ++v) acc[m][v] =
        _mm512_loadu_ps(c + m * ldc + 16 * v);
  for (int64_t i = 0; i < k; ++i) _Pragma("GCC unroll 8") for (int v = 0; v < V; ++v) {
      __m512 x = _mm512_loadu_ps(b + i * ldb + 16 * v);
      for (int m = 0; m < rows; ++m)
        acc[m][v] = _mm512_fmadd_ps(_mm512_set1_ps(a[i * MR + m]), x, acc[m][v]);
    }
  for (int m = 0; m < rows; ++m)
    _Pragma("GCC unroll 8") for (int v = 0; v < V; ++v)
        finish(c + m * ldc + 16 * v, acc[m][v], canonical);
}

static void skinny(int64_t k, int rows, const float* a, const float* b, int64_t ldb, int transposed,
                   float* c, int64_t ldc, int canonical) {
  if (transposed && rows == 1)
    skinny_transposed(k, 1, a, b, ldb, c, ldc, canonical);
  else if (transposed)
    skinny_transposed(k, 2, a, b, ldb, c, ldc, canonical);
  else if (rows == 1)
    skinny_plain(k, 1, a, b, ldb, c, ldc, canonical);
  else
    skinny_plain(k, 2, a, b, ldb, c, ldc, canonical);
}

const echo_kernels echo_kernels_avx512 = {
    "avx512", MR,        NR,         tile_f32,    tile_i8,      pack_transposed,
    skinny,   lanes_run, lanes_load, lanes_store, lanes_reduce, lanes_tree,
};
