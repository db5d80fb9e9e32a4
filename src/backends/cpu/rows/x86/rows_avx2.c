// Row kernels in AVX2: vectors of eight floats.
#include "backends/cpu/rows/rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>

#include "backends/cpu/runtime/target.h"

HY__TARGET_AVX2

#define WIDTH_OF_VEC 8
#define FUSED_MULTIPLY_ADD(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#include "backends/cpu/simd/vec_generic.h"
#define NAME(name) name##_avx2
#include "backends/cpu/rows/rows_tmpl.inc"

HY__TARGET_END
#endif
