// GEMV on int8, int4 and fp8 weights, dequantised on the way, in AVX-512.
//
// A row of weights is read to its end before the next, 64 bytes at a time, its scales prefetched
// beside it.
#include <string.h>

#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/weights_avx512.h"

HY__TARGET_AVX512

enum { BLOCK = 128 };  // nibbles in a vector

static bool takes(const hy__quantized* w) {
  return w->dtype != HY_I4 || (w->group % 2 == 0 && hy__block_takes(w->group, w->k, BLOCK));
}

// For i4 lane i of step j takes element 8 i + j of a block, as the nibbles are in the lanes.
static bool order(const hy__quantized* w, const float* x, float* ordered) {
  int64_t whole = w->dtype == HY_I4 ? w->k / BLOCK * BLOCK : 0;
  __m512i lane = _mm512_setr_epi32(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120);
  for (int64_t at = 0; at < whole; at += BLOCK) {
    for (int j = 0; j < 8; j++)
      _mm512_storeu_ps(ordered + at + 16 * j, _mm512_i32gather_ps(lane, x + at + j, 4));
  }
  memcpy(ordered + whole, x + whole, (size_t)(w->k - whole) * sizeof *x);
  return true;
}

// ---- bytes ----

// The elements of one scale.
HY__INLINE __m512 dot_group(hy_dtype dtype, const unsigned char* w, int64_t n, const float* x) {
  __m512 parts[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) parts[i] = _mm512_setzero_ps();
  int64_t at = 0;
  for (; at + 64 <= n; at += 64) {
    hy__prefetch(w + at);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
      __m128i bytes = _mm_loadu_si128((const __m128i*)(w + at + 16 * i));
      parts[i] = _mm512_fmadd_ps(hy__bytes_to_floats(bytes, dtype),
                                 _mm512_loadu_ps(x + at + 16 * i), parts[i]);
    }
  }
  for (; at < n; at += 16) {
    __mmask16 mask = hy__first16(n - at);
    __m512 value = _mm512_maskz_loadu_ps(mask, x + at);
    parts[0] = _mm512_fmadd_ps(hy__bytes_to_floats(_mm_maskz_loadu_epi8(mask, w + at), dtype),
                               value, parts[0]);
  }
  return _mm512_add_ps(_mm512_add_ps(parts[0], parts[1]), _mm512_add_ps(parts[2], parts[3]));
}

HY__INLINE __m512 dot_bytes(hy_dtype dtype, const hy__quantized* w, const unsigned char* data,
                            const float* scale, const float* x) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t at = 0; at < w->k; at += w->group, scale++) {
    sum =
        _mm512_fmadd_ps(dot_group(dtype, data + at, w->group, x + at), _mm512_set1_ps(*scale), sum);
  }
  return sum;
}

// ---- nibbles ----

// Nibble j of each lane: the permute looks at the low four bits only, so a shift and no mask.
HY__INLINE __m512 nibble_to_float(__m512i lanes, int j) {
  __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  return _mm512_permutexvar_ps(_mm512_srli_epi32(lanes, 4 * (unsigned)j), table);
}

HY__INLINE __m512 dot_nibbles(const hy__quantized* w, hy__scale_walk walk,
                              const unsigned char* data, const float* scale, const float* x) {
  int64_t whole = w->k / BLOCK * BLOCK, block_in_group = 0;
  __m512 sum = _mm512_setzero_ps();
  for (int64_t at = 0; at < whole; at += BLOCK) {
    hy__prefetch(data + at / 2);
    __m512i lanes = _mm512_loadu_si512(data + at / 2);
    __m512 parts[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
      parts[j % 2] = _mm512_fmadd_ps(nibble_to_float(lanes, j), _mm512_loadu_ps(x + at + 16 * j),
                                     parts[j % 2]);
    sum = _mm512_fmadd_ps(_mm512_add_ps(parts[0], parts[1]),
                          hy__block_scales(scale, w->group, BLOCK, BLOCK), sum);
    if (++block_in_group == walk.blocks) {
      scale += walk.advance;
      block_in_group = 0;
    }
  }
  for (int64_t at = whole; at < w->k; at += 16) {
    int64_t left = w->k - at;
    __m512 value = _mm512_maskz_loadu_ps(hy__first16(left), x + at);
    __m512 part = _mm512_mul_ps(hy__nibbles_to_floats(data + at / 2, left), value);
    sum = _mm512_fmadd_ps(part, _mm512_set1_ps(scale[(at - whole) / w->group]), sum);
  }
  return sum;
}

HY__INLINE __m512 dot_row(hy_dtype dtype, const hy__quantized* w, const void* walk, int64_t row,
                          const float* x) {
  const unsigned char* data = w->data + row * w->row;
  const float* scale = w->scale + row * w->scale_row;
  return dtype == HY_I4 ? dot_nibbles(w, *(const hy__scale_walk*)walk, data, scale, x)
                        : dot_bytes(dtype, w, data, scale, x);
}

#define AS_DOT_ROW(name, dtype)                                                                   \
  HY__INLINE __m512 name(const hy__quantized* w, const void* walk, int64_t row, const float* x) { \
    return dot_row(dtype, w, walk, row, x);                                                       \
  }
AS_DOT_ROW(dot_i8, HY_I8)
AS_DOT_ROW(dot_i4, HY_I4)
AS_DOT_ROW(dot_e4m3, HY_F8E4M3)
AS_DOT_ROW(dot_e5m2, HY_F8E5M2)
#undef AS_DOT_ROW

static void multiply(const hy__quantized* w, int64_t first, int n, const float* x, float* out) {
  hy__scale_walk walk = hy__scale_walk_of(w, BLOCK);
  switch (w->dtype) {
    case HY_I8: hy__dot_rows(dot_i8, &walk, w, first, n, x, out); return;
    case HY_I4: hy__dot_rows(dot_i4, &walk, w, first, n, x, out); return;
    case HY_F8E4M3: hy__dot_rows(dot_e4m3, &walk, w, first, n, x, out); return;
    default: hy__dot_rows(dot_e5m2, &walk, w, first, n, x, out); return;
  }
}

HY__TARGET_END

const hy__quantized_gemv hy__quantized_gemv_avx512 = {takes, order, multiply};
#endif
