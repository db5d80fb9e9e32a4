// Working memory of reference kernels.
#ifndef HALYARD_REFERENCE_SCRATCH_H_
#define HALYARD_REFERENCE_SCRATCH_H_

#include "core/internal.h"
#include "ops/internal.h"

// Room for rows * columns numbers of 8 bytes, given back with hy__mfree. NULL when there is none:
// the message is set, and the kernel returns HY_OUT_OF_MEMORY.
void* hy__scratch(const hy_call* call, int64_t rows, int64_t columns);
// The same, all zero.
void* hy__scratch_zero(const hy_call* call, int64_t rows, int64_t columns);
// The elements of t in row-major order, as doubles; NULL as above.
double* hy__scratch_of(const hy_call* call, const hy_tensor* t);

#endif  // HALYARD_REFERENCE_SCRATCH_H_
