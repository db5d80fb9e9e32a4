// Running on the host what a device lacks, in view of the user.
#ifndef HALYARD_OPS_FALLBACK_H_
#define HALYARD_OPS_FALLBACK_H_

#include "ops/internal.h"

// Stages a checked call's tensors through host memory, runs the reference, copies the outputs back,
// and counts it under `reason`. Finished on return. In strict mode it fails instead.
hy_status hy__fall_back(hy_stream* stream, const hy_call* call, hy_support reason);
// Frees the report; part of hy_shutdown.
void hy__fallback_shutdown(void);

#endif  // HALYARD_OPS_FALLBACK_H_
