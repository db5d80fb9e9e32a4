// Paged attention: keys and values in the KV blocks of a cache. Sequences with a few new tokens
// read the blocks in place (decode); those with many go through flash attention, a sequence at a
// time (prefill), gathered first unless their blocks are neighbours.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/attention/decode.h"
#include "backends/cpu/attention/flash.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "base/math.h"
#include "base/memory.h"

typedef struct paged {
  const hy__cpu_kernels* kernels;
  const hy_call* call;
  const hy_tensor *q, *k, *v, *table;
  const hy_tensor* out;
  int64_t kv_heads, group, block_size;
  atomic_bool nonfinite;  // something that is not finite came out
} paged;

static int64_t index_at(const hy_tensor* t, int64_t row, int64_t column) {
  int64_t at = t->ndim == 1 ? column * t->stride[0] : row * t->stride[0] + column * t->stride[1];
  return t->dtype == HY_I64 ? ((const int64_t*)t->data)[at] : ((const int32_t*)t->data)[at];
}

typedef struct sequence {
  int64_t first, queries, keys;
} sequence;

static sequence sequence_at(const paged* p, int64_t b) {
  const hy_tensor* start = &p->call->in[4];
  int64_t first = index_at(start, 0, b);
  return (sequence){first, index_at(start, 0, b + 1) - first, index_at(&p->call->in[5], 0, b)};
}

// Everything that the reference would refuse; it has the words for it.
static bool indices_are_right(const paged* p) {
  int64_t sequences = p->table->shape[0], tokens = p->q->shape[0], most = p->table->shape[1];
  const hy_tensor* start = &p->call->in[4];
  if (index_at(start, 0, 0) != 0 || index_at(start, 0, sequences) != tokens) return false;
  for (int64_t b = 0; b < sequences; b++) {
    sequence s = sequence_at(p, b);
    if (s.first < 0 || s.queries < 0 || s.first + s.queries > tokens) return false;
    if (s.keys < s.queries || s.keys > most * p->block_size) return false;
    for (int64_t i = 0; i * p->block_size < s.keys; i++) {
      int64_t block = index_at(p->table, b, i);
      if (block < 0 || block >= p->k->shape[0]) return false;
    }
  }
  return true;
}

// Rows of one head from key `first` of a sequence to the end of its block, or of those behind it
// that are neighbours in memory too.
static int64_t rows_at(const paged* p, const hy_tensor* cache, int64_t b, int64_t head,
                       int64_t first, hy__matrix* m) {
  enum { ENOUGH = 256 };  // what a task takes
  int64_t number = first / p->block_size, at = first % p->block_size;
  int64_t block = index_at(p->table, b, number), rows = p->block_size - at;
  int64_t offset = block * cache->stride[0] + at * cache->stride[1] + head * cache->stride[2];
  *m = (hy__matrix){(char*)cache->data + offset * (int64_t)hy_dtype_size(cache->dtype),
                    cache->dtype, cache->stride[1], cache->stride[3]};
  if (cache->stride[0] != p->block_size * cache->stride[1]) return rows;
  int64_t keys = index_at(&p->call->in[5], 0, b);
  while (rows < ENOUGH && first + rows < keys && index_at(p->table, b, ++number) == ++block)
    rows += p->block_size;
  return rows;
}

static bool values_are_finite(const paged* p) {
  for (int64_t b = 0; b < p->table->shape[0]; b++) {
    sequence s = sequence_at(p, b);
    for (int64_t i = 0; i < s.keys; i += p->block_size) {
      hy_tensor block = *p->v;
      int64_t left = s.keys - i, at = index_at(p->table, b, i / p->block_size);
      block.data = (char*)p->v->data + at * p->v->stride[0] * (int64_t)hy_dtype_size(block.dtype);
      block.ndim = 3;
      for (int d = 0; d < 3; d++) {
        block.shape[d] = p->v->shape[d + 1];
        block.stride[d] = p->v->stride[d + 1];
      }
      block.shape[0] = left < p->block_size ? left : p->block_size;
      if (!hy__tensor_is_finite(&block)) return false;
    }
  }
  return true;
}

// ---- few new tokens: a unit is a sequence and a key head ----

