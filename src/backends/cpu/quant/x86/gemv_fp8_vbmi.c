// GEMV on fp8 weights in AVX-512 VBMI: a table look-up of 64 bytes at once turns each into the two
// bytes of its bf16, which holds every number of both fp8 types.
#include <string.h>

#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/weights_avx512.h"

HY__TARGET_VBMI

enum { BLOCK = 64 };

static bool takes(const hy__quantized* w) {
  return (w->dtype == HY_F8E4M3 || w->dtype == HY_F8E5M2) && hy__block_takes(w->group, w->k, BLOCK);
}

// Sixteen numbers of each quarter of a vector of bytes: the even ones of the first eight, the odd
// ones, and so for the second eight. What the last block lacks is 0.
static bool order(const hy__quantized* w, const float* x, float* ordered) {
  for (int64_t at = 0; at < w->k; at += BLOCK) {
    for (int i = 0; i < BLOCK; i++) {
      int part = i / 16, lane = i % 16;
      int64_t from = at + lane / 4 * 16 + part / 2 * 8 + lane % 4 * 2 + part % 2;
      ordered[at + i] = from < w->k ? x[from] : 0;
    }
  }
  return true;
}

// The bytes of the bf16 of each number without its sign.
typedef struct tables {
  uint8_t low[128], high[128];
} tables;

static void fill(const hy__quantized* w, tables* t) {
  uint8_t number[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  __m128i numbers = _mm_loadu_si128((const __m128i*)number);
  for (int i = 0; i < 128; i += 16, numbers = _mm_add_epi8(numbers, _mm_set1_epi8(16))) {
    __m512i bits = _mm512_castps_si512(hy__bytes_to_floats(numbers, w->dtype));
    _mm_storeu_si128((__m128i*)(t->low + i), _mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, 16)));
    _mm_storeu_si128((__m128i*)(t->high + i), _mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, 24)));
  }
}

typedef struct lookup {
  __m512i low[2], high[2];
  hy__scale_walk walk;
} lookup;

// The products of a block; element order as in `order`.
HY__INLINE __m512 dot_block(const lookup* t, __m512i bytes, const float* x) {
  __m512i low = _mm512_permutex2var_epi8(t->low[0], bytes, t->low[1]);
  __m512i high = _mm512_permutex2var_epi8(t->high[0], bytes, t->high[1]);
  high = _mm512_ternarylogic_epi32(bytes, _mm512_set1_epi8((char)0x80), high, 0xea);  // & then |
  __m512i first = _mm512_unpacklo_epi8(low, high), second = _mm512_unpackhi_epi8(low, high);
  __m512i odd = _mm512_set1_epi32((int)0xffff0000);
#define AS_FLOATS(x) _mm512_castsi512_ps(x)
  __m512 a = _mm512_mul_ps(AS_FLOATS(_mm512_slli_epi32(first, 16)), _mm512_loadu_ps(x));
  __m512 b = _mm512_mul_ps(AS_FLOATS(_mm512_and_si512(first, odd)), _mm512_loadu_ps(x + 16));
  a = _mm512_fmadd_ps(AS_FLOATS(_mm512_slli_epi32(second, 16)), _mm512_loadu_ps(x + 32), a);
  b = _mm512_fmadd_ps(AS_FLOATS(_mm512_and_si512(second, odd)), _mm512_loadu_ps(x + 48), b);
#undef AS_FLOATS
  return _mm512_add_ps(a, b);
}

HY__INLINE __m512 dot_row(const hy__quantized* w, const void* context, int64_t row,
                          const float* x) {
  const lookup* t = context;
  const unsigned char* data = w->data + row * w->row;
  const float* scale = w->scale + row * w->scale_row;
  int64_t block_in_group = 0, at = 0;
  __m512 sum = _mm512_setzero_ps();
  for (; at + BLOCK <= w->k; at += BLOCK) {
    hy__prefetch(data + at);
    __m512 scales = hy__block_scales(scale, w->group, BLOCK, BLOCK);
    sum = _mm512_fmadd_ps(dot_block(t, _mm512_loadu_si512(data + at), x + at), scales, sum);
    if (++block_in_group == t->walk.blocks) {
      scale += t->walk.advance;
      block_in_group = 0;
    }
  }
  if (at < w->k) {
    int64_t left = w->k - at;
    __m512i bytes = _mm512_maskz_loadu_epi8(((__mmask64)1 << left) - 1, data + at);
    sum = _mm512_fmadd_ps(dot_block(t, bytes, x + at),
                          hy__block_scales(scale, w->group, BLOCK, left), sum);
  }
  return sum;
}

static void multiply(const hy__quantized* w, int64_t first, int n, const float* x, float* out) {
  tables bytes;
  fill(w, &bytes);
  lookup t;
  for (int i = 0; i < 2; i++) {
    t.low[i] = _mm512_loadu_si512(bytes.low + 64 * i);
    t.high[i] = _mm512_loadu_si512(bytes.high + 64 * i);
  }
  t.walk = hy__scale_walk_of(w, BLOCK);
  hy__dot_rows(dot_row, &t, w, first, n, x, out);
}

HY__TARGET_END

const hy__quantized_gemv hy__quantized_gemv_fp8_vbmi = {takes, order, multiply};
#endif
