// Skinny GEMM and GEMV: the tile for a number of rows, split-K, and the launch.
#include "backends/gpu/ops/gemm_skinny.h"

#include <stdio.h>

#include "backends/gpu/ops/gemm_batch.h"

// Bytes of n numbers, n even where they are nibbles.
static int64_t bytes_of(hy_dtype dtype, int64_t n) {
  return dtype == HY_I4 ? n / 2 : n * (int64_t)hy_dtype_size(dtype);
}

static bool one_scale(const hy_quantized_linear* p) {
  return !p->scale || p->group >= p->k;
}

bool hy__gpu_skinny_takes(const hy_quantized_linear* p, hy_dtype x, hy_dtype q) {
  bool lines = bytes_of(x, p->x_row) % 16 == 0 && bytes_of(q, p->q_row) % 16 == 0 &&
               ((uintptr_t)p->x | (uintptr_t)p->q) % 16 == 0;
  if (!lines || p->k == 0) return false;
  if (x == HY_I8)
    return (q == HY_I8 || q == HY_I4) && (one_scale(p) || p->group % 32 == 0) &&
           (p->x_group >= p->k || p->x_group % 32 == 0);
  bool groups = one_scale(p) || (p->group >= 32 && (p->group & (p->group - 1)) == 0);
  return (x == HY_F16 || x == HY_BF16) && groups && (q == x || hy_dtype_bits(q) <= 8);
}

// What a block does; the macros of the kernels.
typedef struct shape {
  int tm, wn, wk, ks, stages;
} shape;

static shape shape_for(const hy__gpu_task* task, int m, int n, hy_dtype x, hy_dtype q) {
  int64_t most = task->device->multiprocessors;
  int ks = x == HY_I8 ? 128 : 64;
  if (m > 64 && (int64_t)(m / 128 + 1) * (n / 128 + 1) >= most) return (shape){128, 8, 1, ks, 3};
  // 64 rows of the weight share x, or 16 where that leaves the device half empty.
  if (m > 32 && (int64_t)((m + 63) / 64) * ((n + 63) / 64) >= most / 2)
    return (shape){64, 4, 1, ks, 4};
  if (m > 32) return (shape){64, 1, 4, 256, 3};
  // Small weights bring x along more often than they should: let two row tiles share it.
  int wn = q == HY_I4 ? 2 : 1, tm = m > 16 ? 32 : m > 8 ? 16 : 8;
  return (shape){tm, wn, 4 / wn, 256, 4};
}

static size_t shared_bytes(const shape* s, hy_dtype x, hy_dtype q, bool grouped) {
  int64_t x8 = bytes_of(x, 8), q8 = bytes_of(q, 8), bn = s->wn * 16, chunks = s->ks / 32;
  int64_t scales = x == HY_I8 ? (s->tm + bn) * chunks : grouped ? bn * chunks : 0;
  int64_t stage = s->tm * (s->ks / 8 + 4) * x8 + bn * (s->ks / 8 + 4) * q8 + scales * 4;
  int64_t meet = (int64_t)s->wk * s->tm * (bn + 1) * 4, ring = stage * s->stages;
  return (size_t)(ring > meet ? ring : meet);
}

// Split-K until the device is full, with work for two stages in each part.
static void split(hy__gpu_task* task, hy_quantized_linear* p, const shape* s, int64_t tiles) {
  int64_t steps = (p->k + s->ks - 1) / s->ks;
  int64_t splits = 2 * (int64_t)task->device->multiprocessors / tiles;
  if (splits > steps / 2) splits = steps / 2;
  if (splits > 8) splits = 8;
  // The last block reads all parts alone: not worth it for many rows.
  if (splits < 1 || tiles > HY__GPU_COUNTERS || p->m > 32) splits = 1;
  p->splits = (int)splits;
  if (splits == 1) return;
  size_t parts = (size_t)splits * (size_t)p->m * (size_t)p->n;
  p->partial = (float*)(uintptr_t)hy__gpu_workspace(task, parts * sizeof(float));
  p->counters = (unsigned*)(uintptr_t)hy__gpu_counters(task);
}

