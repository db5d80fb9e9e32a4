// Nonfinite numbers: infinities and NaN.
//
// A nonfinite number must not spread to results that give it no weight, such as a value that a
// query does not see, and in a product with 0 it does. Kernels that multiply by such zeros leave
// calls whose inputs are not all finite to the reference. A sum cannot hide one, so that it is
// enough to look at the results first.
#ifndef HALYARD_CPU_SIMD_NONFINITE_H_
#define HALYARD_CPU_SIMD_NONFINITE_H_

#include "halyard/tensor.h"

bool hy__is_finite(const float* x, int64_t n, float factor);  // x times factor
bool hy__tensor_is_finite(const hy_tensor* t);                // f32, bf16 or f16

#endif  // HALYARD_CPU_SIMD_NONFINITE_H_
