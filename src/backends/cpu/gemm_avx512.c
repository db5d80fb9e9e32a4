// The GEMM tile in AVX-512: 14 rows by 32 columns, 28 accumulators, two loads of B and 14
// broadcasts of A a step.
#include "backends/cpu/kernels.h"

#if defined(__x86_64__)
#include "backends/cpu/avx512.h"

HY__TARGET_AVX512

enum { ROWS = 14, PANEL = 32 };

// ---- packing ----

static inline float one(const hy__matrix* m, int64_t i, int64_t j) {
  return _mm512_cvtss_f32(hy__load16(hy__matrix_at(m, i, j), m->dtype, 1));
}

// Sixteen rows of `across` columns each, read along the columns and written transposed: packed[k *
// width + i]. `lines` is how many of the rows exist.
static void pack_transposed(const hy__matrix* m, bool lines_are_rows, int64_t line, int lines,
                            int64_t k, int depth, int width, int stored, float* packed) {
  __mmask16 store = hy__first16(stored);
  for (int at = 0; at < depth; at += 16) {
    __m512 block[16];
    __mmask16 load = hy__first16(depth - at);
    for (int i = 0; i < 16; i++) {
      const char* from =
          lines_are_rows ? hy__matrix_at(m, line + i, k + at) : hy__matrix_at(m, k + at, line + i);
      block[i] = i < lines ? hy__load16(from, m->dtype, load) : _mm512_setzero_ps();
    }
    hy__transpose16(block);
    for (int i = 0; i < 16 && at + i < depth; i++)
      _mm512_mask_storeu_ps(packed + (int64_t)(at + i) * width, store, block[i]);
  }
}

static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  if (a->column == 1) {
    pack_transposed(a, true, i, m, k, depth, ROWS, ROWS, packed);
  } else if (a->row == 1) {
    for (int p = 0; p < depth; p++)
      _mm512_mask_storeu_ps(packed + (int64_t)p * ROWS, hy__first16(ROWS),
                            hy__load16(hy__matrix_at(a, i, k + p), a->dtype, hy__first16(m)));
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
                        hy__load16(hy__matrix_at(b, k + p, j + h), b->dtype, hy__first16(n - h)));
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
HY__INLINE void tile(int m, int depth, const float* a, const float* b, float* c, int64_t stride,
                     int n, bool accumulate) {
  __m512 low[ROWS], high[ROWS];
  for (int i = 0; i < m; i++) {
    low[i] = high[i] = _mm512_setzero_ps();
    _mm_prefetch((const char*)(c + i * stride), _MM_HINT_T0);
    _mm_prefetch((const char*)(c + i * stride + 16), _MM_HINT_T0);
  }
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
  __mmask16 first_half = hy__first16(n), second_half = hy__first16(n - 16);
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
    AS_CASE(2)
    AS_CASE(3)
    AS_CASE(4)
    AS_CASE(5)
    AS_CASE(6)
    AS_CASE(7)
    AS_CASE(8)
    AS_CASE(9)
    AS_CASE(10)
    AS_CASE(11)
    AS_CASE(12)
    AS_CASE(13)
    AS_CASE(14)
#undef AS_CASE
    default: return;
  }
}

HY__TARGET_END

const hy__gemm_kernel hy__gemm_avx512 = {.rows = ROWS,
                                         .panel = PANEL,
                                         .unit = 1,
                                         .align = 1,
                                         .pack_a = pack_a,
                                         .pack_b = pack_b,
                                         .multiply = multiply};
#endif
