// GEMV on int4 weights with float activations, in the integers of AVX-512 VNNI.
//
// Turning a nibble into a float takes a shift and a permute, and a multiply-add has sixteen of
// them. Here x becomes integers instead, once for all rows: 23 bits and the sign, in units of a
// power of 2 for each 32 numbers, split into three signed bytes. Products with those bytes are
// added up exactly: a lane's sum is below 2^31. What is rounded is x, to 2^-22 of the greatest of
// its 32 neighbours, which float32 sums lose as well. x that is not finite is left to floats.
#include <math.h>

#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/lanes_vnni.h"

HY__TARGET_VNNI

enum { DIGITS = 3, NUMBERS = 2 * HY__BLOCK, LANE = NUMBERS / 16, TOP_BIT = 21 };

typedef struct block {
  __m512i start;
  __m512 scale;
  __m512i x[DIGITS][2 * HY__BLOCK_VECTORS];  // the least significant first
} block;
_Static_assert((int)NUMBERS == (int)HY__QUANTIZED_STEP && sizeof(block) <= NUMBERS * sizeof(float),
               "a block has the room of its floats");

static bool takes(const hy__quantized* w) {
  return w->dtype == HY_I4 && hy__lanes_take(w->group, w->k, HY_I4);
}

// A lane's numbers, of which `left` exist, become bytes NUMBERS apart, digit by digit; returns
// the exponent of their unit, which is not finite where one of them is not.
HY__INLINE float split_lane(const float* x, int64_t left, signed char* digits) {
  __m512 half[2];
  __m512i most = _mm512_setzero_si512();
  for (int i = 0; i < 2; i++) {
    half[i] = _mm512_maskz_loadu_ps(hy__first16(left - 16 * i), x + 16 * i);
    most = _mm512_max_epu32(most, _mm512_castps_si512(_mm512_abs_ps(half[i])));
  }
  uint32_t greatest = _mm512_reduce_max_epu32(most);
  int exponent = (int)(greatest >> 23) - 127;
  if (exponent == 128) return INFINITY;
  // Any unit will do for zeros; the least would be a denormal, and the row's last block slow.
  if (greatest == 0) exponent = 0;
  __m512 up = _mm512_set1_ps((float)(TOP_BIT - exponent));
  for (int i = 0; i < 2; i++) {
    __m512i number = _mm512_cvtps_epi32(_mm512_scalef_ps(half[i], up));
    for (int d = 0; d < DIGITS; d++) {
      _mm_storeu_si128((__m128i*)(digits + d * NUMBERS + 16 * i), _mm512_cvtepi32_epi8(number));
      number = _mm512_srai_epi32(_mm512_add_epi32(number, _mm512_set1_epi32(128)), 8);
    }
  }
  return (float)(exponent - TOP_BIT);
}

static bool order(const hy__quantized* w, const float* x, float* ordered) {
  block* b = (block*)ordered;
  for (int64_t at = 0; at < w->k; at += NUMBERS, b++) {
    signed char digits[DIGITS * NUMBERS];
    float unit[16];
    for (int lane = 0; lane < 16; lane++) {
      int64_t in = hy__lane_number(lane, NUMBERS);
      unit[lane] = split_lane(x + at + in, w->k - at - in, digits + in);
      if (isinf(unit[lane])) return false;
    }
    b->scale = _mm512_scalef_ps(_mm512_set1_ps(1), _mm512_loadu_ps(unit));
    __m512i sums = _mm512_setzero_si512();
    for (int d = DIGITS - 1; d >= 0; d--)
      sums = _mm512_add_epi32(_mm512_slli_epi32(sums, 8),
                              hy__order_block(HY_I4, digits + d * NUMBERS, NUMBERS, b->x[d]));
    b->start = hy__counterweight(sums, HY_I4);
  }
  return true;
}

HY__INLINE __m512 add_block(const unsigned char* data, const hy__rest* rest, const block* b,
                            __m512 scales, __m512 sum) {
  // A chain of sums for each digit: one for all would wait for its own latency.
  __m512i w[HY__BLOCK_VECTORS], digit[DIGITS];
  hy__load_block(data, rest, w);
#pragma GCC unroll 3
  for (int d = 0; d < DIGITS; d++) digit[d] = d == 0 ? b->start : _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int v = 0; v < 2 * HY__BLOCK_VECTORS; v++) {
    __m512i weights = hy__unsigned_numbers(HY_I4, w, v);
#pragma GCC unroll 3
    for (int d = 0; d < DIGITS; d++) digit[d] = _mm512_dpbusd_epi32(digit[d], weights, b->x[d][v]);
  }
  __m512i lanes = digit[DIGITS - 1];
#pragma GCC unroll 3
  for (int d = DIGITS - 2; d >= 0; d--)
    lanes = _mm512_add_epi32(_mm512_slli_epi32(lanes, 8), digit[d]);
  __m512 products = _mm512_cvtepi32_ps(lanes);
  return _mm512_fmadd_ps(_mm512_mul_ps(products, b->scale), scales, sum);
}

typedef struct dots {
  hy__lane_scales walk;
  hy__rest rest;
} dots;

HY__INLINE __m512 dot_row(const hy__quantized* w, const void* context, int64_t row,
                          const float* x) {
  const dots* d = context;
  const block* b = (const block*)x;
  const unsigned char* data = w->data + row * w->row;
  const float* scale = w->scale + row * w->scale_row;
  int64_t left = w->k / 2, block_in_group = 0;
  __m512 sum = _mm512_setzero_ps();
  for (; left >= HY__BLOCK; left -= HY__BLOCK, data += HY__BLOCK, b++) {
    hy__prefetch_block(data);
    sum = add_block(data, NULL, b, hy__load_lane_scales(&d->walk, scale, true), sum);
    if (++block_in_group == d->walk.blocks) {
      scale += d->walk.advance;
      block_in_group = 0;
    }
  }
  if (left == 0) return sum;
  hy__prefetch_block(data);
  return add_block(data, &d->rest, b, hy__load_lane_scales(&d->walk, scale, false), sum);
}

static void multiply(const hy__quantized* w, int64_t first, int n, const float* x, float* out) {
  const dots d = {hy__lane_scales_of(w->group, w->k, HY_I4), hy__rest_of(w->k / 2)};
  hy__dot_rows(dot_row, &d, w, first, n, x, out);
}

HY__TARGET_END

const hy__quantized_gemv hy__quantized_gemv_i4_vnni = {takes, order, multiply};
#endif
