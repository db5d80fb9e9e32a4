// The sgemm microkernel in AVX-512: MR x NR = 6 x 64, 24 accumulators, four loads of B and six
// broadcasts of A a step. 14 x 32 would read fewer bytes and is slower: load instructions are the
// bottleneck, and it needs 1.25 times as many for each multiply-add.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/simd/avx512.h"

HY__TARGET_AVX512

enum { MR = 6, NR = 64, VECTORS = NR / 16 };
// Rows across k that are asked of the memory early.
enum { ROWS_AHEAD = 12 };

// ---- packing ----

static inline float one(const hy__matrix* m, int64_t i, int64_t j) {
  return _mm512_cvtss_f32(hy__load16(hy__matrix_at(m, i, j), m->dtype, 1));
}

HY__INLINE void store_lines(float* to, int lines, __m512 x) {
  if (lines < 16)
    _mm256_mask_storeu_ps(to, (__mmask8)hy__first16(lines), _mm512_castps512_ps256(x));
  else
    _mm512_storeu_ps(to, x);
}

// Whole blocks of MR or 16 lines of f32 or bf16, of which a word holds two; gives how much of the
// depth they cover.
HY__INLINE int pack_blocks(const char* from, hy_dtype dtype, int64_t line, int lines, int depth,
                           int width, float* packed) {
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
  int at = 0, step = dtype == HY_F32 ? 16 : 32;
  for (; at + step <= depth; at += step, from += 64) {
    __m512 block[16];
    for (int i = 0; i < lines; i++)  // the lines that are packed next
      _mm_prefetch(from + (i + lines) * line, _MM_HINT_T0);
    hy__load_across(from, line, lines, block);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      if (dtype == HY_F32) {
        store_lines(packed + (int64_t)(at + i) * width, lines, block[i]);
        continue;
      }
      float* to = packed + (int64_t)(at + 2 * i) * width;
      __m512i pair = _mm512_castps_si512(block[i]);
      store_lines(to, lines, _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)));
      store_lines(to + width, lines, _mm512_castsi512_ps(_mm512_and_si512(pair, upper)));
    }
  }
  return at;
}

// `lines` of MR or 16 lines, `line` bytes apart, read along k and written transposed: packed[k *
// width + i], all of them.
static void pack_transposed(const char* from, hy_dtype dtype, int64_t line, int lines, int depth,
                            int width, int stored, float* packed) {
  __mmask16 store = hy__first16(stored);
  int64_t size = dtype == HY_F32 ? 4 : 2;
  int at = 0;
  if (lines >= stored && dtype == HY_F32)
    at = stored == 16 ? pack_blocks(from, HY_F32, line, 16, depth, width, packed)
                      : pack_blocks(from, HY_F32, line, MR, depth, width, packed);
  if (lines >= stored && dtype == HY_BF16)
    at = stored == 16 ? pack_blocks(from, HY_BF16, line, 16, depth, width, packed)
                      : pack_blocks(from, HY_BF16, line, MR, depth, width, packed);
  for (; at < depth; at += 16) {
    __m512 block[16];
    __mmask16 load = hy__first16(depth - at);
    for (int i = 0; i < 16; i++)
      block[i] =
          i < lines ? hy__load16(from + at * size + i * line, dtype, load) : _mm512_setzero_ps();
    hy__transpose16(block);
    for (int i = 0; i < 16 && at + i < depth; i++)
      _mm512_mask_storeu_ps(packed + (int64_t)(at + i) * width, store, block[i]);
  }
}

static int64_t bytes_of(const hy__matrix* m, int64_t elements) {
  return elements * (m->dtype == HY_F32 ? 4 : 2);
}

static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  if (a->column == 1) {
    pack_transposed(hy__matrix_at(a, i, k), a->dtype, bytes_of(a, a->row), m, depth, MR, MR,
                    packed);
  } else if (a->row == 1) {
    for (int p = 0; p < depth; p++)
      _mm512_mask_storeu_ps(packed + (int64_t)p * MR, hy__first16(MR),
                            hy__load16(hy__matrix_at(a, i, k + p), a->dtype, hy__first16(m)));
  } else {
    for (int p = 0; p < depth; p++) {
      for (int r = 0; r < MR; r++) packed[(int64_t)p * MR + r] = r < m ? one(a, i + r, k + p) : 0;
    }
  }
}

// Rows across k, each perhaps in a page of its own.
HY__INLINE void pack_across(const char* from, hy_dtype dtype, int64_t row, int n, int depth,
                            float* packed) {
  int64_t vector = dtype == HY_F32 ? 64 : 32;
  for (int p = 0; p < depth; p++, from += row, packed += NR) {
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
      _mm_prefetch(from + ROWS_AHEAD * row + v * vector, _MM_HINT_T0);
      _mm512_store_ps(packed + 16 * v,
                      hy__load16(from + v * vector, dtype, hy__first16(n - 16 * v)));
    }
  }
}

static void pack_b(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed) {
  if (b->column == 1) {
    const char* from = hy__matrix_at(b, k, j);
    if (b->dtype == HY_F32 && n == NR)
      pack_across(from, HY_F32, bytes_of(b, b->row), NR, depth, packed);
    else
      pack_across(from, b->dtype, bytes_of(b, b->row), n, depth, packed);
  } else if (b->row == 1) {
    for (int h = 0; h < NR; h += 16)
      pack_transposed(hy__matrix_at(b, k, j + h), b->dtype, bytes_of(b, b->column), n - h, depth,
                      NR, 16, packed + h);
  } else {
    for (int p = 0; p < depth; p++) {
      for (int c = 0; c < NR; c++) packed[(int64_t)p * NR + c] = c < n ? one(b, k + p, j + c) : 0;
    }
  }
}

