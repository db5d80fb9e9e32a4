// int8 GEMV with int8 and int4 weights in NEON: bytes multiply to 16 bits, and pairs of those are
// added in 32.
#include "backends/cpu/family.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define NUMBER signed char
#include "backends/cpu/quant/int8_blocks.h"
#include "backends/cpu/runtime/target.h"

// The products of 16 pairs of bytes in four sums.
HY__INLINE int32x4_t add_products(int32x4_t sums, int8x16_t a, int8x16_t b) {
  sums = vpadalq_s16(sums, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
  return vpadalq_s16(sums, vmull_high_s8(a, b));
}

HY__INLINE int32x4_t block_products(hy_dtype dtype, const unsigned char* w, const signed char* x) {
  int8x16_t first = vld1q_s8((const signed char*)w), second;
  if (dtype == HY_I4) {
    second = vshrq_n_s8(first, 4);
    first = vshrq_n_s8(vshlq_n_s8(first, 4), 4);
  } else {
    second = vld1q_s8((const signed char*)w + 16);
  }
  return add_products(add_products(vdupq_n_s32(0), first, vld1q_s8(x)), second, vld1q_s8(x + 16));
}

HY__INLINE float dot_row(hy_dtype dtype, const hy__quantized* w, int64_t row,
                         const signed char* line, const float* x_scale) {
  const int64_t bytes = dtype == HY_I4 ? BLOCK / 2 : BLOCK;
  const unsigned char* data = w->data + row * w->row;
  const float* w_scale = w->scale + row * w->scale_row;
  int64_t whole = w->k / BLOCK * BLOCK;
  float32x4_t sum = vdupq_n_f32(0);
  for (int64_t at = 0; at < w->k; at += BLOCK, data += bytes, line += BLOCK) {
    unsigned char tail[BLOCK] = {0};
    if (at == whole) memcpy(tail, data, (size_t)(dtype == HY_I4 ? (w->k - at) / 2 : w->k - at));
    int32x4_t products = block_products(dtype, at == whole ? tail : data, line);
    sum = vfmaq_n_f32(sum, vcvtq_f32_s32(products), *x_scale++ * w_scale[at / w->group]);
  }
  return vaddvq_f32(sum);
}

static void gemv(const hy__int8_rows* x, const hy__quantized* w, int64_t first, int rows,
                 const void* lines, int m, float* out, int64_t ldo) {
  int64_t size = row_bytes(x, w);
  for (int r = 0; r < rows; r++) {
    for (int l = 0; l < m; l++) {
      const signed char* line = (const signed char*)lines + l * size;
      const float* scales = (const float*)(line + blocks_of(x) * BLOCK);
      out[l * ldo + r] = w->dtype == HY_I4 ? dot_row(HY_I4, w, first + r, line, scales)
                                           : dot_row(HY_I8, w, first + r, line, scales);
    }
  }
}

const hy__int8_kernel hy__int8_neon = {
    .takes = takes, .row_bytes = row_bytes, .order = order, .gemv = gemv};
#endif
