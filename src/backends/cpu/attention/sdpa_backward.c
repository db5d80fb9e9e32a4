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

// Queries are taken by blocks of a few panels: sums over them, which are read and written once for
// each block, have to be long enough, and a panel of the bf16 kernel is half that of f32.
enum { PAIR_PANELS = 4, MOST_QUERIES = PAIR_PANELS * HY__GEMM_MAX_NR };

typedef struct workspace {
  int most;                            // queries of a block
  float *keys, *values, *keys_across;  // packed, of the whole head
  float *queries, *douts;              // packed, each panel as [columns][panel]
  float *queries_down, *douts_down;    // packed, by panels of columns as [most][panel]
  float *scores, *grads;               // of a panel, [keys][panel]
  hy__matrix p, ds;                    // [keys][most]: those, or rows of bf16
  float *rows, *dq, *tile;
  float lse[MOST_QUERIES], delta[MOST_QUERIES];
} workspace;

static bool prepare(const hy__sdpa* a, workspace* w) {
  const hy__gemm_kernel *gemm = a->gemm, *transposer = a->kernels->gemm.f32;
  bool pairs = gemm->unit > 1;
  int64_t panel = gemm->nr, widest = max_i64(panel, transposer->nr), total = 0;
  w->most = (int)panel * (pairs ? PAIR_PANELS : 1);
  int64_t size = w->most * round_up(a->size, widest);
  int64_t value = w->most * round_up(a->value_size, widest);
  int64_t keys = hy__flash_keys_size(a), block = panel * HY__MAX_KEYS;
  int64_t halves = pairs ? (int64_t)w->most * a->block / 2 : 0;
  float *p, *ds;
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
               {&p, halves},
               {&ds, halves},
               {&w->rows, (int64_t)w->most * gemm->mr},
               {&w->dq, size},
               {&w->tile, widest * widest}};
  int n = sizeof parts / sizeof *parts;
  for (int i = 0; i < n; i++) total += round_up(parts[i].size, 16);
  float* at = hy__scratch_get(HY__SCRATCH_ATTENTION, (size_t)total * sizeof *at);
  if (!at) return false;
  for (int i = 0; i < n; i++) {
    *parts[i].at = at;
    at += round_up(parts[i].size, 16);
  }
  hy_dtype dtype = pairs ? HY_BF16 : HY_F32;
  w->p = (hy__matrix){pairs ? p : w->scores, dtype, w->most, 1};
  w->ds = (hy__matrix){pairs ? ds : w->grads, dtype, w->most, 1};
  return true;
}

// A block of rows both ways: panels of [columns][panel] as the second operand of scores, and by
// panels of columns [rows][panel] as the second operand of sums over queries.
static void pack_both(const hy__sdpa* a, const workspace* w, const hy__matrix* m, int64_t first,
                      int n, int64_t columns, float* across, float* down) {
  const hy__gemm_kernel* gemm = a->gemm;
  hy__matrix turned = {m->data, m->dtype, m->column, m->row};
  int64_t words = hy__gemm_words(gemm, (int)columns), depth = hy__gemm_words(gemm, w->most);
  for (int i = 0; i < n; i += gemm->nr)
    gemm->pack_b(&turned, 0, (int)columns, first + i, min_i64(gemm->nr, n - i), across + i * words);
  for (int64_t c = 0; c < columns; c += gemm->nr)
    gemm->pack_b(m, first, n, c, min_i64(gemm->nr, columns - c), down + c * depth);
}

