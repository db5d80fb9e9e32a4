// Fused mixture of experts, over contiguous tensors.
#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/held.h"

#define TILE 64

static void* workspace(hy__gpu_task* task, int64_t n, size_t size) {
  return (void*)(uintptr_t)hy__gpu_workspace(task, (size_t)n * size);
}

typedef struct step {
  hy__gpu_task* task;
  hy_moe* p;
  const char* options;
} step;

// moe_count alone takes the last two arguments.
static void run(const step* s, const char* file, const char* entry, unsigned blocks_x,
                unsigned blocks_y, unsigned threads, size_t shared) {
  int op = s->task->op;
  hy__gpu_launch(s->task, hy__gpu_kernel(s->task, file, entry, s->options),
                 (hy__gpu_dim3){blocks_x, blocks_y, 1}, (hy__gpu_dim3){threads, 1, 1}, shared,
                 HY__GPU_ARGS(s->p, &s->task->stream->use.faults->address, &op));
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
  // On tensor cores where every row begins at a multiple of 16 bytes.
  bool cores = task->device->mma_lanes > 0 && (x->dtype == HY_F16 || x->dtype == HY_BF16) &&
               p.size % 8 == 0 && p.hidden % 8 == 0 &&
               ((uintptr_t)p.x | (uintptr_t)p.gate_up | (uintptr_t)p.down) % 16 == 0;
  size_t acc = x->dtype == HY_F64 ? 8 : 4;
  p.first = workspace(task, p.experts + 1, sizeof(int));
  p.order = workspace(task, choices, sizeof(int));
  p.inner = workspace(task, choices * p.hidden, cores ? 2 : acc);
  p.partial = workspace(task, choices * p.size, acc);
  unsigned experts = (unsigned)p.experts, rows = hy__gpu_tiles(choices, TILE) + experts;
  step one = {task, &p, hy__gpu_option(x->dtype)};
  run(&one, "moe", "moe_count", experts, 1, 256, 0);
  run(&one, "moe", "moe_scan", 1, 1, 1, 0);
  run(&one, "moe", "moe_order", experts, 1, (unsigned)task->device->warp_size, 0);
  if (cores) {
    const size_t tile = (size_t)TILE * 64 * 2, stages = hy__gpu_mma_sync(task) ? 3 : 2;
    const unsigned threads = 4 * (unsigned)task->device->mma_lanes;
    run(&one, "moe_mma", "moe_gate_up_mma", rows, hy__gpu_tiles(p.hidden, TILE), threads,
        3 * tile * stages);
    run(&one, "moe_mma", "moe_down_mma", rows, hy__gpu_tiles(p.size, TILE), threads,
        2 * tile * stages);
  } else {
    run(&one, "moe", "moe_gate_up", rows, hy__gpu_tiles(p.hidden, TILE), 256, 0);
    run(&one, "moe", "moe_down", rows, hy__gpu_tiles(p.size, TILE), 256, 0);
  }
  run(&one, "moe", "moe_sum", hy__gpu_blocks(task, hy_tensor_numel(out), 256, 1), 1, 256, 0);
  hy__gpu_finish(task, out, &held);
  return HY_SUPPORT_YES;
}
