// Tensors of attention as kernels take them: one batch dimension, heads, rows with stride 1 inside.
#ifndef HALYARD_BACKENDS_GPU_OPS_HEADS_H_
#define HALYARD_BACKENDS_GPU_OPS_HEADS_H_

#include "backends/gpu/gpu.h"

// All dimensions but the last `keep` as one, whose stride is returned; -1 where they do not merge.
// None, or one of size 1, has the stride 0.
static inline int64_t hy__gpu_batch_stride(const hy_tensor* t, int keep, int64_t* count) {
  int64_t stride = 0;
  *count = 1;
  for (int d = t->ndim - keep - 1; d >= 0; d--) {
    if (t->shape[d] == 1) continue;
    if (*count == 1)
      stride = t->stride[d];
    else if (t->stride[d] != stride * *count)
      return -1;
    *count *= t->shape[d];
  }
  return stride;
}

// Tensor cores want rows that begin at multiples of 16 bytes.
static inline bool hy__gpu_rows_aligned(const hy_tensor* t) {
  int64_t each = 16 / (int64_t)hy_dtype_size(t->dtype);
  if ((uintptr_t)t->data % 16 != 0) return false;
  for (int d = 0; d < t->ndim - 1; d++)
    if (t->shape[d] > 1 && t->stride[d] % each != 0) return false;
  return true;
}

// Memory for a tensor of t's shape whose rows are padded to 16 bytes.
static inline hy_tensor hy__gpu_padded(hy__gpu_task* task, const hy_tensor* t) {
  int64_t shape[HY_MAX_DIMS], each = 16 / (int64_t)hy_dtype_size(t->dtype);
  int last = t->ndim - 1;
  for (int d = 0; d < last; d++) shape[d] = t->shape[d];
  shape[last] = (t->shape[last] + each - 1) / each * each;
  hy_tensor padded = hy__gpu_temporary(task, t->dtype, t->ndim, shape);
  padded.shape[last] = t->shape[last];
  return padded;
}

#endif  // HALYARD_BACKENDS_GPU_OPS_HEADS_H_
