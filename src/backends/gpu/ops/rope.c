// Rotary positions on a GPU.
#include "backends/gpu/gpu.h"

// The first elements of a tensor's pairs along its last dimension, and how far the second ones lie.
static hy_tensor pairs(const hy_tensor* t, bool interleaved, long long* partner) {
  hy_tensor view = *t;
  int last = t->ndim - 1;
  int64_t half = t->shape[last] / 2, stride = t->stride[last];
  view.shape[last] = half;
  view.stride[last] = interleaved ? 2 * stride : stride;
  *partner = interleaved ? stride : half * stride;
  return view;
}

hy_support hy__gpu_rope(hy__gpu_task* task, const hy_call* call) {
  bool interleaved = call->attrs.rope.interleaved;
  long long out_partner, x_partner;
  HY__GPU_NEED(call->in[0].layout == HY_LAYOUT_STRIDED, NO_LAYOUT);
  hy_tensor x = pairs(&call->in[0], interleaved, &x_partner);
  hy_tensor out = pairs(&call->out[0], interleaved, &out_partner);
  hy_gpu_walk w = hy__gpu_walk(&out, 4, (const hy_tensor*[]){&out, &x, &call->in[1], &call->in[2]});
  if (!task->stream || w.n == 0) return HY_SUPPORT_YES;
  int inverse = call->attrs.rope.inverse;
  hy__gpu_launch(task, hy__gpu_kernel(task, "rope", "rope", hy__gpu_option(x.dtype)),
                 hy__gpu_1d(hy__gpu_blocks(task, w.n, 256, 1)), hy__gpu_1d(256), 0,
                 HY__GPU_ARGS(&w, &out_partner, &x_partner, &inverse));
  return HY_SUPPORT_YES;
}
