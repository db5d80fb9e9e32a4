// cat and stack on a GPU: copies into slices of the output.
#include "backends/gpu/gpu.h"
#include "backends/gpu/rules.h"

hy_support hy__gpu_join(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  for (int i = 0; i < call->n_in; i++)
    HY__GPU_NEED(call->in[i].layout == HY_LAYOUT_STRIDED, NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  int dim = hy__gpu_wrap_dim(call->attrs.dim.dim, out->ndim);
  int64_t at = 0;
  for (int i = 0; i < call->n_in && task->status == HY_OK; i++) {
    const hy_tensor* t = &call->in[i];
    hy_tensor slice;
    if (call->op == HY_OP_stack) {
      task->status = hy_select(&slice, out, dim, i);
    } else {
      if (t->ndim == 1 && t->shape[0] == 0) continue;  // whatever the others' shapes
      task->status = hy_slice(&slice, out, dim, at, at + t->shape[dim], 1);
      at += t->shape[dim];
    }
    hy__gpu_copy(task, &slice, t);
  }
  return HY_SUPPORT_YES;
}
