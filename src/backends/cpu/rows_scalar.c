// Rows for every processor.
#include "backends/cpu/rows.h"

#include <math.h>

#define WIDTH_OF_VEC 4
#include "backends/cpu/vec_lanes.h"
#define NAME(name) name##_scalar
#include "backends/cpu/rows_body.inc"
