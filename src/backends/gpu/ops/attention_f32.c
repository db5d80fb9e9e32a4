// FlashAttention of f32 in tiles: which sizes they take, and launches; see attention_f32.cu.
#include "backends/gpu/ops/attention_f32.h"

#include <stdio.h>

#define ROWS 64
#define THREADS 256
#define FORWARD_STEP 64

static int padded_head(const hy_attention* a) {
  return a->size <= 64 && a->value_size <= 64 ? 64 : 128;
}

static size_t forward_bytes(const hy_attention* a) {
  return (size_t)(ROWS + 2 * FORWARD_STEP) * (size_t)(padded_head(a) + 4) * sizeof(float);
}

static size_t backward_bytes(const hy_attention* a, int step) {
  size_t lines = (size_t)(2 * ROWS + 2 * step) * (size_t)(padded_head(a) + 4);
  return (lines + (size_t)step * (ROWS + 4)) * sizeof(float);
}

// Large steps of small heads: two blocks of either are on a multiprocessor.
static int backward_step(const hy__gpu_task* task, const hy_attention* a) {
  bool fits = backward_bytes(a, 64) <= (size_t)task->device->max_shared;
  return padded_head(a) == 64 && fits ? 64 : 32;
}

bool hy__gpu_attention_f32_takes(const hy__gpu_task* task, const hy_attention* a, bool backward) {
  size_t bytes = backward ? backward_bytes(a, 32) : forward_bytes(a);
  return a->size <= 128 && a->value_size <= 128 && a->queries >= ROWS / 2 && a->heads <= 65535 &&
         bytes <= (size_t)task->device->max_shared;
}

static void launch(hy__gpu_task* task, hy_attention* a, const char* entry, int step,
                   hy__gpu_dim3 grid, size_t shared) {
  char options[64];
  snprintf(options, sizeof options, "-DHEAD=%d -DTHREADS=%d -DSTEP=%d", padded_head(a), THREADS,
           step);
  hy__gpu_launch(task, hy__gpu_kernel(task, "attention_f32", entry, options), grid,
                 (hy__gpu_dim3){THREADS, 1, 1}, shared, HY__GPU_ARGS(a));
}

static hy__gpu_dim3 tiles(const hy_attention* a, int lines, int heads) {
  return (hy__gpu_dim3){(unsigned)((lines + ROWS - 1) / ROWS), (unsigned)heads,
                        (unsigned)a->batches};
}

void hy__gpu_attention_f32(hy__gpu_task* task, hy_attention* a) {
  launch(task, a, "attention_f32", FORWARD_STEP, tiles(a, a->queries, a->heads), forward_bytes(a));
}

void hy__gpu_attention_f32_backward(hy__gpu_task* task, hy_attention* a, bool by_query_head) {
  const int step = backward_step(task, a);
  const size_t shared = backward_bytes(a, step);
  if ((a->dk.data || a->dv.data) && a->keys > 0) {
    int64_t lines = (int64_t)a->batches * a->keys * padded_head(a);
    if (by_query_head)
      a->partial = (float*)(uintptr_t)hy__gpu_workspace(
          task, 2 * (size_t)lines * (size_t)a->heads * sizeof(float));
    launch(task, a, "attention_f32_backward_key", step,
           tiles(a, a->keys, a->partial ? a->heads : a->kv_heads), shared);
    if (a->partial)
      launch(task, a, "attention_f32_backward_sum", step,
             (hy__gpu_dim3){hy__gpu_blocks(task, 2 * lines * a->kv_heads, THREADS, 1), 1, 1}, 0);
  }
  if (a->dq.data)
    launch(task, a, "attention_f32_backward_query", step, tiles(a, a->queries, a->heads), shared);
}
