#include "model/sample.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

typedef struct candidate {
  float logit;
  int32_t id;
} candidate;

typedef struct choice {
  double weight;
  int32_t id;
} choice;

struct hy__sampler {
  hy_generate_options options;
  int64_t vocab_size;
  uint64_t state;
  uint8_t* seen;
  candidate* candidates;
  choice* kept;
};

hy_status hy__sampler_check(const hy_generate_options* o) {
  if (!(o->temperature >= 0))
    return hy_fail(HY_INVALID_ARGUMENT, "the temperature is %g; it is 0 or more", o->temperature);
  if (!(o->top_p > 0 && o->top_p <= 1))
    return hy_fail(HY_INVALID_ARGUMENT, "top-p is %g; it is above 0 and at most 1", o->top_p);
  if (!(o->min_p >= 0 && o->min_p <= 1))
    return hy_fail(HY_INVALID_ARGUMENT, "min-p is %g; it lies in 0 .. 1", o->min_p);
  if (o->top_k < 0)
    return hy_fail(HY_INVALID_ARGUMENT, "top-k is %lld; it is 0 or more", (long long)o->top_k);
  if (!(o->repetition_penalty > 0))
    return hy_fail(HY_INVALID_ARGUMENT, "the repetition penalty is %g; it is above 0",
                   o->repetition_penalty);
  for (int i = 0; i < o->n_stops; i++) {
    if (!o->stops[i] || !o->stops[i][0])
      return hy_fail(HY_INVALID_ARGUMENT, "a text that stops the answer is empty");
  }
  return HY_OK;
}

hy_status hy__sampler_create(int64_t vocab_size, const hy_generate_options* options, uint64_t seed,
                             hy__sampler** out) {
  *out = NULL;
  HY_TRY(hy__sampler_check(options));
  hy__sampler* s = hy__calloc(1, sizeof *s);
  if (s) {
    s->options = *options;
    s->vocab_size = vocab_size;
    s->state = seed;
    s->seen = hy__calloc((size_t)vocab_size, 1);
    s->candidates = hy__malloc((size_t)vocab_size * sizeof *s->candidates);
    s->kept = hy__malloc((size_t)vocab_size * sizeof *s->kept);
  }
  if (!s || !s->seen || !s->candidates || !s->kept) {
    hy__sampler_destroy(s);
    return hy_fail(HY_OUT_OF_MEMORY, "no memory to sample from %lld tokens", (long long)vocab_size);
  }
  *out = s;
  return HY_OK;
}

void hy__sampler_destroy(hy__sampler* s) {
  if (!s) return;
  hy__mfree(s->seen);
  hy__mfree(s->candidates);
  hy__mfree(s->kept);
  hy__mfree(s);
}

void hy__sampler_see(hy__sampler* s, int32_t id) {
  if (id >= 0 && id < s->vocab_size) s->seen[id] = 1;
}

// splitmix64, as a number in [0, 1).
static double draw(hy__sampler* s) {
  s->state += 0x9e3779b97f4a7c15ull;
  uint64_t z = s->state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

// ---- candidates, likeliest first ----

// Among equals the smaller id comes first.
static bool comes_before(const candidate* a, const candidate* b) {
  return a->logit != b->logit ? a->logit > b->logit : a->id < b->id;
}

static void sink(candidate* heap, int64_t n, int64_t at) {
  candidate moved = heap[at];
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && comes_before(&heap[child + 1], &heap[child])) child++;
    if (!comes_before(&heap[child], &moved)) break;
    heap[at] = heap[child];
  }
  heap[at] = moved;
}

// Takes the first of n off the heap and puts it behind the rest: a few of a large vocabulary are
// wanted in order, and seldom all.
static candidate* take_first(candidate* heap, int64_t n) {
  candidate first = heap[0];
  heap[0] = heap[n - 1];
  heap[n - 1] = first;
  sink(heap, n - 1, 0);
  return &heap[n - 1];
}

