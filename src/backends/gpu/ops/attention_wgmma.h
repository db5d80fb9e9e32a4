// FlashAttention forward by TMA and wgmma on Hopper; see attention_wgmma.cu.
#ifndef HALYARD_BACKENDS_GPU_OPS_ATTENTION_WGMMA_H_
#define HALYARD_BACKENDS_GPU_OPS_ATTENTION_WGMMA_H_

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"

// False, and nothing done, where the device, the types or the sizes are not for it.
bool hy__gpu_attention_wgmma(hy__gpu_task* task, const hy_attention* a, hy_dtype dtype);

#endif  // HALYARD_BACKENDS_GPU_OPS_ATTENTION_WGMMA_H_
