#include "backends/gpu/ops/gemm_wgmma.h"

#include <stdalign.h>
#include <stdio.h>

#define BM 128
#define BK 64

// CUtensorMap, and the values of its enumerations that are used here.
typedef struct tensor_map {
  alignas(64) uint64_t opaque[16];
} tensor_map;
enum { TYPE_F16 = 6, TYPE_BF16 = 9, INTERLEAVE_NONE = 0, SWIZZLE_128B = 3, PROMOTE_L2_256B = 3 };

// An operand [batch, rows, k] in boxes of 64 along its line and `lines` across.
static bool encode(hy__gpu_task* task, tensor_map* map, hy_dtype dtype, const void* data, int rows,
                   int k, int batch, int64_t step, int64_t batch_step, bool k_first, int tile) {
  uint64_t line = (uint64_t)(k_first ? k : rows), lines = (uint64_t)(k_first ? rows : k);
  // A single line or matrix may have any stride; the map wants one that could be.
  if (lines == 1) step = (int64_t)(line + 7) / 8 * 8;
  if (batch == 1) batch_step = step * (int64_t)lines;
  if (step <= 0 || batch_step <= 0 || step % 8 != 0 || batch_step % 8 != 0) return false;
  const uint64_t size[3] = {line, lines, (uint64_t)batch};
  const uint64_t stride[2] = {(uint64_t)step * 2, (uint64_t)batch_step * 2};
  const uint32_t box[3] = {64, (uint32_t)(k_first ? tile : BK), 1}, each[3] = {1, 1, 1};
  int error = task->device->api->driver.tensor_map_encode(
      map, dtype == HY_F16 ? TYPE_F16 : TYPE_BF16, 3, (void*)(uintptr_t)data, size, stride, box,
      each, INTERLEAVE_NONE, SWIZZLE_128B, PROMOTE_L2_256B, 0);
  return error == 0;
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
  tensor_map a, b;
  if (!encode(task, &a, dtype, g->a, g->m, g->k, g->batch, g->a_step, g->a_batch, a_k, BM) ||
      !encode(task, &b, dtype, g->b, g->n, g->k, g->batch, g->b_step, g->b_batch, b_k, bn))
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
