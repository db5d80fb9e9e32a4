// Dequantising, and GEMV that dequantises on the way, in AVX-512.
//
// A nibble becomes a float by a permute of a table of sixteen floats, which looks at the low four
// bits of each SIMD lane only: a vector of 128 nibbles takes a shift and a permute for each 16 of
// them, no masks and no conversions.
#include <float.h>
#include <string.h>

#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/simd/avx512.h"

HY__TARGET_AVX512

enum { BLOCK = 128, ROWS = 4 };  // nibbles in a vector; rows of one pass

HY__INLINE __m512 nibble_table(void) {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
}

// Sixteen elements of one byte each as floats, not scaled.
HY__INLINE __m512 bytes_to_floats(__m128i bytes, hy_dtype dtype) {
  if (dtype == HY_I8) return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  __m256i words = _mm256_cvtepu8_epi16(bytes);
  if (dtype == HY_F8E5M2) return _mm512_cvtph_ps(_mm256_slli_epi16(words, 8));
  // As a half, whose exponent has a bias of 15 instead of 7.
  __m256i magnitude = _mm256_and_si256(_mm256_slli_epi16(words, 7), _mm256_set1_epi16(0x3f80));
  __m256i sign = _mm256_and_si256(_mm256_slli_epi16(words, 8), _mm256_set1_epi16((short)0x8000));
  __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x3f80));
  __m256i half =
      _mm256_mask_mov_epi16(_mm256_or_si256(magnitude, sign), nan, _mm256_set1_epi16(0x7e00));
  return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256));
}

// Sixteen nibbles in eight bytes, in order.
HY__INLINE __m512 nibbles_to_floats(const unsigned char* p, int64_t count, __m512 table) {
  __m128i bytes = _mm_maskz_loadu_epi8(hy__first16(count < 16 ? (count + 1) / 2 : 8), p);
  __m128i words = _mm_cvtepu8_epi16(bytes);
  __m128i each =
      _mm_and_si128(_mm_or_si128(words, _mm_slli_epi16(words, 4)), _mm_set1_epi16(0x0f0f));
  return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(each), table);
}

