// 2:4 sparsity: sparsify_2_4 and linear_sparse_2_4, over contiguous tensors.
#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/held.h"

hy_support hy__gpu_sparsify_2_4(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *values = &call->out[0], *codes = &call->out[1];
  int64_t bytes = hy_tensor_numel(&call->in[0]) / 8;
  if (!task->stream || bytes == 0) return HY_SUPPORT_YES;
  hy_tensor weight = hy__gpu_contiguous(task, &call->in[0]), held = hy__gpu_held(task, values);
  hy__gpu_function* kernel =
      hy__gpu_kernel(task, "sparse", "sparsify", hy__gpu_option(weight.dtype));
  void* code = codes->data;
  long long n = bytes;
  hy__gpu_launch(task, kernel, (hy__gpu_dim3){hy__gpu_blocks(task, bytes, 256, 1), 1, 1},
                 (hy__gpu_dim3){256, 1, 1}, 0, HY__GPU_ARGS(&weight.data, &held.data, &code, &n));
  hy__gpu_finish(task, values, &held);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_linear_sparse_2_4(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *out = &call->out[0], *bias = &call->in[3];
  int64_t n = call->in[1].shape[0], k = call->in[1].shape[1] * 2, m = 1;
  for (int d = 0; d < out->ndim - 1; d++) m *= out->shape[d];
  HY__GPU_NEED(m <= 65535 * 64 && n < INT32_MAX && k < INT32_MAX, NO_SHAPE);
  if (!task->stream || m == 0 || n == 0) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor values = hy__gpu_contiguous(task, &call->in[1]), held = hy__gpu_held(task, out), own;
  hy_sparse_linear p = {.x = x.data, .values = values.data, .codes = call->in[2].data};
  p.out = held.data;
  p.m = (int)m;
  p.n = (int)n;
  p.k = (int)k;
  if (hy__gpu_present(bias)) {
    own = hy__gpu_contiguous(task, bias);
    p.bias = own.data;
  }
  hy__gpu_function* kernel =
      hy__gpu_kernel(task, "sparse", "sparse_linear", hy__gpu_option(x.dtype));
  hy__gpu_launch(task, kernel,
                 (hy__gpu_dim3){(unsigned)((n + 63) / 64), (unsigned)((m + 63) / 64), 1},
                 (hy__gpu_dim3){256, 1, 1}, 0, HY__GPU_ARGS(&p));
  hy__gpu_finish(task, out, &held);
  return HY_SUPPORT_YES;
}
