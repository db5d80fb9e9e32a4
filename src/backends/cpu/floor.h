// What the processor can do at most, measured: the floors that benchmarks compare with.
#ifndef HALYARD_CPU_FLOOR_H_
#define HALYARD_CPU_FLOOR_H_

#include <stddef.h>

// Each takes some milliseconds and gives one sample; the best of several counts. They use the pool
// with as many threads as it has.
double hy__floor_flops(void);                             // float32 multiply-adds, two flops each
double hy__floor_read(const void* memory, size_t bytes);  // bytes a second
double hy__floor_copy(void* to, const void* from, size_t bytes);  // read and written

#endif  // HALYARD_CPU_FLOOR_H_
