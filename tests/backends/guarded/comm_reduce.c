// Reductions in the order of ranks, so that every rank has the same bits.
#include <string.h>

#include "comm.h"

static float from_half(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, rest = bits & 1023;
  float magnitude;
  if (exponent == 31) {
    uint32_t special = sign | 0x7f800000 | rest << 13;
    memcpy(&magnitude, &special, sizeof magnitude);
    return magnitude;
  }
  // 2^-24 is the smallest; a normal number has an eleventh bit.
  magnitude = (float)(exponent ? rest | 1024 : rest) * 0x1p-24f;
  for (uint32_t e = 1; e < exponent; e++) magnitude *= 2;
  return sign ? -magnitude : magnitude;
}

// To nearest, ties to even.
static uint16_t to_half(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);  // 65520 and more round to inf
  if (magnitude < 0x38800000) {                                   // below 2^-14: steps of 2^-24
    float shifted;
    memcpy(&shifted, &magnitude, sizeof shifted);
    shifted += 0x1p-1f;  // whose last bit is worth 2^-24
    memcpy(&magnitude, &shifted, sizeof magnitude);
    return (uint16_t)(sign | (magnitude - 0x3f000000));
  }
  magnitude += 0xfff + (magnitude >> 13 & 1);
  return (uint16_t)(sign | ((magnitude - 0x38000000) >> 13));
}

static float from_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float load_float(hy_dtype dtype, const char* at) {
  uint16_t half;
  float value;
  if (dtype == HY_F32) {
    memcpy(&value, at, sizeof value);
    return value;
  }
  memcpy(&half, at, sizeof half);
  return dtype == HY_F16 ? from_half(half) : from_bf16(half);
}

static void store_float(hy_dtype dtype, char* at, float value) {
  if (dtype == HY_F32) {
    memcpy(at, &value, sizeof value);
    return;
  }
  uint16_t half = dtype == HY_F16 ? to_half(value) : to_bf16(value);
  memcpy(at, &half, sizeof half);
}

static int64_t load_int(hy_dtype dtype, const char* at) {
  int16_t i16;
  int32_t i32;
  int64_t i64;
  switch (dtype) {
    case HY_I8: return *(const int8_t*)at;
    case HY_U8: return *(const uint8_t*)at;
    case HY_I16: memcpy(&i16, at, sizeof i16); return i16;
    case HY_I32: memcpy(&i32, at, sizeof i32); return i32;
    default: memcpy(&i64, at, sizeof i64); return i64;
  }
}

// The low bytes: what overflows wraps around, as in the reference.
static void store_int(hy_dtype dtype, char* at, int64_t value) {
  uint64_t bits = (uint64_t)value;
  for (size_t i = 0; i < hy_dtype_size(dtype); i++) at[i] = (char)(bits >> 8 * i);
}

// A NaN stays one.
#define COMBINE(name, type)                               \
  static type name(hy_reduce_op op, type a, type b) {     \
    switch (op) {                                         \
      case HY_REDUCE_PROD: return a * b;                  \
      case HY_REDUCE_MIN: return a < b || a != a ? a : b; \
      case HY_REDUCE_MAX: return a > b || a != a ? a : b; \
      default: return a + b;                              \
    }                                                     \
  }
COMBINE(combine_f32, float)
COMBINE(combine_f64, double)

static int64_t combine_int(hy_reduce_op op, int64_t a, int64_t b) {
  switch (op) {
    case HY_REDUCE_PROD: return (int64_t)((uint64_t)a * (uint64_t)b);
    case HY_REDUCE_MIN: return a < b ? a : b;
    case HY_REDUCE_MAX: return a > b ? a : b;
    default: return (int64_t)((uint64_t)a + (uint64_t)b);
  }
}

static void reduce_f64(hy_reduce_op op, const char* const* part, int n, size_t at, char* out) {
  double sum, next;
  memcpy(&sum, part[0] + at, sizeof sum);
  for (int r = 1; r < n; r++) {
    memcpy(&next, part[r] + at, sizeof next);
    sum = combine_f64(op, sum, next);
  }
  if (op == HY_REDUCE_AVG) sum /= n;
  memcpy(out + at, &sum, sizeof sum);
}

static void reduce_float(hy_dtype dtype, hy_reduce_op op, const char* const* part, int n, size_t at,
                         char* out) {
  float sum = load_float(dtype, part[0] + at);
  for (int r = 1; r < n; r++) sum = combine_f32(op, sum, load_float(dtype, part[r] + at));
  if (op == HY_REDUCE_AVG) sum /= (float)n;
  store_float(dtype, out + at, sum);
}

static void reduce_int(hy_dtype dtype, hy_reduce_op op, const char* const* part, int n, size_t at,
                       char* out) {
  int64_t sum = load_int(dtype, part[0] + at);
  for (int r = 1; r < n; r++) sum = combine_int(op, sum, load_int(dtype, part[r] + at));
  store_int(dtype, out + at, sum);
}

void guarded_reduce(hy_dtype dtype, hy_reduce_op op, const char* const* part, int n_parts,
                    size_t count, char* out) {
  size_t size = hy_dtype_size(dtype);
  for (size_t at = 0; at < count * size; at += size) {
    if (dtype == HY_F64)
      reduce_f64(op, part, n_parts, at, out);
    else if (hy_dtype_is_float(dtype))
      reduce_float(dtype, op, part, n_parts, at, out);
    else
      reduce_int(dtype, op, part, n_parts, at, out);
  }
}
