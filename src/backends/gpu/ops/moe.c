// Fused mixture of experts, over contiguous tensors.
#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/held.h"

#define TILE 64

static void* workspace(hy__gpu_task* task, int64_t n, size_t size) {
  return (void*)(uintptr_t)hy__gpu_workspace(task, (size_t)n * size);
}

static unsigned tiles(int64_t n) {
  return (unsigned)((n + TILE - 1) / TILE);
}

hy_support hy__gpu_fused_moe(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *gate_up = &call->in[1], *id = &call->in[4];
  const hy_tensor* out = &call->out[0];
  int64_t choices = hy_tensor_numel(id);
  HY__GPU_NEED(choices < INT32_MAX && x->shape[1] <= 65535 * TILE &&
                   gate_up->shape[1] <= 2 * 65535 * TILE && gate_up->shape[0] <= INT32_MAX,
               NO_SHAPE);
  if (!task->stream || hy_tensor_numel(out) == 0) return HY_SUPPORT_YES;
  hy_tensor in[5], held = hy__gpu_held(task, out);
  for (int i = 0; i < 5; i++) in[i] = hy__gpu_contiguous(task, &call->in[i]);
  hy_moe p = {.x = in[0].data, .gate_up = in[1].data, .down = in[2].data, .weight = in[3].data};
  p.id = in[4].data;
  p.out = held.data;
  p.weight_dtype = in[3].dtype;
  p.id_dtype = in[4].dtype;
  p.tokens = (int)x->shape[0];
  p.size = (int)x->shape[1];
  p.experts = (int)gate_up->shape[0];
  p.hidden = (int)(gate_up->shape[1] / 2);
  p.chosen = (int)id->shape[1];
  size_t acc = x->dtype == HY_F64 ? 8 : 4;
  p.first = workspace(task, p.experts + 1, sizeof(int));
  p.order = workspace(task, choices, sizeof(int));
  p.inner = workspace(task, choices * p.hidden, acc);
  p.partial = workspace(task, choices * p.size, acc);
  const char* options = hy__gpu_option(x->dtype);
  unsigned experts = (unsigned)p.experts, rows = tiles(choices) + experts;
  int op = call->op;
#define RUN(entry, blocks_x, blocks_y, threads, ...)                                      \
  hy__gpu_launch(task, hy__gpu_kernel(task, "moe", entry, options),                       \
                 (hy__gpu_dim3){blocks_x, blocks_y, 1}, (hy__gpu_dim3){threads, 1, 1}, 0, \
                 HY__GPU_ARGS(__VA_ARGS__))
  RUN("moe_count", experts, 1, 256, &p, &task->stream->fault_address, &op);
  RUN("moe_scan", 1, 1, 1, &p);
  RUN("moe_order", experts, 1, (unsigned)task->device->warp_size, &p);
  RUN("moe_gate_up", rows, tiles(p.hidden), 256, &p);
  RUN("moe_down", rows, tiles(p.size), 256, &p);
  RUN("moe_sum", hy__gpu_blocks(task, hy_tensor_numel(out), 256, 1), 1, 256, &p);
#undef RUN
  hy__gpu_finish(task, out, &held);
  return HY_SUPPORT_YES;
}