static void few_describe(const void* context, int64_t unit, int* queries, int64_t* keys) {
  const paged* p = context;
  sequence s = sequence_at(p, unit / p->kv_heads);
  bool few = s.queries * p->group <= HY__GEMV_MAX_M;
  *queries = few ? (int)(s.queries * p->group) : 0;
  *keys = *queries > 0 ? s.keys : 0;
}

static char* token_at(const paged* p, const hy_tensor* t, int64_t unit, int query) {
  sequence s = sequence_at(p, unit / p->kv_heads);
  int64_t head = unit % p->kv_heads * p->group + query / s.queries;
  int64_t offset = (s.first + query % s.queries) * t->stride[0] + head * t->stride[1];
  return (char*)t->data + offset * (int64_t)hy_dtype_size(t->dtype);
}

static void few_load(const void* context, int64_t unit, float* queries) {
  const paged* p = context;
  int n;
  int64_t keys, size = p->q->shape[2];
  few_describe(p, unit, &n, &keys);
  for (int i = 0; i < n; i++)
    p->kernels->gemm.widen(size, token_at(p, p->q, unit, i), p->q->stride[2], p->q->dtype,
                           queries + i * size);
}

static int64_t few_keys(const void* context, int64_t unit, int64_t first, hy__matrix* k,
                        hy__matrix* v) {
  const paged* p = context;
  int64_t b = unit / p->kv_heads, head = unit % p->kv_heads;
  return min_i64(rows_at(p, p->k, b, head, first, k), rows_at(p, p->v, b, head, first, v));
}

static void few_mask(const void* context, int64_t unit, int query, int64_t first, int n,
                     float* scores) {
  const paged* p = context;
  sequence s = sequence_at(p, unit / p->kv_heads);
  int64_t seen = s.keys - s.queries + query % s.queries + 1 - first;
  for (int64_t i = seen < 0 ? 0 : seen; i < n; i++) scores[i] = -INFINITY;
}

static void few_store(void* context, int64_t unit, int query, const float* sums, float factor,
                      float lse) {
  (void)lse;
  paged* p = context;
  if (!hy__is_finite(sums, p->out->shape[2], factor)) atomic_store(&p->nonfinite, true);
  p->kernels->gemm.epilogue(p->out->shape[2], sums, factor, 0, NULL, 0,
                            token_at(p, p->out, unit, query), p->out->stride[2], p->out->dtype);
}

static bool attend_few(paged* p, float scale) {
  hy__decode_attention few = {.kernels = p->kernels,
                              .units = p->table->shape[0] * p->kv_heads,
                              .size = p->q->shape[2],
                              .value_size = p->v->shape[3],
                              .scale = scale,
                              .context = p,
                              .describe = few_describe,
                              .load = few_load,
                              .keys = few_keys,
                              .mask = few_mask,
                              .store = few_store};
  for (int64_t u = 0; u < few.units; u++) {
    int queries;
    int64_t keys;
    few_describe(p, u, &queries, &keys);
    if (keys > few.most_keys) few.most_keys = keys;
  }
  return few.most_keys == 0 || hy__attention_decode(&few);
}

// ---- many new tokens ----

// [heads, rows, size] of a sequence's tokens in place.
static hy_tensor tokens_of(const hy_tensor* t, const sequence* s) {
  hy_tensor view = *t;
  view.data = (char*)t->data + s->first * t->stride[0] * (int64_t)hy_dtype_size(t->dtype);
  view.shape[0] = t->shape[1];
  view.stride[0] = t->stride[1];
  view.shape[1] = s->queries;
  view.stride[1] = t->stride[0];
  return view;
}

// Whether the keys of a sequence are in blocks that are neighbours in memory too: then they are
// [heads, keys, size] in place.
static bool in_place(const paged* p, const hy_tensor* cache, int64_t b, int64_t keys,
                     hy_tensor* view) {
  int64_t first = index_at(p->table, b, 0), blocks = ceil_div(keys, p->block_size);
  if (blocks > 1 && cache->stride[0] != p->block_size * cache->stride[1]) return false;
  for (int64_t i = 1; i < blocks; i++) {
    if (index_at(p->table, b, i) != first + i) return false;
  }
  *view = (hy_tensor){
      .data = (char*)cache->data + first * cache->stride[0] * (int64_t)hy_dtype_size(cache->dtype),
      .dtype = cache->dtype,
      .ndim = 3,
      .shape = {p->kv_heads, keys, cache->shape[3]},
      .stride = {cache->stride[2], cache->stride[1], cache->stride[3]}};
  return true;
}

