// SDPA, scaled dot product attention: flash attention, or decode attention for few queries.
#include "backends/cpu/attention/flash.h"

#include <math.h>
#include <stdatomic.h>

#include "backends/cpu/attention/decode.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "base/math.h"

// Packed keys and values that are held at once; more heads than fit go in several rounds.
enum { PACKED_BYTES = 32 << 20 };

typedef struct forward {
  hy__sdpa a;
  hy_tensor *out, *lse;
  float* packed;  // keys, then values, of each head from first_head on
  int64_t keys_size, values_size;
  int64_t first_head, n_heads;    // batch * kv_heads + kv head
  int64_t panels, blocks;         // of queries and of keys, to a head
  atomic_bool failed, nonfinite;  // no memory; something that is not finite came out
} forward;

// A block of keys and values of one head: heads alone may be fewer than threads.
static void pack_block(void* context, int64_t task) {
  const forward* f = context;
  const hy__sdpa* a = &f->a;
  int64_t i = task / f->blocks, head = f->first_head + i, first = task % f->blocks * a->block;
  int64_t batch = head / a->kv_heads, kv = head % a->kv_heads, end = first + a->block;
  hy__matrix k = hy__head(a->k, batch, kv), v = hy__head(a->v, batch, kv);
  float* to = f->packed + i * (f->keys_size + f->values_size);
  if (end > a->keys) end = a->keys;
  hy__flash_pack_keys(a, &k, a->size, first, end, to);
  hy__flash_pack_values(a, &v, a->value_size, first, end, to + f->keys_size);
}

// What a task needs: a packed panel of queries, scores of a block of keys, the sums, and for each
// query its largest score, the sum of its weights and the factor by which both shrink.
typedef struct workspace {
  float *queries, *scores, *sums, *tile;
  float largest[HY__GEMM_MAX_NR] __attribute__((aligned(64)));
  float total[HY__GEMM_MAX_NR] __attribute__((aligned(64)));
} workspace;

static bool prepare(const hy__sdpa* a, workspace* w) {
  int64_t panel = a->gemm->nr;
  int64_t words = max_i64(a->size, hy__gemm_words(a->gemm, (int)a->size));
  int64_t columns = words + a->value_size + HY__MAX_KEYS + a->kernels->gemm.f32->nr;
  float* memory = hy__scratch_get(HY__SCRATCH_ATTENTION, (size_t)(columns * panel) * sizeof(float));
  if (!memory) return false;
  w->queries = memory;
  w->scores = w->queries + words * panel;
  w->sums = w->scores + HY__MAX_KEYS * panel;
  w->tile = w->sums + a->value_size * panel;
  for (int i = 0; i < panel; i++) {
    w->largest[i] = -INFINITY;
    w->total[i] = 0;
  }
  for (int64_t i = 0; i < a->value_size * panel; i++) w->sums[i] = 0;
  return true;
}

// The sums have queries in columns, the output has them in rows.
static void store(forward* f, workspace* w, int64_t batch, int64_t head, int64_t first, int n) {
  const hy__sdpa* a = &f->a;
  const hy__gemm_kernel* transposer = a->kernels->gemm.f32;
  hy__matrix out = hy__head(f->out, batch, head);
  for (int64_t c = 0; c < a->value_size; c += transposer->nr) {
    int columns = min_i64(transposer->nr, a->value_size - c);
    hy__matrix sums = {w->sums + c * a->gemm->nr, HY_F32, 1, a->gemm->nr};
    transposer->pack_b(&sums, 0, n, 0, columns, w->tile);
    for (int q = 0; q < n; q++) {
      float factor = w->largest[q] == -INFINITY ? 0 : 1 / w->total[q];
      float* sums_of = w->tile + (int64_t)q * transposer->nr;
      if (!hy__is_finite(sums_of, columns, factor)) atomic_store(&f->nonfinite, true);
      a->kernels->gemm.epilogue(columns, sums_of, factor, 0, NULL, 0,
                                hy__matrix_at(&out, first + q, c), out.column, out.dtype);
    }
  }
  if (f->lse->dtype == HY_NONE) return;
  for (int q = 0; q < n; q++)
    *(float*)hy__head_row(f->lse, batch, head, first + q) =
        w->largest[q] == -INFINITY ? -INFINITY : w->largest[q] + logf(w->total[q]);
}

