// The backward pass of SDPA (flash attention).
//
// With P = exp(S - lse) and delta = dout . out for each query: dV = P^T dout, dS = P (dout V^T -
// delta) scale, dQ = dS K, dK = dS^T Q. Each query head adds up its own dK and dV; those of a group
// are then summed in order, so that nothing depends on the number of threads.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/attention/flash.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "base/math.h"
#include "base/memory.h"

enum { SUMS_BYTES = 128 << 20 };  // of dK and dV at once, unless one group takes more

typedef struct backward {
  hy__sdpa a;
  const hy_tensor *dout, *out, *lse;
  hy_tensor *dq, *dk, *dv;
  float* sums;         // [query heads at once][keys][size + value_size]
  int64_t first_head;  // batch * heads + head; the first of a group
  atomic_bool failed, nonfinite;
} backward;

typedef struct workspace {
  float *keys, *values, *keys_across;  // packed, of the whole head
  float *queries, *queries_down;       // packed panels: [size][panel], [panel][size]
  float *douts, *douts_down;           // of dout likewise
  float *scores, *grads, *rows, *dq, *tile;
  float lse[HY__GEMM_MAX_NR], delta[HY__GEMM_MAX_NR];
} workspace;

static bool prepare(const hy__sdpa* a, workspace* w) {
  int64_t panel = a->kernels->gemm.f32->nr;
  int64_t size = panel * round_up(a->size, panel), value = panel * round_up(a->value_size, panel);
  int64_t keys = hy__flash_keys_size(a), block = panel * HY__MAX_KEYS, total = 0;
  const struct {
    float** at;
    int64_t size;
  } parts[] = {{&w->keys, keys},
               {&w->values, keys},
               {&w->keys_across, hy__flash_values_size(a)},
               {&w->queries, size},
               {&w->queries_down, size},
               {&w->douts, value},
               {&w->douts_down, value},
               {&w->scores, block},
               {&w->grads, block},
               {&w->rows, block},
               {&w->dq, size},
               {&w->tile, panel * panel}};
  for (int i = 0; i < 12; i++) total += round_up(parts[i].size, 16);
  float* at = hy__scratch_get(HY__SCRATCH_ATTENTION, (size_t)total * sizeof *at);
  if (!at) return false;
  for (int i = 0; i < 12; i++) {
    *parts[i].at = at;
    at += round_up(parts[i].size, 16);
  }
  return true;
}

// A panel of rows both ways: [columns][panel] as the second operand of scores, and by panels of
// columns [rows][panel] as the second operand of sums over queries, whose depth is the panel.
static void pack_both(const hy__gemm_kernel* gemm, const hy__matrix* m, int64_t first, int n,
                      int64_t columns, float* across, float* down) {
  hy__matrix turned = {m->data, m->dtype, m->column, m->row};
  gemm->pack_b(&turned, 0, (int)columns, first, n, across);
  for (int64_t c = 0; c < columns; c += gemm->nr)
    gemm->pack_b(m, first, n, c, min_i64(gemm->nr, columns - c), down + c * gemm->nr);
}

static void load_queries(const backward* b, workspace* w, int64_t batch, int64_t head,
                         int64_t first, int n) {
  const hy__sdpa* a = &b->a;
  const hy__gemm_kernel* gemm = a->kernels->gemm.f32;
  hy__matrix q = hy__head(a->q, batch, head), dout = hy__head(b->dout, batch, head);
  hy__matrix out = hy__head(b->out, batch, head);
  pack_both(gemm, &q, first, n, a->size, w->queries, w->queries_down);
  a->kernels->gemm.epilogue(a->size * gemm->nr, w->queries, a->scale, 0, NULL, 0, w->queries, 1,
                            HY_F32);
  pack_both(gemm, &dout, first, n, a->value_size, w->douts, w->douts_down);
  // The output is packed as dout is, where the grads will be.
  float* delta = w->delta;
  for (int i = 0; i < gemm->nr; i++) {
    delta[i] = 0;
    w->lse[i] = i < n ? *(const float*)hy__head_row(b->lse, batch, head, first + i) : 0;
  }
  for (int64_t c = 0; c < a->value_size; c += HY__MAX_KEYS) {
    int64_t columns = min_i64(HY__MAX_KEYS, a->value_size - c);
    hy__matrix turned = {hy__matrix_at(&out, 0, c), out.dtype, out.column, out.row};
    gemm->pack_b(&turned, 0, (int)columns, first, n, w->grads);
    for (int64_t d = 0; d < columns; d++) {
      for (int i = 0; i < gemm->nr; i++)
        delta[i] += w->grads[d * gemm->nr + i] * w->douts[(c + d) * gemm->nr + i];
    }
  }
}

