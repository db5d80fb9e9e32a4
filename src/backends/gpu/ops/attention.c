// Scaled dot product attention and its gradient: FlashAttention for f16 and bf16 with heads of up
// to 256, and for f32 with heads of up to 128; a warp for each row otherwise.
#include <math.h>
#include <stdio.h>

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/attention_f32.h"
#include "backends/gpu/ops/attention_wgmma.h"
#include "backends/gpu/ops/heads.h"
#include "backends/gpu/ops/held.h"

static bool batch_merges(const hy_tensor* t) {
  int64_t count;
  return hy__gpu_batch_stride(t, 3, &count) >= 0 || count == 1;
}

static bool usable(const hy_tensor* t, bool aligned) {
  int last = t->ndim - 1;
  return (t->stride[last] == 1 || t->shape[last] == 1) && batch_merges(t) &&
         (!aligned || hy__gpu_rows_aligned(t));
}

static hy_heads heads_of(const hy_tensor* t) {
  int64_t count;
  int n = t->ndim;
  hy_heads h = {t->data, hy__gpu_batch_stride(t, 3, &count), t->stride[n - 3], t->stride[n - 2]};
  return h;
}

// An input as kernels take it, copied where need be.
static hy_heads input_heads(hy__gpu_task* task, const hy_tensor* t, bool aligned) {
  if (usable(t, aligned)) return heads_of(t);
  hy_tensor copy = hy__gpu_padded(task, t);
  hy__gpu_copy(task, &copy, t);
  return heads_of(&copy);
}

// The same for an output, `held` being what the kernel writes.
static hy_heads output_heads(hy__gpu_task* task, const hy_tensor* t, bool aligned,
                             hy_tensor* held) {
  *held = *t;
  if (!hy__gpu_present(t)) return (hy_heads){NULL, 0, 0, 0};
  if (!usable(t, aligned)) *held = hy__gpu_padded(task, t);
  return heads_of(held);
}

static int64_t product(const hy_tensor* t, int first, int end) {
  int64_t n = 1;
  for (int d = first; d < end; d++) n *= t->shape[d];
  return n;
}

// Sizes, from q, k, v; false where a kernel could not count them.
static bool describe(const hy_call* call, const hy_tensor* q, hy_attention* a) {
  const hy_tensor *k = q + 1, *v = q + 2;
  int n = q->ndim;
  int64_t batches = product(q, 0, n - 3), most = INT32_MAX / 2;
  if (q->shape[n - 3] * q->shape[n - 2] > most || k->shape[n - 2] > most || batches > 65535 ||
      k->shape[n - 3] > 65535 || product(q, 0, n - 1) > (int64_t)1 << 33 ||
      product(k, 0, n - 1) > (int64_t)1 << 33)
    return false;
  *a = (hy_attention){.batches = (int)batches, .heads = (int)q->shape[n - 3]};
  a->kv_heads = (int)k->shape[n - 3];
  a->queries = (int)q->shape[n - 2];
  a->keys = (int)k->shape[n - 2];
  a->size = (int)q->shape[n - 1];
  a->value_size = (int)v->shape[n - 1];
  a->causal = call->attrs.attention.causal;
  a->scale = call->attrs.attention.scale;
  if (a->scale == 0) a->scale = a->size > 0 ? 1 / sqrt((double)a->size) : 1;
  return true;
}

// The mask broadcast to [..., heads, queries, keys].
static void set_mask(hy__gpu_task* task, const hy_tensor* mask, const hy_tensor* q,
                     hy_attention* a) {
  if (!hy__gpu_present(mask)) return;
  hy_tensor m = *mask;
  int skip = q->ndim - mask->ndim;
  m.ndim = q->ndim;
  for (int d = 0; d < q->ndim; d++) {
    m.shape[d] = d == q->ndim - 1 ? a->keys : q->shape[d];
    bool has = d >= skip && mask->shape[d - skip] == m.shape[d];
    m.stride[d] = has ? mask->stride[d - skip] : 0;
  }
  if (!batch_merges(&m)) {
    hy_tensor whole = hy__gpu_temporary(task, m.dtype, m.ndim, m.shape);
    hy__gpu_copy(task, &whole, &m);
    m = whole;
  }
  hy_heads h = heads_of(&m);
  a->mask = m.data;
  a->mask_dtype = m.dtype;
  a->mask_batch = h.batch;
  a->mask_head = h.head;
  a->mask_row = h.row;
  a->mask_column = m.stride[m.ndim - 1];
}

