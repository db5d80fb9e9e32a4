// int8 GEMV in plain C, for scale groups of any size.
#include <string.h>

#include "backends/cpu/quant/int8_kernel.h"

static bool takes(const hy__int8_rows* x, const hy__quantized* w) {
  (void)x;
  (void)w;
  return true;
}

// The scales of the line's groups, then its bytes.
static int64_t scale_bytes(const hy__int8_rows* x) {
  return x->k > 0 ? x->k / x->group * 4 : 0;
}

static int64_t row_bytes(const hy__int8_rows* x, const hy__quantized* w) {
  (void)w;
  return (scale_bytes(x) + x->k + 63) / 64 * 64;
}

static void order(const hy__int8_rows* x, const hy__quantized* w, int64_t i, void* line) {
  (void)w;
  memcpy(line, x->scale + i * x->scale_row, (size_t)scale_bytes(x));
  memcpy((char*)line + scale_bytes(x), x->data + i * x->row, (size_t)x->k);
}

static int32_t dot_bytes(const signed char* x, const signed char* w, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * w[i];
  return sum;
}

static int32_t dot_nibbles(const signed char* x, const unsigned char* w, int64_t first, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = first; i < first + n; i++)
    sum += x[i] * ((((w[i / 2] >> (i % 2 * 4)) & 15) ^ 8) - 8);
  return sum;
}

static float dot_row(const hy__int8_rows* x, const hy__quantized* w, int64_t row, int64_t k_group,
                     const char* line) {
  const signed char* numbers = (const signed char*)line + scale_bytes(x);
  const unsigned char* data = w->data + row * w->row;
  const float *x_scale = (const float*)line, *w_scale = w->scale + row * w->scale_row;
  float sum = 0;
  for (int64_t at = 0; at < x->k; at += k_group) {
    int32_t products = w->dtype == HY_I4
                           ? dot_nibbles(numbers, data, at, k_group)
                           : dot_bytes(numbers + at, (const signed char*)data + at, k_group);
    sum += (float)products * (x_scale[at / x->group] * w_scale[at / w->group]);
  }
  return sum;
}

static void gemv(const hy__int8_rows* x, const hy__quantized* w, int64_t first, int rows,
                 const void* lines, int m, float* out, int64_t ldo) {
  int64_t k_group = hy__int8_k_group(x, w), bytes = row_bytes(x, w);
  for (int r = 0; r < rows; r++) {
    for (int l = 0; l < m; l++)
      out[l * ldo + r] = dot_row(x, w, first + r, k_group, (const char*)lines + l * bytes);
  }
}

const hy__int8_kernel hy__int8_generic = {
    .takes = takes, .row_bytes = row_bytes, .order = order, .gemv = gemv};
