// Vectors of eight floats, in AVX2 with FMA.
#include <immintrin.h>

#define WIDTH_OF_VEC 8
#define FUSED_MULTIPLY_ADD(a, b, c) ((vec)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define LARGER_OF(a, b) ((vec)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define SMALLER_OF(a, b) ((vec)_mm256_min_ps((__m256)(a), (__m256)(b)))
#include "backends/cpu/simd/vec_generic.h"
