// Weight prefetch: waiting threads read ahead into the weights of the next GEMV.
//
// A model that makes a token multiplies by the same weights in the same order each time, and
// between two GEMVs come calls of microseconds that leave the memory idle. Each GEMV notes here
// what it reads; what followed it the last time is what the pool's threads prefetch while they
// wait. A wrong guess costs some reads, never a result.
#ifndef HALYARD_CPU_RUNTIME_WEIGHT_PREFETCH_H_
#define HALYARD_CPU_RUNTIME_WEIGHT_PREFETCH_H_

#include "backends/cpu/runtime/thread_pool.h"

// What the calling thread's next run of the pool will read.
void hy__weight_prefetch(const hy__prefetch_range* reading);

#endif  // HALYARD_CPU_RUNTIME_WEIGHT_PREFETCH_H_
