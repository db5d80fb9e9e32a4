// Elementwise kernels: operands loaded in the type the op computes in, which PyTorch calls the
// common type.
#ifndef HALYARD_REFERENCE_OPERAND_H_
#define HALYARD_REFERENCE_OPERAND_H_

#include "ops/internal.h"
#include "ops/reference/element.h"
#include "ops/reference/walk.h"

// Row k of the walk, whose tensor has type `from`, as values of the type `as`.
void hy__operand_f(const hy__walk* w, int k, hy_dtype from, hy_dtype as, double* row);
void hy__operand_i(const hy__walk* w, int k, hy_dtype from, int64_t* row);
// A number as the op computes with it: in f32 unless the type is f64.
double hy__number_f(hy_scalar s, hy_dtype as);

#endif  // HALYARD_REFERENCE_OPERAND_H_
