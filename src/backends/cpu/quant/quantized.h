// Quantised weights: few bits, with a scale for each group of a row.
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

// Whether hy__gemv_quantized can read these weights.
static inline bool hy__quantized_is_even(const hy__quantized* w) {
  return w->dtype != HY_I4 || w->group == 32 || w->group == 64 || w->group % 128 == 0;
}

// Columns first .. first + count - 1 of a row as floats, scaled.
typedef void hy__dequantize(const hy__quantized* w, int64_t row, int64_t first, int64_t count,
                            float* out);
// GEMV: the products of one row of x with n rows of even weights, from `first` on. `x` has been put
// in order by hy__order_row.
typedef void hy__gemv_quantized(const hy__quantized* w, int64_t first, int n, const float* x,
                                float* out);
// A row of x as hy__gemv_quantized reads it.
typedef void hy__order_row(const hy__quantized* w, const float* x, float* ordered);

// n numbers of a type become i8 or packed i4 (n even); returns their scale.
typedef float hy__quantize(int64_t n, const void* x, hy_dtype from, hy_dtype to, void* q);

#endif  // HALYARD_CPU_QUANT_QUANTIZED_H_
