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

// Four words of each of the lines `first`, 4 + first, 8 + first and 12 + first that there are.
HY__INLINE __m512 quarters(const char* from, int64_t line, int first, int lines) {
  from += first * line;
  __m512 x = _mm512_castps128_ps512(_mm_loadu_ps((const float*)from));
  x = _mm512_insertf32x4(x, _mm_loadu_ps((const float*)(from + 4 * line)), 1);
  x = _mm512_insertf32x4(x, _mm_loadu_ps((const float*)(from + 8 * line)), 2);
  if (first + 12 >= lines) return x;
  return _mm512_insertf32x4(x, _mm_loadu_ps((const float*)(from + 12 * line)), 3);
}

// Sixteen words of each of 12 to 16 lines, `line` bytes apart, as sixteen vectors across the lines.
// Loads of quarters do half of what a transposition of whole vectors takes.
HY__INLINE void load_across(const char* from, int64_t line, int lines, __m512 block[16]) {
#pragma GCC unroll 4
  for (int q = 0; q < 4; q++, from += 16) {
    __m512 a = quarters(from, line, 0, lines), b = quarters(from, line, 1, lines);
    __m512 c = quarters(from, line, 2, lines), d = quarters(from, line, 3, lines);
    __m512d ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
    __m512d cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
    block[4 * q] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
    block[4 * q + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
    ab = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    cd = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    block[4 * q + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
    block[4 * q + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd));
  }
}

// Whole blocks of f32 or bf16, of which a word holds two; gives how much of the depth they cover.
HY__INLINE int pack_blocks(const char* from, hy_dtype dtype, int64_t line, int lines, int depth,
                           int width, float* packed) {
  const __mmask16 store = hy__first16(lines);
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
  int at = 0, step = dtype == HY_F32 ? 16 : 32;
  for (; at + step <= depth; at += step, from += 64) {
    __m512 block[16];
    load_across(from, line, lines, block);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      if (dtype == HY_F32) {
        _mm512_mask_storeu_ps(packed + (int64_t)(at + i) * width, store, block[i]);
        continue;
      }
      float* to = packed + (int64_t)(at + 2 * i) * width;
      __m512i pair = _mm512_castps_si512(block[i]);
      _mm512_mask_storeu_epi32(to, store, _mm512_slli_epi32(pair, 16));
      _mm512_mask_storeu_epi32(to + width, store, _mm512_and_si512(pair, upper));
    }
  }
  return at;
}

// `lines` of sixteen lines, `line` bytes apart, read along k and written transposed: packed[k *
// width + i], the first `stored` of them.
static void pack_transposed(const char* from, hy_dtype dtype, int64_t line, int lines, int depth,
                            int width, int stored, float* packed) {
  __mmask16 store = hy__first16(stored);
  int64_t size = dtype == HY_F32 ? 4 : 2;
  int at = 0;
  if (lines >= stored && dtype == HY_F32)
    at = stored == 16 ? pack_blocks(from, HY_F32, line, 16, depth, width, packed)
                      : pack_blocks(from, HY_F32, line, ROWS, depth, width, packed);
  if (lines >= stored && dtype == HY_BF16)
    at = stored == 16 ? pack_blocks(from, HY_BF16, line, 16, depth, width, packed)
                      : pack_blocks(from, HY_BF16, line, ROWS, depth, width, packed);
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
    pack_transposed(hy__matrix_at(a, i, k), a->dtype, bytes_of(a, a->row), m, depth, ROWS, ROWS,
                    packed);
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
      pack_transposed(hy__matrix_at(b, k, j + h), b->dtype, bytes_of(b, b->column), n - h, depth,
                      PANEL, 16, packed + h);
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
    HY__HEIGHTS_TO_14(AS_CASE)
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
