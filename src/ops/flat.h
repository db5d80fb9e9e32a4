// Flat forms: elementwise ops with two inputs on a chip that has them for tensors of one shape and
// without a factor alone (HY_FLAT_ONLY). Broadcasts are spread by copies on the device, alpha is
// multiplied.
#ifndef HALYARD_OPS_FLAT_H_
#define HALYARD_OPS_FLAT_H_

#include "ops/internal.h"

#define HY__FLAT "flat"

// Whether the call has contiguous tensors of one shape and type, and no factor.
bool hy__is_flat(const hy_call* call);
// Whether this call, which no provider takes, can be made of calls that one takes.
bool hy__flat_composes(hy_device* device, const hy_call* call);
// Makes it of them.
hy_status hy__flat_run(hy_stream* stream, const hy_call* call);

#endif  // HALYARD_OPS_FLAT_H_
