// Ops that no provider has, made of ops that one has, on the same device. hy_run tries this between
// the providers and the reference, and placement calls it by the planner's name.
#ifndef HALYARD_OPS_COMPOSE_H_
#define HALYARD_OPS_COMPOSE_H_

#include "ops/internal.h"

#define HY__COMPOSITE "opt_einsum"

const char* hy__composite_name(hy_op op);  // who takes apart what is taken apart of that op
// Whether calls of the op with that type are taken apart on the device, if they are large enough.
bool hy__composes_op(hy_device* device, hy_op op, hy_dtype dtype);
// Whether this call, which no provider takes, would be taken apart.
bool hy__composes(hy_device* device, const hy_call* call);
// Runs a checked call by taking it apart where that is possible and worth it; otherwise nothing is
// done and *composed is false.
hy_status hy__compose(hy_stream* stream, const hy_call* call, bool* composed);

#endif  // HALYARD_OPS_COMPOSE_H_
