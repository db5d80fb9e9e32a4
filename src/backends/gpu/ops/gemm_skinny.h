// Skinny GEMM: few rows of x against a weight [n, k] that streams from memory; see gemm_skinny.cu
// and gemm_skinny_int8.cu.
#ifndef HALYARD_BACKENDS_GPU_OPS_GEMM_SKINNY_H_
#define HALYARD_BACKENDS_GPU_OPS_GEMM_SKINNY_H_

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"

// Whether x of type `x` and a weight of type `q` are as a kernel takes them: lines at multiples of
// 16 bytes; x of halves, and groups of a power of 2 from 32 on or one for a row; or x of bytes, the
// weight of bytes or nibbles, and groups of multiples of 32 or one for a row.
bool hy__gpu_skinny_takes(const hy_quantized_linear* p, hy_dtype x, hy_dtype q);
// Runs it, with a result of type `out`; the fields of split-K are filled here.
void hy__gpu_skinny(hy__gpu_task* task, hy_quantized_linear* p, hy_dtype x, hy_dtype q,
                    hy_dtype out);

#endif  // HALYARD_BACKENDS_GPU_OPS_GEMM_SKINNY_H_
