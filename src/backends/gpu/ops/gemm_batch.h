// Skinny GEMM with an epilogue for batches of up to 64 rows; see gemm_batch.cu.
#ifndef HALYARD_BACKENDS_GPU_OPS_GEMM_BATCH_H_
#define HALYARD_BACKENDS_GPU_OPS_GEMM_BATCH_H_

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"

// Runs it for x of type `x` and a weight of type `w` that is row behind row, and fills the fields
// of split-K; false where it does not take them: no tensor cores, a norm, more than 64 rows, types,
// groups, k that is no multiple of 128, addresses that are no multiples of 16.
bool hy__gpu_gemm_batch(hy__gpu_task* task, hy_fused_linear* p, hy_dtype x, hy_dtype w);

#endif  // HALYARD_BACKENDS_GPU_OPS_GEMM_BATCH_H_
