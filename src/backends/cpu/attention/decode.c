// Decode attention (m <= 16 queries): gemv with the keys in place, softmax, weighted sum of the
// values, all of it in pairs of bf16 where there are dot products of them; long contexts are split
// over the threads (split-K) and combined in order.
#include "backends/cpu/attention/decode.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "base/math.h"
#include "base/memory.h"

// Keys of one task. Fixed, so that the order of sums does not depend on the number of threads.
enum { CHUNK = 256, FEW_CHUNKS = 16 };
// Queries for which it pays to transpose the keys for a skinny GEMM of the bf16 kernel.
enum { LEAST_FOR_GEMM = 3 };

typedef struct job {
  const hy__decode_attention* f;
  int64_t chunks;   // of the unit with the most keys
  float* partials;  // [units][chunks][HY__GEMV_MAX_M][value_size + 2]: sums, total, largest
  atomic_bool failed;
} job;

static float* partial_of(const job* j, int64_t unit, int64_t chunk, int query) {
  int64_t row = j->f->value_size + 2;
  return j->partials + ((unit * j->chunks + chunk) * HY__GEMV_MAX_M + query) * row;
}

// Weights of the scores in place; gives their total and the largest score.
static void weigh_scores(const hy__rows* rows, float* scores, int n, float* total, float* largest) {
  *largest = rows->max(n, scores, HY_F32);
  float base = *largest == -INFINITY ? 0 : *largest;
  *total = rows->exp_sum(n, scores, HY_F32, base, scores, 0);
}

static void merge_unit(void* context, int64_t unit) {
  job* j = context;
  const hy__decode_attention* f = j->f;
  int queries;
  int64_t keys, size = f->value_size;
  f->describe(f->context, unit, &queries, &keys);
  int64_t chunks = (keys + CHUNK - 1) / CHUNK;
  for (int q = 0; q < queries; q++) {
    float largest = -INFINITY, total = 0, *sums = partial_of(j, unit, 0, q);
    for (int64_t c = 0; c < chunks; c++) {
      float here = partial_of(j, unit, c, q)[size + 1];
      // A NaN wins, as it does in the sums.
      if (here > largest || here != here) largest = here;
    }
    float base = largest == -INFINITY ? 0 : largest;
    for (int64_t c = 0; c < chunks; c++) {
      const float* part = partial_of(j, unit, c, q);
      float weight = expf(part[size + 1] - base);
      total += part[size] * weight;
      for (int64_t d = 0; d < size; d++)
        sums[d] = c == 0 ? part[d] * weight : sums[d] + part[d] * weight;
    }
    bool masked = largest == -INFINITY && total == 0;
    if (chunks == 0) memset(sums, 0, (size_t)size * sizeof *sums);
    f->store(f->context, unit, q, sums, masked ? 0 : 1 / total,
             masked ? -INFINITY : largest + logf(total));
  }
}

// What a task works with: its unit's keys first .. first + n - 1, and scratch memory.
typedef struct chunk {
  const hy__decode_attention* f;
  int64_t unit, first;
  int n, queries;
  float *lines, *scores;  // [HY__GEMV_MAX_M][size], [HY__GEMV_MAX_M][CHUNK]
  // In pairs: rows of queries, then of weights, in bf16; the queries packed, and a panel of keys.
  uint16_t* halves;
  float *packed, *panel;
} chunk;

// The keys and values from number `at` of the chunk on; gives how many of them are together.
static int keys_at(const chunk* c, int at, hy__matrix* k, hy__matrix* v) {
  return min_i64(c->f->keys(c->f->context, c->unit, c->first + at, k, v), c->n - at);
}

static void score(const chunk* c) {
  const hy__decode_attention* f = c->f;
  hy__matrix k, v;
  for (int64_t i = 0; i < c->queries * f->size; i++) c->lines[i] *= f->scale;
  for (int at = 0, count; at < c->n; at += count) {
    count = keys_at(c, at, &k, &v);
    f->kernels->gemm.gemv(&k, 0, count, f->size, c->lines, f->size, c->queries, c->scores + at,
                          CHUNK);
  }
}

// ---- the same in pairs of bf16 ----

static bool uses_pairs(const hy__decode_attention* f, int64_t unit) {
  hy__matrix k, v;
  if (!f->kernels->attention.bf16) return false;
  f->keys(f->context, unit, 0, &k, &v);
  return k.dtype == HY_BF16 && v.dtype == HY_BF16 && v.column == 1;
}

// The keys become columns of B, a panel at a time.
static void score_by_gemm(const chunk* c, const hy__matrix* k, int n, float* scores) {
  const hy__gemm_kernel* gemm = c->f->kernels->attention.bf16;
  int size = (int)c->f->size, words = hy__gemm_words(gemm, size);
  hy__matrix across = {k->data, k->dtype, k->column, k->row};
  for (int i = 0; i < n; i += gemm->nr) {
    int columns = min_i64(gemm->nr, n - i);
    gemm->pack_b(&across, 0, size, i, columns, c->panel);
    for (int q = 0; q < c->queries; q += gemm->mr)
      gemm->multiply(size, c->packed + (int64_t)q * words, c->panel, scores + q * CHUNK + i, CHUNK,
                     min_i64(gemm->mr, c->queries - q), columns, false);
  }
}