// ---- FlashAttention's shapes ----

static bool on_tensor_cores(const hy__gpu_task* task, hy_dtype dtype, const hy_attention* a) {
  return task->device->mma_lanes > 0 && (dtype == HY_F16 || dtype == HY_BF16) && a->size <= 256 &&
         a->value_size <= 256;
}

static int padded_head(const hy_attention* a) {
  int size = a->size > a->value_size ? a->size : a->value_size;
  return size <= 32 ? 32 : size <= 64 ? 64 : size <= 128 ? 128 : 256;
}

// Warps of 32 for `n` rows, in blocks of 4 as far as their shared memory allows.
static void launch_rows(hy__gpu_task* task, const char* entry, hy_dtype dtype, int64_t n,
                        int64_t numbers, hy_attention* a) {
  size_t bytes = (size_t)numbers * (dtype == HY_F64 ? 8 : 4);
  unsigned warps = 4;
  while (warps > 1 && warps * bytes > 40000) warps /= 2;
  if (bytes > (size_t)task->device->max_shared)
    hy__gpu_refuse(task, HY_UNSUPPORTED, "the heads are too large for this device");
  hy__gpu_function* kernel = hy__gpu_kernel(task, "attention_simt", entry, hy__gpu_option(dtype));
  hy__gpu_launch(task, kernel, (hy__gpu_dim3){hy__gpu_tiles(n, (int)warps), 1, 1},
                 (hy__gpu_dim3){warps * (unsigned)task->device->warp_size, 1, 1}, warps * bytes,
                 HY__GPU_ARGS(a));
}

static bool head_fits(hy__gpu_task* task, const hy_attention* a) {
  return 16 * ((int64_t)a->size + a->value_size) <= task->device->max_shared;
}

// ---- forward ----

// Into how many parts the keys fall, so that one tile of rows for each key head fills the device.
static int splits_for(const hy__gpu_task* task, const hy_attention* a, int bq) {
  enum { LEAST_KEYS = 256, MOST = 32 };  // of a part; parts
  int64_t wanted = (int64_t)task->device->multiprocessors * (bq == 16 ? 8 : 2) /
                   ((int64_t)a->kv_heads * a->batches);
  int64_t most = a->keys / LEAST_KEYS;
  if (wanted > most) wanted = most;
  return wanted < 1 ? 1 : wanted > MOST ? MOST : (int)wanted;
}

static void hold_parts(hy__gpu_task* task, hy_attention* a) {
  size_t rows = (size_t)a->splits * (size_t)a->batches * (size_t)a->heads * (size_t)a->queries;
  a->partial = (float*)(uintptr_t)hy__gpu_workspace(task, rows * (size_t)a->value_size * 4);
  a->partial_lse = (float*)(uintptr_t)hy__gpu_workspace(task, rows * 4);
}

static void run_flash(hy__gpu_task* task, hy_attention* a, hy_dtype dtype) {
  int64_t rows = (int64_t)a->queries * (a->heads / a->kv_heads);
  int head = padded_head(a), bq = rows <= 16 ? 16 : 64, bkv = head <= 128 ? 64 : 32;
  int64_t blocks = (int64_t)hy__gpu_tiles(rows, 128) * a->kv_heads * a->batches;
  if (rows > 64 && head <= 128 && blocks >= 2 * (int64_t)task->device->multiprocessors) bq = 128;
  while (bkv > 16 && (bq + 4 * bkv) * head * 2 > task->device->max_shared) bkv /= 2;
  a->splits = rows <= bq ? splits_for(task, a, bq) : 1;
  if (a->splits > 1) hold_parts(task, a);
  unsigned tiles = a->splits > 1 ? (unsigned)a->splits : hy__gpu_tiles(rows, bq);
  char options[96];
  snprintf(options, sizeof options, "-DT=%s -DHEAD=%d -DBQ=%d -DBKV=%d -DMASKED=%d",
           hy__gpu_type_name(dtype), head, bq, bkv, a->mask != NULL);
  hy__gpu_function* kernel = hy__gpu_kernel(task, "attention", "attention", options);
  size_t shared = (size_t)(bq + 4 * bkv) * (size_t)head * 2;
  hy__gpu_launch(task, kernel, (hy__gpu_dim3){tiles, (unsigned)a->kv_heads, (unsigned)a->batches},
                 (hy__gpu_dim3){(unsigned)(bq / 16 * task->device->mma_lanes), 1, 1}, shared,
                 HY__GPU_ARGS(a));
  if (a->splits > 1)
    hy__gpu_launch(task, hy__gpu_kernel(task, "attention", "attention_combine", options),
                   hy__gpu_1d(hy__gpu_tiles((int64_t)a->batches * a->heads * a->queries, 4)),
                   hy__gpu_1d(4 * (unsigned)task->device->warp_size), 0, HY__GPU_ARGS(a));
}

