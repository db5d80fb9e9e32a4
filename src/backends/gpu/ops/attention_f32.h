// FlashAttention of f32 in tiles, without tensor cores.
#ifndef HALYARD_BACKENDS_GPU_OPS_ATTENTION_F32_H_
#define HALYARD_BACKENDS_GPU_OPS_ATTENTION_F32_H_

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"

// Whether the sizes are worth it and fit into shared memory, for the gradient too where `backward`.
bool hy__gpu_attention_f32_takes(const hy__gpu_task* task, const hy_attention* a, bool backward);
void hy__gpu_attention_f32(hy__gpu_task* task, hy_attention* a);

// The gradient, a->delta being there; `by_query_head`: dk and dv are summed by query head first.
void hy__gpu_attention_f32_backward(hy__gpu_task* task, hy_attention* a, bool by_query_head);

#endif  // HALYARD_BACKENDS_GPU_OPS_ATTENTION_F32_H_
