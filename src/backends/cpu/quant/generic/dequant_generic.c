// Dequantising and quantising in plain C.
#include <math.h>

#include "backends/cpu/family.h"
#include "backends/cpu/simd/half.h"

// 1 sign, 4 exponent (bias 7) and 3 fraction bits; no infinities, NaN is all ones.
static float from_e4m3(unsigned char b) {
  int exponent = b >> 3 & 15, fraction = b & 7;
  float value =
      (b & 0x7f) == 0x7f ? NAN
      : exponent == 0
          ? (float)fraction * 0x1p-9f
          : hy__bits_to_float((uint32_t)(exponent + 120) << 23 | (uint32_t)fraction << 20);
  return b & 0x80 ? -value : value;
}

static float element(const hy__quantized* w, const unsigned char* row, int64_t i) {
  switch (w->dtype) {
    case HY_I8: return (float)(signed char)row[i];
    case HY_F8E4M3: return from_e4m3(row[i]);
    case HY_F8E5M2: return hy__from_f16((uint16_t)(row[i] << 8));
    default: {
      int nibble = row[i / 2] >> (i % 2 * 4) & 15;
      return (float)(nibble < 8 ? nibble : nibble - 16);
    }
  }
}

float hy__quantize_generic(int64_t n, const void* x, hy_dtype from, hy_dtype to, void* q) {
  const char* at = x;
  int64_t size = from == HY_F32 ? 4 : 2;
  float largest = 0, limit = to == HY_I8 ? 127 : 7;
  bool has_nan = false;
  for (int64_t i = 0; i < n; i++) {
    float value = fabsf(hy__load1(at + i * size, from));
    has_nan = has_nan || isnan(value);
    if (value > largest) largest = value;
  }
  float scale = (has_nan ? NAN : largest) / limit;
  if (scale == 0) scale = 1;
  signed char* bytes = q;
  for (int64_t i = 0; i < n; i++) {
    float value = isfinite(scale) ? rintf(hy__load1(at + i * size, from) / scale) : 0;
    int number = (int)fminf(fmaxf(value, -limit), limit);
    if (to == HY_I8)
      bytes[i] = (signed char)number;
    else if (i % 2 == 0)
      bytes[i / 2] = (signed char)(number & 15);
    else
      bytes[i / 2] = (signed char)((bytes[i / 2] & 15) | (number & 15) << 4);
  }
  return scale;
}

void hy__dequantize_generic(const hy__quantized* w, int64_t row, int64_t first, int64_t count,
                            float* out) {
  const unsigned char* data = w->data + row * w->row;
  const float* scale = w->scale + row * w->scale_row;
  for (int64_t i = 0; i < count; i++)
    out[i] = element(w, data, first + i) * scale[(first + i) / w->group];
}
