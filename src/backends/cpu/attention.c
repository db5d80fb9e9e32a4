// Scaled dot product attention.
#include "backends/cpu/attention.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "backends/cpu/pool.h"
#include "backends/cpu/scratch.h"

// Packed keys and values that are held at once; more heads than fit are done by turns.
enum { PACKED_BYTES = 96 << 20 };

typedef struct forward {
  hy__attention a;
  hy_tensor *out, *lse;
  float* packed;  // keys, then values, of each head from first_head on
  int64_t keys_size, values_size;
  int64_t first_head, n_heads;  // batch * kv_heads + kv head
  int64_t panels;               // of queries, to a head
  atomic_bool failed;
} forward;

static void pack_head(void* context, int64_t i) {
  const forward* f = context;
  const hy__attention* a = &f->a;
  int64_t head = f->first_head + i, batch = head / a->kv_heads, kv = head % a->kv_heads;
  hy__matrix k = hy__head(a->k, batch, kv), v = hy__head(a->v, batch, kv);
  float* to = f->packed + i * (f->keys_size + f->values_size);
  hy__pack_keys(a, &k, a->size, to);
  hy__pack_values(a, &v, a->value_size, to + f->keys_size);
}

// What a task needs: a packed panel of queries, scores of a block of keys, the sums, and for each
// query its largest score, the sum of its weights and the factor by which both shrink.
typedef struct workspace {
  float *queries, *scores, *sums, *tile;
  float largest[HY__GEMM_MAX_PANEL] __attribute__((aligned(64)));
  float total[HY__GEMM_MAX_PANEL] __attribute__((aligned(64)));
} workspace;

static bool prepare(const hy__attention* a, workspace* w) {
  int64_t panel = a->kernels->gemm->panel;
  int64_t columns = a->size + a->value_size + HY__MAX_KEYS + panel;
  float* memory = hy__scratch_get(HY__SCRATCH_ATTENTION, (size_t)(columns * panel) * sizeof(float));
  if (!memory) return false;
  w->queries = memory;
  w->scores = w->queries + a->size * panel;
  w->sums = w->scores + HY__MAX_KEYS * panel;
  w->tile = w->sums + a->value_size * panel;
  for (int i = 0; i < panel; i++) {
    w->largest[i] = -INFINITY;
    w->total[i] = 0;
  }
  for (int64_t i = 0; i < a->value_size * panel; i++) w->sums[i] = 0;
  return true;
}

// The sums lie with queries in columns; rows of the output have them in rows.
static void store(const forward* f, workspace* w, int64_t batch, int64_t head, int64_t first,
                  int n) {
  const hy__attention* a = &f->a;
  const hy__gemm_kernel* gemm = a->kernels->gemm;
  hy__matrix out = hy__head(f->out, batch, head);
  for (int64_t c = 0; c < a->value_size; c += gemm->panel) {
    int64_t left = a->value_size - c;
    int columns = (int)(left < gemm->panel ? left : gemm->panel);
    hy__matrix sums = {w->sums + c * gemm->panel, HY_F32, 1, gemm->panel};
    gemm->pack_b(&sums, 0, n, 0, columns, w->tile);
    for (int q = 0; q < n; q++) {
      float factor = w->largest[q] == -INFINITY ? 0 : 1 / w->total[q];
      a->kernels->finish(columns, w->tile + (int64_t)q * gemm->panel, factor, 0, NULL, 0,
                         hy__matrix_at(&out, first + q, c), out.column, out.dtype);
    }
  }
  if (f->lse->dtype == HY_NONE) return;
  for (int q = 0; q < n; q++)
    *(float*)hy__head_row(f->lse, batch, head, first + q) =
        w->largest[q] == -INFINITY ? -INFINITY : w->largest[q] + logf(w->total[q]);
}

static void attend(void* context, int64_t task) {
  forward* f = context;
  const hy__attention* a = &f->a;
  const hy__gemm_kernel* gemm = a->kernels->gemm;
  // The last panels see the most keys: they go first, so that no thread is left with one.
  int64_t panel = f->panels - 1 - task / (f->n_heads * a->group);
  int64_t index = task % (f->n_heads * a->group), local = index / a->group;
  int64_t batch = (f->first_head + local) / a->kv_heads;
  int64_t head = (f->first_head + local) % a->kv_heads * a->group + index % a->group;
  int64_t first = panel * gemm->panel, left = a->queries - first;
  int n = (int)(left < gemm->panel ? left : gemm->panel), block = HY__KEY_PANELS * gemm->rows;
  const float* keys = f->packed + local * (f->keys_size + f->values_size);
  workspace w;
  if (!prepare(a, &w)) {
    atomic_store(&f->failed, true);
    return;
  }
  hy__matrix q = hy__head(a->q, batch, head), across = {q.data, q.dtype, q.column, q.row};
  gemm->pack_b(&across, 0, (int)a->size, first, n, w.queries);
  for (int64_t i = 0; i < a->size * gemm->panel; i++) w.queries[i] *= a->scale;
  int64_t visible = hy__visible(a, first + n - 1);
  for (int64_t s = 0; s < visible; s += block) {
    int count = (int)(visible - s < block ? visible - s : block);
    hy__score_block(a, keys, s, count, a->size, w.queries, w.scores);
    hy__mask_block(a, batch, head, first, n, s, count, w.scores);
    float factor[HY__GEMM_MAX_PANEL] __attribute__((aligned(64)));
    bool shrinks = a->kernels->soften(w.scores, count, gemm->panel, w.largest, w.total, factor);
    for (int64_t d = 0; shrinks && d < a->value_size; d++) {
      for (int i = 0; i < gemm->panel; i++) w.sums[d * gemm->panel + i] *= factor[i];
    }
    hy__weigh_block(a, keys + f->keys_size, s, count, a->value_size, w.scores, w.sums);
  }
  store(f, &w, batch, head, first, n);
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  forward f = {.out = &call->out[0], .lse = &call->out[1]};
  hy__attention_describe(kernels, call, 0, 3, &f.a);
  const hy__attention* a = &f.a;
  if (!hy__all_finite(a->v)) return hy__cpu_host_services->reference(call);
  f.keys_size = hy__packed_keys_size(a);
  f.values_size = hy__packed_values_size(a);
  f.panels = (a->queries + kernels->gemm->panel - 1) / kernels->gemm->panel;
  size_t bytes = (size_t)(f.keys_size + f.values_size) * sizeof(float);
  int64_t heads = a->batches * a->kv_heads, at_once = (int64_t)(PACKED_BYTES / (bytes + 1)) + 1;
  if (at_once > heads) at_once = heads;
  f.packed = aligned_alloc(64, ((size_t)at_once * bytes + 64) / 64 * 64);
  if (!f.packed) return hy__cpu_no_memory(call);
  for (f.first_head = 0; f.first_head < heads; f.first_head += at_once) {
    f.n_heads = heads - f.first_head < at_once ? heads - f.first_head : at_once;
    hy__pool_run(pack_head, &f, f.n_heads);
    hy__pool_run(attend, &f, f.n_heads * a->group * f.panels);
  }
  free(f.packed);
  return atomic_load(&f.failed) ? hy__cpu_no_memory(call) : HY_OK;
}

static hy_support supports(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_attention = {supports, run};
