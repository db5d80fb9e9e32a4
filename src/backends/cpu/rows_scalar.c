// Rows in plain C, with whatever the compiler makes of it.
#include "backends/cpu/rows.h"

#include "backends/cpu/half.h"
#include "backends/cpu/target.h"

#define NAME(name) name##_scalar
#if defined(__aarch64__)
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif
#define SQRT(x) __builtin_sqrtf(x)
#include "backends/cpu/rows_body.inc"
