// Outputs of kernels that write contiguous memory only.
#ifndef HALYARD_BACKENDS_GPU_OPS_HELD_H_
#define HALYARD_BACKENDS_GPU_OPS_HELD_H_

#include "backends/gpu/gpu.h"

// The output itself where it is contiguous or absent, else memory of its shape for the kernel.
static inline hy_tensor hy__gpu_held(hy__gpu_task* task, const hy_tensor* out) {
  if (!hy__gpu_present(out) || hy_tensor_is_contiguous(out)) return *out;
  return hy__gpu_temporary(task, out->dtype, out->ndim, out->shape);
}

static inline void hy__gpu_finish(hy__gpu_task* task, const hy_tensor* out, const hy_tensor* held) {
  if (held->data != out->data) hy__gpu_copy(task, out, held);
}

// A paged cache that the kernel adds to: the output, which holds what the input does.
static inline hy_tensor hy__gpu_cache_begin(hy__gpu_task* task, const hy_tensor* in,
                                            const hy_tensor* out) {
  hy_tensor cache = hy__gpu_out_begin(task, out);
  if (cache.data != in->data) hy__gpu_copy(task, &cache, in);
  return cache;
}

#endif  // HALYARD_BACKENDS_GPU_OPS_HELD_H_