static void load_queries(const backward* b, workspace* w, int64_t batch, int64_t head,
                         int64_t first, int n) {
  const hy__sdpa* a = &b->a;
  const hy__gemm_kernels* kernels = &a->kernels->gemm;
  hy__matrix q = hy__head(a->q, batch, head), dout = hy__head(b->dout, batch, head);
  hy__matrix out = hy__head(b->out, batch, head);
  pack_both(a, w, &q, first, n, a->size, w->queries, w->queries_down);
  if (a->gemm->unit == 1)
    kernels->epilogue(a->size * a->gemm->nr, w->queries, a->scale, 0, NULL, 0, w->queries, 1,
                      HY_F32);
  pack_both(a, w, &dout, first, n, a->value_size, w->douts, w->douts_down);
  memset(w->delta, 0, sizeof w->delta);
  for (int i = 0; i < w->most; i++)
    w->lse[i] = i < n ? *(const float*)hy__head_row(b->lse, batch, head, first + i) : INFINITY;
  // Rows of dout and of the output, where scores and grads will be.
  for (int i = 0; i < n; i++) {
    for (int64_t c = 0; c < a->value_size; c += HY__MAX_KEYS) {
      int64_t columns = min_i64(HY__MAX_KEYS, a->value_size - c);
      hy__matrix row = {w->grads, HY_F32, columns, 1};
      float part;
      kernels->widen(columns, hy__matrix_at(&dout, first + i, c), dout.column, dout.dtype,
                     w->scores);
      kernels->widen(columns, hy__matrix_at(&out, first + i, c), out.column, out.dtype, w->grads);
      kernels->gemv(&row, 0, 1, columns, w->scores, columns, 1, &part, 1);
      w->delta[i] += part;
    }
  }
}

// P and dS of a panel, from scores and dout V^T; dS also in `grads`, as the second operand of dQ.
static void differentiate(const hy__sdpa* a, workspace* w, int first, int keys) {
  int panel = a->gemm->nr;
  const float *lse = w->lse + first, *delta = w->delta + first;
  if (a->gemm->unit > 1) {
    uint16_t *p = (uint16_t*)w->p.data + first, *ds = (uint16_t*)w->ds.data + first;
    a->kernels->attention.softmax_grad_bf16(w->scores, w->grads, keys, panel, a->softmax_scale,
                                            a->scale, lse, delta, p, ds, w->most);
    return;
  }
  a->kernels->attention.exp_columns(w->scores, keys, panel, lse);
  for (int s = 0; s < keys; s++) {
    float *p = w->scores + s * panel, *ds = w->grads + s * panel;
    for (int i = 0; i < panel; i++) ds[i] = p[i] * (ds[i] - delta[i]) * a->scale;
  }
}

// A panel of queries and a block of `keys`, of which it sees the first `seen`.
static void attend(const hy__sdpa* a, workspace* w, int64_t batch, int64_t head, int64_t first,
                   int at, int n, int64_t s, int keys, int seen) {
  const hy__gemm_kernel* gemm = a->gemm;
  int64_t columns = hy__gemm_words(gemm, (int)a->size);
  int64_t values = hy__gemm_words(gemm, (int)a->value_size);
  hy__flash_scores(a, w->keys, s, seen, NULL, a->size, w->queries + at * columns, w->scores);
  hy__flash_mask(a, batch, head, first + at, n, s, seen, w->scores);
  hy__flash_scores(a, w->values, s, seen, NULL, a->value_size, w->douts + at * values, w->grads);
  differentiate(a, w, at, seen);
  // Sums over queries take keys by whole tiles.
  for (int64_t i = seen; i < min_i64(round_up(seen, gemm->mr), keys); i++) {
    size_t bytes = (size_t)gemm->nr * (gemm->unit > 1 ? sizeof(uint16_t) : sizeof(float));
    memset(hy__matrix_at(&w->p, i, at), 0, bytes);
    memset(hy__matrix_at(&w->ds, i, at), 0, bytes);
  }
  hy__flash_accumulate(a, w->keys_across, s, seen, NULL, a->size, w->grads, w->dq + at * a->size);
}

// sums[key][columns] += weights^T rows. Panel i of the n queries sees the first seen[i] keys.
static void add_keys(const hy__sdpa* a, const workspace* w, const hy__matrix* weights, int keys,
                     int n, const int* seen, const float* down, int64_t columns, float* sums,
                     int64_t sums_row) {
  const hy__gemm_kernel* gemm = a->gemm;
  int64_t words = hy__gemm_words(gemm, w->most);
  int first = 0;
  for (int s = 0; s < keys; s += gemm->mr) {
    int count = min_i64(gemm->mr, keys - s);
    while (seen[first / gemm->nr] <= s) first += gemm->nr;
    gemm->pack_a(weights, s, count, first, n - first, w->rows);
    for (int64_t c = 0; c < columns; c += gemm->nr)
      gemm->multiply(
          n - first, w->rows, down + c * words + (int64_t)(first / gemm->unit) * gemm->nr,
          sums + s * sums_row + c, sums_row, count, min_i64(gemm->nr, columns - c), true);
  }
}

