// Row kernels in AVX-512: vectors of sixteen floats.
#include "backends/cpu/rows/rows.h"

#if defined(__x86_64__)
#include <math.h>

#include "backends/cpu/runtime/target.h"

HY__TARGET_AVX512

#include "backends/cpu/simd/vec_avx512.h"
#define NAME(name) name##_avx512
#include "backends/cpu/rows/rows_tmpl.inc"

HY__TARGET_END
#endif
