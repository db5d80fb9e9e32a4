// Nonfinite numbers: is there an infinity or a NaN?
#include "backends/cpu/simd/nonfinite.h"

#include "backends/cpu/simd/half.h"

bool hy__is_finite(const float* x, int64_t n, float factor) {
  uint32_t exponent = 0x7f800000, nonfinite = 0;
  for (int64_t i = 0; i < n; i++)
    nonfinite |= (hy__float_to_bits(x[i] * factor) & exponent) == exponent;
  return !nonfinite;
}

static bool row_is_finite(const char* p, hy_dtype dtype, int64_t n, int64_t step) {
  // An exponent of all ones, in the upper half of a float or in a half.
  uint16_t exponent = dtype == HY_F16 ? 0x7c00 : 0x7f80;
  int64_t unit = dtype == HY_F32 ? 2 : 1;
  const uint16_t* words = (const uint16_t*)p + (unit - 1);
  bool bad = false;
  if (step == 1 && unit == 2) {
    for (int64_t i = 0; i < n; i++) bad |= (words[2 * i] & exponent) == exponent;
  } else {
    for (int64_t i = 0; i < n; i++) bad |= (words[i * step * unit] & exponent) == exponent;
  }
  return !bad;
}

bool hy__tensor_is_finite(const hy_tensor* t) {
  int64_t rows = hy_tensor_numel(t), n = t->shape[t->ndim - 1];
  if (rows == 0) return true;
  rows /= n;
  for (int64_t r = 0; r < rows; r++) {
    int64_t rest = r, offset = 0;
    for (int d = t->ndim - 2; d >= 0; d--) {
      offset += rest % t->shape[d] * t->stride[d];
      rest /= t->shape[d];
    }
    const char* row = (const char*)t->data + offset * (int64_t)hy_dtype_size(t->dtype);
    if (!row_is_finite(row, t->dtype, n, t->stride[t->ndim - 1])) return false;
  }
  return true;
}
