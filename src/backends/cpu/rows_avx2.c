// Rows in AVX2.
#include "backends/cpu/rows.h"

#if defined(__x86_64__)
#include "backends/cpu/half.h"
#include "backends/cpu/target.h"

HY__TARGET_AVX2

#define NAME(name) name##_avx2
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#define SQRT(x) __builtin_sqrtf(x)
#include "backends/cpu/rows_body.inc"

HY__TARGET_END
#endif