// A panel of dq, which has its queries in columns, as the output has them in rows.
static void store_dq(backward* b, workspace* w, int64_t batch, int64_t head, int64_t first, int at,
                     int n) {
  const hy__sdpa* a = &b->a;
  const hy__gemm_kernel* transposer = a->kernels->gemm.f32;
  hy__matrix dq = hy__head(b->dq, batch, head);
  for (int64_t c = 0; c < a->size; c += transposer->nr) {
    int columns = min_i64(transposer->nr, a->size - c);
    hy__matrix sums = {w->dq + at * a->size + c * a->gemm->nr, HY_F32, 1, a->gemm->nr};
    transposer->pack_b(&sums, 0, n, 0, columns, w->tile);
    for (int i = 0; i < n; i++) {
      float* row = w->tile + (int64_t)i * transposer->nr;
      if (!hy__is_finite(row, columns, 1)) atomic_store(&b->nonfinite, true);
      a->kernels->gemm.epilogue(columns, row, 1, 0, NULL, 0, hy__matrix_at(&dq, first + at + i, c),
                                dq.column, dq.dtype);
    }
  }
}

static void run_block(backward* b, workspace* w, int64_t batch, int64_t head, int64_t first, int n,
                      float* sums) {
  const hy__sdpa* a = &b->a;
  int64_t row = a->size + a->value_size, visible = hy__visible(a, first + n - 1);
  int panel = a->gemm->nr, seen[PAIR_PANELS];
  load_queries(b, w, batch, head, first, n);
  memset(w->dq, 0, (size_t)(a->size * w->most) * sizeof *w->dq);
  for (int64_t s = 0; s < visible; s += a->block) {
    int keys = min_i64(a->block, visible - s);
    for (int at = 0; at < n; at += panel) {
      int count = min_i64(panel, n - at);
      int64_t of_panel = hy__visible(a, first + at + count - 1) - s;
      seen[at / panel] = (int)max_i64(0, min_i64(of_panel, keys));
      if (of_panel > 0) attend(a, w, batch, head, first, at, count, s, keys, seen[at / panel]);
    }
    add_keys(a, w, &w->ds, keys, n, seen, w->queries_down, a->size, sums + s * row, row);
    add_keys(a, w, &w->p, keys, n, seen, w->douts_down, a->value_size, sums + s * row + a->size,
             row);
  }
  if (b->dq->dtype == HY_NONE) return;
  for (int at = 0; at < n; at += panel)
    store_dq(b, w, batch, head, first, at, (int)min_i64(panel, n - at));
}

static void run_head(void* context, int64_t i) {
  backward* b = context;
  const hy__sdpa* a = &b->a;
  int64_t batch = (b->first_head + i) / a->heads, head = (b->first_head + i) % a->heads;
  int64_t row = a->size + a->value_size;
  float* sums = b->sums + i * a->keys * row;
  workspace w;
  memset(sums, 0, (size_t)(a->keys * row) * sizeof *sums);
  if (!prepare(a, &w)) {
    atomic_store(&b->failed, true);
    return;
  }
  hy__matrix k = hy__head(a->k, batch, head / a->group), v = hy__head(a->v, batch, head / a->group);
  hy__flash_pack_keys(a, &k, a->size, 0, a->keys, w.keys);
  hy__flash_pack_keys(a, &v, a->value_size, 0, a->keys, w.values);
  hy__flash_pack_values(a, &k, a->size, 0, a->keys, w.keys_across);
  for (int64_t first = 0; first < a->queries; first += w.most)
    run_block(b, &w, batch, head, first, (int)min_i64(w.most, a->queries - first), sums);
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
  hy__sdpa_describe(kernels, kernels->attention.bf16, call, 1, 6, &b.a);
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
