// Packing for bf16 and int8 microkernels in AVX-512: four bytes or two halves that follow one
// another along k become a word of 32 bits. For files that define UNIT (4 or 2), MR and NR.
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

// Blocks of sixteen words of `lines` whole lines, `step` bytes apart; gives how many words along k
// they cover. A store may go past the lines where the next one writes.
HY__INLINE int pack_blocks(const char* data, int64_t step, int lines, int words, int width,
                           uint32_t* to) {
  __mmask16 store = hy__first16(lines);
  int at = 0;
  for (; at + 16 <= words; at += 16, data += 64) {
    __m512 block[16];
    for (int i = 0; i < lines; i++)  // the lines that are packed next
      _mm_prefetch(data + (i + lines) * step, _MM_HINT_T1);
    hy__load_across(data, step, lines, block);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++, to += width) {
      if (i < 15 && width <= 16)
        _mm512_storeu_ps(to, block[i]);
      else
        _mm512_mask_storeu_ps(to, store, block[i]);
    }
  }
  return at;
}

// Lines along k, `step` numbers apart, transposed: packed[k / UNIT * width + line]. `stored` lines
// are written, zeros past the last.
HY__INLINE void pack_lines(const char* data, int64_t step, int lines, int depth, int width,
                           int stored, void* packed) {
  __mmask16 store = hy__first16(stored);
  uint32_t* to = packed;
  int lanes = (depth + UNIT - 1) / UNIT, at = 0;
  if (lines >= stored) at = pack_blocks(data, step * SIZE, stored, depth / UNIT, width, to);
  for (; at < lanes; at += 16) {
    __m512 block[16];
    for (int i = 0; i < 16; i++) {
      block[i] = _mm512_setzero_ps();
      if (i >= lines) continue;
      block[i] = _mm512_castsi512_ps(
          load_bytes(data + (i * step + at * UNIT) * SIZE, (depth - at * UNIT) * SIZE));
    }
    hy__transpose16(block);
    for (int i = 0; i < 16 && at + i < lanes; i++)
      _mm512_mask_storeu_ps(to + (int64_t)(at + i) * width, store, block[i]);
  }
}

// Any strides.
static void pack_scattered(const char* data, int64_t line, int64_t along, int lines, int depth,
                           int width, uint32_t* packed) {
  for (int k = 0; k < depth; k += UNIT) {
    for (int i = 0; i < width; i++) {
      uint32_t lane = 0;
      if (i < lines) lane = gather_lane(data + (i * line + k * along) * SIZE, along, depth - k);
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

// UNIT rows across k become lanes of their columns, up to `n` of them.
HY__INLINE void pack_across(const char* data, int64_t row, int depth, int n, uint32_t* packed) {
  for (int p = 0; p < depth; p += UNIT, data += UNIT * row * SIZE, packed += NR) {
    for (int u = 0; u < UNIT; u++) _mm_prefetch(data + (AHEAD + u) * row * SIZE, _MM_HINT_T0);
#pragma GCC unroll 4
    for (int h = 0; h < NR; h += ACROSS)
      interleave(data + h * SIZE, row, depth - p, n - h, packed + h);
  }
}

static void pack_columns(const hy__matrix* b, int64_t k, int depth, int64_t j, int n,
                         uint32_t* packed) {
  const char* data = hy__matrix_at(b, k, j);
  if (b->column == 1 && n == NR) {
    pack_across(data, b->row, depth, NR, packed);
  } else if (b->column == 1) {
    pack_across(data, b->row, depth, n, packed);
  } else if (b->row == 1) {
    for (int h = 0; h < NR; h += 16)
      pack_lines(data + h * b->column * SIZE, b->column, n - h, depth, NR, 16, packed + h);
  } else {
    pack_scattered(data, b->column, b->row, n, depth, NR, packed);
  }
}

HY__TARGET_END

#endif  // HALYARD_CPU_GEMM_X86_PACK_AVX512_H_
