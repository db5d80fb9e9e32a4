// Products of int8 lines with int8 and int4 weights in NEON: bytes multiply to 16 bits, pairs of
// which are added in 32.
#include <string.h>

#include "backends/cpu/int8_layer.h"
#include "backends/cpu/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "backends/cpu/target.h"

enum { BLOCK = 32 };

static bool takes(const hy__int8_lines* x, const hy__quantized* w) {
  return (x->group == x->k || x->group % BLOCK == 0) && (w->group == w->k || w->group % BLOCK == 0);
}

static int64_t blocks_of(const hy__int8_lines* x) {
  return (x->k + BLOCK - 1) / BLOCK;
}

// Blocks of 32 numbers, for int4 the even ones before the odd ones; then their scales.
static int64_t line_bytes(const hy__int8_lines* x, const hy__quantized* w) {
  (void)w;
  return (blocks_of(x) * (BLOCK + 4) + 63) / 64 * 64;
}

static void order(const hy__int8_lines* x, const hy__quantized* w, int64_t i, void* line) {
  const signed char* data = x->data + i * x->row;
  signed char* to = line;
  float* scales = (float*)(to + blocks_of(x) * BLOCK);
  for (int64_t at = 0; at < x->k; at += BLOCK, to += BLOCK) {
    int64_t left = x->k - at < BLOCK ? x->k - at : BLOCK;
    memset(to, 0, BLOCK);
    for (int64_t c = 0; c < left; c++)
      to[w->dtype == HY_I4 ? c / 2 + c % 2 * (BLOCK / 2) : c] = data[at + c];
    *scales++ = x->scale[i * x->scale_row + at / x->group];
  }
}

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

static void dot(const hy__int8_lines* x, const hy__quantized* w, int64_t first, int rows,
                const void* lines, int n_lines, float* out, int64_t out_line) {
  int64_t size = line_bytes(x, w);
  for (int r = 0; r < rows; r++) {
    for (int l = 0; l < n_lines; l++) {
      const signed char* line = (const signed char*)lines + l * size;
      const float* scales = (const float*)(line + blocks_of(x) * BLOCK);
      out[l * out_line + r] = w->dtype == HY_I4 ? dot_row(HY_I4, w, first + r, line, scales)
                                                : dot_row(HY_I8, w, first + r, line, scales);
    }
  }
}

const hy__int8_kernel hy__int8_neon = {
    .takes = takes, .line_bytes = line_bytes, .order = order, .dot = dot};
#endif
