// Decoding quantised weights in plain C.
#include <math.h>

#include "backends/cpu/half.h"
#include "backends/cpu/kernels.h"

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

void hy__decode_scalar(const hy__quantized* w, int64_t row, int64_t first, int64_t count,
                       float* out) {
  const unsigned char* data = w->data + row * w->row;
  const float* scale = w->scale + row * w->scale_row;
  for (int64_t i = 0; i < count; i++)
    out[i] = element(w, data, first + i) * scale[(first + i) / w->group];
}