static void penalise(const hy__sampler* s, float* logits) {
  float penalty = (float)s->options.repetition_penalty;
  for (int64_t i = 0; penalty != 1 && i < s->vocab_size; i++) {
    if (s->seen[i]) logits[i] = logits[i] < 0 ? logits[i] * penalty : logits[i] / penalty;
  }
}

// Sixteen side by side, which compilers turn into vectors. NaN is never the largest.
static float find_largest(const float* logits, int64_t n) {
  float best[16], largest = -INFINITY;
  int64_t i = 0;
  for (int k = 0; k < 16; k++) best[k] = -INFINITY;
  for (; i + 16 <= n; i += 16) {
    for (int k = 0; k < 16; k++) best[k] = logits[i + k] > best[k] ? logits[i + k] : best[k];
  }
  for (; i < n; i++) largest = logits[i] > largest ? logits[i] : largest;
  for (int k = 0; k < 16; k++) largest = best[k] > largest ? best[k] : largest;
  return largest;
}

// ---- choosing ----

enum { NEGLIGIBLE = 40 };  // exp(-40) of the likeliest: below what the sum of all can tell

static double weight_of(const hy__sampler* s, const candidate* c, float largest) {
  return exp(((double)c->logit - (double)largest) / s->options.temperature);
}

static int64_t gather(hy__sampler* s, const float* logits, float largest) {
  double least = (double)largest - NEGLIGIBLE * s->options.temperature;
  int64_t n = 0;
  for (int64_t i = 0; i < s->vocab_size; i++) {
    if ((double)logits[i] >= least) s->candidates[n++] = (candidate){logits[i], (int32_t)i};
  }
  for (int64_t i = n / 2 - 1; i >= 0; i--) sink(s->candidates, n, i);
  return n;
}

// The sum of the weights of those that top-k leaves.
static double sum_weights(hy__sampler* s, int64_t n, int64_t limit, float largest) {
  double total = 0;
  if (limit == n) {
    for (int64_t i = 0; i < n; i++) total += weight_of(s, &s->candidates[i], largest);
    return total;
  }
  for (int64_t i = 0; i < limit; i++)
    total += weight_of(s, take_first(s->candidates, n - i), largest);
  for (int64_t i = n - limit; i < n; i++) s->candidates[i - (n - limit)] = s->candidates[i];
  for (int64_t i = limit / 2 - 1; i >= 0; i--) sink(s->candidates, limit, i);
  return total;
}

// top-p keeps the smallest head whose probability reaches p; min-p those at least p times as likely
// as the first. Then a number in 0 .. sum of what is kept says which.
static int32_t choose(hy__sampler* s, const float* logits, float largest) {
  const hy_generate_options* o = &s->options;
  int64_t n = gather(s, logits, largest);
  int64_t limit = o->top_k > 0 && o->top_k < n ? o->top_k : n, kept = 0;
  double total = sum_weights(s, n, limit, largest), sum = 0, at = draw(s);
  bool all = o->top_p >= 1 && o->min_p <= 0;
  while (kept < limit) {
    const candidate* c = take_first(s->candidates, limit - kept);
    double weight = weight_of(s, c, largest);
    if (kept > 0 && !all && (sum >= o->top_p * total || weight < o->min_p)) break;
    s->kept[kept++] = (choice){weight, c->id};
    sum += weight;
    if (all && at * total < sum) break;
  }
  at *= all ? total : sum;
  int64_t i = 0;
  for (; i < kept - 1 && at >= s->kept[i].weight; i++) at -= s->kept[i].weight;
  return s->kept[i].id;
}

hy_status hy__sampler_choose(hy__sampler* s, float* logits, int32_t* id) {
  penalise(s, logits);
  float largest = find_largest(logits, s->vocab_size);
  if (largest == -INFINITY)
    return hy_fail(HY_DEVICE_FAILED,
                   "the model gave no usable logits: all are NaN or minus infinity");
  if (s->options.temperature == 0) {
    for (*id = 0; logits[*id] != largest;) ++*id;
    return HY_OK;
  }
  *id = choose(s, logits, largest);
  return HY_OK;
}
