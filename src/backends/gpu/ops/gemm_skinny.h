// Skinny GEMM: few rows of x against a weight [n, k] that streams from memory; see gemm_skinny.cu.
#ifndef HALYARD_BACKENDS_GPU_OPS_GEMM_SKINNY_H_
#define HALYARD_BACKENDS_GPU_OPS_GEMM_SKINNY_H_

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"

// Whether x of type `x` (f16, bf16) and a weight of type `q` lie as the kernel takes them: lines at
// multiples of 16 bytes, groups of a power of 2 from 32 on or one for a row.
bool hy__gpu_skinny_takes(const hy_quantized_linear* p, hy_dtype x, hy_dtype q);
// Runs it; the fields of split-K are filled here.
void hy__gpu_skinny(hy__gpu_task* task, hy_quantized_linear* p, hy_dtype x, hy_dtype q);

#endif  // HALYARD_BACKENDS_GPU_OPS_GEMM_SKINNY_H_
