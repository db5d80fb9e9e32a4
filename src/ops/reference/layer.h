// Linear layers whose weight is stored in some form of its own.
#ifndef HALYARD_REFERENCE_LAYER_H_
#define HALYARD_REFERENCE_LAYER_H_

#include "ops/internal.h"

// The call's output is its first input [..., K] times the transpose of a weight [N, K], plus the
// bias [N] where present; `weight_row` fills row `row` of the weight.
hy_status hy__layer(const hy_call* call, const hy_tensor* bias,
                    void (*weight_row)(const hy_call* call, int64_t row, double* values));

#endif  // HALYARD_REFERENCE_LAYER_H_