// Scores of a block become weights, packed as the kernel wants them for the sums of values.
static void weigh(const hy__sdpa* a, workspace* w, int keys, const int* seen) {
  const hy__gemm_kernel* gemm = a->gemm;
  if (gemm->unit == 1) {
    a->kernels->attention.online_softmax(w->scores, seen, keys, gemm->nr, w->largest, w->total,
                                         w->sums, a->value_size);
    return;
  }
  a->kernels->attention.online_softmax_bf16(w->scores, seen, keys, gemm->nr, a->softmax_scale,
                                            w->largest, w->total, w->sums, a->value_size);
  // Tiles read whole ones.
  int used = (int)ceil_div(keys, gemm->unit), words = hy__gemm_words(gemm, keys);
  for (int i = used * gemm->nr; i < words * gemm->nr; i++) w->scores[i] = 0;
}

static void attend(void* context, int64_t task) {
  forward* f = context;
  const hy__sdpa* a = &f->a;
  const hy__gemm_kernel* gemm = a->gemm;
  // Panels of one head follow one another, since they read the same keys; the last ones, which see
  // the most of them, go first, so that no thread is left with one at the end.
  int64_t panel = f->panels - 1 - task % f->panels;
  int64_t index = task / f->panels, local = index / a->group;
  int64_t batch = (f->first_head + local) / a->kv_heads;
  int64_t head = (f->first_head + local) % a->kv_heads * a->group + index % a->group;
  int64_t first = panel * gemm->nr, left = a->queries - first;
  int n = (int)(left < gemm->nr ? left : gemm->nr);
  const float* keys = f->packed + local * (f->keys_size + f->values_size);
  workspace w;
  if (!prepare(a, &w)) {
    atomic_store(&f->failed, true);
    return;
  }
  hy__matrix q = hy__head(a->q, batch, head), across = {q.data, q.dtype, q.column, q.row};
  gemm->pack_b(&across, 0, (int)a->size, first, n, w.queries);
  if (gemm->unit == 1)
    a->kernels->gemm.epilogue(a->size * gemm->nr, w.queries, a->scale, 0, NULL, 0, w.queries, 1,
                              HY_F32);
  int64_t visible = hy__visible(a, first + n - 1);
  if (gemm->begin) gemm->begin();
  for (int64_t s = 0; s < visible; s += a->block) {
    int count = min_i64(a->block, visible - s), seen[HY__QUERY_GROUPS];
    hy__flash_visible_keys(a, first, n, s, count, seen);
    hy__flash_scores(a, keys, s, count, seen, a->size, w.queries, w.scores);
    hy__flash_mask(a, batch, head, first, n, s, count, w.scores);
    weigh(a, &w, count, seen);
    hy__flash_accumulate(a, keys + f->keys_size, s, count, seen, a->value_size, w.scores, w.sums);
  }
  if (gemm->end) gemm->end();
  store(f, &w, batch, head, first, n);
}

// ---- few queries: those of all heads that share their keys are one unit ----

static void few_describe(const void* context, int64_t unit, int* queries, int64_t* keys) {
  (void)unit;
  const hy__sdpa* a = &((const forward*)context)->a;
  *queries = (int)(a->group * a->queries);
  *keys = a->keys;
}

static int64_t head_of(const hy__sdpa* a, int64_t unit, int query) {
  return unit % a->kv_heads * a->group + query / a->queries;
}

static void few_load(const void* context, int64_t unit, float* queries) {
  const hy__sdpa* a = &((const forward*)context)->a;
  for (int i = 0; i < a->group * a->queries; i++) {
    hy__matrix q = hy__head(a->q, unit / a->kv_heads, head_of(a, unit, i));
    a->kernels->gemm.widen(a->size, hy__matrix_at(&q, i % a->queries, 0), q.column, q.dtype,
                           queries + i * a->size);
  }
}

