// FlashAttention by TMA and wgmma, of f16 and bf16 without a mask; false where the device has
// neither or the shape is not worth it.
#ifndef HALYARD_BACKENDS_GPU_OPS_ATTENTION_WGMMA_H_
#define HALYARD_BACKENDS_GPU_OPS_ATTENTION_WGMMA_H_

#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/tensor_map.h"

bool hy__gpu_attention_wgmma(hy__gpu_task* task, const hy_attention* a, hy_dtype dtype);

// The gradient: `begin` computes what both kernels need, into a workspace; `key` is dk and dv, or
// their parts where there is a->partial, `query` is dq.
typedef struct hy__gpu_backward_wgmma {
  hy__gpu_tensor_map q, k, v, dout;
  char options[64];
  size_t shared;
  uint64_t stats;
} hy__gpu_backward_wgmma;
bool hy__gpu_backward_wgmma_begin(hy__gpu_task* task, hy_attention* a, hy_dtype dtype,
                                  hy__gpu_backward_wgmma* b);
void hy__gpu_backward_wgmma_key(hy__gpu_task* task, hy_attention* a, hy__gpu_backward_wgmma* b);
void hy__gpu_backward_wgmma_query(hy__gpu_task* task, hy_attention* a, hy__gpu_backward_wgmma* b);

#endif  // HALYARD_BACKENDS_GPU_OPS_ATTENTION_WGMMA_H_
