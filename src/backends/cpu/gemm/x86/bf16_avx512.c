// The bf16 GEMM microkernel in AVX-512 BF16: MR x NR = 14 x 32, two products to a SIMD lane.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#define UNIT 2
enum { MR = 14, NR = 32 };
#include "backends/cpu/gemm/x86/pack_avx512.h"

HY__TARGET_BF16

// Rows that follow one another in memory, k by k: two of them interleaved.
static void pack_rows(const char* data, int64_t step, int m, int depth, float* packed) {
  __mmask16 used = hy__first16(m);
  for (int k = 0; k < depth; k += UNIT, packed += MR) {
    const char* from = data + k * step * SIZE;
    __m512i pairs = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(used, from));
    if (k + 1 < depth) {
      __m256i second = _mm256_maskz_loadu_epi16(used, from + step * SIZE);
      pairs = _mm512_or_si512(pairs, _mm512_slli_epi32(_mm512_cvtepu16_epi32(second), 16));
    }
    _mm512_mask_storeu_epi32(packed, hy__first16(MR), pairs);
  }
}

static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  const char* data = hy__matrix_at(a, i, k);
  if (a->column == 1)
    pack_lines(data, a->row, m, depth, MR, MR, packed);
  else if (a->row == 1)
    pack_rows(data, a->column, m, depth, packed);
  else
    pack_scattered(data, a->row, a->column, m, depth, MR, (uint32_t*)packed);
}

static void pack_b(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed) {
  pack_columns(b, k, depth, j, n, (uint32_t*)packed);
}

enum { POINTERS = (MR + 2) / 3 };  // with two multiples of a_row they reach MR rows

HY__INLINE void step(int m, const char* rows[POINTERS], int64_t a_row, int64_t a_column,
                     const float* b, __m512 low[MR], __m512 high[MR]) {
  __m512bh b0 = (__m512bh)_mm512_loadu_ps(b), b1 = (__m512bh)_mm512_loadu_ps(b + 16);
#pragma GCC unroll 14
  for (int i = 0; i < m; i++) {
    float word;  // of any alignment
    memcpy(&word, rows[i / 3] + i % 3 * a_row, sizeof word);
    __m512bh x = (__m512bh)_mm512_set1_ps(word);
    low[i] = _mm512_dpbf16_ps(low[i], x, b0);
    high[i] = _mm512_dpbf16_ps(high[i], x, b1);
  }
#pragma GCC unroll 5
  for (int p = 0; p < POINTERS; p++) {
    rows[p] += a_column;
    __asm__("" : "+r"(rows[p]));  // or GCC keeps an offset for every load
  }
}

// Rows of A are `a_row` bytes apart and their words `a_column`. The lines of C are asked for
// shortly before the sums are complete.
HY__INLINE void tile(int m, int lanes, const char* a, int64_t a_row, int64_t a_column,
                     const float* b, float* c, int64_t stride, int n, bool accumulate) {
  enum { BEFORE_END = 24 };
  __m512 low[MR], high[MR];
#pragma GCC unroll 14
  for (int i = 0; i < m; i++) low[i] = high[i] = _mm512_setzero_ps();
  const char* rows[POINTERS];
#pragma GCC unroll 5
  for (int p = 0; p < POINTERS; p++) rows[p] = a + 3 * p * a_row;
  int k = 0;
  for (; k < lanes - BEFORE_END; k++, b += NR) step(m, rows, a_row, a_column, b, low, high);
  for (int i = 0; k < lanes; i++, k++, b += NR) {
    if (i < m) {
      _mm_prefetch((const char*)(c + i * stride), _MM_HINT_T0);
      _mm_prefetch((const char*)(c + i * stride + 16), _MM_HINT_T0);
    }
    step(m, rows, a_row, a_column, b, low, high);
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

HY__INLINE void tile_of(int depth, const char* a, int64_t a_row, int64_t a_column, const float* b,
                        float* c, int64_t stride, int m, int n, bool accumulate) {
  int lanes = (depth + 1) / 2;
  switch (m) {
#define AS_CASE(rows) \
  case rows: tile(rows, lanes, a, a_row, a_column, b, c, stride, n, accumulate); return;
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

static void multiply(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                     int n, bool accumulate) {
  tile_of(depth, (const char*)a, 4, MR * 4, b, c, stride, m, n, accumulate);
}

// Words are read whole. Rows that are whole pages apart compete for the same few sets of L1, from
// which a tile needs a cache line of each.
static bool in_place(const hy__gemm* g) {
  enum { PAGE = 4096 };
  return g->a.column == 1 && g->k % UNIT == 0 && g->a.row * SIZE % PAGE != 0;
}

static void multiply_in_place(const hy__matrix* a, int64_t i, int64_t k, int depth, const float* b,
                              float* c, int64_t stride, int m, int n, bool accumulate) {
  tile_of(depth, hy__matrix_at(a, i, k), a->row * SIZE, 4, b, c, stride, m, n, accumulate);
}

HY__TARGET_END

const hy__gemm_kernel hy__gemm_bf16_avx512 = {.mr = MR,
                                              .nr = NR,
                                              .kc = 512,
                                              .unit = UNIT,
                                              .align = 1,
                                              .pack_a = pack_a,
                                              .pack_b = pack_b,
                                              .multiply = multiply,
                                              .in_place = in_place,
                                              .multiply_in_place = multiply_in_place};
#endif
