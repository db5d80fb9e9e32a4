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

// Columns first .. first + count - 1 of a row as floats, scaled.
typedef void hy__dequantize(const hy__quantized* w, int64_t row, int64_t first, int64_t count,
                            float* out);
// GEMV on quantised weights: one row of x, in float32 arithmetic.
typedef struct hy__quantized_gemv {
  bool (*takes)(const hy__quantized* w);
  // x as `multiply` reads it: the room of k rounded up to HY__QUANTIZED_STEP numbers, aligned to 64
  // bytes. False where it cannot hold these numbers.
  bool (*order)(const hy__quantized* w, const float* x, float* ordered);
  // out[j] = x times row first + j of the weights, for n of them.
  void (*multiply)(const hy__quantized* w, int64_t first, int n, const float* ordered, float* out);
} hy__quantized_gemv;

enum { HY__QUANTIZED_STEP = 512 };

// n numbers of a type become i8 or packed i4 (n even); returns their scale.
typedef float hy__quantize(int64_t n, const void* x, hy_dtype from, hy_dtype to, void* q);

#endif  // HALYARD_CPU_QUANT_QUANTIZED_H_
