// rope_paged_attention: a decoding step's attention in one kernel, on tensor cores where sequences
// are few and heads of halves.
#include <math.h>
#include <stdio.h>

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/held.h"

enum { K_CACHE, V_CACHE, QKV, COSINE, SINE, TABLE, LENGTH };
enum { HEADS = 8, MOST_SPLITS = 32, LEAST_TILE = 8 };

// What a block does; the macros of the kernel.
typedef struct shape {
  int head, tile, heads, warps;
} shape;

// Bytes of the kernel's tile, as it lays it out.
static size_t shared_bytes(const shape* s, int64_t size, int64_t wide) {
  int64_t head = s->head, share = s->tile * s->heads / s->warps, keys = (share + 31) / 32 * 32;
  int64_t rows = 2 * s->tile * (head * size + 16) + 2 * head * size;
  int64_t sums = head + s->heads * head + s->warps * (keys + head + 2);
  return (size_t)((rows + 15) / 16 * 16 + sums * wide);
}

static int padded_head(int64_t size) {
  return size <= 32 ? 32 : size <= 64 ? 64 : size <= 128 ? 128 : 256;
}

static bool fits(const hy__gpu_task* task, const shape* s, hy_dtype dtype) {
  return shared_bytes(s, (int64_t)hy_dtype_size(dtype), dtype == HY_F64 ? 8 : 4) <=
         (size_t)task->device->max_shared;
}

// Whether the smallest tile of such heads fits into shared memory.
static bool head_fits(const hy__gpu_task* task, int64_t size, hy_dtype dtype) {
  return fits(task, &(shape){padded_head(size), LEAST_TILE, 1, 8}, dtype);
}

// A block for each head where all of them together are few, or shared memory holds no more, with
// all that it holds of its keys; else a block for a key head, with two warps for each of its query
// heads.
static shape shape_for(const hy__gpu_task* task, const hy_decode* p, hy_dtype dtype) {
  int head = padded_head(p->size);
  int64_t row = head * (int64_t)hy_dtype_size(dtype);
  shape one = {head, row <= 256 ? 256 : row <= 512 ? 128 : 32, 1, 8};
  shape many = {head, row <= 128 ? 256 : row <= 256 ? 128 : row <= 512 ? 64 : 32, HEADS, 2 * HEADS};
  bool few = (int64_t)p->sequences * p->heads <= task->device->multiprocessors;
  while (!few && many.tile > LEAST_TILE && !fits(task, &many, dtype)) many.tile /= 2;
  if (!few && fits(task, &many, dtype)) return many;
  while (one.tile > LEAST_TILE && !fits(task, &one, dtype)) one.tile /= 2;
  return one;
}

// Few sequences are split until they fill the device, in parts of a tile or more.
static int splits_for(const hy__gpu_task* task, const hy_decode* p, int64_t blocks, int tile) {
  int64_t tiles = ((int64_t)p->most_blocks * p->block + tile - 1) / tile;
  int64_t wanted = 2 * (int64_t)task->device->multiprocessors / blocks;
  if (wanted > tiles) wanted = tiles;
  return wanted < 1 ? 1 : wanted > MOST_SPLITS ? MOST_SPLITS : (int)wanted;
}

static void split(hy__gpu_task* task, hy_decode* p, int64_t blocks, int tile) {
  p->splits = splits_for(task, p, blocks, tile);
  if (p->splits == 1) return;
  size_t parts = (size_t)p->sequences * (size_t)p->heads * (size_t)p->splits;
  p->partial = (float*)(uintptr_t)hy__gpu_workspace(task, parts * (size_t)(p->size + 2) * 4);
  p->counters = (unsigned*)(uintptr_t)hy__gpu_counters(task);
}

static bool aligned(const hy_decode* p) {
  return ((uintptr_t)p->k | (uintptr_t)p->v) % 16 == 0;
}

// ---- On tensor cores ----

enum { MMA_KEYS = 16 };  // of a warp

// Blocks of a cluster, where the GPU has clusters, and warps of a block.
typedef struct mma_shape {
  int cluster, warps;
} mma_shape;

static mma_shape mma_shape_for(const hy__gpu_task* task) {
  return task->device->compute_major == 9 ? (mma_shape){8, 4} : (mma_shape){1, 16};
}

// Bytes of the kernel's tile, as it lays it out.
static size_t mma_shared_bytes(mma_shape s, int64_t head) {
  int64_t joined = (HEADS + s.cluster - 1) / s.cluster;
  int64_t halves =
      (2 * MMA_KEYS * s.warps + HEADS) * (head + 8) + 2 * head + s.warps * 2 * HEADS * 18;
  return (size_t)(halves * 2 + joined * s.cluster * s.warps * (head + 2) * 4);
}

// Types that the kernel is compiled for, and q, k and v four at a time.
static bool takes_input(const hy_decode* p) {
  bool index = p->table_dtype == HY_I32 || p->table_dtype == HY_I64;
  bool angle = p->angle_dtype == HY_F32 || p->angle_dtype == HY_F16 || p->angle_dtype == HY_BF16;
  return index && angle && p->length_dtype == p->table_dtype && (uintptr_t)p->qkv % 8 == 0;
}

static bool takes_mma(const hy__gpu_task* task, const hy_decode* p, hy_dtype dtype) {
  return (dtype == HY_BF16 || dtype == HY_F16) && (p->size == 64 || p->size == 128) && aligned(p) &&
         takes_input(p) && p->heads / p->kv_heads <= HEADS && hy__gpu_mma_sync(task) &&
         (int64_t)p->sequences * p->heads <= task->device->multiprocessors &&
         mma_shared_bytes(mma_shape_for(task), p->size) <= (size_t)task->device->max_shared;
}