enum { GATHERED = 64 };  // keys of a task

typedef struct gather {
  const paged* p;
  const hy_tensor* cache;
  int64_t b, keys, parts;
  char* to;  // [kv_heads, keys, size], packed
} gather;

static void gather_part(void* context, int64_t task) {
  const gather* g = context;
  int64_t size = (int64_t)hy_dtype_size(g->cache->dtype), columns = g->cache->shape[3];
  int64_t head = task / g->parts, first = task % g->parts * GATHERED;
  int64_t end = min_i64(first + GATHERED, g->keys);
  for (int64_t s = first; s < end;) {
    hy__matrix m;
    int64_t rows = rows_at(g->p, g->cache, g->b, head, s, &m);
    for (int64_t r = 0; r < rows && s < end; r++, s++) {
      char* to = g->to + (head * g->keys + s) * columns * size;
      if (m.column == 1) {
        memcpy(to, hy__matrix_at(&m, r, 0), (size_t)(columns * size));
        continue;
      }
      for (int64_t c = 0; c < columns; c++)
        memcpy(to + c * size, hy__matrix_at(&m, r, c), (size_t)size);
    }
  }
}

static hy_tensor gathered(const paged* p, const hy_tensor* cache, int64_t b, int64_t keys,
                          void* memory) {
  int64_t size = cache->shape[3];
  gather g = {p, cache, b, keys, ceil_div(keys, GATHERED), memory};
  hy__pool_run(gather_part, &g, p->kv_heads * g.parts);
  return (hy_tensor){.data = memory,
                     .dtype = cache->dtype,
                     .ndim = 3,
                     .shape = {p->kv_heads, keys, size},
                     .stride = {keys * size, size, 1}};
}

static hy_status attend_sequence(const paged* p, int64_t b, const sequence* s, double scale) {
  hy_tensor in[4] = {tokens_of(p->q, s)};
  char* memory = NULL;
  if (!in_place(p, p->k, b, s->keys, &in[1]) || !in_place(p, p->v, b, s->keys, &in[2])) {
    size_t row = (size_t)(p->kv_heads * s->keys) * hy_dtype_size(p->k->dtype);
    memory = hy__malloc(row * (size_t)(p->k->shape[3] + p->v->shape[3]) + 1);
    if (!memory) return hy__cpu_no_memory(p->call);
    in[1] = gathered(p, p->k, b, s->keys, memory);
    in[2] = gathered(p, p->v, b, s->keys, memory + row * (size_t)p->k->shape[3]);
  }
  hy_tensor out[2] = {tokens_of(p->out, s), {0}};
  hy_call call = {.op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = in, .out = out};
  call.attrs.attention.scale = scale;
  call.attrs.attention.causal = HY_CAUSAL_BOTTOM_RIGHT;
  hy_status status = hy__cpu_sdpa.run(p->kernels, &call);
  hy__mfree(memory);
  return status;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  paged p = {.kernels = kernels, .call = call, .q = &call->in[0], .k = &call->in[1]};
  p.v = &call->in[2];
  p.table = &call->in[3];
  p.out = &call->out[0];
  p.kv_heads = p.k->shape[2];
  p.group = p.q->shape[1] / p.kv_heads;
  p.block_size = p.k->shape[1];
  if (!indices_are_right(&p)) return hy__backend_host->reference(call);
  double scale = call->attrs.scale.scale;
  if (scale == 0) scale = p.q->shape[2] > 0 ? 1 / sqrt((double)p.q->shape[2]) : 1;
  if (!attend_few(&p, (float)scale)) return hy__cpu_no_memory(call);
  if (atomic_load(&p.nonfinite) && !values_are_finite(&p)) return hy__backend_host->reference(call);
  for (int64_t b = 0; b < p.table->shape[0]; b++) {
    sequence s = sequence_at(&p, b);
    if (s.queries * p.group > HY__GEMV_MAX_M) HY_TRY(attend_sequence(&p, b, &s, scale));
  }
  return HY_OK;
}

static hy_support supports(const hy_call* call) {
  const hy_tensor* k = &call->in[1];
  return k->stride[3] == 1 || k->shape[3] <= 1 ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

const hy__cpu_family hy__cpu_paged_attention = {supports, run};
