// Loading and storing elements of every type as double or int64.
#include "ops/reference/element.h"

#include <string.h>

// A binary format of 16 or 8 bits: exponent and mantissa widths, and what its all-ones exponent
// means.
typedef struct small_float {
  int exponent_bits, mantissa_bits;
  bool has_infinity;  // else all-ones exponent and mantissa is the only NaN, and the rest are
                      // numbers
} small_float;

static const small_float format_f16 = {5, 10, true};
static const small_float format_bf16 = {8, 7, true};
static const small_float format_f8e4m3 = {4, 3, false};
static const small_float format_f8e5m2 = {5, 2, true};

static float bits_to_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t float_to_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static inline float decode(small_float format, uint32_t code) {
  int e_bits = format.exponent_bits, m_bits = format.mantissa_bits;
  uint32_t sign = (code >> (e_bits + m_bits)) & 1u, mantissa = code & ((1u << m_bits) - 1);
  uint32_t exponent = (code >> m_bits) & ((1u << e_bits) - 1), all_ones = (1u << e_bits) - 1;
  int bias = (1 << (e_bits - 1)) - 1;
  if (exponent == all_ones && (format.has_infinity || mantissa == (1u << m_bits) - 1))
    return bits_to_float(sign << 31 | 0x7f800000u | mantissa << (23 - m_bits));
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^(1 - bias - m_bits)
    float unit = bits_to_float((uint32_t)(127 + 1 - bias - m_bits) << 23);
    if (e_bits == 8) return bits_to_float(sign << 31 | mantissa << 16);
    return sign ? -((float)mantissa * unit) : (float)mantissa * unit;
  }
  return bits_to_float(sign << 31 | (exponent + (uint32_t)(127 - bias)) << 23 |
                       mantissa << (23 - m_bits));
}

static inline uint32_t encode(small_float format, float value) {
  int e_bits = format.exponent_bits, m_bits = format.mantissa_bits;
  int bias = (1 << (e_bits - 1)) - 1;
  uint32_t bits = float_to_bits(value), sign = (bits >> 31) << (e_bits + m_bits);
  uint32_t magnitude = bits & 0x7fffffffu, all_ones = (1u << e_bits) - 1;
  uint32_t nan =
      all_ones << m_bits | (format.has_infinity ? 1u << (m_bits - 1) : (1u << m_bits) - 1);
  // Without infinity the largest number takes its place, as in PyTorch.
  uint32_t overflow = format.has_infinity ? all_ones << m_bits : nan - 1;
  if (magnitude > 0x7f800000u) return sign | nan;
  if (magnitude == 0x7f800000u) return sign | overflow;
  int exponent = (int)(magnitude >> 23) - 127;
  uint32_t significand = (magnitude & 0x7fffffu) | (magnitude >> 23 ? 0x800000u : 0);
  if (magnitude >> 23 == 0) exponent = -126;
  int least = 1 - bias;  // exponent of the smallest normal number
  int drop = 23 - m_bits + (exponent < least ? least - exponent : 0);
  if (drop > 25) return sign;
  uint32_t kept = significand >> drop, rest = significand & ((1u << drop) - 1),
           half = 1u << (drop - 1);
  if (rest > half || (rest == half && (kept & 1))) kept++;
  // A normal number's kept bits include the leading one, which is worth one step of the exponent
  // field.
  uint32_t code = exponent < least ? kept : ((uint32_t)(exponent - least) << m_bits) + kept;
  uint32_t largest = format.has_infinity ? (all_ones << m_bits) - 1 : nan - 1;
  return sign | (code > largest ? overflow : code);
}

static int64_t to_integer(double value, int64_t low, int64_t high) {
  if (value != value) return 0;
  if (value <= (double)low) return low;
  if (value >= (double)high) return high;
  return (int64_t)value;
}

// Every data type with its C storage, how it becomes a number in each domain, and how it is made
// from one.
#define INTEGERS(X)                        \
  X(HY_I8, int8_t, INT8_MIN, INT8_MAX)     \
  X(HY_I16, int16_t, INT16_MIN, INT16_MAX) \
  X(HY_I32, int32_t, INT32_MIN, INT32_MAX) \
  X(HY_I64, int64_t, INT64_MIN, INT64_MAX) \
  X(HY_U8, uint8_t, 0, UINT8_MAX)
#define SMALL_FLOATS(X)                \
  X(HY_F16, uint16_t, format_f16)      \
  X(HY_BF16, uint16_t, format_bf16)    \
  X(HY_F8E4M3, uint8_t, format_f8e4m3) \
  X(HY_F8E5M2, uint8_t, format_f8e5m2)

#define EACH(storage, statement)               \
  {                                            \
    const storage* s = p;                      \
    for (int64_t i = 0; i < n; i++) statement; \
    return;                                    \
  }
