// Skinny GEMM of batches: which calls it takes, the tile, split-K, and the launch.
#include "backends/gpu/ops/gemm_batch.h"

#include <stdio.h>

#include "backends/gpu/ops/tensor_map.h"

enum { MOST_ROWS = 64, STEP = 128, WARPS = 8, MOST_SPLITS = 8 };  // STEP: k of a stage

static int64_t bytes_of(hy_dtype dtype, int64_t n) {
  return dtype == HY_I4 ? n / 2 : n * (int64_t)hy_dtype_size(dtype);
}

static bool takes(const hy__gpu_task* task, const hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  bool types = (x == HY_F16 || x == HY_BF16) && (w == x || w == HY_I8 || w == HY_I4);
  bool group = w == x ? !p->scale
                      : p->group == 32 || p->group == 64 || (p->group > 0 && p->group % STEP == 0);
  return hy__gpu_mma_sync(task) && types && group && !p->norm && p->m <= MOST_ROWS && p->k > 0 &&
         p->k % STEP == 0 && p->x_row % 8 == 0 &&
         ((uintptr_t)p->x | (uintptr_t)p->weight) % 16 == 0;
}

// Parts of k, so that few tiles fill the device; their sums are added by one block each.
static int splits_for(const hy__gpu_task* task, const hy_fused_linear* p, int64_t tiles) {
  int64_t splits = 2 * (int64_t)task->device->multiprocessors / tiles, steps = p->k / STEP;
  if (splits > steps) splits = steps;
  if (splits > MOST_SPLITS) splits = MOST_SPLITS;
  if (splits < 2 || tiles > HY__GPU_COUNTERS) return 1;
  // As many as have work, where each takes as many steps as the first.
  int64_t each = (steps + splits - 1) / splits;
  return (int)((steps + each - 1) / each);
}

bool hy__gpu_gemm_batch(hy__gpu_task* task, hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  enum { ALIGN = 1024, HALF = 112 * 1024, MOST_STAGES = 4 };  // HALF: leaves room for another block
  if (!takes(task, p, x, w)) return false;
  const hy__gpu_device* device = task->device;
  int tm = p->m <= 16 ? 16 : p->m <= 32 ? 32 : 64;
  // Very many rows of the weight: larger tiles bring x along less often.
  int wn = p->rows >= 256 * device->multiprocessors ? 8 : 4, bn = 16 * wn;
  int group = w == x ? 0 : p->group < STEP ? p->group : STEP, scales = group ? STEP / group : 0;
  int64_t line = STEP / 8 + (w == x ? 1 : 4);
  int64_t stage = tm * bytes_of(x, STEP) + bn * line * bytes_of(w, 8) + bn * scales * 4;
  int64_t room = device->max_shared / 2 < HALF ? device->max_shared / 2 : HALF;
  int64_t stages = (room - ALIGN) / stage;
  stages = stages < 2 ? 2 : stages > MOST_STAGES ? MOST_STAGES : stages;
  int64_t outs = p->gated ? bn / 2 : bn, tiles = (p->n + outs - 1) / outs;
  p->splits = splits_for(task, p, tiles);
  int cluster = device->compute_major == 9 && p->splits > 1 ? p->splits : 0;
  if (p->splits > 1 && !cluster) {
    size_t parts = (size_t)tiles * (size_t)p->splits * (size_t)(tm * bn);
    p->partial = (float*)(uintptr_t)hy__gpu_workspace(task, parts * sizeof(float));
    p->counters = (unsigned*)(uintptr_t)hy__gpu_counters(task);
  }
  hy__gpu_tensor_map x_map;
  bool warpgroup = tm == 64 && hy__gpu_is_hopper(task) &&
                   hy__gpu_map_tensor(task, &x_map, x, p->x, 3, (int64_t[]){p->k, p->m, 1},
                                      (int64_t[]){1, p->x_row, 0}, tm);
  char options[160];
  snprintf(options, sizeof options,
           "-DT=%s -DW=%s -DTM=%d -DWN=%d -DGATED=%d -DSTAGES=%d -DGROUP=%d -DWARPGROUP=%d "
           "-DCLUSTER=%d",
           hy__gpu_type_name(x), hy__gpu_type_name(w), tm, wn, p->gated, (int)stages, group,
           warpgroup, cluster);
  hy__gpu_function* kernel = hy__gpu_kernel(task, "gemm_batch", "gemm_batch", options);
  hy__gpu_dim3 grid = {(unsigned)tiles, (unsigned)p->splits, 1}, block = hy__gpu_1d(WARPS * 32);
  size_t shared = (size_t)(stages * stage + ALIGN);
  if (warpgroup)
    hy__gpu_launch_dependent(task, kernel, grid, block, shared, HY__GPU_ARGS(&x_map, p));
  else
    hy__gpu_launch_dependent(task, kernel, grid, block, shared, HY__GPU_ARGS(p));
  return true;
}
