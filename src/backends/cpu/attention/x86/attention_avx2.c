// Online softmax and weighted sum of attention in AVX2: vectors of eight floats.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include <math.h>

#include "backends/cpu/simd/avx2.h"

HY__TARGET_AVX2

#include "backends/cpu/simd/vec_avx2.h"

enum { SUMS = 8 };

HY__INLINE vec load_wide(const char* p, hy_dtype dtype) {
  return (vec)hy__load8(p, dtype);
}

#define NAME(name) name##_avx2
#include "backends/cpu/attention/attention_tmpl.inc"

HY__TARGET_END
#endif