HY__INLINE void decode(hy_dtype dtype, const hy__quantized* w, int64_t row, int64_t first,
                       int64_t count, float* out) {
  const unsigned char* data = w->data + row * w->row;
  const float* scale = w->scale + row * w->scale_row + first / w->group;
  int64_t in_group = w->group - first % w->group;
  __m512 table = nibble_table();
  for (int64_t done = 0; done < count; scale++, in_group = w->group) {
    int64_t end = count - done < in_group ? count : done + in_group;
    __m512 factor = _mm512_set1_ps(*scale);
    for (; done < end; done += 16) {
      int64_t at = first + done, left = end - done;
      __mmask16 mask = hy__first16(left);
      __m512 x = dtype == HY_I4 ? nibbles_to_floats(data + at / 2, left, table)
                                : bytes_to_floats(_mm_maskz_loadu_epi8(mask, data + at), dtype);
      _mm512_mask_storeu_ps(out + done, mask, _mm512_mul_ps(x, factor));
    }
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

// ---- dot products ----

// For i4 lane i of step j takes element 8 i + j of a block, as the nibbles are in the lanes.
void hy__order_row_avx512(const hy__quantized* w, const float* x, float* ordered) {
  int64_t whole = w->dtype == HY_I4 ? w->k / BLOCK * BLOCK : 0;
  __m512i lane = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
  for (int64_t at = 0; at < whole; at += BLOCK) {
    for (int j = 0; j < 8; j++)
      _mm512_storeu_ps(ordered + at + 16 * j, _mm512_i32gather_ps(lane, x + at + j, 4));
  }
  memcpy(ordered + whole, x + whole, (size_t)(w->k - whole) * sizeof *x);
}

HY__INLINE void add_bytes(hy_dtype dtype, int rows, const hy__quantized* w, int64_t first,
                          const float* x, __m512 sums[ROWS]) {
  const float* scale = w->scale + first * w->scale_row;
  for (int64_t at = 0; at < w->k; at += w->group, scale++) {
    __m512 parts[ROWS];
    for (int r = 0; r < rows; r++) parts[r] = _mm512_setzero_ps();
    for (int64_t i = at; i < at + w->group; i += 16) {
      __mmask16 mask = hy__first16(at + w->group - i);
      __m512 line = _mm512_maskz_loadu_ps(mask, x + i);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) {
        __m128i bytes = _mm_maskz_loadu_epi8(mask, w->data + (first + r) * w->row + i);
        parts[r] = _mm512_fmadd_ps(bytes_to_floats(bytes, dtype), line, parts[r]);
      }
    }
    for (int r = 0; r < rows; r++)
      sums[r] = _mm512_fmadd_ps(parts[r], _mm512_set1_ps(scale[r * w->scale_row]), sums[r]);
  }
}

// The scales of a block of 128: lane i holds elements 8 i to 8 i + 7.
HY__INLINE __m512 block_scales(const float* scale, int64_t at, int64_t group) {
  if (group % BLOCK == 0) return _mm512_set1_ps(scale[at / group]);
  if (group == 64)
    return _mm512_insertf32x8(_mm512_set1_ps(scale[at / 64]), _mm256_set1_ps(scale[at / 64 + 1]),
                              1);
  __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(lane, _mm512_castps128_ps512(_mm_loadu_ps(scale + at / 32)));
}

HY__INLINE void add_nibbles(int rows, const hy__quantized* w, int64_t first, const float* x,
                            __m512 sums[ROWS]) {
  int64_t whole = w->k / BLOCK * BLOCK;
  __m512 table = nibble_table();
  for (int64_t at = 0; at < whole; at += BLOCK) {
    __m512i nibbles[ROWS];
    __m512 parts[ROWS];
    for (int r = 0; r < rows; r++) {
      nibbles[r] = _mm512_loadu_si512(w->data + (first + r) * w->row + at / 2);
      parts[r] = _mm512_mul_ps(_mm512_permutexvar_ps(nibbles[r], table), _mm512_loadu_ps(x + at));
    }
#pragma GCC unroll 7
    for (int j = 1; j < 8; j++) {
      __m512 line = _mm512_loadu_ps(x + at + 16 * j);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) {
        __m512i low = _mm512_srli_epi32(nibbles[r], 4 * (unsigned)j);
        parts[r] = _mm512_fmadd_ps(_mm512_permutexvar_ps(low, table), line, parts[r]);
      }
    }
    for (int r = 0; r < rows; r++)
      sums[r] = _mm512_fmadd_ps(
          parts[r], block_scales(w->scale + (first + r) * w->scale_row, at, w->group), sums[r]);
  }
  for (int64_t at = whole; at < w->k; at += 16) {
    int64_t left = w->k - at;
    __m512 line = _mm512_maskz_loadu_ps(hy__first16(left), x + at);
    for (int r = 0; r < rows; r++) {
      const unsigned char* from = w->data + (first + r) * w->row + at / 2;
      __m512 part = _mm512_mul_ps(nibbles_to_floats(from, left, table), line);
      float scale = w->scale[(first + r) * w->scale_row + at / w->group];
      sums[r] = _mm512_fmadd_ps(part, _mm512_set1_ps(scale), sums[r]);
    }
  }
}

HY__INLINE void some_rows(hy_dtype dtype, int rows, const hy__quantized* w, int64_t first,
                          const float* x, float* out) {
  __m512 sums[ROWS];
  for (int r = 0; r < rows; r++) sums[r] = _mm512_setzero_ps();
  if (dtype == HY_I4)
    add_nibbles(rows, w, first, x, sums);
  else
    add_bytes(dtype, rows, w, first, x, sums);
  for (int r = 0; r < rows; r++) out[r] = _mm512_reduce_add_ps(sums[r]);
}

HY__INLINE void all_rows(hy_dtype dtype, const hy__quantized* w, int64_t first, int rows,
                         const float* x, float* out) {
  int r = 0;
  for (; r + ROWS <= rows; r += ROWS) some_rows(dtype, ROWS, w, first + r, x, out + r);
  for (; r < rows; r++) some_rows(dtype, 1, w, first + r, x, out + r);
}

void hy__gemv_quantized_avx512(const hy__quantized* w, int64_t first, int rows, const float* x,
                               float* out) {
  switch (w->dtype) {
    case HY_I8: all_rows(HY_I8, w, first, rows, x, out); return;
    case HY_I4: all_rows(HY_I4, w, first, rows, x, out); return;
    case HY_F8E4M3: all_rows(HY_F8E4M3, w, first, rows, x, out); return;
    default: all_rows(HY_F8E5M2, w, first, rows, x, out); return;
  }
}

HY__TARGET_END
#endif
