// The int8 GEMM microkernel in AVX-512 VNNI: MR x NR = 6 x 64, four products to a SIMD lane.
//
// The instruction multiplies unsigned by signed bytes, so A is packed with 128 added, row after
// row, and 128 times the sums of B's columns, which packing computes, is subtracted again. All of
// it is exact.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#define UNIT 4
enum { MR = 6, NR = 64, VECTORS = NR / 16 };
#include "backends/cpu/gemm/x86/pack_avx512.h"

HY__TARGET_VNNI

enum { FLIP = (int)0x80808080 };

// packed[row * lanes + lane]
static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  int lanes = (depth + UNIT - 1) / UNIT;
  int32_t* to = (int32_t*)packed;
  memset(to, 0, (size_t)MR * (size_t)lanes * sizeof *to);
  for (int r = 0; r < m; r++, to += lanes) {
    const char* row = hy__matrix_at(a, i + r, k);
    for (int at = 0; a->column == 1 && at < lanes; at += 16) {
      __m512i bytes = load_bytes(row + at * UNIT, depth - at * UNIT);
      _mm512_mask_storeu_epi32(to + at, hy__first16(lanes - at),
                               _mm512_xor_si512(bytes, _mm512_set1_epi32(FLIP)));
    }
    for (int at = 0; a->column != 1 && at < lanes; at++)
      to[at] =
          (int32_t)gather_lane(row + at * UNIT * a->column, a->column, depth - at * UNIT) ^ FLIP;
  }
}

// Behind the columns stand 128 times their sums.
static void pack_b(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed) {
  uint32_t* to = (uint32_t*)packed;
  pack_columns(b, k, depth, j, n, to);
  int lanes = (depth + 3) / 4;
  for (int h = 0; h < NR; h += 16) {
    __m512i sum = _mm512_setzero_si512();
    for (int p = 0; p < lanes; p++)
      sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1),
                                _mm512_loadu_si512(to + (int64_t)p * NR + h));
    _mm512_storeu_si512(to + (int64_t)lanes * NR + h, _mm512_slli_epi32(sum, 7));
  }
}

HY__INLINE void step(int m, int lanes, const int32_t* upper, const int32_t* lower, const int32_t* b,
                     __m512i sums[MR][VECTORS]) {
  __m512i columns[VECTORS];
#pragma GCC unroll 4
  for (int v = 0; v < VECTORS; v++) columns[v] = _mm512_loadu_si512(b + 16 * v);
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) {
    __m512i x = _mm512_set1_epi32(i < 3 ? upper[i * lanes] : lower[(i - 3) * lanes]);
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
      sums[i][v] = _mm512_dpbusd_epi32(sums[i][v], x, columns[v]);
      __asm__("" : "+v"(sums[i][v]));  // or GCC copies every sum twice a step
    }
  }
}

// The lines of C are asked for shortly before the sums are complete.
HY__INLINE void tile(int m, int lanes, const int32_t* a, const int32_t* b, int32_t* c,
                     int64_t stride, int n, bool accumulate) {
  enum { BEFORE_END = 32 };
  __m512i sums[MR][VECTORS];
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) sums[i][v] = _mm512_setzero_si512();
  }
  const int32_t* lower = a + 3 * lanes;  // two pointers and two multiples of lanes reach six rows
  int k = 0;
  for (; k < lanes - BEFORE_END; k++, a++, lower++, b += NR) step(m, lanes, a, lower, b, sums);
  for (int i = 0; k < lanes; i++, k++, a++, lower++, b += NR) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS && i < m; v++)
      _mm_prefetch((const char*)(c + i * stride + 16 * v), _MM_HINT_T0);
    step(m, lanes, a, lower, b, sums);
  }
#pragma GCC unroll 4
  for (int v = 0; v < VECTORS; v++) {
    __m512i bias = _mm512_loadu_si512(b + 16 * v);
    __mmask16 mask = hy__first16(n - 16 * v);
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      int32_t* to = c + i * stride + 16 * v;
      __m512i sum = _mm512_sub_epi32(sums[i][v], bias);
      if (accumulate) sum = _mm512_add_epi32(sum, _mm512_maskz_loadu_epi32(mask, to));
      _mm512_mask_storeu_epi32(to, mask, sum);
    }
  }
}

static void multiply(int depth, const float* packed_a, const float* packed_b, float* sums,
                     int64_t stride, int m, int n, bool accumulate) {
  const int32_t *a = (const int32_t*)packed_a, *b = (const int32_t*)packed_b;
  int32_t* c = (int32_t*)sums;
  int lanes = (depth + UNIT - 1) / UNIT;
  // clang-format off
#define AS_CASE(rows) case rows: tile(rows, lanes, a, b, c, stride, n, accumulate); return;
  switch (m) {
    AS_CASE(1) AS_CASE(2) AS_CASE(3) AS_CASE(4) AS_CASE(5) AS_CASE(6)
    default: return;
  }
#undef AS_CASE
  // clang-format on
}

HY__TARGET_END

const hy__gemm_kernel hy__gemm_int8_vnni = {.mr = MR,
                                            .nr = NR,
                                            .kc = 512,
                                            .unit = UNIT,
                                            .align = 1,
                                            .extra = 1,
                                            .pack_a = pack_a,
                                            .pack_b = pack_b,
                                            .multiply = multiply};
#endif
