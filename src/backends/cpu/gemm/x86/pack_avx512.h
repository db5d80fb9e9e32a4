// Packing for bf16 and int8 microkernels in AVX-512: four bytes or two halves that follow one
// another along k become a word of 32 bits. For files that define UNIT (4 or 2), MR and NR, and
// FLIP, which is applied to each word of A.
#ifndef HALYARD_CPU_GEMM_X86_PACK_AVX512_H_
#define HALYARD_CPU_GEMM_X86_PACK_AVX512_H_

#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/simd/avx512.h"

HY__TARGET_AVX512

enum { SIZE = 4 / UNIT };  // bytes of a number
enum { AHEAD = 16 };       // rows across k to ask the memory for; each may be a new page

// Up to 64 bytes, zeros behind them.
HY__INLINE __m512i load_bytes(const void* p, int64_t n) {
  __mmask64 mask = n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n > 0 ? n : 0)) - 1;
  return _mm512_maskz_loadu_epi8(mask, p);
}

// Numbers 0 .. UNIT - 1 along k from one place, of which `n` exist.
static inline uint32_t gather_lane(const char* p, int64_t step, int n) {
  uint32_t lane = 0;
  for (int u = 0; u < UNIT && u < n; u++)
    memcpy((char*)&lane + u * SIZE, p + u * step * SIZE, SIZE);
  return lane;
}

// Lines along k, `step` numbers apart, transposed: packed[k / UNIT * width + line].
static void pack_lines(const char* data, int64_t step, int lines, int depth, int width, int stored,
                       uint32_t flip, void* packed) {
  __mmask16 store = hy__first16(stored);
  uint32_t* to = packed;
  int lanes = (depth + UNIT - 1) / UNIT;
  for (int at = 0; at < lanes; at += 16) {
    __m512 block[16];
    for (int i = 0; i < 16; i++) {
      block[i] = _mm512_setzero_ps();
      if (i >= lines) continue;
      __m512i bytes = load_bytes(data + (i * step + at * UNIT) * SIZE, (depth - at * UNIT) * SIZE);
      block[i] = _mm512_castsi512_ps(_mm512_xor_si512(bytes, _mm512_set1_epi32((int)flip)));
    }
    hy__transpose16(block);
    for (int i = 0; i < 16 && at + i < lanes; i++)
      _mm512_mask_storeu_ps(to + (int64_t)(at + i) * width, store, block[i]);
  }
}

// Any strides.
static void pack_scattered(const char* data, int64_t line, int64_t along, int lines, int depth,
                           int width, uint32_t flip, uint32_t* packed) {
  for (int k = 0; k < depth; k += UNIT) {
    for (int i = 0; i < width; i++) {
      uint32_t lane = 0;
      if (i < lines)
        lane = gather_lane(data + (i * line + k * along) * SIZE, along, depth - k) ^ flip;
      packed[(int64_t)(k / UNIT) * width + i] = lane;
    }
  }
}

#if UNIT == 4
enum { ACROSS = 16 };  // columns that are interleaved at once

HY__INLINE void interleave(const char* data, int64_t row, int rows, int columns, uint32_t* to) {
  __mmask16 mask = hy__first16(columns);
  __m128i r[4];
  for (int u = 0; u < 4; u++)
    r[u] = u < rows ? _mm_maskz_loadu_epi8(mask, data + u * row) : _mm_setzero_si128();
  __m128i low01 = _mm_unpacklo_epi8(r[0], r[1]), high01 = _mm_unpackhi_epi8(r[0], r[1]);
  __m128i low23 = _mm_unpacklo_epi8(r[2], r[3]), high23 = _mm_unpackhi_epi8(r[2], r[3]);
  _mm_storeu_si128((__m128i*)to, _mm_unpacklo_epi16(low01, low23));
  _mm_storeu_si128((__m128i*)(to + 4), _mm_unpackhi_epi16(low01, low23));
  _mm_storeu_si128((__m128i*)(to + 8), _mm_unpacklo_epi16(high01, high23));
  _mm_storeu_si128((__m128i*)(to + 12), _mm_unpackhi_epi16(high01, high23));
}
#else
enum { ACROSS = 32 };

// Numbers 0 of both rows, 1 of both, ... in one shuffle for each half.
HY__INLINE void interleave(const char* data, int64_t row, int rows, int columns, uint32_t* to) {
  const __m512i pairs = _mm512_add_epi32(
      _mm512_set1_epi32(32 << 16),
      _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
  __m512i first = load_bytes(data, (int64_t)columns * SIZE);
  __m512i second =
      rows < 2 ? _mm512_setzero_si512() : load_bytes(data + row * SIZE, (int64_t)columns * SIZE);
  _mm512_storeu_si512(to, _mm512_permutex2var_epi16(first, pairs, second));
  _mm512_storeu_si512(to + 16, _mm512_permutex2var_epi16(
                                   first, _mm512_add_epi16(pairs, _mm512_set1_epi16(16)), second));
}
#endif

// UNIT rows across k become lanes of their columns.
static void pack_columns(const hy__matrix* b, int64_t k, int depth, int64_t j, int n,
                         uint32_t* packed) {
  const char* data = hy__matrix_at(b, k, j);
  if (b->column == 1) {
    for (int p = 0; p < depth; p += UNIT) {
      for (int u = 0; u < UNIT; u++)
        _mm_prefetch(data + (int64_t)(p + AHEAD + u) * b->row * SIZE, _MM_HINT_T0);
      for (int h = 0; h < NR; h += ACROSS)
        interleave(data + ((int64_t)p * b->row + h) * SIZE, b->row, depth - p, n - h,
                   packed + (int64_t)(p / UNIT) * NR + h);
    }
  } else if (b->row == 1) {
    for (int h = 0; h < NR; h += 16)
      pack_lines(data + h * b->column * SIZE, b->column, n - h, depth, NR, 16, 0, packed + h);
  } else {
    pack_scattered(data, b->column, b->row, n, depth, NR, 0, packed);
  }
}

HY__TARGET_END

#endif  // HALYARD_CPU_GEMM_X86_PACK_AVX512_H_
