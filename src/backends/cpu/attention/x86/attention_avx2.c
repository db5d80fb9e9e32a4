// Online softmax and weighted sum of attention in AVX2: vectors of eight floats.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include <math.h>

#include "backends/cpu/runtime/target.h"

HY__TARGET_AVX2

#include "backends/cpu/simd/vec_avx2.h"

enum { SUMS = 8 };

HY__INLINE vec load_wide(const char* p, hy_dtype dtype) {
  if (dtype == HY_F32) return load((const float*)p);
  __m128i half = _mm_loadu_si128((const __m128i*)p);
  if (dtype == HY_F16) return (vec)_mm256_cvtph_ps(half);
  return (vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
}

#define NAME(name) name##_avx2
#include "backends/cpu/attention/attention_tmpl.inc"

HY__TARGET_END
#endif
