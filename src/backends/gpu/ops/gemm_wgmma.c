// GEMM by TMA and wgmma on Hopper, host side: which products it takes, and their launches.
#include "backends/gpu/ops/gemm_wgmma.h"

#include <stdio.h>

#include "backends/gpu/ops/tensor_map.h"

#define BM 128
#define BK 64

// An operand [batch, rows, k] in boxes of 64 along its line; `tile` rows of it where lines run
// along k.
static bool map_operand(hy__gpu_task* task, hy__gpu_tensor_map* map, hy_dtype dtype,
                        const void* data, int rows, int k, int batch, int64_t step,
                        int64_t batch_step, bool k_first, int tile) {
  const int64_t shape[3] = {k_first ? k : rows, k_first ? rows : k, batch};
  const int64_t stride[3] = {1, step, batch_step};
  return hy__gpu_map_tensor(task, map, dtype, data, 3, shape, stride, k_first ? tile : BK);
}

static int64_t tiles(int n, int tile) {
  return (n + tile - 1) / tile;
}

bool hy__gpu_wgmma(hy__gpu_task* task, const hy_gemm* g, hy_dtype dtype, bool a_k, bool b_k) {
  hy__gpu_device* device = task->device;
  if (device->compute_major != 9 || !device->api->driver.tensor_map_encode || g->k < BK)
    return false;
  int64_t wide = tiles(g->m, BM) * tiles(g->n, 256) * g->batch;
  int64_t narrow = tiles(g->m, BM) * tiles(g->n, 128) * g->batch;
  if (narrow < device->multiprocessors / 2 || narrow > INT32_MAX) return false;
  // A tile of 256 columns is faster, unless the last wave of blocks is left too empty by it.
  int64_t sm = device->multiprocessors, rounds = (wide + sm - 1) / sm;
  int bn = 2 * rounds <= (narrow + sm - 1) / sm ? 256 : 128, stages = bn == 256 ? 4 : 6;
  hy__gpu_tensor_map a, b;
  if (!map_operand(task, &a, dtype, g->a, g->m, g->k, g->batch, g->a_step, g->a_batch, a_k, BM) ||
      !map_operand(task, &b, dtype, g->b, g->n, g->k, g->batch, g->b_step, g->b_batch, b_k, bn))
    return false;
  char options[96];
  snprintf(options, sizeof options, "-DT=%s -DA_K=%d -DB_K=%d -DBN=%d -DSTAGES=%d",
           hy__gpu_type_name(dtype), a_k, b_k, bn, stages);
  int64_t count = bn == 256 ? wide : narrow;
  hy_gemm gemm = *g;
  hy__gpu_launch(task, hy__gpu_kernel(task, "gemm_wgmma", "gemm_wgmma", options),
                 (hy__gpu_dim3){(unsigned)(count < sm ? count : sm), 1, 1},
                 (hy__gpu_dim3){384, 1, 1}, (size_t)stages * (size_t)(BM + bn) * BK * 2 + 1024,
                 HY__GPU_ARGS(&a, &b, &gemm));
  return true;
}
