#include "backends/gpu/ops/gemm_skinny.h"

#include <stdio.h>

// Bytes of n numbers, n even where they are nibbles.
static int64_t bytes_of(hy_dtype dtype, int64_t n) {
  return dtype == HY_I4 ? n / 2 : n * (int64_t)hy_dtype_size(dtype);
}

static bool one_scale(const hy_quantized_linear* p) {
  return !p->scale || p->group >= p->k;
}

bool hy__gpu_skinny_takes(const hy_quantized_linear* p, hy_dtype x, hy_dtype q) {
  bool half = x == HY_F16 || x == HY_BF16;
  bool lines = p->x_row % 8 == 0 && bytes_of(q, p->q_row) % 16 == 0 &&
               ((uintptr_t)p->x | (uintptr_t)p->q) % 16 == 0;
  bool groups = one_scale(p) || (p->group >= 32 && (p->group & (p->group - 1)) == 0);
  return half && lines && groups && p->k > 0 && (q == x || hy_dtype_bits(q) <= 8);
}

// What a block does; the macros of gemm_skinny.cu.
typedef struct shape {
  int tm, wn, wk, ks, stages;
} shape;

static shape shape_for(int m, hy_dtype q) {
  if (m > 64) return (shape){128, 8, 1, 64, 3};
  if (m > 32) return (shape){64, 4, 1, 64, 4};
  // Small weights bring x along more often than they should: let two row tiles share it.
  int wn = q == HY_I4 ? 2 : 1, tm = m > 16 ? 32 : m > 8 ? 16 : 8;
  return (shape){tm, wn, 4 / wn, 256, 4};
}

static size_t shared_bytes(const shape* s, hy_dtype q, bool grouped) {
  int64_t eight = bytes_of(q, 8), bn = s->wn * 16;
  int64_t stage = s->tm * (s->ks * 2 + 64) + bn * (s->ks * eight / 8 + 4 * eight) +
                  (grouped ? bn * (s->ks / 32) * 4 : 0);
  int64_t meet = (int64_t)s->wk * s->tm * (bn + 1) * 4, ring = stage * s->stages;
  return (size_t)(ring > meet ? ring : meet);
}

void hy__gpu_skinny(hy__gpu_task* task, hy_quantized_linear* p, hy_dtype x, hy_dtype q) {
  shape s = shape_for(p->m, q);
  bool grouped = !one_scale(p);
  unsigned tiles_n = (unsigned)((p->n + s.wn * 16 - 1) / (s.wn * 16));
  unsigned tiles_m = (unsigned)((p->m + s.tm - 1) / s.tm);
  int64_t tiles = (int64_t)tiles_n * tiles_m, steps = (p->k + s.ks - 1) / s.ks;
  int64_t splits = 2 * (int64_t)task->device->multiprocessors / tiles;
  if (splits > steps / 2) splits = steps / 2;
  if (splits > 16) splits = 16;
  if (splits < 1 || tiles > HY__GPU_COUNTERS || p->m > 64) splits = 1;
  p->splits = (int)splits;
  if (splits > 1) {
    size_t parts = (size_t)splits * (size_t)p->m * (size_t)p->n;
    p->partial = (float*)(uintptr_t)hy__gpu_workspace(task, parts * sizeof(float));
    p->counters = (unsigned*)(uintptr_t)hy__gpu_counters(task);
  }
  char options[128];
  snprintf(options, sizeof options,
           "-DX=%s -DQ=%s -DTM=%d -DWN=%d -DWK=%d -DKS=%d -DSTAGES=%d -DGROUPED=%d",
           hy__gpu_type_name(x), hy__gpu_type_name(q), s.tm, s.wn, s.wk, s.ks, s.stages, grouped);
  hy__gpu_launch(task, hy__gpu_kernel(task, "gemm_skinny", "gemm_skinny", options),
                 (hy__gpu_dim3){tiles_n, (unsigned)splits, tiles_m},
                 (hy__gpu_dim3){(unsigned)(s.wn * s.wk * 32), 1, 1}, shared_bytes(&s, q, grouped),
                 HY__GPU_ARGS(p));
}