static void score_pairs(const chunk* c) {
  const hy__decode_attention* f = c->f;
  const hy__gemm_kernel* gemm = f->kernels->attention.bf16;
  int size = (int)f->size, exponent;
  bool by_gemm = c->queries >= LEAST_FOR_GEMM;
  // The queries were bf16, and still are when multiplied by a power of 2.
  bool exact = frexpf(f->scale, &exponent) == 0.5f;
  f->kernels->gemm.epilogue(c->queries * f->size, c->lines, exact ? f->scale : 1, 0, NULL, 0,
                            c->halves, 1, HY_BF16);
  hy__matrix k, v, queries = {c->halves, HY_BF16, f->size, 1};
  for (int q = 0; by_gemm && q < c->queries; q += gemm->mr)
    gemm->pack_a(&queries, q, min_i64(gemm->mr, c->queries - q), 0, size,
                 c->packed + (int64_t)q * hy__gemm_words(gemm, size));
  for (int at = 0, count; at < c->n; at += count) {
    count = keys_at(c, at, &k, &v);
    if (by_gemm)
      score_by_gemm(c, &k, count, c->scores + at);
    else
      f->kernels->gemm.gemv_bf16(&k, 0, count, size, c->halves, size, c->queries, c->scores + at,
                                 CHUNK);
  }
  for (int q = 0; !exact && q < c->queries; q++) {
    float* line = c->scores + q * CHUNK;
    f->kernels->gemm.epilogue(c->n, line, f->scale, 0, NULL, 0, line, 1, HY_F32);
  }
}

// ---- tasks ----

// The weights are in `scores`, or, in pairs, in `halves`.
static void add_values(const chunk* c, bool pairs, float* sums, int64_t ld) {
  const hy__decode_attention* f = c->f;
  hy__matrix k, v;
  for (int at = 0, count; at < c->n; at += count) {
    count = keys_at(c, at, &k, &v);
    if (pairs)
      f->kernels->attention.weighted_sum_bf16(&v, count, f->value_size, c->halves + at, CHUNK,
                                              c->queries, sums, ld);
    else
      f->kernels->attention.weighted_sum(&v, count, f->value_size, c->scores + at, CHUNK,
                                         c->queries, sums, ld);
  }
}

static bool prepare(chunk* c, bool pairs) {
  int64_t size = c->f->size, lines = HY__GEMV_MAX_M * size, scores = HY__GEMV_MAX_M * CHUNK;
  int64_t halves = 0, packed = 0, panel = 0;
  if (pairs) {
    const hy__gemm_kernel* gemm = c->f->kernels->attention.bf16;
    int64_t words = hy__gemm_words(gemm, (int)size);
    halves = HY__GEMV_MAX_M * max_i64(words, CHUNK / 2);
    packed = round_up(HY__GEMV_MAX_M, gemm->mr) * words;
    panel = gemm->nr * words;
  }
  size_t bytes = (size_t)(lines + scores + halves + packed + panel) * sizeof(float);
  c->lines = hy__scratch_get(HY__SCRATCH_ATTENTION, bytes);
  if (!c->lines) return false;
  c->scores = c->lines + lines;
  c->packed = c->scores + scores;
  c->panel = c->packed + packed;
  c->halves = (uint16_t*)(c->panel + panel);
  return true;
}

static void attend_chunk(void* context, int64_t task) {
  job* j = context;
  const hy__decode_attention* f = j->f;
  int64_t index = task % j->chunks, keys, ld = f->value_size + 2;
  chunk c = {.f = f, .unit = task / j->chunks, .first = index * CHUNK};
  f->describe(f->context, c.unit, &c.queries, &keys);
  if (c.first >= keys) {
    if (j->chunks == 1) merge_unit(j, c.unit);
    return;
  }
  c.n = min_i64(keys - c.first, CHUNK);
  bool pairs = uses_pairs(f, c.unit);
  if (!prepare(&c, pairs)) {
    atomic_store(&j->failed, true);
    return;
  }
  f->load(f->context, c.unit, c.lines);
  pairs ? score_pairs(&c) : score(&c);
  float* sums = partial_of(j, c.unit, index, 0);
  for (int q = 0; q < c.queries; q++) {
    float *to = sums + q * ld, *line = c.scores + q * CHUNK;
    if (f->mask) f->mask(f->context, c.unit, q, c.first, c.n, line);
    float *total = &to[f->value_size], *largest = total + 1;
    if (pairs)
      f->kernels->attention.softmax_row_bf16(line, c.n, c.halves + q * CHUNK, total, largest);
    else
      weigh_scores(f->kernels->rows, line, c.n, total, largest);
    memset(to, 0, (size_t)f->value_size * sizeof *to);
  }
  add_values(&c, pairs, sums, ld);
  if (j->chunks == 1) merge_unit(j, c.unit);
}

bool hy__attention_decode(const hy__decode_attention* f) {
  job j = {.f = f, .chunks = (f->most_keys + CHUNK - 1) / CHUNK};
  if (j.chunks == 0) j.chunks = 1;
  size_t rows = (size_t)(f->units * j.chunks) * HY__GEMV_MAX_M;
  j.partials = hy__malloc(rows * (size_t)(f->value_size + 2) * sizeof *j.partials);
  if (!j.partials) return false;
  hy__pool_run(attend_chunk, &j, f->units * j.chunks);
  if (j.chunks > 1 && !atomic_load(&j.failed)) {
    // Few partial sums are added before another thread has come.
    if (f->units * j.chunks < FEW_CHUNKS)
      for (int64_t u = 0; u < f->units; u++) merge_unit(&j, u);
    else
      hy__pool_run(merge_unit, &j, f->units);
  }
  hy__mfree(j.partials);
  return !atomic_load(&j.failed);
}