// ---- the tile ----

// One step of k. One body for every height and width, unrolled by the compiler where they are
// constants; two pointers and two multiples of a_row reach six rows.
HY__INLINE void step(int m, int vectors, const float* upper, const float* lower, int64_t a_row,
                     const float* b, __m512 sums[MR][VECTORS]) {
  __m512 columns[VECTORS];
#pragma GCC unroll 4
  for (int v = 0; v < vectors; v++) columns[v] = _mm512_load_ps(b + 16 * v);
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) {
    __m512 x = _mm512_set1_ps(i < 3 ? upper[i * a_row] : lower[(i - 3) * a_row]);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[i][v] = _mm512_fmadd_ps(x, columns[v], sums[i][v]);
  }
}

// At step k, of each four one: asks for the rows that come after these of A in place, one and a
// half lines, so that every line is asked for once in the sixteen steps that it lasts. They are in
// the cache that the cores share or in memory, in streams too short for the hardware to find.
HY__INLINE void prefetch_next_rows(const float* a, int64_t a_row, int k) {
  int row = k / 4 % 4;
  const float* next = a + MR * a_row;
  _mm_prefetch((const char*)(next + row * a_row), _MM_HINT_T1);
  if (row < MR - 4) _mm_prefetch((const char*)(next + (row + 4) * a_row), _MM_HINT_T1);
}

// c = (accumulate ? c : 0) + sum over k of a[i * a_row + k * a_column] * b[k * NR + j]. The
// lines of C are asked for shortly before the sums are complete: earlier they would push B out.
// Everything counts here that is no multiply-add: where another thread shares the core, it is
// instructions that this waits for.
HY__INLINE void tile(int m, int vectors, int depth, const float* a, int64_t a_row, int64_t a_column,
                     const float* b, float* c, int64_t stride, int n, bool accumulate) {
  enum { BEFORE_END = 32, TOGETHER = 4 };
  __m512 sums[MR][VECTORS];
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[i][v] = _mm512_setzero_ps();
  }
  const float* lower = a + 3 * a_row;
  int k = 0;
  for (; k + TOGETHER <= depth - BEFORE_END; k += TOGETHER) {
    __asm__("" : "+r"(a), "+r"(lower), "+r"(b));  // or GCC keeps an offset for every load
#pragma GCC unroll 4
    for (int u = 0; u < TOGETHER; u++)
      step(m, vectors, a + u * a_column, lower + u * a_column, a_row, b + u * NR, sums);
    if (a_column == 1 && m == MR) prefetch_next_rows(a, a_row, k);
    a += TOGETHER * a_column;
    lower += TOGETHER * a_column;
    b += TOGETHER * NR;
  }
  for (int i = 0; k < depth; i++, k++, a += a_column, lower += a_column, b += NR) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors && i < m; v++)
      _mm_prefetch((const char*)(c + i * stride + 16 * v), _MM_HINT_T0);
    step(m, vectors, a, lower, a_row, b, sums);
  }
  __mmask16 last = hy__first16(n - 16 * (vectors - 1));
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) {
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
      float* to = c + i * stride + 16 * v;
      __mmask16 mask = v == vectors - 1 ? last : 0xffff;
      if (accumulate) sums[i][v] = _mm512_add_ps(sums[i][v], _mm512_maskz_loadu_ps(mask, to));
      _mm512_mask_storeu_ps(to, mask, sums[i][v]);
    }
  }
}

HY__INLINE void tile_of(int depth, const float* a, int64_t a_row, int64_t a_column, const float* b,
                        float* c, int64_t stride, int m, int n, bool accumulate) {
  int vectors = (n + 15) / 16;
  // clang-format off
#define AS_CASE(rows, vectors) \
  case rows * VECTORS + vectors: \
    tile(rows, vectors, depth, a, a_row, a_column, b, c, stride, n, accumulate); \
    return;
#define AS_CASES(rows) AS_CASE(rows, 1) AS_CASE(rows, 2) AS_CASE(rows, 3) AS_CASE(rows, 4)
  switch (m * VECTORS + vectors) {
    AS_CASES(1) AS_CASES(2) AS_CASES(3) AS_CASES(4) AS_CASES(5) AS_CASES(6)
    default: return;
  }
#undef AS_CASES
#undef AS_CASE
  // clang-format on
}

static void multiply(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                     int n, bool accumulate) {
  tile_of(depth, a, 1, MR, b, c, stride, m, n, accumulate);
}

static bool in_place(const hy__gemm* g) {
  return g->a.dtype == HY_F32 && g->a.column == 1;
}

static void multiply_in_place(const hy__matrix* a, int64_t i, int64_t k, int depth, const float* b,
                              float* c, int64_t stride, int m, int n, bool accumulate) {
  tile_of(depth, (float*)hy__matrix_at(a, i, k), a->row, 1, b, c, stride, m, n, accumulate);
}

HY__TARGET_END

const hy__gemm_kernel hy__sgemm_avx512 = {.mr = MR,
                                          .nr = NR,
                                          .kc = 512,
                                          .unit = 1,
                                          .align = 1,
                                          .pack_a = pack_a,
                                          .pack_b = pack_b,
                                          .multiply = multiply,
                                          .in_place = in_place,
                                          .multiply_in_place = multiply_in_place};
#endif
