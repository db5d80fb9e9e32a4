// Elementwise kernels: operands loaded in the type the op computes in, which PyTorch calls the
// common type.
#ifndef HALYARD_REFERENCE_OPERAND_H_
#define HALYARD_REFERENCE_OPERAND_H_

#include "ops/internal.h"
#include "ops/reference/element.h"
#include "ops/reference/walk.h"

// Row k of the walk, whose tensor has type `from`, as values of the type `as`. Where that is
// narrower, as it may be beside a 0-dimensional tensor, floats round and integers wrap.
void hy__operand_f(const hy__walk* w, int k, hy_dtype from, hy_dtype as, double* row);
void hy__operand_i(const hy__walk* w, int k, hy_dtype from, hy_dtype as, int64_t* row);
// A number as the op computes with it: in f32 unless the type is f64; an integer as the type's own,
// where -1 in u8 is 255.
double hy__number_f(hy_scalar s, hy_dtype as);
int64_t hy__number_i(hy_scalar s, hy_dtype as);
// Stores a row of results at row 0 of the walk. An output of another type than the op's takes the
// value that an output of the op's own type would have held.
void hy__result_f(const hy__walk* w, hy_dtype as, hy_dtype to, double* row);
void hy__result_i(const hy__walk* w, hy_dtype as, hy_dtype to, int64_t* row);

#endif  // HALYARD_REFERENCE_OPERAND_H_
