// int8 GEMV with int8 and int4 weights in AVX2, widened to 16 bits: exact for every pair of bytes,
// as the instruction for bytes is not.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#define NUMBER int16_t
#include "backends/cpu/quant/int8_blocks.h"
#include "backends/cpu/simd/avx2.h"

HY__TARGET_AVX2

// The products of a block in eight sums.
HY__INLINE __m256i block_products(hy_dtype dtype, const unsigned char* w, const int16_t* x) {
  __m128i first = _mm_loadu_si128((const __m128i*)w), second;
  if (dtype == HY_I4) {
    const __m128i fifteen = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    second = _mm_and_si128(_mm_srli_epi16(first, 4), fifteen);
    first = _mm_and_si128(first, fifteen);
    second = _mm_sub_epi8(_mm_xor_si128(second, eight), eight);
    first = _mm_sub_epi8(_mm_xor_si128(first, eight), eight);
  } else {
    second = _mm_loadu_si128((const __m128i*)(w + 16));
  }
  const __m256i *low = (const __m256i*)x, *high = (const __m256i*)(x + 16);
  return _mm256_add_epi32(
      _mm256_madd_epi16(_mm256_cvtepi8_epi16(first), _mm256_loadu_si256(low)),
      _mm256_madd_epi16(_mm256_cvtepi8_epi16(second), _mm256_loadu_si256(high)));
}

HY__INLINE float dot_row(hy_dtype dtype, const hy__quantized* w, int64_t row, const int16_t* line,
                         const float* x_scale) {
  const int64_t bytes = dtype == HY_I4 ? BLOCK / 2 : BLOCK;
  const unsigned char* data = w->data + row * w->row;
  const float* w_scale = w->scale + row * w->scale_row;
  int64_t whole = w->k / BLOCK * BLOCK;
  __m256 sum = _mm256_setzero_ps();
  for (int64_t at = 0; at < w->k; at += BLOCK, data += bytes, line += BLOCK) {
    unsigned char tail[BLOCK] = {0};
    if (at == whole) memcpy(tail, data, (size_t)(dtype == HY_I4 ? (w->k - at) / 2 : w->k - at));
    __m256i products = block_products(dtype, at == whole ? tail : data, line);
    sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(products),
                          _mm256_set1_ps(*x_scale++ * w_scale[at / w->group]), sum);
  }
  return hy__sum_of_lanes(sum);
}

static void gemv(const hy__int8_rows* x, const hy__quantized* w, int64_t first, int rows,
                 const void* lines, int m, float* out, int64_t ldo) {
  int64_t size = row_bytes(x, w);
  for (int r = 0; r < rows; r++) {
    for (int l = 0; l < m; l++) {
      const int16_t* line = (const int16_t*)((const char*)lines + l * size);
      const float* scales = (const float*)(line + blocks_of(x) * BLOCK);
      out[l * ldo + r] = w->dtype == HY_I4 ? dot_row(HY_I4, w, first + r, line, scales)
                                           : dot_row(HY_I8, w, first + r, line, scales);
    }
  }
}

HY__TARGET_END

const hy__int8_kernel hy__int8_avx2 = {
    .takes = takes, .row_bytes = row_bytes, .order = order, .gemv = gemv};
#endif
