// Products of int8 with AVX-512 VNNI: 14 rows by 32 columns, four products to a lane.
//
// The instruction multiplies unsigned by signed bytes, so that A is packed with 128 added, and 128
// times the sums of B's columns, which packing finds, is taken off again. All of it is exact.
#include "backends/cpu/kernels.h"

#if defined(__x86_64__)
#define UNIT 4
enum { ROWS = 14, PANEL = 32 };
#include "backends/cpu/avx512_lanes.h"

HY__TARGET_VNNI

enum { FLIP = (int)0x80808080 };

static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  const char* data = hy__matrix_at(a, i, k);
  if (a->column == 1)
    pack_lines(data, a->row, m, depth, ROWS, ROWS, (uint32_t)FLIP, packed);
  else
    pack_scattered(data, a->row, a->column, m, depth, ROWS, (uint32_t)FLIP, (uint32_t*)packed);
}

// Behind the columns stand 128 times their sums.
static void pack_b(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed) {
  uint32_t* to = (uint32_t*)packed;
  pack_columns(b, k, depth, j, n, to);
  int lanes = (depth + 3) / 4;
  for (int h = 0; h < PANEL; h += 16) {
    __m512i sum = _mm512_setzero_si512();
    for (int p = 0; p < lanes; p++)
      sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1),
                                _mm512_loadu_si512(to + (int64_t)p * PANEL + h));
    _mm512_storeu_si512(to + (int64_t)lanes * PANEL + h, _mm512_slli_epi32(sum, 7));
  }
}

HY__INLINE void tile(int m, int lanes, const int32_t* a, const int32_t* b, int32_t* c,
                     int64_t stride, int n, bool accumulate) {
  __m512i low[ROWS], high[ROWS];
  __m512i low_bias = _mm512_loadu_si512(b + (int64_t)lanes * PANEL);
  __m512i high_bias = _mm512_loadu_si512(b + (int64_t)lanes * PANEL + 16);
  for (int i = 0; i < m; i++) low[i] = high[i] = _mm512_setzero_si512();
  for (int k = 0; k < lanes; k++) {
    __m512i b0 = _mm512_loadu_si512(b + (int64_t)k * PANEL);
    __m512i b1 = _mm512_loadu_si512(b + (int64_t)k * PANEL + 16);
#pragma GCC unroll 14
    for (int i = 0; i < m; i++) {
      __m512i x = _mm512_set1_epi32(a[(int64_t)k * ROWS + i]);
      low[i] = _mm512_dpbusd_epi32(low[i], x, b0);
      high[i] = _mm512_dpbusd_epi32(high[i], x, b1);
    }
  }
  __mmask16 first_half = hy__first16(n), second_half = hy__first16(n - 16);
#pragma GCC unroll 14
  for (int i = 0; i < m; i++) {
    int32_t* row = c + i * stride;
    low[i] = _mm512_sub_epi32(low[i], low_bias);
    high[i] = _mm512_sub_epi32(high[i], high_bias);
    if (accumulate) {
      low[i] = _mm512_add_epi32(low[i], _mm512_maskz_loadu_epi32(first_half, row));
      high[i] = _mm512_add_epi32(high[i], _mm512_maskz_loadu_epi32(second_half, row + 16));
    }
    _mm512_mask_storeu_epi32(row, first_half, low[i]);
    _mm512_mask_storeu_epi32(row + 16, second_half, high[i]);
  }
}

static void multiply(int depth, const float* packed_a, const float* packed_b, float* sums,
                     int64_t stride, int m, int n, bool accumulate) {
  const int32_t *a = (const int32_t*)packed_a, *b = (const int32_t*)packed_b;
  int32_t* c = (int32_t*)sums;
  int lanes = (depth + 3) / 4;
  // clang-format off
#define AS_CASE(rows) case rows: tile(rows, lanes, a, b, c, stride, n, accumulate); return;
  switch (m) {
    AS_CASE(1) AS_CASE(2) AS_CASE(3) AS_CASE(4) AS_CASE(5) AS_CASE(6) AS_CASE(7)
    AS_CASE(8) AS_CASE(9) AS_CASE(10) AS_CASE(11) AS_CASE(12) AS_CASE(13) AS_CASE(14)
    default: return;
  }
#undef AS_CASE
  // clang-format on
}

HY__TARGET_END

const hy__gemm_kernel hy__gemm_vnni = {.rows = ROWS,
                                       .panel = PANEL,
                                       .depth = 384,
                                       .unit = UNIT,
                                       .align = 1,
                                       .extra = 1,
                                       .pack_a = pack_a,
                                       .pack_b = pack_b,
                                       .multiply = multiply};
#endif
