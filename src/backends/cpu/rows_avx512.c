// Rows in AVX-512.
#include "backends/cpu/rows.h"

#if defined(__x86_64__)
#include <math.h>

#include "backends/cpu/target.h"

HY__TARGET_AVX512

#include "backends/cpu/vec_avx512.h"
#define NAME(name) name##_avx512
#include "backends/cpu/rows_body.inc"

HY__TARGET_END
#endif
