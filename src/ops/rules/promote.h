// Which type an op computes in: PyTorch's promotion over tensors and numbers.
#ifndef HALYARD_RULES_PROMOTE_H_
#define HALYARD_RULES_PROMOTE_H_

#include "ops/internal.h"

// Tensors with dimensions decide; 0-dimensional ones, then numbers, only raise the category (bool <
// int < float).
hy_dtype hy__promote_tensors(const hy_tensor* tensors, int n);
// The type of `dtype` with a number of that kind: an int tensor and a float number give f32.
hy_dtype hy__promote_scalar(hy_dtype dtype, hy_scalar s);
// f32 for integers and bool, the type itself for floats.
hy_dtype hy__to_float(hy_dtype dtype);
// The type in which an elementwise call computes, before comparison makes bool of it.
hy_dtype hy__compute_dtype(const hy_call* call);
// Whether a result of type `from` may be stored in an output of type `to` without changing its
// category.
bool hy__can_cast(hy_dtype from, hy_dtype to);

#endif  // HALYARD_RULES_PROMOTE_H_
