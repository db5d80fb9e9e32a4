// Einsum taken apart into products of two operands, on the stream's own device.
#ifndef HALYARD_OPS_EINSUM_RUN_H_
#define HALYARD_OPS_EINSUM_RUN_H_

#include "ops/einsum_plan.h"

// Runs a checked call by bmm, mul, sum and copy, in the plan's order. Results between the steps are
// rounded to the operands' type. No term of the plan may have more than
// HY_MAX_DIMS labels.
hy_status hy__einsum_run(hy_stream* stream, const hy_call* call, const hy__einsum* e,
                         const hy__einsum_plan* plan);

#endif  // HALYARD_OPS_EINSUM_RUN_H_
