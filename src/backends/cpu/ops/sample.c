// Sampling the next token: top-k, top-p and min-p from a heap, since a few of a large vocabulary
// are wanted in order and seldom all.
#include <math.h>
#include <stdatomic.h>

#include "backends/cpu/family.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"

enum { LOGITS, SETTINGS, DRAW, SEEN };
enum { PENALTY, TEMPERATURE, TOP_K, TOP_P, MIN_P };
enum { NEGLIGIBLE = 40 };  // exp(-40) of the likeliest: below what the sum of all can tell

typedef struct candidate {
  double value;  // its logit; in the list of what is kept, its weight
  int64_t id;
} candidate;

typedef struct row {
  const float* logits;
  const char* seen;  // NULL where no token is punished
  int64_t n, seen_step;
  float setting[5], draw;
  double largest;
} row;

static double logit_of(const row* r, int64_t i) {
  double logit = r->logits[i], penalty = r->setting[PENALTY];
  if (!r->seen || !r->seen[i * r->seen_step]) return logit;
  return logit < 0 ? logit * penalty : logit / penalty;
}

// Sixteen side by side, which compilers turn into vectors. NaN is never the largest.
static double find_largest(const row* r) {
  float best[16], largest = -INFINITY;
  double punished = -INFINITY;
  int64_t i = 0;
  if (r->seen) {
    for (; i < r->n; i++) {
      double logit = logit_of(r, i);
      punished = logit > punished ? logit : punished;
    }
    return punished;
  }
  for (int k = 0; k < 16; k++) best[k] = -INFINITY;
  for (; i + 16 <= r->n; i += 16) {
    for (int k = 0; k < 16; k++) best[k] = r->logits[i + k] > best[k] ? r->logits[i + k] : best[k];
  }
  for (; i < r->n; i++) largest = r->logits[i] > largest ? r->logits[i] : largest;
  for (int k = 0; k < 16; k++) largest = best[k] > largest ? best[k] : largest;
  return largest;
}

static int64_t find_first(const row* r, double value) {
  int64_t i = 0;
  while (logit_of(r, i) != value) i++;
  return i;
}

// ---- candidates, likeliest first ----

// Among equals the smaller id comes first.
static bool comes_before(const candidate* a, const candidate* b) {
  return a->value != b->value ? a->value > b->value : a->id < b->id;
}

static void sift_down(candidate* heap, int64_t n, int64_t at) {
  candidate moved = heap[at];
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && comes_before(&heap[child + 1], &heap[child])) child++;
    if (!comes_before(&heap[child], &moved)) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

static candidate pop(candidate* heap, int64_t n) {
  candidate first = heap[0];
  heap[0] = heap[n - 1];
  sift_down(heap, n - 1, 0);
  return first;
}

static double weight_of(const row* r, double logit) {
  return exp(logit == r->largest ? 0 : (logit - r->largest) / r->setting[TEMPERATURE]);
}

static int64_t gather(const row* r, candidate* heap) {
  double least = r->largest - NEGLIGIBLE * (double)r->setting[TEMPERATURE];
  int64_t n = 0;
  for (int64_t i = 0; i < r->n; i++) {
    double logit = logit_of(r, i);
    if (logit >= least) heap[n++] = (candidate){logit, i};
  }
  for (int64_t i = n / 2 - 1; i >= 0; i--) sift_down(heap, n, i);
  return n;
}

// Takes what is kept off the heap, each with its weight, likeliest first; returns how many. Where
// nothing but the draw ends the list, it ends at the token that is drawn.
static int64_t take_kept(const row* r, candidate* heap, int64_t n, candidate* kept, double* sum) {
  bool top_k = r->setting[TOP_K] >= 1 && r->setting[TOP_K] < (float)n;
  int64_t limit = top_k ? (int64_t)r->setting[TOP_K] : n, count = 0;
  double total = 0;
  if (top_k) {
    for (int64_t i = 0; i < limit; i++) {
      kept[i] = pop(heap, n - i);
      total += kept[i].value = weight_of(r, kept[i].value);
    }
  } else {
    for (int64_t i = 0; i < n; i++) total += weight_of(r, heap[i].value);
  }
  *sum = 0;
  bool all = r->setting[TOP_P] >= 1 && r->setting[MIN_P] <= 0;
  for (; count < limit && !(all && *sum > (double)r->draw * total); count++) {
    candidate* c = &kept[count];
    if (!top_k) {
      *c = pop(heap, n - count);
      c->value = weight_of(r, c->value);
    }
    bool in_head = r->setting[TOP_P] >= 1 || *sum < (double)r->setting[TOP_P] * total;
    if (count > 0 && !(in_head && c->value >= (double)r->setting[MIN_P])) break;
    *sum += c->value;
  }
  if (all) *sum = total;
  return count;
}

// `memory` is NULL without a temperature: the largest.
static int64_t choose(row* r, candidate* memory) {
  r->largest = find_largest(r);
  if (r->largest == -INFINITY) return -1;
  if (!memory) return find_first(r, r->largest);
  candidate* kept = memory + r->n;
  double sum;
  int64_t n = take_kept(r, memory, gather(r, memory), kept, &sum), i = 0;
  for (double at = (double)r->draw * sum; i < n - 1 && at >= kept[i].value; i++)
    at -= kept[i].value;
  return kept[i].id;
}

// ---- rows ----

typedef struct job {
  const hy_call* call;
  atomic_bool no_memory;
} job;

static float element(const hy_tensor* t, int64_t i, int64_t k) {
  return ((const float*)t->data)[i * t->stride[0] + (t->ndim > 1 ? k * t->stride[1] : 0)];
}

static void sample_row(void* context, int64_t i) {
  job* j = context;
  const hy_tensor *in = j->call->in, *out = &j->call->out[0], *seen = &in[SEEN];
  row r = {.logits = (const float*)in[LOGITS].data + i * in[LOGITS].stride[0],
           .n = in[LOGITS].shape[1],
           .setting[PENALTY] = 1};
  if (in[SETTINGS].dtype != HY_NONE) {
    r.draw = element(&in[DRAW], i, 0);
    for (int k = 0; k < 5; k++) r.setting[k] = element(&in[SETTINGS], i, k);
  }
  if (seen->dtype != HY_NONE && r.setting[PENALTY] != 1) {
    r.seen = (const char*)seen->data + i * seen->stride[0];
    r.seen_step = seen->stride[1];
  }
  candidate* memory = NULL;
  if (r.setting[TEMPERATURE] > 0) {
    memory = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)(2 * r.n + 1) * sizeof *memory);
    if (!memory) {
      atomic_store(&j->no_memory, true);
      return;
    }
  }
  ((int64_t*)out->data)[i * out->stride[0]] = choose(&r, memory);
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  (void)kernels;
  job j = {.call = call};
  hy__pool_run(sample_row, &j, call->in[LOGITS].shape[0]);
  return atomic_load(&j.no_memory) ? hy__cpu_no_memory(call) : HY_OK;
}

static hy_support supports(const hy_call* call) {
  const hy_tensor* logits = &call->in[LOGITS];
  if (logits->dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
  return logits->stride[1] == 1 || logits->shape[1] <= 1 ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

const hy__cpu_family hy__cpu_sample = {supports, run};
