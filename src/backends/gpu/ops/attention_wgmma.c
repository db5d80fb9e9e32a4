// FlashAttention by TMA and wgmma: which calls Hopper's kernels take, and their launches.
#include "backends/gpu/ops/attention_wgmma.h"

#include <stdio.h>

#include "backends/gpu/ops/tensor_map.h"

#define KEYS 128
#define STAGES 2
#define LEAST_ALONE 256  // queries for tiles of one warpgroup
// Of the gradient's kernels: lines that a block keeps and goes through, and stages of these.
#define BACKWARD_OWN 128
#define BACKWARD_STEP 64
#define BACKWARD_STAGES 4

static bool map_heads(hy__gpu_task* task, hy__gpu_tensor_map* map, hy_dtype dtype,
                      const hy_heads* t, int size, int rows, int heads, int batches, int lines) {
  const int64_t shape[4] = {size, rows, heads, batches};
  const int64_t stride[4] = {1, t->row, t->head, t->batch};
  return hy__gpu_map_tensor(task, map, dtype, t->data, 4, shape, stride, lines);
}

static int64_t tiles_of(const hy_attention* a, int rows) {
  return (a->queries + rows - 1) / rows * (int64_t)a->heads * a->batches;
}

bool hy__gpu_attention_wgmma(hy__gpu_task* task, const hy_attention* a, hy_dtype dtype) {
  int size = a->size > a->value_size ? a->size : a->value_size;
  // A scale below 0 would turn -inf, which hides keys there, around.
  if (!hy__gpu_is_hopper(task) || a->mask || size > 128 || a->value_size % 8 != 0 || a->keys == 0 ||
      a->scale < 0)
    return false;
  int head = size <= 64 ? 64 : 128, consumers = head == 64 ? 3 : 2, rows = 64 * consumers;
  // Short prompts leave such large tiles half empty; several together fill the device all the same.
  int64_t tiles = tiles_of(a, rows);
  bool full = a->queries >= 2 * rows && tiles >= 2 * (int64_t)task->device->multiprocessors;
  if (a->queries < 4 * rows && !full) {
    if (head > 64 || a->queries < LEAST_ALONE) return false;
    consumers = 1;
    rows = 64;
    tiles = tiles_of(a, rows);
  }
  if (a->heads > 65535) return false;
  hy__gpu_tensor_map q, k, v;
  if (!map_heads(task, &q, dtype, &a->q, a->size, a->queries, a->heads, a->batches, 64) ||
      !map_heads(task, &k, dtype, &a->k, a->size, a->keys, a->kv_heads, a->batches, KEYS) ||
      !map_heads(task, &v, dtype, &a->v, a->value_size, a->keys, a->kv_heads, a->batches, KEYS))
    return false;
  char options[64];
  snprintf(options, sizeof options, "-DT=%s -DHEAD=%d -DCONSUMERS=%d", hy__gpu_type_name(dtype),
           head, consumers);
  hy_attention attention = *a;
  size_t shared = (size_t)(STAGES * (rows + 2 * KEYS)) * (size_t)head * 2 + 1024;
  int64_t most = task->device->multiprocessors;
  hy__gpu_launch(task, hy__gpu_kernel(task, "attention_wgmma", "attention_wgmma", options),
                 (hy__gpu_dim3){(unsigned)(tiles < most ? tiles : most), 1, 1},
                 (hy__gpu_dim3){(unsigned)(consumers + 1) * 128, 1, 1}, shared,
                 HY__GPU_ARGS(&q, &k, &v, &attention));
  return true;
}

bool hy__gpu_backward_wgmma_begin(hy__gpu_task* task, hy_attention* a, hy_dtype dtype,
                                  hy__gpu_backward_wgmma* b) {
  int size = a->size > a->value_size ? a->size : a->value_size, step = BACKWARD_STEP;
  if (!hy__gpu_is_hopper(task) || a->mask || size <= 32 || size > 128 || a->size % 8 != 0 ||
      a->value_size % 8 != 0 || a->queries < BACKWARD_OWN || a->keys < BACKWARD_OWN ||
      a->heads > 65535)
    return false;
  if (!map_heads(task, &b->q, dtype, &a->q, a->size, a->queries, a->heads, a->batches, step) ||
      !map_heads(task, &b->k, dtype, &a->k, a->size, a->keys, a->kv_heads, a->batches, step) ||
      !map_heads(task, &b->v, dtype, &a->v, a->value_size, a->keys, a->kv_heads, a->batches,
                 step) ||
      !map_heads(task, &b->dout, dtype, &a->dout, a->value_size, a->queries, a->heads, a->batches,
                 step))
    return false;
  int head = size <= 64 ? 64 : 128;
  snprintf(b->options, sizeof b->options, "-DT=%s -DHEAD=%d", hy__gpu_type_name(dtype), head);
  b->shared = (size_t)(2 * BACKWARD_OWN) * (size_t)head * 2 +
              BACKWARD_STAGES * ((size_t)(2 * step) * (size_t)head * 2 + (size_t)(2 * step) * 4) +
              1024;
  int64_t rows = (int64_t)a->batches * a->heads * hy__gpu_tiles(a->queries, step) * step;
  b->stats = hy__gpu_workspace(task, 2 * (size_t)rows * sizeof(float));
  hy__gpu_launch(
      task,
      hy__gpu_kernel(task, "attention_backward_wgmma", "attention_backward_stats", b->options),
      (hy__gpu_dim3){hy__gpu_tiles(rows * (head / 8), 256), 1, 1}, (hy__gpu_dim3){256, 1, 1}, 0,
      HY__GPU_ARGS(a, &b->stats));
  return true;
}

static void launch_backward(hy__gpu_task* task, hy_attention* a, hy__gpu_backward_wgmma* b,
                            const char* entry, unsigned tiles, unsigned heads) {
  hy__gpu_launch(task, hy__gpu_kernel(task, "attention_backward_wgmma", entry, b->options),
                 (hy__gpu_dim3){tiles, heads, (unsigned)a->batches}, (hy__gpu_dim3){384, 1, 1},
                 b->shared, HY__GPU_ARGS(&b->q, &b->k, &b->v, &b->dout, a, &b->stats));
}

void hy__gpu_backward_wgmma_key(hy__gpu_task* task, hy_attention* a, hy__gpu_backward_wgmma* b) {
  launch_backward(task, a, b, "attention_backward_key", hy__gpu_tiles(a->keys, BACKWARD_OWN),
                  (unsigned)(a->partial ? a->heads : a->kv_heads));
}

void hy__gpu_backward_wgmma_query(hy__gpu_task* task, hy_attention* a, hy__gpu_backward_wgmma* b) {
  launch_backward(task, a, b, "attention_backward_query", hy__gpu_tiles(a->queries, BACKWARD_OWN),
                  (unsigned)a->heads);
}
