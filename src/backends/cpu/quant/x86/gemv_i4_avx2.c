// GEMV on int4 weights with float activations, in the integers of AVX2.
//
// As in gemv_i4_vnni.c x becomes integers once for all rows: 22 bits and the sign, in units of a
// power of 2 for each 32 numbers, split into three signed bytes. A nibble plus 8 is unsigned, and
// vpmaddubsw, which multiplies unsigned by signed bytes, cannot saturate: two pairs of products are
// at most 4 * 15 * 128. x that is not finite is left to floats.
#include <math.h>
#include <string.h>

#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/weights_stream.h"
#include "backends/cpu/simd/avx2.h"

HY__TARGET_AVX2

enum { DIGITS = 3, NUMBERS = 64, HALF = NUMBERS / 2, TOP_BIT = 21 };

// Even numbers, in the lower nibbles, apart from odd ones; HALF numbers in each 16 bytes.
typedef struct block {
  __m256i start;  // -8 times the sum of each lane's numbers
  __m256 unit;
  __m256i x[DIGITS][2];  // the least significant first
} block;
_Static_assert(HY__QUANTIZED_STEP % NUMBERS == 0 && sizeof(block) <= NUMBERS * sizeof(float),
               "a block has the room of its floats");

static bool takes(const hy__quantized* w) {
  bool whole = w->group == HALF || w->group % NUMBERS == 0;
  return w->dtype == HY_I4 && (whole || w->group == w->k);
}

// The low byte of each of 32 integers in order, even ones before odd ones.
HY__INLINE __m256i low_bytes(const __m256i n[4]) {
  __m256i byte = _mm256_set1_epi32(255), in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  __m256i first = _mm256_packus_epi32(_mm256_and_si256(n[0], byte), _mm256_and_si256(n[1], byte));
  __m256i last = _mm256_packus_epi32(_mm256_and_si256(n[2], byte), _mm256_and_si256(n[3], byte));
  __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, last), in_order);
  __m128i parted = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  bytes = _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(parted));
  return _mm256_permute4x64_epi64(bytes, 0xd8);
}

// False where one of the numbers is not finite.
HY__INLINE bool order_half(const float* x, block* b, int half) {
  __m256i n[HALF / 8], most = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int i = 0; i < HALF / 8; i++) most = hy__greater_magnitude(most, _mm256_loadu_ps(x + 8 * i));
  uint32_t greatest = hy__greatest_lane(most);
  int exponent = (int)(greatest >> 23) - 127;
  if (exponent == 128) return false;
  // Any unit will do for zeros; the least would be a denormal, and slow to multiply by.
  if (greatest == 0) exponent = 0;
  // In two steps: the inverse of a small unit is beyond the greatest float.
  int up = TOP_BIT - exponent;
  __m256 first = _mm256_set1_ps(ldexpf(1, up / 2)), second = _mm256_set1_ps(ldexpf(1, up - up / 2));
#pragma GCC unroll 4
  for (int i = 0; i < HALF / 8; i++) {
    __m256 scaled = _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), first), second);
    n[i] = _mm256_cvtps_epi32(scaled);
  }
  __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(n[0], n[1]), _mm256_hadd_epi32(n[2], n[3]));
  __m128i lanes = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  lanes = _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(lanes, 3));
  _mm_store_si128((__m128i*)&b->start + half, lanes);
  _mm_store_ps((float*)&b->unit + 4 * half, _mm_set1_ps(ldexpf(1, -up)));
  for (int d = 0; d < DIGITS; d++) {
    __m256i digits = low_bytes(n);
    _mm_store_si128((__m128i*)&b->x[d][0] + half, _mm256_castsi256_si128(digits));
    _mm_store_si128((__m128i*)&b->x[d][1] + half, _mm256_extracti128_si256(digits, 1));
#pragma GCC unroll 4
    for (int i = 0; i < HALF / 8; i++)
      n[i] = _mm256_srai_epi32(_mm256_add_epi32(n[i], _mm256_set1_epi32(128)), 8);
  }
  return true;
}

