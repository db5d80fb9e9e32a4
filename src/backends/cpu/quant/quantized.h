// Weights of few bits with a scale for each group of a row.
#ifndef HALYARD_CPU_QUANT_QUANTIZED_H_
#define HALYARD_CPU_QUANT_QUANTIZED_H_

#include "halyard/tensor.h"

// [n, k] of i8, packed i4, f8e4m3 or f8e5m2; rows of bytes with no gaps between their elements.
typedef struct hy__quantized {
  const unsigned char* data;
  hy_dtype dtype;
  int64_t n, k;
  int64_t row;         // bytes from one row to the next
  const float* scale;  // scale[r * scale_row + c / group]
  int64_t scale_row, group;
} hy__quantized;

// Whether hy__dot_quantized can read these weights.
static inline bool hy__quantized_is_even(const hy__quantized* w) {
  return w->dtype != HY_I4 || w->group == 32 || w->group == 64 || w->group % 128 == 0;
}

// Columns first .. first + count - 1 of a row as floats, scaled.
typedef void hy__decode(const hy__quantized* w, int64_t row, int64_t first, int64_t count,
                        float* out);
// The dot products of one line with rows first .. first + rows - 1 of even weights. `x` has been
// put in order by hy__line_order.
typedef void hy__dot_quantized(const hy__quantized* w, int64_t first, int rows, const float* x,
                               float* out);
// A line as hy__dot_quantized reads it.
typedef void hy__line_order(const hy__quantized* w, const float* x, float* ordered);

// n numbers of a type become i8 or packed i4 (n even); returns their scale.
typedef float hy__quantize(int64_t n, const void* x, hy_dtype from, hy_dtype to, void* q);

#endif  // HALYARD_CPU_QUANT_QUANTIZED_H_
