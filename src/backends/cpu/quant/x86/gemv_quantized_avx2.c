// GEMV on int8 and fp8 weights, dequantised on the way, in AVX2.
//
// A row of weights is read to its end before the next, a line of the caches at a time, its scales
// prefetched beside it. e4m3 is multiplied as if it had no NaN: whether a row has one is looked for
// in its bytes, two instructions for 32 of them.
#include <math.h>
#include <string.h>

#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/weights_avx2.h"

HY__TARGET_AVX2

enum { STEP = 16, LINE = 64 };

static bool takes(const hy__quantized* w) {
  return w->dtype != HY_I4;
}

static bool order(const hy__quantized* w, const float* x, float* ordered) {
  memcpy(ordered, x, (size_t)w->k * sizeof *x);
  return true;
}

// NaN of e4m3 is the greatest magnitude, and so the greatest of the bytes shifted left by one.
HY__INLINE __m256i greater_magnitude(__m256i most, __m256i bytes) {
  return _mm256_max_epu8(most, _mm256_add_epi8(bytes, bytes));
}

HY__INLINE __m256i sixteen_bytes(const unsigned char* w) {
  return _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i*)w));
}

HY__INLINE bool has_nan(__m256i most) {
  return _mm256_movemask_epi8(_mm256_cmpeq_epi8(most, _mm256_set1_epi8((char)0xfe))) != 0;
}

// Adds sixteen products; of e4m3 2^-8 of them.
HY__INLINE void add_products(hy_dtype dtype, const unsigned char* w, const float* x,
                             __m256 sums[2]) {
  __m256 weights[2];
  if (dtype == HY_I8) {
    weights[0] = hy__i8_to_floats(w);
    weights[1] = hy__i8_to_floats(w + 8);
  } else if (dtype == HY_F8E4M3) {
    __m128i bytes = _mm_loadu_si128((const __m128i*)w);
    hy__halves_to_floats(hy__e4m3_to_halves(bytes), weights);
  } else {
    hy__e5m2_to_floats(_mm_loadu_si128((const __m128i*)w), weights);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++)
    sums[i] = _mm256_fmadd_ps(weights[i], _mm256_loadu_ps(x + 8 * i), sums[i]);
}

// The elements of one scale.
HY__INLINE __m256 dot_group(hy_dtype dtype, const unsigned char* w, int64_t n, const float* x,
                            __m256i* most) {
  __m256 sums[2][2];
  for (int i = 0; i < 4; i++) sums[i / 2][i % 2] = _mm256_setzero_ps();
  int64_t at = 0;
  for (; at + LINE <= n; at += LINE) {
    hy__prefetch(w + at);
#pragma GCC unroll 4
    for (int i = 0; i < LINE; i += STEP)
      add_products(dtype, w + at + i, x + at + i, sums[i / STEP % 2]);
#pragma GCC unroll 2
    for (int i = 0; i < LINE && dtype == HY_F8E4M3; i += 32)
      *most = greater_magnitude(*most, _mm256_loadu_si256((const __m256i*)(w + at + i)));
  }
  if (at < n) hy__prefetch(w + at);
  for (; at + STEP <= n; at += STEP) {
    add_products(dtype, w + at, x + at, sums[0]);
    if (dtype == HY_F8E4M3) *most = greater_magnitude(*most, sixteen_bytes(w + at));
  }
  if (at < n) {
    unsigned char rest[STEP] = {0};
    float rest_of_x[STEP] = {0};
    memcpy(rest, w + at, (size_t)(n - at));
    memcpy(rest_of_x, x + at, (size_t)(n - at) * sizeof *x);
    add_products(dtype, rest, rest_of_x, sums[0]);
    if (dtype == HY_F8E4M3) *most = greater_magnitude(*most, sixteen_bytes(rest));
  }
  return _mm256_add_ps(_mm256_add_ps(sums[0][0], sums[0][1]),
                       _mm256_add_ps(sums[1][0], sums[1][1]));
}

HY__INLINE float dot_row(hy_dtype dtype, const hy__quantized* w, int64_t row, const float* x) {
  const unsigned char* data = w->data + row * w->row;
  const float* scale = w->scale + row * w->scale_row;
  __m256 sum = _mm256_setzero_ps();
  __m256i most = _mm256_setzero_si256();
  for (int64_t at = 0; at < w->k; at += w->group, scale++) {
    __m256 products = dot_group(dtype, data + at, w->group, x + at, &most);
    if (dtype == HY_F8E4M3) products = _mm256_mul_ps(products, _mm256_set1_ps(256));
    sum = _mm256_fmadd_ps(products, _mm256_set1_ps(*scale), sum);
  }
  return dtype == HY_F8E4M3 && has_nan(most) ? NAN : hy__sum_of_lanes(sum);
}

HY__INLINE void dot_rows(hy_dtype dtype, const hy__quantized* w, int64_t first, int n,
                         const float* x, float* out) {
  hy__scales_ahead ahead = hy__scales_ahead_of(w);
  for (int r = 0; r < n; r++) {
    hy__prefetch_scales(w, first + r, ahead);
    out[r] = dot_row(dtype, w, first + r, x);
  }
}

static void multiply(const hy__quantized* w, int64_t first, int n, const float* x, float* out) {
  switch (w->dtype) {
    case HY_I8: dot_rows(HY_I8, w, first, n, x, out); return;
    case HY_F8E4M3: dot_rows(HY_F8E4M3, w, first, n, x, out); return;
    default: dot_rows(HY_F8E5M2, w, first, n, x, out); return;
  }
}

HY__TARGET_END

const hy__quantized_gemv hy__quantized_gemv_avx2 = {takes, order, multiply};
#endif