static bool order(const hy__quantized* w, const float* x, float* ordered) {
  block* b = (block*)ordered;
  for (int64_t at = 0; at < w->k; at += NUMBERS, b++) {
    const float* numbers = x + at;
    float rest[NUMBERS] = {0};
    if (w->k - at < NUMBERS) {
      memcpy(rest, numbers, (size_t)(w->k - at) * sizeof *x);
      numbers = rest;
    }
    if (!order_half(numbers, b, 0) || !order_half(numbers + HALF, b, 1)) return false;
  }
  return true;
}

HY__INLINE __m256 dot_block(__m256i weights, const block* b) {
  const __m256i fifteen = _mm256_set1_epi8(15), by_256 = _mm256_set1_epi16(256);
  weights = _mm256_xor_si256(weights, _mm256_set1_epi8((char)0x88));
  __m256i even = _mm256_and_si256(weights, fifteen);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi16(weights, 4), fifteen);
  __m256i sums[DIGITS];
#pragma GCC unroll 3
  for (int d = 0; d < DIGITS; d++)
    sums[d] = _mm256_add_epi16(_mm256_maddubs_epi16(even, b->x[d][0]),
                               _mm256_maddubs_epi16(odd, b->x[d][1]));
  __m256i upper = _mm256_add_epi32(_mm256_madd_epi16(sums[2], by_256),
                                   _mm256_madd_epi16(sums[1], _mm256_set1_epi16(1)));
  __m256i lower = _mm256_add_epi32(_mm256_madd_epi16(sums[0], _mm256_set1_epi16(1)), b->start);
  __m256i lanes = _mm256_add_epi32(_mm256_slli_epi32(upper, 8), lower);
  return _mm256_mul_ps(_mm256_cvtepi32_ps(lanes), b->unit);
}

// In the lanes of both halves; the second's group exists where `both` is set.
HY__INLINE __m256 block_scales(const hy__quantized* w, const float* scale, bool both) {
  if (w->group != HALF) return _mm256_set1_ps(*scale);
  return _mm256_set_m128(_mm_set1_ps(scale[both ? 1 : 0]), _mm_set1_ps(scale[0]));
}

HY__INLINE float dot_row(const hy__quantized* w, hy__scale_walk walk, int64_t row, const block* b) {
  const unsigned char* data = w->data + row * w->row;
  const float* scale = w->scale + row * w->scale_row;
  int64_t left = w->k, block_in_group = 0;
  __m256 sum = _mm256_setzero_ps();
  for (; left >= NUMBERS; left -= NUMBERS, data += HALF, b++) {
    hy__prefetch(data);
    __m256i weights = _mm256_loadu_si256((const __m256i*)data);
    sum = _mm256_fmadd_ps(dot_block(weights, b), block_scales(w, scale, true), sum);
    if (++block_in_group == walk.blocks) {
      scale += walk.advance;
      block_in_group = 0;
    }
  }
  if (left > 0) {
    unsigned char rest[HALF] = {0};
    memcpy(rest, data, (size_t)left / 2);
    __m256i weights = _mm256_loadu_si256((const __m256i*)rest);
    sum = _mm256_fmadd_ps(dot_block(weights, b), block_scales(w, scale, left > HALF), sum);
  }
  return hy__sum_of_lanes(sum);
}

static void multiply(const hy__quantized* w, int64_t first, int n, const float* x, float* out) {
  hy__scale_walk walk = hy__scale_walk_of(w, NUMBERS);
  hy__scales_ahead ahead = hy__scales_ahead_of(w);
  for (int r = 0; r < n; r++) {
    hy__prefetch_scales(w, first + r, ahead);
    out[r] = dot_row(w, walk, first + r, (const block*)x);
  }
}

HY__TARGET_END

const hy__quantized_gemv hy__quantized_gemv_i4_avx2 = {takes, order, multiply};
#endif
