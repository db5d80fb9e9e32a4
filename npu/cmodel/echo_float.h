// echo_float.h - the number rules of docs/isa.md section 4, in portable C on bit patterns.
// The SIMD kernels get the same results from the processor's FTZ and DAZ modes.
#ifndef ECHO_FLOAT_H
#define ECHO_FLOAT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ECHO_QNAN 0x7fc00000u

static inline float echo_from_bits(uint32_t i) {
  float f;
  memcpy(&f, &i, 4);
  return f;
}

static inline uint32_t echo_to_bits(float f) {
  uint32_t i;
  memcpy(&i, &f, 4);
  return i;
}

static inline uint32_t echo_flush(uint32_t i) {
  return (i & 0x7f800000u) ? i : i & 0x80000000u;
}

// Is |a b + c| below 2^-126 after rounding to 24 bits? Asked only when binary32 rounding gave
// 2^-126, which also happens to values that 24 bits with unbounded exponent would keep below it.
static inline int echo_rounds_below_normal(float a, float b, float c) {
  const double limit = 0x1p-126 - 0x1p-151;
  double p = (double)a * b, s = p + c, t = s - p;
  double low = (p - (s - t)) + ((double)c - t);
  if (s < 0) s = -s, low = -low;
  return s < limit || (s == limit && low < 0);
}

static inline uint32_t echo_fma(uint32_t a, uint32_t b, uint32_t c) {
  float x = echo_from_bits(echo_flush(a)), y = echo_from_bits(echo_flush(b)),
        z = echo_from_bits(echo_flush(c));
  float r = fmaf(x, y, z);
  uint32_t i = echo_to_bits(r), magnitude = i & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return ECHO_QNAN;
  if (magnitude < 0x00800000u) return i & 0x80000000u;
  if (magnitude == 0x00800000u && echo_rounds_below_normal(x, y, z)) return i & 0x80000000u;
  return i;
}

static inline int32_t echo_order_key(uint32_t i) {
  return (int32_t)(i ^ ((uint32_t)((int32_t)i >> 31) & 0x7fffffffu));
}
static inline int echo_is_nan(uint32_t i) {
  return (i & 0x7fffffffu) > 0x7f800000u;
}
static inline uint32_t echo_max(uint32_t a, uint32_t b) {
  if (echo_is_nan(a) || echo_is_nan(b)) return ECHO_QNAN;
  return echo_order_key(a) > echo_order_key(b) ? a : b;
}
static inline uint32_t echo_min(uint32_t a, uint32_t b) {
  if (echo_is_nan(a) || echo_is_nan(b)) return ECHO_QNAN;
  return echo_order_key(a) < echo_order_key(b) ? a : b;
}

static inline int32_t echo_f2i(uint32_t i) {
  if (echo_is_nan(i)) return 0;
  float f = rintf(echo_from_bits(i));
  if (f >= 0x1p31f) return INT32_MAX;
  if (f < -0x1p31f) return INT32_MIN;
  return (int32_t)f;
}
static inline uint32_t echo_i2f(int32_t i) {
  return echo_to_bits((float)i);
}

static inline uint16_t echo_to_bf16(uint32_t i) {
  if (echo_is_nan(i)) return 0x7fc0;
  return (uint16_t)((i + 0x7fffu + ((i >> 16) & 1)) >> 16);
}

#endif  // ECHO_FLOAT_H
