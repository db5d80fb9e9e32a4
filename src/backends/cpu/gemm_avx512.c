// The GEMM tile in AVX-512: 14 rows by 32 columns, 28 accumulators, two loads of B and 14
// broadcasts of A a step.
#include "backends/cpu/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,f16c,fma")

enum { ROWS = 14, PANEL = 32 };

// ---- sixteen elements as floats ----

static inline __m512 widen(const void* p, hy_dtype dtype, __mmask16 mask) {
  if (dtype == HY_F32) return _mm512_maskz_loadu_ps(mask, p);
  __m256i half = _mm256_maskz_loadu_epi16(mask, p);
  if (dtype == HY_F16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline const char* element(const hy__matrix* m, int64_t i, int64_t j) {
  return (const char*)m->data + (i * m->row + j * m->column) * (m->dtype == HY_F32 ? 4 : 2);
}

static inline float one(const hy__matrix* m, int64_t i, int64_t j) {
  return _mm512_cvtss_f32(widen(element(m, i, j), m->dtype, 1));
}

// Rows of `in` become columns.
static inline void transpose16(__m512 in[16]) {
  __m512 t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_ps(in[2 * i], in[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(in[2 * i], in[2 * i + 1]);
  }
  for (int i = 0; i < 4; i++) {
    __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 1]);
    __m512d c = _mm512_castps_pd(t[4 * i + 2]), d = _mm512_castps_pd(t[4 * i + 3]);
    in[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    in[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    in[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    in[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
  for (int i = 0; i < 4; i++) {
    t[i] = _mm512_shuffle_f32x4(in[i], in[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_f32x4(in[i], in[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_f32x4(in[8 + i], in[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(in[8 + i], in[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; i++) {
    in[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
    in[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
    in[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
    in[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

// ---- packing ----

static __mmask16 first(int64_t n) {
  return n >= 16 ? 0xffff : (__mmask16)((1u << (n > 0 ? n : 0)) - 1);
}

// Sixteen rows of `across` columns each, read along the columns and written transposed: packed[k *
// width + i]. `lines` is how many of the rows exist.
static void pack_transposed(const hy__matrix* m, bool lines_are_rows, int64_t line, int lines,
                            int64_t k, int depth, int width, int stored, float* packed) {
  __mmask16 store = first(stored);
  for (int at = 0; at < depth; at += 16) {
    __m512 block[16];
    __mmask16 load = first(depth - at);
    for (int i = 0; i < 16; i++) {
      const char* from =
          lines_are_rows ? element(m, line + i, k + at) : element(m, k + at, line + i);
      block[i] = i < lines ? widen(from, m->dtype, load) : _mm512_setzero_ps();
    }
    transpose16(block);
    for (int i = 0; i < 16 && at + i < depth; i++)
      _mm512_mask_storeu_ps(packed + (int64_t)(at + i) * width, store, block[i]);
  }
}

static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  if (a->column == 1) {
    pack_transposed(a, true, i, m, k, depth, ROWS, ROWS, packed);
  } else if (a->row == 1) {
    for (int p = 0; p < depth; p++)
      _mm512_mask_storeu_ps(packed + (int64_t)p * ROWS, first(ROWS),
                            widen(element(a, i, k + p), a->dtype, first(m)));
  } else {
    for (int p = 0; p < depth; p++) {
      for (int r = 0; r < ROWS; r++)
        packed[(int64_t)p * ROWS + r] = r < m ? one(a, i + r, k + p) : 0;
    }
  }
}

static void pack_b(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed) {
  if (b->column == 1) {
    for (int p = 0; p < depth; p++) {
      for (int h = 0; h < PANEL; h += 16)
        _mm512_store_ps(packed + (int64_t)p * PANEL + h,
                        widen(element(b, k + p, j + h), b->dtype, first(n - h)));
    }
  } else if (b->row == 1) {
    for (int h = 0; h < PANEL; h += 16)
      pack_transposed(b, false, j + h, n - h, k, depth, PANEL, 16, packed + h);
  } else {
    for (int p = 0; p < depth; p++) {
      for (int c = 0; c < PANEL; c++)
        packed[(int64_t)p * PANEL + c] = c < n ? one(b, k + p, j + c) : 0;
    }
  }
}

// ---- the tile ----

// One body for every height, unrolled by the compiler where `m` is a constant.
static inline __attribute__((always_inline)) void tile(int m, int depth, const float* a,
                                                       const float* b, float* c, int64_t stride,
                                                       int n, bool accumulate) {
  __m512 low[ROWS], high[ROWS];
  for (int i = 0; i < m; i++) low[i] = high[i] = _mm512_setzero_ps();
  for (int k = 0; k < depth; k++) {
    __m512 b0 = _mm512_load_ps(b + (int64_t)k * PANEL),
           b1 = _mm512_load_ps(b + (int64_t)k * PANEL + 16);
#pragma GCC unroll 14
    for (int i = 0; i < m; i++) {
      __m512 x = _mm512_set1_ps(a[(int64_t)k * ROWS + i]);
      low[i] = _mm512_fmadd_ps(x, b0, low[i]);
      high[i] = _mm512_fmadd_ps(x, b1, high[i]);
    }
  }
  __mmask16 first_half = first(n), second_half = first(n - 16);
#pragma GCC unroll 14
  for (int i = 0; i < m; i++) {
    float* row = c + i * stride;
    if (accumulate) {
      low[i] = _mm512_add_ps(low[i], _mm512_maskz_loadu_ps(first_half, row));
      high[i] = _mm512_add_ps(high[i], _mm512_maskz_loadu_ps(second_half, row + 16));
    }
    _mm512_mask_storeu_ps(row, first_half, low[i]);
    _mm512_mask_storeu_ps(row + 16, second_half, high[i]);
  }
}

static void multiply(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                     int n, bool accumulate) {
  switch (m) {
#define AS_CASE(rows) \
  case rows: tile(rows, depth, a, b, c, stride, n, accumulate); return;
    AS_CASE(1)
    AS_CASE(2) AS_CASE(3) AS_CASE(4) AS_CASE(5) AS_CASE(6) AS_CASE(7) AS_CASE(8) AS_CASE(9)
        AS_CASE(10) AS_CASE(11) AS_CASE(12) AS_CASE(13) AS_CASE(14)
#undef AS_CASE
            default : return;
  }
}

#pragma GCC pop_options

static const hy__gemm_kernel kernel = {ROWS, PANEL, pack_a, pack_b, multiply};
const hy__gemm_kernel* hy__gemm_kernel_avx512(void) {
  return &kernel;
}
#else
const hy__gemm_kernel* hy__gemm_kernel_avx512(void) {
  return NULL;
}
#endif
