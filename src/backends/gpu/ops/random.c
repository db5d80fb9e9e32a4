// Random numbers on a GPU: those of the reference.
#include "backends/gpu/gpu.h"

enum { THREADS = 256 };

hy_support hy__gpu_random(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* t = &call->out[0];
  HY__GPU_NEED(t->layout == HY_LAYOUT_STRIDED, NO_LAYOUT);
  long long n = hy_tensor_numel(t);
  if (!task->stream || n == 0) return HY_SUPPORT_YES;
  hy_gpu_view out = hy__gpu_view(t);
  hy_attrs_random a = call->attrs.random;
  int op = (int)call->op;
  hy__gpu_launch(task, hy__gpu_kernel(task, "random", "random_fill", ""),
                 hy__gpu_1d(hy__gpu_blocks(task, n, THREADS, 4)), hy__gpu_1d(THREADS), 0,
                 HY__GPU_ARGS(&out, &n, &op, &a.seed, &a.offset, &a.a, &a.b));
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_dropout(hy__gpu_task* task, const hy_call* call) {
  long long n = hy_tensor_numel(&call->out[0]);
  if (!task->stream || n == 0) return HY_SUPPORT_YES;
  hy_gpu_view x = hy__gpu_view(&call->in[0]), out = hy__gpu_view(&call->out[0]),
              mask = hy__gpu_view(&call->out[1]);
  hy_attrs_dropout a = call->attrs.dropout;
  double keep = 1 - a.p, scale = keep == 0 ? 0 : 1 / keep;
  hy__gpu_launch(task, hy__gpu_kernel(task, "random", "dropout", ""),
                 hy__gpu_1d(hy__gpu_blocks(task, n, THREADS, 4)), hy__gpu_1d(THREADS), 0,
                 HY__GPU_ARGS(&out, &mask, &x, &n, &a.seed, &a.offset, &keep, &scale));
  return HY_SUPPORT_YES;
}
