// The int8 GEMM microkernel in AVX2: MR x NR = 6 x 16, two products to a SIMD lane.
//
// Bytes are widened to 16 bits when packed: vpmaddwd of those is exact for every pair, as the
// instruction for bytes is not.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/simd/avx2.h"

enum { MR = 6, NR = 16, UNIT = 2 };
HY__TARGET_AVX2

HY__INLINE int words_of(int depth) {
  return (depth + UNIT - 1) / UNIT;
}

// Two numbers along k from one place, `left` of which exist.
HY__INLINE int32_t gather_word(const signed char* p, int64_t step, int left) {
  return (int32_t)((uint32_t)p[0] & 0xffff) | (left > 1 ? (int32_t)((uint32_t)p[step] << 16) : 0);
}

// packed[row * words + word]
static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  int words = words_of(depth), whole = a->column == 1 ? depth / 16 * 16 : 0;
  int32_t* to = (int32_t*)packed;
  for (int r = 0; r < MR; r++, to += words) {
    if (r >= m) {
      memset(to, 0, (size_t)words * sizeof *to);
      continue;
    }
    const signed char* row = (const signed char*)hy__matrix_at(a, i + r, k);
    for (int at = 0; at < whole; at += 16)
      _mm256_storeu_si256((__m256i*)(to + at / UNIT),
                          _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(row + at))));
    for (int at = whole; at < depth; at += UNIT)
      to[at / UNIT] = gather_word(row + at * a->column, a->column, depth - at);
  }
}

// Columns that lie next to each other: a word is made of two rows.
HY__INLINE void pack_rows(const signed char* data, int64_t row, int depth, int n, int32_t* to) {
  for (int at = 0; at < depth; at += UNIT, data += UNIT * row, to += NR) {
    __m128i first = hy__load_bytes(data, n), second = _mm_setzero_si128();
    if (at + 1 < depth) second = hy__load_bytes(data + row, n);
    __m256i* words = (__m256i*)to;
    _mm256_storeu_si256(words, _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(first, second)));
    _mm256_storeu_si256(words + 1, _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(first, second)));
  }
}

// Eight columns that each lie along k, transposed by pairs of bytes, sixteen at once.
HY__INLINE void pack_transposed(const signed char* data, int64_t column, int whole, int32_t* to) {
  for (int at = 0; at < whole; at += 16, data += 16, to += 8 * NR) {
    __m128i r[8], t[8];
    for (int i = 0; i < 8; i++) r[i] = _mm_loadu_si128((const __m128i*)(data + i * column));
#pragma GCC unroll 3
    for (int turn = 0; turn < 3; turn++) {
      for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm_unpacklo_epi16(r[i], r[i + 4]);
        t[2 * i + 1] = _mm_unpackhi_epi16(r[i], r[i + 4]);
      }
      memcpy(r, t, sizeof r);
    }
    for (int i = 0; i < 8; i++)
      _mm256_storeu_si256((__m256i*)(to + i * NR), _mm256_cvtepi8_epi16(r[i]));
  }
}

static void pack_b(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed) {
  const signed char* data = (const signed char*)hy__matrix_at(b, k, j);
  int32_t* to = (int32_t*)packed;
  if (b->column == 1) {
    pack_rows(data, b->row, depth, n, to);
    return;
  }
  int whole = b->row == 1 && n == NR ? depth / 16 * 16 : 0;
  for (int h = 0; whole > 0 && h < NR; h += 8)
    pack_transposed(data + h * b->column, b->column, whole, to + h);
  for (int at = whole; at < depth; at += UNIT) {
    for (int c = 0; c < NR; c++)
      to[at / UNIT * NR + c] =
          c < n ? gather_word(data + at * b->row + c * b->column, b->row, depth - at) : 0;
  }
}

HY__INLINE void tile(int m, int words, const int32_t* a, const int32_t* b, int32_t* c,
                     int64_t stride, int n, bool accumulate) {
  enum { VECTORS = NR / 8 };
  __m256i sums[MR][VECTORS];
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) sums[i][0] = sums[i][1] = _mm256_setzero_si256();
  for (int k = 0; k < words; k++, a++, b += NR) {
    __m256i columns[VECTORS];
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) columns[v] = _mm256_loadu_si256((const __m256i*)(b + 8 * v));
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      __m256i x = _mm256_set1_epi32(a[i * words]);
#pragma GCC unroll 2
      for (int v = 0; v < VECTORS; v++) {
        sums[i][v] = _mm256_add_epi32(sums[i][v], _mm256_madd_epi16(x, columns[v]));
        __asm__("" : "+x"(sums[i][v]));  // or GCC copies every sum at every step
      }
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < VECTORS; v++) {
    __m256i mask = hy__first8(n - 8 * v);
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      int32_t* to = c + i * stride + 8 * v;
      if (accumulate) sums[i][v] = _mm256_add_epi32(sums[i][v], _mm256_maskload_epi32(to, mask));
      if (n == NR)
        _mm256_storeu_si256((__m256i*)to, sums[i][v]);
      else
        _mm256_maskstore_epi32(to, mask, sums[i][v]);
    }
  }
}

static void multiply(int depth, const float* packed_a, const float* packed_b, float* sums,
                     int64_t stride, int m, int n, bool accumulate) {
  const int32_t *a = (const int32_t*)packed_a, *b = (const int32_t*)packed_b;
  int32_t* c = (int32_t*)sums;
  int words = words_of(depth);
  // clang-format off
#define AS_CASE(rows) case rows: tile(rows, words, a, b, c, stride, n, accumulate); return;
  switch (m) {
    AS_CASE(1) AS_CASE(2) AS_CASE(3) AS_CASE(4) AS_CASE(5) AS_CASE(6)
    default: return;
  }
#undef AS_CASE
  // clang-format on
}

HY__TARGET_END

const hy__gemm_kernel hy__gemm_int8_avx2 = {.mr = MR,
                                            .nr = NR,
                                            .kc = 384,
                                            .unit = UNIT,
                                            .align = 1,
                                            .pack_a = pack_a,
                                            .pack_b = pack_b,
                                            .multiply = multiply};
#endif
