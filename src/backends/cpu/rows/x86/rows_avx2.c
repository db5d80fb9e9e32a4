// Row kernels in AVX2: vectors of eight floats.
#include "backends/cpu/rows/rows.h"

#if defined(__x86_64__)
#include <math.h>

#include "backends/cpu/runtime/target.h"

HY__TARGET_AVX2

#include "backends/cpu/simd/vec_avx2.h"
#define NAME(name) name##_avx2
#include "backends/cpu/rows/rows_tmpl.inc"

HY__TARGET_END
#endif
