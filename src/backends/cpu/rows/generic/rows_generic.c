// Row kernels for every processor: compiler vectors of four floats.
#include "backends/cpu/rows/rows.h"

#include <math.h>

#define WIDTH_OF_VEC 4
#include "backends/cpu/simd/vec_generic.h"
#define NAME(name) name##_generic
#include "backends/cpu/rows/rows_tmpl.inc"
