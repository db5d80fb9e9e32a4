// Decode attention (m <= 16 queries): gemv with the keys in place, softmax, weighted sum of the
// values; long contexts are split over the threads (split-K) and combined in order.
#include "backends/cpu/attention/decode.h"
#include "base/memory.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"

// Keys of one task. Fixed, so that the order of sums does not depend on the number of threads.
enum { CHUNK = 256 };

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

static void attend_chunk(void* context, int64_t task) {
  job* j = context;
  const hy__decode_attention* f = j->f;
  int64_t unit = task / j->chunks, chunk = task % j->chunks, keys, first = chunk * CHUNK;
  int queries;
  f->describe(f->context, unit, &queries, &keys);
  if (first >= keys) {
    if (j->chunks == 1) merge_unit(j, unit);
    return;
  }
  int n = (int)(keys - first < CHUNK ? keys - first : CHUNK);
  float* lines = hy__scratch_get(HY__SCRATCH_ATTENTION,
                                 (size_t)(HY__GEMV_MAX_M * (f->size + CHUNK)) * sizeof *lines);
  if (!lines) {
    atomic_store(&j->failed, true);
    return;
  }
  float* scores = lines + HY__GEMV_MAX_M * f->size;
  f->load(f->context, unit, lines);
  for (int64_t i = 0; i < queries * f->size; i++) lines[i] *= f->scale;
  hy__matrix k, v;
  for (int at = 0; at < n;) {
    int64_t rows = f->keys(f->context, unit, first + at, &k, &v);
    int count = (int)(rows < n - at ? rows : n - at);
    f->kernels->gemm.gemv(&k, 0, count, f->size, lines, f->size, queries, scores + at, CHUNK);
    at += count;
  }
  for (int q = 0; q < queries; q++) {
    float *to = partial_of(j, unit, chunk, q), *line = scores + q * CHUNK;
    if (f->mask) f->mask(f->context, unit, q, first, n, line);
    weigh_scores(f->kernels->rows, line, n, &to[f->value_size], &to[f->value_size + 1]);
    memset(to, 0, (size_t)f->value_size * sizeof *to);
  }
  for (int at = 0; at < n;) {
    int64_t rows = f->keys(f->context, unit, first + at, &k, &v);
    int count = (int)(rows < n - at ? rows : n - at);
    f->kernels->attention.weighted_sum(&v, count, f->value_size, scores + at, CHUNK, queries,
                                       partial_of(j, unit, chunk, 0), f->value_size + 2);
    at += count;
  }
  if (j->chunks == 1) merge_unit(j, unit);
}

bool hy__attention_decode(const hy__decode_attention* f) {
  job j = {.f = f, .chunks = (f->most_keys + CHUNK - 1) / CHUNK};
  if (j.chunks == 0) j.chunks = 1;
  size_t rows = (size_t)(f->units * j.chunks) * HY__GEMV_MAX_M;
  j.partials = hy__malloc(rows * (size_t)(f->value_size + 2) * sizeof *j.partials);
  if (!j.partials) return false;
  hy__pool_run(attend_chunk, &j, f->units * j.chunks);
  if (j.chunks > 1 && !atomic_load(&j.failed)) hy__pool_run(merge_unit, &j, f->units);
  hy__mfree(j.partials);
  return !atomic_load(&j.failed);
}
