// Peak FLOP/s and bandwidth of the processor, measured: the roofline that benchmarks compare with.
#ifndef HALYARD_CPU_PEAK_H_
#define HALYARD_CPU_PEAK_H_

#include "halyard/plugin.h"

// The backend's peak function. Uses the thread pool with as many threads as it has, and the widest
// instructions there are: of f32, of bf16 summed in f32, of i8 summed in i32.
hy_status hy__cpu_peak(void* device, hy_peak kind, hy_dtype dtype, void* dst, const void* src,
                       size_t bytes, double* per_second);

#endif  // HALYARD_CPU_PEAK_H_
