// Rotary positions on a GPU.
#include <string.h>

#include "backends/gpu/gpu.h"

// The first elements of a tensor's pairs along its last dimension, and how far the second ones are.
static hy_tensor pairs(const hy_tensor* t, bool interleaved, long long* partner) {
  hy_tensor view = *t;
  int last = t->ndim - 1;
  int64_t half = t->shape[last] / 2, stride = t->stride[last];
  view.shape[last] = half;
  view.stride[last] = interleaved ? 2 * stride : stride;
  *partner = interleaved ? stride : half * stride;
  return view;
}

// Vectors of `n` along the last dimension in place of elements; false where the tensor is not made
// of whole ones, aligned to 16 bytes.
static bool in_vectors(hy_tensor* t, int64_t n) {
  int last = t->ndim - 1;
  if (t->stride[last] != 1 || t->shape[last] % n != 0 || (uintptr_t)t->data % 16 != 0) return false;
  for (int d = 0; d < last; d++) {
    if (t->shape[d] > 1 && t->stride[d] % n != 0) return false;
  }
  t->shape[last] /= n;
  t->stride[last] = n;
  return true;
}

hy_support hy__gpu_rope(hy__gpu_task* task, const hy_call* call) {
  bool interleaved = call->attrs.rope.interleaved;
  long long out_partner, x_partner;
  HY__GPU_NEED(call->in[0].layout == HY_LAYOUT_STRIDED, NO_LAYOUT);
  hy_tensor x = pairs(&call->in[0], interleaved, &x_partner);
  hy_tensor out = pairs(&call->out[0], interleaved, &out_partner);
  if (!task->stream || hy_tensor_numel(&out) == 0) return HY_SUPPORT_YES;
  int64_t n = 16 / (int64_t)hy_dtype_size(x.dtype);
  hy_tensor vectors[4] = {out, x, call->in[1], call->in[2]};
  bool wide = !interleaved;
  for (int i = 2; i < 4; i++)
    wide = wide && (vectors[i].dtype == HY_F32 || vectors[i].dtype == x.dtype);
  for (int i = 0; i < 4; i++) wide = wide && in_vectors(&vectors[i], n);
  if (!wide) memcpy(vectors, (hy_tensor[]){out, x, call->in[1], call->in[2]}, sizeof vectors);
  const hy_tensor* all[] = {&vectors[0], &vectors[1], &vectors[2], &vectors[3]};
  hy_gpu_walk w = hy__gpu_walk(&vectors[0], 4, all);
  int inverse = call->attrs.rope.inverse;
  hy__gpu_launch(
      task, hy__gpu_kernel(task, "rope", wide ? "rope_vectors" : "rope", hy__gpu_option(x.dtype)),
      hy__gpu_1d(hy__gpu_blocks(task, w.n, 256, 1)), hy__gpu_1d(256), 0,
      HY__GPU_ARGS(&w, &out_partner, &x_partner, &inverse));
  return HY_SUPPORT_YES;
}
