// Attention over a paged cache, for prompts and decoding: on tensor cores for f16 and bf16 with
// heads of up to 256, a warp for each token and head otherwise.
#include <math.h>
#include <stdio.h>

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/heads.h"
#include "backends/gpu/ops/held.h"

#define BKV 64

static bool usable(const hy_tensor* t, bool aligned) {
  int last = t->ndim - 1;
  return (t->stride[last] == 1 || t->shape[last] == 1) && (!aligned || hy__gpu_rows_aligned(t));
}

static hy_tensor input_of(hy__gpu_task* task, const hy_tensor* t, bool aligned) {
  if (usable(t, aligned)) return *t;
  hy_tensor copy = hy__gpu_padded(task, t);
  hy__gpu_copy(task, &copy, t);
  return copy;
}

// How many parts a context falls into, so that few rows fill the device.
static int splits_for(const hy__gpu_task* task, const hy_paged* p, int64_t blocks, int rows) {
  int64_t most = hy__gpu_tiles((int64_t)p->most_blocks * p->block, BKV);
  int64_t wanted = (int64_t)task->device->multiprocessors * (rows == 16 ? 8 : 2) / blocks;
  if (wanted > most) wanted = most;
  return wanted < 1 ? 1 : wanted > 32 ? 32 : (int)wanted;
}

static void run_flash(hy__gpu_task* task, hy_paged* p, hy_dtype dtype) {
  int size = p->size > p->value_size ? p->size : p->value_size, op = task->op;
  int head = size <= 32 ? 32 : size <= 64 ? 64 : size <= 128 ? 128 : 256;
  int bkv = head <= 128 ? BKV : 32, group = p->heads / p->kv_heads;
  int64_t rows = (int64_t)p->tokens * group;
  int bq = rows <= 16 * (int64_t)p->sequences ? 16 : 64, lanes = task->device->mma_lanes;
  while (bkv > 16 && (bq + 4 * bkv) * head * 2 > task->device->max_shared) bkv /= 2;
  unsigned row_tiles = hy__gpu_tiles(rows, bq) + (unsigned)p->sequences;
  int64_t blocks = (bq == 16 ? (int64_t)p->sequences : hy__gpu_tiles(rows, bq)) * p->kv_heads;
  p->splits = splits_for(task, p, blocks > 0 ? blocks : 1, bq);
  int64_t parts = p->splits * (int64_t)p->tokens * p->heads;
  if (p->splits > 1) {
    p->partial =
        (float*)(uintptr_t)hy__gpu_workspace(task, (size_t)parts * (size_t)p->value_size * 4);
    p->partial_lse = (float*)(uintptr_t)hy__gpu_workspace(task, (size_t)parts * 4);
  }
  char options[96];
  int at = snprintf(options, sizeof options, "-DT=%s -DHEAD=%d -DBQ=%d -DBKV=%d",
                    hy__gpu_type_name(dtype), head, bq, bkv);
  if ((p->block & (p->block - 1)) == 0)
    snprintf(options + at, sizeof options - (size_t)at, " -DBLOCK=%d", p->block);
  hy__gpu_launch(task, hy__gpu_kernel(task, "paged_attention", "paged_attention", options),
                 (hy__gpu_dim3){row_tiles, (unsigned)p->kv_heads, (unsigned)p->splits},
                 (hy__gpu_dim3){(unsigned)(bq / 16 * lanes), 1, 1},
                 (size_t)(bq + 4 * bkv) * (size_t)head * 2,
                 HY__GPU_ARGS(p, &task->stream->use.faults->address, &op));
  if (p->splits > 1)
    hy__gpu_launch(task, hy__gpu_kernel(task, "paged_attention", "paged_combine", options),
                   (hy__gpu_dim3){hy__gpu_tiles((int64_t)p->tokens * p->heads, 4), 1, 1},
                   (hy__gpu_dim3){128, 1, 1}, 0, HY__GPU_ARGS(p));
}

static void run_rows(hy__gpu_task* task, hy_paged* p, hy_dtype dtype) {
  size_t bytes = (size_t)(p->size + p->value_size) * (dtype == HY_F64 ? 8 : 4);
  unsigned warps = 4;
  int op = task->op;
  while (warps > 1 && warps * bytes > 40000) warps /= 2;
  hy__gpu_function* kernel =
      hy__gpu_kernel(task, "paged_attention_simt", "paged_attention_rows", hy__gpu_option(dtype));
  hy__gpu_launch(task, kernel,
                 (hy__gpu_dim3){hy__gpu_tiles((int64_t)p->tokens * p->heads, warps), 1, 1},
                 (hy__gpu_dim3){warps * (unsigned)task->device->warp_size, 1, 1}, warps * bytes,
                 HY__GPU_ARGS(p, &task->stream->use.faults->address, &op));
}

hy_support hy__gpu_paged_attention(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *out = &call->out[0];
  int64_t most = INT32_MAX / 2;
  HY__GPU_NEED(q->shape[0] * q->shape[1] < most && k->shape[0] < most && k->shape[2] <= 65535 &&
                   call->in[3].shape[1] * k->shape[1] < most &&
                   8 * (q->shape[2] + v->shape[3]) <= task->device->max_shared,
               NO_SHAPE);
  if (!task->stream || hy_tensor_numel(out) == 0) return HY_SUPPORT_YES;
  bool cores = task->device->mma_lanes > 0 && (q->dtype == HY_F16 || q->dtype == HY_BF16) &&
               q->shape[2] <= 256 && v->shape[3] <= 256;
  hy_tensor x = input_of(task, q, cores), keys = input_of(task, k, cores);
  hy_tensor values = input_of(task, v, cores), held = *out, index[3];
  if (!usable(out, cores)) held = hy__gpu_padded(task, out);
  for (int i = 0; i < 3; i++) index[i] = hy__gpu_contiguous(task, &call->in[3 + i]);
  hy_paged p = {.q = x.data, .k = keys.data, .v = values.data, .out = held.data, .splits = 1};
  p.table = index[0].data;
  p.start = index[1].data;
  p.length = index[2].data;
  p.table_dtype = index[0].dtype;
  p.start_dtype = index[1].dtype;
  p.length_dtype = index[2].dtype;
  p.q_token = x.stride[0];
  p.q_head = x.stride[1];
  p.out_token = held.stride[0];
  p.out_head = held.stride[1];
  p.k_block = keys.stride[0];
  p.k_row = keys.stride[1];
  p.k_head = keys.stride[2];
  p.v_block = values.stride[0];
  p.v_row = values.stride[1];
  p.v_head = values.stride[2];
  p.tokens = (int)q->shape[0];
  p.heads = (int)q->shape[1];
  p.size = (int)q->shape[2];
  p.value_size = (int)v->shape[3];
  p.blocks = (int)k->shape[0];
  p.block = (int)k->shape[1];
  p.kv_heads = (int)k->shape[2];
  p.sequences = (int)index[0].shape[0];
  p.most_blocks = (int)index[0].shape[1];
  p.scale = call->attrs.scale.scale;
  if (p.scale == 0) p.scale = p.size > 0 ? 1 / sqrt((double)p.size) : 1;
  if (cores)
    run_flash(task, &p, q->dtype);
  else
    run_rows(task, &p, q->dtype);
  hy__gpu_finish(task, out, &held);
  return HY_SUPPORT_YES;
}
