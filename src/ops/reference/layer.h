// Linear layers whose weight is stored in some form of its own.
#ifndef HALYARD_REFERENCE_LAYER_H_
#define HALYARD_REFERENCE_LAYER_H_

#include "ops/internal.h"

// Fills row `row` of what the call stores in a form of its own.
typedef void hy__fill_row(const hy_call* call, int64_t row, double* values);

// The call's output is its first input [..., K] times the transpose of a weight [N, K], plus the
// bias [N] where present. `x_row` is NULL where the input is plain numbers.
hy_status hy__layer(const hy_call* call, const hy_tensor* bias, hy__fill_row* x_row,
                    hy__fill_row* weight_row);

#endif  // HALYARD_REFERENCE_LAYER_H_