// P in `scores` and dS in `grads`, from scores and dout V^T.
static void differentiate(const hy__sdpa* a, workspace* w, int n, int keys) {
  int panel = a->kernels->gemm.f32->nr;
  a->kernels->attention.exp_columns(w->scores, keys, panel, w->lse);
  for (int s = 0; s < keys; s++) {
    float *p = w->scores + s * panel, *ds = w->grads + s * panel;
    for (int i = 0; i < panel; i++) ds[i] = p[i] * (ds[i] - w->delta[i]) * a->scale;
    for (int i = n; i < panel; i++) p[i] = ds[i] = 0;
  }
}

// sums[key][columns] += weights^T rows, the weights being [key][query].
static void add_keys(const hy__gemm_kernel* gemm, const float* weights, int keys, int n,
                     const float* down, int64_t columns, float* rows, float* sums,
                     int64_t sums_row) {
  hy__matrix m = {(void*)weights, HY_F32, gemm->nr, 1};
  for (int s = 0; s < keys; s += gemm->mr) {
    int count = min_i64(gemm->mr, keys - s);
    gemm->pack_a(&m, s, count, 0, n, rows);
    for (int64_t c = 0; c < columns; c += gemm->nr)
      gemm->multiply(n, rows, down + c * gemm->nr, sums + s * sums_row + c, sums_row, count,
                     min_i64(gemm->nr, columns - c), true);
  }
}

static void store_dq(backward* b, workspace* w, int64_t batch, int64_t head, int64_t first, int n) {
  const hy__sdpa* a = &b->a;
  const hy__gemm_kernel* gemm = a->kernels->gemm.f32;
  hy__matrix dq = hy__head(b->dq, batch, head);
  for (int64_t c = 0; c < a->size; c += gemm->nr) {
    int columns = min_i64(gemm->nr, a->size - c);
    hy__matrix sums = {w->dq + c * gemm->nr, HY_F32, 1, gemm->nr};
    gemm->pack_b(&sums, 0, n, 0, columns, w->tile);
    for (int i = 0; i < n; i++) {
      float* row = w->tile + (int64_t)i * gemm->nr;
      if (!hy__is_finite(row, columns, 1)) atomic_store(&b->nonfinite, true);
      a->kernels->gemm.epilogue(columns, row, 1, 0, NULL, 0, hy__matrix_at(&dq, first + i, c),
                                dq.column, dq.dtype);
    }
  }
}

