// Quantising and dequantising rows in AVX2.
#include <float.h>
#include <string.h>

#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/weights_avx2.h"
#include "backends/cpu/simd/half.h"

HY__TARGET_AVX2

enum { STEP = 16 };  // weights at once

// Not scaled; nibbles in order.
HY__INLINE void load_weights(hy_dtype dtype, const unsigned char* p, __m256 out[2]) {
  if (dtype == HY_I8) {
    out[0] = hy__i8_to_floats(p);
    out[1] = hy__i8_to_floats(p + 8);
  } else if (dtype == HY_I4) {
    __m128i words = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i*)p));
    __m128i each = _mm_and_si128(_mm_or_si128(words, _mm_slli_epi16(words, 4)), _mm_set1_epi8(15));
    each = _mm_sub_epi8(_mm_xor_si128(each, _mm_set1_epi8(8)), _mm_set1_epi8(8));
    out[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(each));
    out[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(each, each)));
  } else if (dtype == HY_F8E4M3) {
    __m256i halves = hy__e4m3_to_halves(_mm_loadu_si128((const __m128i*)p));
    __m256i greatest = _mm256_set1_epi16(0x3f80);
    __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(halves, greatest), greatest);
    hy__halves_to_floats(_mm256_or_si256(halves, nan), out);
    for (int i = 0; i < 2; i++) out[i] = _mm256_mul_ps(out[i], _mm256_set1_ps(256));
  } else {
    hy__e5m2_to_floats(_mm_loadu_si128((const __m128i*)p), out);
  }
}

HY__INLINE void decode_step(hy_dtype dtype, const unsigned char* p, __m256 factor, float* out) {
  __m256 weights[2];
  load_weights(dtype, p, weights);
  for (int i = 0; i < 2; i++) _mm256_storeu_ps(out + 8 * i, _mm256_mul_ps(weights[i], factor));
}

HY__INLINE void decode(hy_dtype dtype, const hy__quantized* w, int64_t row, int64_t first,
                       int64_t count, float* out) {
  const int64_t bits = dtype == HY_I4 ? 4 : 8;
  const unsigned char* data = w->data + row * w->row + first * bits / 8;
  const float* scale = w->scale + row * w->scale_row + first / w->group;
  int64_t in_group = w->group - first % w->group;
  for (int64_t done = 0; done < count; scale++, in_group = w->group) {
    int64_t end = count - done < in_group ? count : done + in_group;
    __m256 factor = _mm256_set1_ps(*scale);
    for (; done + STEP <= end; done += STEP)
      decode_step(dtype, data + done * bits / 8, factor, out + done);
    if (done < end) {
      unsigned char rest[STEP] = {0};
      float floats[STEP];
      memcpy(rest, data + done * bits / 8, (size_t)(((end - done) * bits + 7) / 8));
      decode_step(dtype, rest, factor, floats);
      memcpy(out + done, floats, (size_t)(end - done) * sizeof *out);
    }
    done = end;
  }
}

void hy__dequantize_avx2(const hy__quantized* w, int64_t row, int64_t first, int64_t count,
                         float* out) {
  switch (w->dtype) {
    case HY_I8: decode(HY_I8, w, row, first, count, out); return;
    case HY_I4:
      // A group of odd size would begin in the middle of a byte.
      if ((first | w->group) % 2 == 0)
        decode(HY_I4, w, row, first, count, out);
      else
        hy__dequantize_generic(w, row, first, count, out);
      return;
    case HY_F8E4M3: decode(HY_F8E4M3, w, row, first, count, out); return;
    default: decode(HY_F8E5M2, w, row, first, count, out); return;
  }
}

// ---- quantising ----

enum { NUMBERS = 32 };  // quantised at once

HY__INLINE __m256i greatest_of(__m256i most, const char* x, hy_dtype from, int64_t size) {
#pragma GCC unroll 4
  for (int i = 0; i < NUMBERS; i += 8)
    most = hy__greater_magnitude(most, hy__load8(x + i * size, from));
  return most;
}

HY__INLINE __m256i quantize_step(const char* x, hy_dtype from, int64_t size, __m256 divisor,
                                 int limit) {
  __m256i n[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    n[i] = _mm256_cvtps_epi32(_mm256_div_ps(hy__load8(x + 8 * i * size, from), divisor));
    n[i] = _mm256_min_epi32(n[i], _mm256_set1_epi32(limit));
    n[i] = _mm256_max_epi32(n[i], _mm256_set1_epi32(-limit));
  }
  __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]), _mm256_packs_epi32(n[2], n[3]));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

HY__INLINE void store_numbers(__m256i bytes, hy_dtype to, char* q) {
  if (to == HY_I8) {
    _mm256_storeu_si256((__m256i*)q, bytes);
    return;
  }
  __m256i even = _mm256_and_si256(bytes, _mm256_set1_epi16(0x0f));
  __m256i odd = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi16(0xf0));
  __m256i words = _mm256_or_si256(even, odd);
  _mm_storeu_si128((__m128i*)q, _mm_packus_epi16(_mm256_castsi256_si128(words),
                                                 _mm256_extracti128_si256(words, 1)));
}

HY__INLINE float quantize(int64_t n, const char* x, hy_dtype from, hy_dtype to, char* q) {
  const int64_t size = from == HY_F32 ? 4 : 2, bits = to == HY_I8 ? 8 : 4;
  const int limit = to == HY_I8 ? 127 : 7;
  int64_t whole = n / NUMBERS * NUMBERS;
  char rest[NUMBERS * sizeof(float)] = {0}, numbers[NUMBERS];
  if (whole < n) memcpy(rest, x + whole * size, (size_t)((n - whole) * size));
  __m256i most = _mm256_setzero_si256();
  for (int64_t i = 0; i < whole; i += NUMBERS) most = greatest_of(most, x + i * size, from, size);
  if (whole < n) most = greatest_of(most, rest, from, size);
  float scale = hy__bits_to_float(hy__greatest_lane(most)) / (float)limit;
  if (scale == 0) scale = 1;
  if (!(scale <= FLT_MAX)) {
    memset(q, 0, (size_t)(n * bits / 8));
    return scale;
  }
  const __m256 divisor = _mm256_set1_ps(scale);
  for (int64_t i = 0; i < whole; i += NUMBERS)
    store_numbers(quantize_step(x + i * size, from, size, divisor, limit), to, q + i * bits / 8);
  if (whole < n) {
    store_numbers(quantize_step(rest, from, size, divisor, limit), to, numbers);
    memcpy(q + whole * bits / 8, numbers, (size_t)((n - whole) * bits / 8));
  }
  return scale;
}

float hy__quantize_avx2(int64_t n, const void* x, hy_dtype from, hy_dtype to, void* q) {
  if (to == HY_I8) {
    if (from == HY_F32) return quantize(n, x, HY_F32, HY_I8, q);
    return from == HY_BF16 ? quantize(n, x, HY_BF16, HY_I8, q) : quantize(n, x, HY_F16, HY_I8, q);
  }
  if (from == HY_F32) return quantize(n, x, HY_F32, HY_I4, q);
  return from == HY_BF16 ? quantize(n, x, HY_BF16, HY_I4, q) : quantize(n, x, HY_F16, HY_I4, q);
}

HY__TARGET_END
#endif
