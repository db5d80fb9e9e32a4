// Quantising and dequantising rows in AVX-512.
#include <float.h>
#include <string.h>

#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/weights_avx512.h"

HY__TARGET_AVX512

HY__INLINE __m512 load_weights(hy_dtype dtype, const unsigned char* row, int64_t at, int64_t left) {
  if (dtype == HY_I4) return hy__nibbles_to_floats(row + at / 2, left);
  __m128i bytes = left >= 16 ? _mm_loadu_si128((const __m128i*)(row + at))
                             : _mm_maskz_loadu_epi8(hy__first16(left), row + at);
  return hy__bytes_to_floats(bytes, dtype);
}

HY__INLINE void decode(hy_dtype dtype, const hy__quantized* w, int64_t row, int64_t first,
                       int64_t count, float* out) {
  const unsigned char* data = w->data + row * w->row;
  const float* scale = w->scale + row * w->scale_row + first / w->group;
  int64_t in_group = w->group - first % w->group;
  for (int64_t done = 0; done < count; scale++, in_group = w->group) {
    int64_t end = count - done < in_group ? count : done + in_group;
    __m512 factor = _mm512_set1_ps(*scale);
    // Not of nibbles: it is worth 4 % with 4 rows of x, and costs 2 % with 64.
    for (; dtype != HY_I4 && done + 64 <= end; done += 64) {
      hy__prefetch(data + first + done);
#pragma GCC unroll 4
      for (int i = 0; i < 64; i += 16)
        _mm512_storeu_ps(out + done + i,
                         _mm512_mul_ps(load_weights(dtype, data, first + done + i, 16), factor));
    }
    for (; done + 16 <= end; done += 16)
      _mm512_storeu_ps(out + done,
                       _mm512_mul_ps(load_weights(dtype, data, first + done, 16), factor));
    if (done < end)
      _mm512_mask_storeu_ps(
          out + done, hy__first16(end - done),
          _mm512_mul_ps(load_weights(dtype, data, first + done, end - done), factor));
    done = end;
  }
}

void hy__dequantize_avx512(const hy__quantized* w, int64_t row, int64_t first, int64_t count,
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

// The greatest magnitude: bits of a NaN are above those of an infinity, and those above all others.
HY__INLINE float greatest(int64_t n, const char* x, hy_dtype from, int64_t size) {
  __m512i most = _mm512_setzero_si512();
  for (int64_t i = 0; i < n; i += 16) {
    __m512i bits = _mm512_castps_si512(hy__load16(x + i * size, from, hy__first16(n - i)));
    most = _mm512_max_epu32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
  }
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)_mm512_reduce_max_epu32(most))));
}

HY__INLINE float quantize(int64_t n, const char* x, hy_dtype from, hy_dtype to, char* q) {
  const int64_t size = from == HY_F32 ? 4 : 2;
  const int limit = to == HY_I8 ? 127 : 7;
  float scale = greatest(n, x, from, size) / (float)limit;
  if (scale == 0) scale = 1;
  if (!(scale <= FLT_MAX)) {
    memset(q, 0, (size_t)(to == HY_I8 ? n : n / 2));
    return scale;
  }
  const __m512 divisor = _mm512_set1_ps(scale);
  const __m512i high = _mm512_set1_epi32(limit), low = _mm512_set1_epi32(-limit);
  for (int64_t i = 0; i < n; i += 16) {
    __mmask16 mask = hy__first16(n - i);
    __m512 ratio = _mm512_div_ps(hy__load16(x + i * size, from, mask), divisor);
    __m512i number = _mm512_max_epi32(_mm512_min_epi32(_mm512_cvtps_epi32(ratio), high), low);
    __m128i bytes = _mm512_cvtepi32_epi8(number);
    if (to == HY_I8) {
      _mm_mask_storeu_epi8(q + i, mask, bytes);
      continue;
    }
    __m128i even = _mm_and_si128(bytes, _mm_set1_epi16(0x0f));
    __m128i odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi16(0xf0));
    _mm_mask_storeu_epi8(q + i / 2, hy__first16(n - i < 16 ? (n - i) / 2 : 8),
                         _mm_cvtepi16_epi8(_mm_or_si128(even, odd)));
  }
  return scale;
}

float hy__quantize_avx512(int64_t n, const void* x, hy_dtype from, hy_dtype to, void* q) {
  if (to == HY_I8) {
    if (from == HY_F32) return quantize(n, x, HY_F32, HY_I8, q);
    return from == HY_BF16 ? quantize(n, x, HY_BF16, HY_I8, q) : quantize(n, x, HY_F16, HY_I8, q);
  }
  if (from == HY_F32) return quantize(n, x, HY_F32, HY_I4, q);
  return from == HY_BF16 ? quantize(n, x, HY_BF16, HY_I4, q) : quantize(n, x, HY_F16, HY_I4, q);
}

HY__TARGET_END
#endif
