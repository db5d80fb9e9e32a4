// GEMM by TMA and wgmma on Hopper; see gemm_wgmma.cu.
#ifndef HALYARD_BACKENDS_GPU_OPS_GEMM_WGMMA_H_
#define HALYARD_BACKENDS_GPU_OPS_GEMM_WGMMA_H_

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"

// False, and nothing done, where the device, the types or the sizes are not for it. Operands are as
// gemm_mma.cu takes them; a_k and b_k say whether along k.
bool hy__gpu_wgmma(hy__gpu_task* task, const hy_gemm* g, hy_dtype dtype, bool a_k, bool b_k);

#endif  // HALYARD_BACKENDS_GPU_OPS_GEMM_WGMMA_H_