static int64_t few_keys(const void* context, int64_t unit, int64_t first, hy__matrix* k,
                        hy__matrix* v) {
  const hy__sdpa* a = &((const forward*)context)->a;
  *k = hy__head(a->k, unit / a->kv_heads, unit % a->kv_heads);
  *v = hy__head(a->v, unit / a->kv_heads, unit % a->kv_heads);
  k->data = hy__matrix_at(k, first, 0);
  v->data = hy__matrix_at(v, first, 0);
  return a->keys - first;
}

static void few_mask(const void* context, int64_t unit, int query, int64_t first, int n,
                     float* scores) {
  const hy__sdpa* a = &((const forward*)context)->a;
  int64_t t = query % a->queries, seen = hy__visible(a, t) - first;
  if (a->mask.dtype != HY_NONE)
    hy__mask_row(a, unit / a->kv_heads, head_of(a, unit, query), t, first, n, 1, scores);
  for (int64_t s = seen < 0 ? 0 : seen; s < n; s++) scores[s] = -INFINITY;
}

static void few_store(void* context, int64_t unit, int query, const float* sums, float factor,
                      float lse) {
  forward* f = context;
  const hy__sdpa* a = &f->a;
  int64_t batch = unit / a->kv_heads, head = head_of(a, unit, query), t = query % a->queries;
  hy__matrix out = hy__head(f->out, batch, head);
  if (!hy__is_finite(sums, a->value_size, factor)) atomic_store(&f->nonfinite, true);
  a->kernels->gemm.epilogue(a->value_size, sums, factor, 0, NULL, 0, hy__matrix_at(&out, t, 0),
                            out.column, out.dtype);
  if (f->lse->dtype != HY_NONE) *(float*)hy__head_row(f->lse, batch, head, t) = lse;
}

static bool attend_few(forward* f) {
  const hy__sdpa* a = &f->a;
  hy__decode_attention few = {.kernels = a->kernels,
                              .units = a->batches * a->kv_heads,
                              .size = a->size,
                              .value_size = a->value_size,
                              .scale = a->scale,
                              .most_keys = a->keys,
                              .context = f,
                              .describe = few_describe,
                              .load = few_load,
                              .keys = few_keys,
                              .mask = few_mask,
                              .store = few_store};
  return hy__attention_decode(&few);
}

// ---- the op ----

static bool attend_panels(forward* f) {
  const hy__sdpa* a = &f->a;
  int64_t panel = a->gemm->nr;
  f->keys_size = hy__flash_keys_size(a);
  f->values_size = hy__flash_values_size(a);
  f->panels = ceil_div(a->queries, panel);
  f->blocks = ceil_div(a->keys, a->block);
  size_t bytes = (size_t)(f->keys_size + f->values_size) * sizeof(float);
  int64_t heads = a->batches * a->kv_heads, at_once = (int64_t)(PACKED_BYTES / (bytes + 1)) + 1;
  if (at_once > heads) at_once = heads;
  f->packed = hy__scratch_get(HY__SCRATCH_KEYS, (size_t)at_once * bytes);
  if (!f->packed) return false;
  for (f->first_head = 0; f->first_head < heads; f->first_head += at_once) {
    f->n_heads = heads - f->first_head < at_once ? heads - f->first_head : at_once;
    hy__pool_run(pack_block, f, f->n_heads * f->blocks);
    hy__pool_run(attend, f, f->n_heads * a->group * f->panels);
  }
  return !atomic_load(&f->failed);
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  forward f = {.out = &call->out[0], .lse = &call->out[1]};
  hy__sdpa_describe(kernels, kernels->attention.bf16_forward, call, 0, 3, &f.a);
  const hy__sdpa* a = &f.a;
  bool few = a->group * a->queries <= HY__GEMV_MAX_M && a->k->stride[a->k->ndim - 1] == 1;
  bool done = few ? attend_few(&f) : attend_panels(&f);
  if (!done) return hy__cpu_no_memory(call);
  if (atomic_load(&f.nonfinite) && !hy__tensor_is_finite(a->v))
    return hy__backend_host->reference(call);
  return HY_OK;
}

static hy_support supports(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_sdpa = {supports, run};
