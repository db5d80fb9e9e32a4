// Blocks of quantised weights for dot products with AVX-512 VNNI, one scale to a SIMD lane.
//
// A block is four vectors of a row's bytes; an int4 byte holds an even number below an odd one. The
// blocks of weights and of x are transposed alike, so that the 16 bytes of a quarter of a vector
// meet in one lane: their products add up as integers, and a block is converted and scaled once.
// Eight shuffles save three conversions and six multiplications for each row of x.
//
// The instruction multiplies unsigned by signed bytes. The weights are made unsigned by adding 128
// (int4: 8); what that adds, 128 times the sum of a lane of x, is the same for every row of
// weights.
#ifndef HALYARD_CPU_QUANT_X86_LANES_VNNI_H_
#define HALYARD_CPU_QUANT_X86_LANES_VNNI_H_

#include "backends/cpu/quant/x86/weights_avx512.h"

HY__TARGET_VNNI

enum { HY__BLOCK = 256, HY__BLOCK_VECTORS = HY__BLOCK / 64 };

static inline int64_t hy__block_numbers(hy_dtype weights) {
  return weights == HY_I4 ? 2 * HY__BLOCK : HY__BLOCK;
}

// The vectors of a block's numbers as bytes: the even ones before the odd ones where it is int4.
HY__INLINE int hy__number_vectors(hy_dtype weights) {
  return weights == HY_I4 ? 2 * HY__BLOCK_VECTORS : HY__BLOCK_VECTORS;
}

HY__INLINE __mmask64 hy__first64(int64_t n) {
  return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n > 0 ? n : 0)) - 1;
}

// Lane 4 q + v of vector j becomes word j of quarter q of vector v.
HY__INLINE void hy__transpose_lanes(__m512i v[HY__BLOCK_VECTORS]) {
  __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c);
  v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, d);
  v[3] = _mm512_unpackhi_epi64(b, d);
}

// The place in its block of the first of a lane's numbers.
static inline int64_t hy__lane_number(int lane, int64_t numbers) {
  return lane % 4 * (numbers / 4) + lane / 4 * (numbers / 16);
}

// The bytes that exist of a row's last block.
typedef struct hy__rest {
  __mmask64 bytes[HY__BLOCK_VECTORS];
} hy__rest;

static inline hy__rest hy__rest_of(int64_t bytes) {
  hy__rest rest;
  for (int v = 0; v < HY__BLOCK_VECTORS; v++)
    rest.bytes[v] = hy__first64(bytes % HY__BLOCK - 64 * v);
  return rest;
}

// A block of weights; `rest` is NULL where all of it exists.
HY__INLINE void hy__load_block(const unsigned char* data, const hy__rest* rest,
                               __m512i w[HY__BLOCK_VECTORS]) {
#pragma GCC unroll 4
  for (int v = 0; v < HY__BLOCK_VECTORS; v++)
    w[v] = rest ? _mm512_maskz_loadu_epi8(rest->bytes[v], data + 64 * v)
                : _mm512_loadu_si512(data + 64 * v);
    // Left alone, GCC reads each again for its second shuffle.
#pragma GCC unroll 4
  for (int v = 0; v < HY__BLOCK_VECTORS; v++) __asm__("" : "+v"(w[v]));
  hy__transpose_lanes(w);
}

HY__INLINE void hy__prefetch_block(const unsigned char* data) {
#pragma GCC unroll 4
  for (int v = 0; v < HY__BLOCK_VECTORS; v++) hy__prefetch(data + 64 * v);
}

HY__INLINE __m512i hy__unsigned_bytes(__m512i w) {
  return _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
}

// Nibbles made unsigned; the odd ones stay where they are, 16 times as large.
enum { HY__AND_XOR = 0x6a };
HY__INLINE __m512i hy__even_numbers(__m512i w) {
  return _mm512_ternarylogic_epi32(w, _mm512_set1_epi8(15), _mm512_set1_epi8(8), HY__AND_XOR);
}
HY__INLINE __m512i hy__odd_numbers_16(__m512i w) {
  return _mm512_ternarylogic_epi32(w, _mm512_set1_epi8((char)0xf0), _mm512_set1_epi8((char)0x80),
                                   HY__AND_XOR);
}

