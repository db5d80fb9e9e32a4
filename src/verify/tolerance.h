// How far a result may be from the reference's.
#ifndef HALYARD_VERIFY_TOLERANCE_H_
#define HALYARD_VERIFY_TOLERANCE_H_

#include "verify/case.h"

// A value `got` passes when |got - want| <= relative * |want| + absolute + of_terms * (the size of
// the terms of that element); for integers and bool `absolute` is whole steps of the type.
typedef struct hy__tolerance {
  double relative, absolute, of_terms;
  bool signed_zero;  // 0 and -0 are two values
} hy__tolerance;

// Whether the terms of each element of the case's output are known: elementwise ops that add.
bool hy__knows_terms(const hy__case* c);
// The size of the largest term, `in` being the inputs at that element.
double hy__size_of_terms(const hy__case* c, const double* in);

// For output `output` of the case.
hy__tolerance hy__tolerance_of(const hy__case* c, int output);
// For a gradient of that type.
hy__tolerance hy__gradient_tolerance(const hy__case* c, int input);

#endif  // HALYARD_VERIFY_TOLERANCE_H_