#define EACH_OUT(storage, statement)           \
  {                                            \
    storage* s = p;                            \
    for (int64_t i = 0; i < n; i++) statement; \
    return;                                    \
  }

void hy__load_row_f(hy_dtype dtype, const void* p, int64_t stride, int64_t n, double* row) {
  switch (dtype) {
    case HY_F32: EACH(float, row[i] = s[i * stride])
    case HY_F64: EACH(double, row[i] = s[i * stride])
    case HY_BOOL: EACH(uint8_t, row[i] = s[i * stride] != 0)
#define AS_CASE(type, storage, low, high) \
  case type: EACH(storage, row[i] = (double)s[i * stride])
      INTEGERS(AS_CASE)
#undef AS_CASE
#define AS_CASE(type, storage, format) \
  case type: EACH(storage, row[i] = decode(format, s[i * stride]))
      SMALL_FLOATS(AS_CASE)
#undef AS_CASE
    case HY_NONE:
    case HY_I4: return;
  }
}

void hy__load_row_i(hy_dtype dtype, const void* p, int64_t stride, int64_t n, int64_t* row) {
  switch (dtype) {
    case HY_F32: EACH(float, row[i] = to_integer(s[i * stride], INT64_MIN, INT64_MAX))
    case HY_F64: EACH(double, row[i] = to_integer(s[i * stride], INT64_MIN, INT64_MAX))
    case HY_BOOL: EACH(uint8_t, row[i] = s[i * stride] != 0)
#define AS_CASE(type, storage, low, high) \
  case type: EACH(storage, row[i] = s[i * stride])
      INTEGERS(AS_CASE)
#undef AS_CASE
#define AS_CASE(type, storage, format) \
  case type: EACH(storage, row[i] = to_integer(decode(format, s[i * stride]), INT64_MIN, INT64_MAX))
      SMALL_FLOATS(AS_CASE)
#undef AS_CASE
    case HY_NONE:
    case HY_I4: return;
  }
}

void hy__store_row_f(hy_dtype dtype, void* p, int64_t stride, int64_t n, const double* row) {
  switch (dtype) {
    case HY_F32: EACH_OUT(float, s[i * stride] = (float)row[i])
    case HY_F64: EACH_OUT(double, s[i * stride] = row[i])
    case HY_BOOL: EACH_OUT(uint8_t, s[i * stride] = row[i] != 0)
#define AS_CASE(type, storage, low, high) \
  case type: EACH_OUT(storage, s[i * stride] = (storage)to_integer(row[i], low, high))
      INTEGERS(AS_CASE)
#undef AS_CASE
#define AS_CASE(type, storage, format) \
  case type: EACH_OUT(storage, s[i * stride] = (storage)encode(format, (float)row[i]))
      SMALL_FLOATS(AS_CASE)
#undef AS_CASE
    case HY_NONE:
    case HY_I4: return;
  }
}

void hy__store_row_i(hy_dtype dtype, void* p, int64_t stride, int64_t n, const int64_t* row) {
  switch (dtype) {
    case HY_F32: EACH_OUT(float, s[i * stride] = (float)row[i])
    case HY_F64: EACH_OUT(double, s[i * stride] = (double)row[i])
    case HY_BOOL: EACH_OUT(uint8_t, s[i * stride] = row[i] != 0)
#define AS_CASE(type, storage, low, high) \
  case type: EACH_OUT(storage, s[i * stride] = (storage)row[i])
      INTEGERS(AS_CASE)
#undef AS_CASE
#define AS_CASE(type, storage, format) \
  case type: EACH_OUT(storage, s[i * stride] = (storage)encode(format, (float)row[i]))
      SMALL_FLOATS(AS_CASE)
#undef AS_CASE
    case HY_NONE:
    case HY_I4: return;
  }
}

double hy__load_f(hy_dtype dtype, const void* p) {
  double value = 0;
  if (dtype == HY_F32) return *(const float*)p;
  hy__load_row_f(dtype, p, 1, 1, &value);
  return value;
}

int64_t hy__load_i(hy_dtype dtype, const void* p) {
  int64_t value = 0;
  hy__load_row_i(dtype, p, 1, 1, &value);
  return value;
}

void hy__store_f(hy_dtype dtype, void* p, double value) {
  if (dtype == HY_F32)
    *(float*)p = (float)value;
  else
    hy__store_row_f(dtype, p, 1, 1, &value);
}

void hy__store_i(hy_dtype dtype, void* p, int64_t value) {
  hy__store_row_i(dtype, p, 1, 1, &value);
}

double hy__round_to(hy_dtype dtype, double value) {
  double stored[1], rounded = value;
  hy__store_row_f(dtype, stored, 1, 1, &value);
  hy__load_row_f(dtype, stored, 1, 1, &rounded);
  return rounded;
}
