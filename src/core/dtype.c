// Data types: names, sizes and promotion.
#include <string.h>

#include "halyard/call.h"

typedef struct dtype_row {
  const char* name;
  int bits;
} dtype_row;

static const dtype_row rows[HY_DTYPE_COUNT] = {
#define HY_AS_ROW(name, value, text, bits) [value] = {text, bits},
    HY_DTYPE_MAP(HY_AS_ROW)
#undef HY_AS_ROW
};

static bool is_known(hy_dtype dtype) {
  return (unsigned)dtype < HY_DTYPE_COUNT;
}

const char* hy_dtype_name(hy_dtype dtype) {
  return is_known(dtype) ? rows[dtype].name : "?";
}

hy_dtype hy_dtype_from_name(const char* name) {
  for (int i = 1; name && i < HY_DTYPE_COUNT; i++) {
    if (strcmp(rows[i].name, name) == 0) return (hy_dtype)i;
  }
  return HY_NONE;
}

const char* hy_layout_name(hy_layout layout) {
  switch (layout) {
#define HY_AS_CASE(name, value, text) \
  case HY_LAYOUT_##name: return text;
    HY_LAYOUT_MAP(HY_AS_CASE)
#undef HY_AS_CASE
  }
  return "?";
}

int hy_dtype_bits(hy_dtype dtype) {
  return is_known(dtype) ? rows[dtype].bits : 0;
}

size_t hy_dtype_size(hy_dtype dtype) {
  return (size_t)hy_dtype_bits(dtype) / 8;
}

bool hy_dtype_is_float(hy_dtype dtype) {
  return is_known(dtype) && (HY_DTYPE_BIT(dtype) & (HY_FLOATS | HY_FLOAT8S));
}

bool hy_dtype_is_int(hy_dtype dtype) {
  return is_known(dtype) && (HY_DTYPE_BIT(dtype) & HY_INTS);
}

hy_dtype hy_promote_dtypes(hy_dtype a, hy_dtype b) {
  if (a == b) return a;
  if (a == HY_NONE) return b;
  if (b == HY_NONE) return a;
  bool a_float = hy_dtype_is_float(a), b_float = hy_dtype_is_float(b);
  if (a_float != b_float) return a_float ? a : b;
  int a_bits = hy_dtype_bits(a), b_bits = hy_dtype_bits(b);
  if (a_float) {
    if (a_bits != b_bits) return a_bits > b_bits ? a : b;
    return HY_F32;  // two different types of one width have no common one but a wider
  }
  if (a == HY_BOOL) return b;
  if (b == HY_BOOL) return a;
  if (a_bits != b_bits) return a_bits > b_bits ? a : b;
  return HY_I16;  // i8 with u8
}

int64_t hy_scalar_i(hy_scalar s) {
  if (s.kind != HY_F64) return s.as.i;
  if (s.as.f != s.as.f) return 0;
  if (s.as.f >= 0x1p63) return INT64_MAX;
  if (s.as.f < -0x1p63) return INT64_MIN;
  return (int64_t)s.as.f;
}