// One of its vectors of numbers, made unsigned.
HY__INLINE __m512i hy__unsigned_numbers(hy_dtype dtype, const __m512i w[HY__BLOCK_VECTORS], int v) {
  if (dtype == HY_I8) return hy__unsigned_bytes(w[v]);
  if (v < HY__BLOCK_VECTORS) return hy__even_numbers(w[v]);
  return hy__even_numbers(_mm512_srli_epi16(w[v - HY__BLOCK_VECTORS], 4));
}

// What the lanes of a block have in excess, negative: the offset of the weights times the sums of
// x.
HY__INLINE __m512i hy__counterweight(__m512i sums, hy_dtype weights) {
  return _mm512_sub_epi32(_mm512_setzero_si512(),
                          _mm512_slli_epi32(sums, weights == HY_I4 ? 3 : 7));
}

HY__INLINE __m512i hy__lane_sums(__m512i sums, __m512i x) {
  return _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), x);
}

HY__INLINE __m512i hy__low_bytes(__m512i words_a, __m512i words_b) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(words_a)),
                            _mm512_cvtepi16_epi8(words_b), 1);
}

// A block of x as weights of the type meet it, of which `left` numbers exist; returns the sums of
// its lanes.
HY__INLINE __m512i hy__order_block(hy_dtype weights, const signed char* x, int64_t left,
                                   __m512i* to) {
  for (int v = 0; v < HY__BLOCK_VECTORS; v++) {
    if (weights == HY_I8) {
      to[v] = _mm512_maskz_loadu_epi8(hy__first64(left - 64 * (int64_t)v), x + 64 * v);
      continue;
    }
    int64_t at = 128 * (int64_t)v;
    __m512i first = _mm512_maskz_loadu_epi8(hy__first64(left - at), x + at);
    __m512i second = _mm512_maskz_loadu_epi8(hy__first64(left - at - 64), x + at + 64);
    to[v] = hy__low_bytes(first, second);
    to[v + HY__BLOCK_VECTORS] =
        hy__low_bytes(_mm512_srli_epi16(first, 8), _mm512_srli_epi16(second, 8));
  }
  hy__transpose_lanes(to);
  if (weights == HY_I4) hy__transpose_lanes(to + HY__BLOCK_VECTORS);
  __m512i sums = _mm512_setzero_si512();
  for (int v = 0; v < hy__number_vectors(weights); v++) sums = hy__lane_sums(sums, to[v]);
  return sums;
}

// ---- scales ----

// Where the lanes of a block find their scales from the first one's place on, and how blocks walk
// along a row's scales: either a block has several, or several blocks have one.
typedef struct hy__lane_scales {
  __m512i index;
  __mmask16 whole, rest;    // the scales of a block, and of a row's last one
  int64_t advance, blocks;  // scales to advance after so many blocks
} hy__lane_scales;

// Whether groups of a row of k numbers are such.
static inline bool hy__lanes_take(int64_t group, int64_t k, hy_dtype weights) {
  int64_t numbers = hy__block_numbers(weights);
  return group == k || group % numbers == 0 ||
         (numbers % group == 0 && group % (numbers / 16) == 0);
}

static inline hy__lane_scales hy__lane_scales_of(int64_t group, int64_t k, hy_dtype weights) {
  int64_t numbers = hy__block_numbers(weights);
  int64_t in_block = group < numbers && group < k ? numbers / group : 1;
  // Counted, not divided: a task is short.
  int32_t index[16];
  int64_t lanes = group / (numbers / 16), in_group = 0;
  for (int32_t l = 0, scale = 0; l < 16; l++) {
    index[l % 4 * 4 + l / 4] = in_block > 1 ? scale : 0;
    if (++in_group == lanes) {
      in_group = 0;
      scale++;
    }
  }
  return (hy__lane_scales){_mm512_loadu_si512(index), hy__first16(in_block),
                           hy__first16((k % numbers + group - 1) / group), in_block,
                           (group + numbers - 1) / numbers};
}

HY__INLINE __m512 hy__load_lane_scales(const hy__lane_scales* s, const float* scale, bool whole) {
  __m512 scales = _mm512_maskz_loadu_ps(whole ? s->whole : s->rest, scale);
  return _mm512_permutexvar_ps(s->index, scales);
}

HY__TARGET_END

#endif  // HALYARD_CPU_QUANT_X86_LANES_VNNI_H_
