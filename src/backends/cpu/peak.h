// Peak FLOP/s and bandwidth of the processor, measured: the roofline that benchmarks compare with.
#ifndef HALYARD_CPU_PEAK_H_
#define HALYARD_CPU_PEAK_H_

#include "halyard/tensor.h"

// Each takes some milliseconds and gives one sample; the best of several counts. They use the pool
// with as many threads as it has.
//
// Operations a second of multiply-adds, two each: of f32, of bf16 summed in f32, or of i8 summed in
// i32, by the widest instructions there are for them.
double hy__peak_multiply_add(hy_dtype dtype);
double hy__peak_read(const void* memory, size_t bytes);          // bytes a second
double hy__peak_copy(void* to, const void* from, size_t bytes);  // read and written

#endif  // HALYARD_CPU_PEAK_H_