hy_support hy__gpu_sdpa(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *q = &call->in[0], *out = &call->out[0], *lse = &call->out[1];
  hy_attention a;
  HY__GPU_NEED(describe(call, q, &a) && head_fits(task, &a), NO_SHAPE);
  int64_t rows = product(q, 0, q->ndim - 1);
  if (!task->stream || rows == 0) return HY_SUPPORT_YES;
  bool cores = on_tensor_cores(task, q->dtype, &a);
  bool tiled = q->dtype == HY_F32 && hy__gpu_attention_f32_takes(task, &a, false);
  hy_tensor held, held_lse = hy__gpu_held(task, lse);
  a.q = input_heads(task, &q[0], cores || tiled);
  a.k = input_heads(task, &q[1], cores || tiled);
  a.v = input_heads(task, &q[2], cores || tiled);
  a.out = output_heads(task, out, cores, &held);
  a.lse = hy__gpu_present(lse) ? held_lse.data : NULL;
  set_mask(task, &call->in[3], q, &a);
  bool done = cores && hy__gpu_attention_wgmma(task, &a, q->dtype);
  if (cores && !done) run_flash(task, &a, q->dtype);
  if (tiled) hy__gpu_attention_f32(task, &a);
  if (!cores && !tiled)
    launch_rows(task, "attention_rows", q->dtype, rows, a.size + a.value_size, &a);
  hy__gpu_finish(task, out, &held);
  hy__gpu_finish(task, lse, &held_lse);
  return HY_SUPPORT_YES;
}

// ---- backward ----

typedef struct backward_shape {
  int head, keys, step;           // padded head; keys of a tile of queries; rows of a step of keys
  size_t key_bytes, query_bytes;  // of shared memory, for either kernel
} backward_shape;

static backward_shape shape_of_backward(const hy_attention* a) {
  backward_shape s = {.head = padded_head(a), .keys = 32, .step = 32};
  s.key_bytes = (size_t)(2 * 64 + 4 * s.step) * (size_t)s.head * 2 + (size_t)(6 * s.step) * 4;
  s.query_bytes = (size_t)(2 * 64 + 4 * s.keys) * (size_t)s.head * 2;
  return s;
}

static bool backward_fits(const hy__gpu_task* task, const hy_attention* a) {
  backward_shape s = shape_of_backward(a);
  size_t most = (size_t)task->device->max_shared;
  return s.key_bytes <= most && s.query_bytes <= most;
}

// Whether each query head of a group gets its own blocks: a few times the device, and their sums in
// f32 cost less than half of it standing idle.
static bool sums_by_query_head(const hy__gpu_task* task, const hy_attention* a,
                               unsigned key_tiles) {
  int64_t blocks = (int64_t)key_tiles * a->kv_heads * a->batches;
  return a->heads > a->kv_heads && a->keys > 0 && a->heads <= 65535 &&
         blocks < 4 * (int64_t)task->device->multiprocessors;
}

static void add_delta(hy__gpu_task* task, hy_attention* a, hy_dtype dtype, int64_t rows) {
  a->delta = (void*)(uintptr_t)hy__gpu_workspace(task, (size_t)rows * (dtype == HY_F64 ? 8 : 4));
}

static void launch_backward(hy__gpu_task* task, hy_attention* a, const char* entry,
                            const char* options, hy__gpu_dim3 grid, unsigned threads,
                            size_t shared) {
  hy__gpu_launch(task, hy__gpu_kernel(task, "attention_backward", entry, options), grid,
                 (hy__gpu_dim3){threads, 1, 1}, shared, HY__GPU_ARGS(a));
}

