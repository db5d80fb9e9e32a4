// The arithmetic of two numbers, shared by the tensor and the scalar forms.
#ifndef HALYARD_REFERENCE_ARITHMETIC_H_
#define HALYARD_REFERENCE_ARITHMETIC_H_

#include "halyard/call.h"

// a / b rounded as asked; quotients round to `type` before trunc sees them.
double hy__divide_f(double a, double b, hy_rounding rounding, hy_dtype type);
int64_t hy__divide_i(int64_t a, int64_t b, hy_rounding rounding);  // b is not 0
int64_t hy__power_i(int64_t base, int64_t exponent);

// Two's complement arithmetic that wraps.
static inline int64_t hy__add_i(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t hy__mul_i(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}

#endif  // HALYARD_REFERENCE_ARITHMETIC_H_