static void run_mma(hy__gpu_task* task, hy_decode* p, hy_dtype dtype) {
  enum { LARGE = 16 };  // warps of a block that has a multiprocessor for itself
  int op = task->op;
  mma_shape s = mma_shape_for(task);
  int warps = s.cluster * s.warps;
  split(task, p, (int64_t)p->sequences * p->kv_heads * warps / LARGE, MMA_KEYS * warps);
  char options[128];
  snprintf(options, sizeof options,
           "-DT=%s -DHEAD=%d -DBLOCK=%d -DINDEX=%s -DANGLE=%s -DCLUSTER=%d -DWARPS=%d",
           hy__gpu_type_name(dtype), p->size, p->block, hy__gpu_type_name((hy_dtype)p->table_dtype),
           hy__gpu_type_name((hy_dtype)p->angle_dtype), s.cluster, s.warps);
  hy__gpu_launch_dependent(
      task, hy__gpu_kernel(task, "rope_paged_attention_mma", "rope_paged_attention_mma", options),
      (hy__gpu_dim3){(unsigned)(p->splits * s.cluster), (unsigned)p->kv_heads,
                     (unsigned)p->sequences},
      hy__gpu_1d((unsigned)s.warps * 32), mma_shared_bytes(s, p->size),
      HY__GPU_ARGS(p, &task->stream->use.faults->address, &op));
}

// ---- Otherwise ----

static void run_any(hy__gpu_task* task, hy_decode* p, hy_dtype dtype) {
  int64_t size = (int64_t)hy_dtype_size(dtype), wide = dtype == HY_F64 ? 8 : 4;
  shape s = shape_for(task, p, dtype);
  int op = task->op, per_key_head = p->heads / p->kv_heads;
  int chunks = (per_key_head + s.heads - 1) / s.heads;
  int64_t blocks = (int64_t)p->sequences * p->kv_heads * chunks;
  p->splits = 1;
  if (dtype != HY_F64 && blocks <= HY__GPU_COUNTERS) split(task, p, blocks, s.tile);
  char options[96];
  snprintf(options, sizeof options, "-DT=%s -DHEAD=%d -DTILE=%d -DWIDE=%d -DHEADS=%d -DWARPS=%d",
           hy__gpu_type_name(dtype), s.head, s.tile, s.head == p->size && aligned(p), s.heads,
           s.warps);
  hy__gpu_launch_dependent(
      task, hy__gpu_kernel(task, "rope_paged_attention", "rope_paged_attention", options),
      (hy__gpu_dim3){(unsigned)p->splits, (unsigned)(p->kv_heads * chunks), (unsigned)p->sequences},
      hy__gpu_1d((unsigned)s.warps * 32), shared_bytes(&s, size, wide),
      HY__GPU_ARGS(p, &task->stream->use.faults->address, &op));
}

static void run(hy__gpu_task* task, hy_decode* p, hy_dtype dtype) {
  if (takes_mma(task, p, dtype))
    run_mma(task, p, dtype);
  else
    run_any(task, p, dtype);
}

hy_support hy__gpu_rope_paged_attention(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *in = call->in, *k = &in[K_CACHE], *table = &in[TABLE];
  int64_t most = INT32_MAX / 2, size = k->shape[3], kv_heads = k->shape[2];
  HY__GPU_NEED(size <= 256 && head_fits(task, size, in[QKV].dtype) && k->shape[0] < most &&
                   in[QKV].shape[0] <= 65535 && in[QKV].shape[1] <= 65535 &&
                   table->shape[1] * k->shape[1] < most && in[COSINE].shape[0] < most,
               NO_SHAPE);
  if (!task->stream) return HY_SUPPORT_YES;
  hy_tensor caches[2], index[5];
  for (int i = 0; i < 2; i++) caches[i] = hy__gpu_cache_begin(task, &in[i], &call->out[i]);
  for (int i = 0; i < 5; i++) index[i] = hy__gpu_contiguous(task, &in[QKV + i]);
  hy_tensor out = hy__gpu_out_begin(task, &call->out[2]);
  const hy_tensor* early[] = {&caches[0], &caches[1], &index[1], &index[2], &index[3], &index[4]};
  hy_decode p = {.qkv = index[0].data,
                 .cosine = index[1].data,
                 .sine = index[2].data,
                 .k = caches[0].data,
                 .v = caches[1].data,
                 .out = out.data,
                 .table = index[3].data,
                 .length = index[4].data,
                 .sequences = (int)in[QKV].shape[0],
                 .heads = (int)(in[QKV].shape[1] - 2 * kv_heads),
                 .kv_heads = (int)kv_heads,
                 .size = (int)size,
                 .blocks = (int)k->shape[0],
                 .block = (int)k->shape[1],
                 .most_blocks = (int)table->shape[1],
                 .positions = (int)in[COSINE].shape[0],
                 .early = hy__gpu_readable_early(task, early, 6),
                 .table_dtype = index[3].dtype,
                 .length_dtype = index[4].dtype,
                 .angle_dtype = index[1].dtype,
                 .scale = call->attrs.scale.scale};
  if (p.scale == 0) p.scale = size > 0 ? 1 / sqrt((double)size) : 1;
  if (hy_tensor_numel(&out) > 0) run(task, &p, in[QKV].dtype);
  for (int i = 0; i < 2; i++) hy__gpu_out_end(task, &call->out[i], &caches[i]);
  hy__gpu_out_end(task, &call->out[2], &out);
  return HY_SUPPORT_YES;
}
