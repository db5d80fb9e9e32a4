// How far a result may be from the reference's.
#ifndef HALYARD_VERIFY_TOLERANCE_H_
#define HALYARD_VERIFY_TOLERANCE_H_

#include "verify/case.h"

// A value `got` passes when |got - want| <= relative * |want| + absolute; for integers and bool
// both are whole steps of the type.
typedef struct hy__tolerance {
  double relative, absolute;
} hy__tolerance;

// For output `output` of the case.
hy__tolerance hy__tolerance_of(const hy__case* c, int output);
// For a gradient of that type.
hy__tolerance hy__gradient_tolerance(const hy__case* c, hy_dtype dtype);

#endif  // HALYARD_VERIFY_TOLERANCE_H_
