// Comparison of numbers and tensors with a tolerance, one for all tests of kernels. NaN is close to
// NaN alone and an infinity to itself, so that what was never written is never close.
#ifndef HALYARD_TESTS_SUPPORT_CLOSE_H_
#define HALYARD_TESTS_SUPPORT_CLOSE_H_

#include <math.h>
#include <string.h>

#include "halyard/tensor.h"

// How far a number may be off, for its size and beside it.
typedef struct tolerance {
  double relative, absolute;
} tolerance;

static inline bool is_close(double got, double want, tolerance limit) {
  if (isnan(want)) return isnan(got);
  if (isinf(want)) return got == want;
  return fabs(got - want) <= limit.relative * fabs(want) + limit.absolute;
}

// The distance from 1 to the next number of the type.
static inline double unit_of(hy_dtype dtype) {
  return dtype == HY_F64    ? 0x1p-52
         : dtype == HY_F32  ? 0x1p-23
         : dtype == HY_F16  ? 0x1p-10
         : dtype == HY_BF16 ? 0x1p-7
                            : 1;
}

// Where the i-th element of a view is, in elements from its data.
static inline int64_t offset_of(const hy_tensor* t, int64_t i) {
  int64_t offset = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    offset += i % t->shape[d] * t->stride[d];
    i /= t->shape[d];
  }
  return offset;
}

static inline double half_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent     ? ldexp(1024 + fraction, exponent - 25)
                               : ldexp(fraction, -24);
  return bits >> 15 ? -size : size;
}

static inline double value_of(const void* at, hy_dtype dtype) {
  double f64;
  float f32;
  int64_t i64 = 0;
  uint32_t bits = 0;
  uint16_t half;
  switch (dtype) {
    case HY_F64: memcpy(&f64, at, sizeof f64); return f64;
    case HY_F32: memcpy(&f32, at, sizeof f32); return (double)f32;
    case HY_F16: memcpy(&half, at, sizeof half); return half_value(half);
    case HY_BF16:
      memcpy(&half, at, sizeof half);
      bits = (uint32_t)half << 16;
      memcpy(&f32, &bits, sizeof f32);
      return (double)f32;
    case HY_I64: memcpy(&i64, at, sizeof i64); return (double)i64;
    case HY_I32: {
      int32_t i32;
      memcpy(&i32, at, sizeof i32);
      return i32;
    }
    case HY_I8: return *(const int8_t*)at;
    default: return *(const uint8_t*)at;
  }
}

// The first element of `got` that is not close to its like in `want`, a view of the same shape and
// strides; -1 when all are.
static inline int64_t first_far(const hy_tensor* got, const hy_tensor* want, tolerance limit) {
  int64_t size = (int64_t)hy_dtype_size(want->dtype);
  for (int64_t i = 0; i < hy_tensor_numel(want); i++) {
    int64_t at = offset_of(want, i) * size;
    if (!is_close(value_of((char*)got->data + at, want->dtype),
                  value_of((char*)want->data + at, want->dtype), limit))
      return i;
  }
  return -1;
}

#endif  // HALYARD_TESTS_SUPPORT_CLOSE_H_
