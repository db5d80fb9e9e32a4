// Online softmax and weighted sum of attention in NEON: vectors of four floats.
#include "backends/cpu/family.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <math.h>

#define WIDTH_OF_VEC 4
#define FUSED_MULTIPLY_ADD(a, b, c) \
  ((vec)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#include "backends/cpu/simd/vec_generic.h"

enum { SUMS = 16 };

HY__INLINE vec load_wide(const char* p, hy_dtype dtype) {
  if (dtype == HY_F32) return load((const float*)p);
  uint16x4_t half = vld1_u16((const uint16_t*)p);
  if (dtype == HY_F16) return (vec)vcvt_f32_f16(vreinterpret_f16_u16(half));
  return (vec)vshll_n_u16(half, 16);
}

#define NAME(name) name##_neon
#include "backends/cpu/attention/attention_tmpl.inc"
#endif