static void run_head(void* context, int64_t i) {
  backward* b = context;
  const hy__sdpa* a = &b->a;
  const hy__gemm_kernel* gemm = a->kernels->gemm.f32;
  int64_t batch = (b->first_head + i) / a->heads, head = (b->first_head + i) % a->heads;
  int64_t row = a->size + a->value_size, block = a->block;
  float* sums = b->sums + i * a->keys * row;
  workspace w;
  memset(sums, 0, (size_t)(a->keys * row) * sizeof *sums);
  if (!prepare(a, &w)) {
    atomic_store(&b->failed, true);
    return;
  }
  hy__matrix k = hy__head(a->k, batch, head / a->group), v = hy__head(a->v, batch, head / a->group);
  hy__flash_pack_keys(a, &k, a->size, w.keys);
  hy__flash_pack_keys(a, &v, a->value_size, w.values);
  hy__flash_pack_values(a, &k, a->size, w.keys_across);
  for (int64_t first = 0; first < a->queries; first += gemm->nr) {
    int n = min_i64(gemm->nr, a->queries - first);
    int64_t visible = hy__visible(a, first + n - 1);
    load_queries(b, &w, batch, head, first, n);
    memset(w.dq, 0, (size_t)(a->size * gemm->nr) * sizeof *w.dq);
    for (int64_t s = 0; s < visible; s += block) {
      int keys = min_i64(block, visible - s);
      hy__flash_scores(a, w.keys, s, keys, NULL, a->size, w.queries, w.scores);
      hy__flash_mask(a, batch, head, first, n, s, keys, w.scores);
      hy__flash_scores(a, w.values, s, keys, NULL, a->value_size, w.douts, w.grads);
      differentiate(a, &w, n, keys);
      hy__flash_accumulate(a, w.keys_across, s, keys, NULL, a->size, w.grads, w.dq);
      add_keys(gemm, w.grads, keys, n, w.queries_down, a->size, w.rows, sums + s * row, row);
      add_keys(gemm, w.scores, keys, n, w.douts_down, a->value_size, w.rows,
               sums + s * row + a->size, row);
    }
    if (b->dq->dtype != HY_NONE) store_dq(b, &w, batch, head, first, n);
  }
}

// One key head: the sums of its group, in order.
static void store_group(void* context, int64_t i) {
  backward* b = context;
  const hy__sdpa* a = &b->a;
  int64_t row = a->size + a->value_size, head = b->first_head / a->group + i;
  int64_t batch = head / a->kv_heads, kv = head % a->kv_heads, of_head = a->keys * row;
  float* sums = b->sums + i * a->group * of_head;
  for (int64_t g = 1; g < a->group; g++) {
    for (int64_t e = 0; e < of_head; e++) sums[e] += sums[g * of_head + e];
  }
  if (!hy__is_finite(sums, of_head, 1)) atomic_store(&b->nonfinite, true);
  for (int which = 0; which < 2; which++) {
    const hy_tensor* to = which ? b->dv : b->dk;
    if (to->dtype == HY_NONE) continue;
    hy__matrix m = hy__head(to, batch, kv);
    int64_t columns = which ? a->value_size : a->size;
    for (int64_t s = 0; s < a->keys; s++)
      a->kernels->gemm.epilogue(columns, sums + s * row + (which ? a->size : 0), 1, 0, NULL, 0,
                                hy__matrix_at(&m, s, 0), m.column, m.dtype);
  }
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  backward b = {.dout = &call->in[0],
                .out = &call->in[4],
                .lse = &call->in[5],
                .dq = &call->out[0],
                .dk = &call->out[1],
                .dv = &call->out[2]};
  hy__sdpa_describe(kernels, call, 1, 6, &b.a);
  hy__sdpa_use_f32(&b.a);
  const hy__sdpa* a = &b.a;
  int64_t groups = a->batches * a->kv_heads;
  size_t bytes = (size_t)(a->group * a->keys * (a->size + a->value_size)) * sizeof(float);
  int64_t at_once = (int64_t)(SUMS_BYTES / (bytes + 1)) + 1;
  if (at_once > groups) at_once = groups;
  b.sums = hy__malloc((size_t)at_once * bytes + 1);
  if (!b.sums) return hy__cpu_no_memory(call);
  for (int64_t first = 0; first < groups; first += at_once) {
    int64_t count = groups - first < at_once ? groups - first : at_once;
    b.first_head = first * a->group;
    hy__pool_run(run_head, &b, count * a->group);
    hy__pool_run(store_group, &b, count);
  }
  hy__mfree(b.sums);
  if (atomic_load(&b.failed)) return hy__cpu_no_memory(call);
  bool finite = !atomic_load(&b.nonfinite);
  for (int i = 0; i < 5 && !finite; i++) {
    if (!hy__tensor_is_finite(&call->in[i])) return hy__backend_host->reference(call);
  }
  return HY_OK;
}

static hy_support supports(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_sdpa_backward = {supports, run};