// A row or a few of bytes: dp4a, where 16 bytes of the weight are in one group of either side.
static bool run_gemv_int8(hy__gpu_task* task, hy_quantized_linear* p, hy_dtype q, hy_dtype out) {
  int each = q == HY_I4 ? 32 : 16;
  if (p->m > 4 || p->k % each != 0 || p->group % each != 0 || p->x_group % each != 0) return false;
  bool shared = p->k >= 2048 && p->n < 64 * task->device->multiprocessors;
  char options[64];
  snprintf(options, sizeof options, "-DT=%s -DQ=%s -DROWS=%d -DWARPS=%d", hy__gpu_type_name(out),
           hy__gpu_type_name(q), p->m == 1 ? 1 : 4, shared ? 4 : 1);
  hy__gpu_launch(task, hy__gpu_kernel(task, "gemv_int8", "gemv_int8", options),
                 (hy__gpu_dim3){(unsigned)(shared ? p->n : (p->n + 3) / 4), 1, 1},
                 (hy__gpu_dim3){4 * (unsigned)task->device->warp_size, 1, 1}, 0, HY__GPU_ARGS(p));
  return true;
}

// More than 16 rows of halves, whose results are row behind row.
static bool run_batch(hy__gpu_task* task, const hy_quantized_linear* p, hy_dtype x, hy_dtype q) {
  hy_fused_linear f = {.x = p->x,
                       .weight = p->q,
                       .bias = p->bias,
                       .scale = p->scale,
                       .out = p->out,
                       .m = p->m,
                       .n = p->n,
                       .k = p->k,
                       .rows = p->n,
                       .group = one_scale(p) ? p->k : p->group,
                       .groups = (int)p->scale_row,
                       .x_row = p->x_row,
                       .out_row = p->out_row};
  return p->m > 16 && p->q_row == p->k && p->out_column == 1 && (!p->bias || p->bias_step == 1) &&
         hy__gpu_gemm_batch(task, &f, x, q);
}

void hy__gpu_skinny(hy__gpu_task* task, hy_quantized_linear* p, hy_dtype x, hy_dtype q,
                    hy_dtype out) {
  if (run_batch(task, p, x, q)) return;
  if (x == HY_I8 && run_gemv_int8(task, p, q, out)) return;
  shape s = shape_for(task, p->m, p->n, x, q);
  bool grouped = !one_scale(p), bytes = x == HY_I8;
  unsigned tiles_n = (unsigned)((p->n + s.wn * 16 - 1) / (s.wn * 16));
  unsigned tiles_m = (unsigned)((p->m + s.tm - 1) / s.tm);
  split(task, p, &s, (int64_t)tiles_n * tiles_m);
  char options[128], types[48];
  if (bytes)
    snprintf(types, sizeof types, "-DT=%s", hy__gpu_type_name(out));
  else
    snprintf(types, sizeof types, "-DX=%s -DGROUPED=%d", hy__gpu_type_name(x), grouped);
  snprintf(options, sizeof options, "%s -DQ=%s -DTM=%d -DWN=%d -DWK=%d -DKS=%d -DSTAGES=%d", types,
           hy__gpu_type_name(q), s.tm, s.wn, s.wk, s.ks, s.stages);
  const char* name = bytes ? "gemm_skinny_int8" : "gemm_skinny";
  hy__gpu_launch(task, hy__gpu_kernel(task, name, name, options),
                 (hy__gpu_dim3){tiles_n, (unsigned)p->splits, tiles_m},
                 (hy__gpu_dim3){(unsigned)(s.wn * s.wk * 32), 1, 1},
                 shared_bytes(&s, x, q, grouped), HY__GPU_ARGS(p));
}
