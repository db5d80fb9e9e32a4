// Data types: names, layouts, and promotion by PyTorch's table.
#include <string.h>

#include "halyard/tensor.h"

hy_dtype hy_dtype_from_name(const char* name) {
  for (int i = 1; name && i < HY_DTYPE_COUNT; i++) {
    if (strcmp(hy_dtype_name((hy_dtype)i), name) == 0) return (hy_dtype)i;
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
