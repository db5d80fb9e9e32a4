// Elements of any data type as doubles or as 64-bit integers: the two domains in which the
// reference computes.
//
// Floating types compute in double, integers and bool in int64 (sums wrap modulo 2^64, as two's
// complement does), and the result is rounded once to the output's type. A double holds every
// product and sum of two f32 exactly enough that +, -,
// *, / and sqrt round as if done in f32; f16 and bf16 round through f32, as PyTorch does.
#ifndef HALYARD_REFERENCE_ELEMENT_H_
#define HALYARD_REFERENCE_ELEMENT_H_

#include "halyard/tensor.h"

static inline bool hy__in_double(hy_dtype dtype) {
  return (HY_DTYPE_BIT(dtype) & (HY_FLOATS | HY_FLOAT8S)) != 0;
}

// One element at `p`. Integers load as doubles where asked; doubles store to integers truncated,
// saturating, NaN as 0.
double hy__load_f(hy_dtype dtype, const void* p);
int64_t hy__load_i(hy_dtype dtype, const void* p);
void hy__store_f(hy_dtype dtype, void* p, double value);
void hy__store_i(hy_dtype dtype, void* p, int64_t value);

// n elements, `stride` in elements.
void hy__load_row_f(hy_dtype dtype, const void* p, int64_t stride, int64_t n, double* row);
void hy__load_row_i(hy_dtype dtype, const void* p, int64_t stride, int64_t n, int64_t* row);
void hy__store_row_f(hy_dtype dtype, void* p, int64_t stride, int64_t n, const double* row);
void hy__store_row_i(hy_dtype dtype, void* p, int64_t stride, int64_t n, const int64_t* row);

// The nearest value of that type, ties to even.
double hy__round_to(hy_dtype dtype, double value);

#endif  // HALYARD_REFERENCE_ELEMENT_H_