static void run_flash_backward(hy__gpu_task* task, hy_attention* a, hy_dtype dtype,
                               int64_t all_rows) {
  backward_shape s = shape_of_backward(a);
  int64_t rows = (int64_t)a->queries * (a->heads / a->kv_heads);
  unsigned parts = s.head > 128 ? 2 : 1, threads = 4 * (unsigned)task->device->mma_lanes;
  char options[96];
  snprintf(options, sizeof options, "-DT=%s -DHEAD=%d -DBQ=64 -DBKV=%d -DMASKED=%d",
           hy__gpu_type_name(dtype), s.head, s.keys, a->mask != NULL);
  hy__gpu_backward_wgmma hopper;
  bool on_hopper = hy__gpu_backward_wgmma_begin(task, a, dtype, &hopper);
  if (!on_hopper) add_delta(task, a, dtype, all_rows);
  if (!on_hopper && all_rows > 0)
    launch_backward(task, a, "attention_delta", options,
                    (hy__gpu_dim3){hy__gpu_tiles(all_rows * (s.head / 8), 256), 1, 1}, 256, 0);
  if (a->dk.data || a->dv.data) {
    unsigned key_tiles = hy__gpu_tiles(a->keys, on_hopper ? 128 : 64) * parts;
    if (sums_by_query_head(task, a, key_tiles)) {
      size_t sums = (size_t)a->batches * (size_t)a->heads * (size_t)a->keys * (size_t)s.head;
      a->partial = (float*)(uintptr_t)hy__gpu_workspace(task, 2 * sums * sizeof(float));
    }
    unsigned heads = (unsigned)(a->partial ? a->heads : a->kv_heads);
    if (on_hopper)
      hy__gpu_backward_wgmma_key(task, a, &hopper);
    else
      launch_backward(task, a, "attention_backward_key", options,
                      (hy__gpu_dim3){key_tiles, heads, (unsigned)a->batches}, threads, s.key_bytes);
    int64_t pairs = (int64_t)a->batches * a->kv_heads * a->keys * s.head;
    if (a->partial)
      launch_backward(task, a, "attention_backward_sum", options,
                      (hy__gpu_dim3){hy__gpu_blocks(task, pairs, 256, 1), 1, 1}, 256, 0);
  }
  if (a->dq.data && on_hopper)
    hy__gpu_backward_wgmma_query(task, a, &hopper);
  else if (a->dq.data)
    launch_backward(
        task, a, "attention_backward_query", options,
        (hy__gpu_dim3){hy__gpu_tiles(rows, 64), (unsigned)a->kv_heads, (unsigned)a->batches},
        threads, s.query_bytes);
}

hy_support hy__gpu_sdpa_backward(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *in = call->in, *q = &in[1], *k = &in[2];
  hy_attention a;
  HY__GPU_NEED(describe(call, q, &a) && head_fits(task, &a), NO_SHAPE);
  if (!task->stream) return HY_SUPPORT_YES;
  int64_t rows = product(q, 0, q->ndim - 1), keys = product(k, 0, k->ndim - 1);
  bool cores = on_tensor_cores(task, q->dtype, &a) && backward_fits(task, &a);
  bool tiled = q->dtype == HY_F32 && hy__gpu_attention_f32_takes(task, &a, true);
  hy_tensor held[3], lse = hy__gpu_contiguous(task, &in[5]);
  a.dout = input_heads(task, &in[0], cores || tiled);
  a.q = input_heads(task, &in[1], cores || tiled);
  a.k = input_heads(task, &in[2], cores || tiled);
  a.v = input_heads(task, &in[3], cores || tiled);
  a.out = input_heads(task, &in[4], cores);
  a.dq = output_heads(task, &call->out[0], cores, &held[0]);
  a.dk = output_heads(task, &call->out[1], cores, &held[1]);
  a.dv = output_heads(task, &call->out[2], cores, &held[2]);
  a.lse = lse.data;
  set_mask(task, &in[6], q, &a);
  if (cores) {
    run_flash_backward(task, &a, q->dtype, rows);
  } else {
    add_delta(task, &a, q->dtype, rows);
    if (rows > 0) launch_rows(task, "attention_delta", q->dtype, rows, 0, &a);
    if (tiled)
      hy__gpu_attention_f32_backward(task, &a,
                                     sums_by_query_head(task, &a, hy__gpu_tiles(a.keys, 64)));
    if (!tiled && a.dq.data && rows > 0)
      launch_rows(task, "attention_backward_query", q->dtype, rows, 2 * a.size + a.value_size, &a);
    if (!tiled && (a.dk.data || a.dv.data) && keys > 0)
      launch_rows(task, "attention_backward_key", q->dtype, keys,
                  2 * ((int64_t)a.size + a.value_size), &a);
  }
  for (int i = 0; i < 3; i++) hy__gpu_finish(task, &call->out[i], &held[i]);
  return HY_SUPPORT_YES;
}
