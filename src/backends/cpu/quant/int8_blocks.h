// Blocks of 32 numbers of a row of x, laid out for a file that defines NUMBER, the type that it
// widens int8 to: for int4 the even ones before the odd ones; after all of them their scales.
#ifndef HALYARD_CPU_QUANT_INT8_BLOCKS_H_
#define HALYARD_CPU_QUANT_INT8_BLOCKS_H_

#include <string.h>

#include "backends/cpu/quant/int8_kernel.h"

enum { BLOCK = 32 };

static bool takes(const hy__int8_rows* x, const hy__quantized* w) {
  return (x->group == x->k || x->group % BLOCK == 0) && (w->group == w->k || w->group % BLOCK == 0);
}

static int64_t blocks_of(const hy__int8_rows* x) {
  return (x->k + BLOCK - 1) / BLOCK;
}

static int64_t row_bytes(const hy__int8_rows* x, const hy__quantized* w) {
  (void)w;
  return (blocks_of(x) * (BLOCK * (int64_t)sizeof(NUMBER) + 4) + 63) / 64 * 64;
}

static void order(const hy__int8_rows* x, const hy__quantized* w, int64_t i, void* line) {
  const signed char* data = x->data + i * x->row;
  NUMBER* to = line;
  float* scales = (float*)(to + blocks_of(x) * BLOCK);
  for (int64_t at = 0; at < x->k; at += BLOCK, to += BLOCK) {
    int64_t left = x->k - at < BLOCK ? x->k - at : BLOCK;
    memset(to, 0, BLOCK * sizeof *to);
    for (int64_t c = 0; c < left; c++)
      to[w->dtype == HY_I4 ? c / 2 + c % 2 * (BLOCK / 2) : c] = data[at + c];
    *scales++ = x->scale[i * x->scale_row + at / x->group];
  }
}

#endif  // HALYARD_CPU_QUANT_INT8_BLOCKS_H_
