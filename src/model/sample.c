#include "model/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/internal.h"

typedef struct candidate {
  float logit;
  int32_t id;
} candidate;

struct hy__sampler {
  hy_generate_options options;
  int64_t vocab_size;
  uint64_t state;
  uint8_t* seen;
  candidate* candidates;
  double* weights;
};

hy_status hy__sampler_create(int64_t vocab_size, const hy_generate_options* options, uint64_t seed,
                             hy__sampler** out) {
  *out = NULL;
  const hy_generate_options* o = options;
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
  hy__sampler* s = hy__calloc(1, sizeof *s);
  if (s) {
    s->options = *o;
    s->vocab_size = vocab_size;
    s->state = seed;
    s->seen = hy__calloc((size_t)vocab_size, 1);
    s->candidates = hy__malloc((size_t)vocab_size * sizeof *s->candidates);
    s->weights = hy__malloc((size_t)vocab_size * sizeof *s->weights);
  }
  if (!s || !s->seen || !s->candidates || !s->weights) {
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
  hy__mfree(s->weights);
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

static int by_logit(const void* a, const void* b) {
  const candidate *x = a, *y = b;
  if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

static void penalise(const hy__sampler* s, float* logits) {
  float penalty = (float)s->options.repetition_penalty;
  for (int64_t i = 0; penalty != 1 && i < s->vocab_size; i++) {
    if (s->seen[i]) logits[i] = logits[i] < 0 ? logits[i] * penalty : logits[i] / penalty;
  }
}

static bool find_likeliest(const float* logits, int64_t n, int32_t* id) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; i++) {
    if (!isnan(logits[i]) && (best < 0 || logits[i] > logits[best])) best = i;
  }
  *id = (int32_t)best;
  return best >= 0 && logits[best] > -INFINITY;
}

// Sorted candidates with their weights (not normalised); returns how many are left after top-k,
// top-p and min-p.
static int64_t gather(hy__sampler* s, const float* logits, double* total) {
  const hy_generate_options* o = &s->options;
  int64_t n = 0;
  for (int64_t i = 0; i < s->vocab_size; i++) {
    if (!isnan(logits[i])) s->candidates[n++] = (candidate){logits[i], (int32_t)i};
  }
  qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_logit);
  if (o->top_k > 0 && o->top_k < n) n = o->top_k;
  *total = 0;
  for (int64_t i = 0; i < n; i++) {
    s->weights[i] =
        exp(((double)s->candidates[i].logit - (double)s->candidates[0].logit) / o->temperature);
    *total += s->weights[i];
  }
  // top-p keeps the smallest head whose probability reaches p; min-p those at least p times as
  // likely as the first.
  double sum = 0;
  int64_t kept = 0;
  while (kept < n && (kept == 0 || (sum < o->top_p * *total && s->weights[kept] >= o->min_p)))
    sum += s->weights[kept++];
  *total = sum;
  return kept;
}

hy_status hy__sampler_choose(hy__sampler* s, float* logits, int32_t* id) {
  penalise(s, logits);
  if (!find_likeliest(logits, s->vocab_size, id))
    return hy_fail(HY_DEVICE_FAILED,
                   "the model gave no usable logits: all are NaN or minus infinity");
  if (s->options.temperature == 0) return HY_OK;
  double total, at;
  int64_t n = gather(s, logits, &total), i = 0;
  at = draw(s) * total;
  for (; i < n - 1 && at >= s->weights[i]; i++) at -= s->weights[i];
  *id = s->candidates[i].id;
  return HY_OK;
}
