// Sampler: draws of each sequence, and on the device which tokens each has seen.
#include "model/sampler.h"

#include "base/memory.h"

enum { SETTINGS = 5 };

struct hy__sampler {
  hy_generate_options options;
  int64_t vocab_size;
  int batch;
  hy_array* seen;    // (B, V) bool; NULL without a penalty
  uint64_t draws[];  // the state of each sequence's
};

hy_status hy__sampler_check(const hy_generate_options* o) {
  if (!(o->temperature >= 0))
    return hy_fail(HY_INVALID_ARGUMENT, "the temperature is %g; it is 0 or more", o->temperature);
  if (!(o->top_p > 0 && o->top_p <= 1))
    return hy_fail(HY_INVALID_ARGUMENT, "top-p is %g; it is above 0 and at most 1", o->top_p);
  if (!(o->min_p >= 0 && o->min_p <= 1))
    return hy_fail(HY_INVALID_ARGUMENT, "min-p is %g; it must be in 0 .. 1", o->min_p);
  if (o->top_k < 0)
    return hy_fail(HY_INVALID_ARGUMENT, "top-k is %lld; it is 0 or more", (long long)o->top_k);
  if (!(o->repetition_penalty > 0))
    return hy_fail(HY_INVALID_ARGUMENT, "the repetition penalty is %g; it is above 0",
                   o->repetition_penalty);
  if (o->n_stops < 0 || (o->n_stops > 0 && !o->stops))
    return hy_fail(HY_INVALID_ARGUMENT, "%d texts that stop the answer, and no list of them",
                   o->n_stops);
  for (int i = 0; i < o->n_stops; i++) {
    if (!o->stops[i] || !o->stops[i][0])
      return hy_fail(HY_INVALID_ARGUMENT, "a text that stops the answer is empty");
  }
  return HY_OK;
}

// Marks the tokens of the prompts.
static hy_status make_seen(hy_stream* stream, hy__sampler* s, const int32_t* const* prompts,
                           const int64_t* lengths) {
  uint8_t* host = hy__calloc((size_t)(s->batch * s->vocab_size), 1);
  if (!host)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory to sample from %lld tokens",
                   (long long)s->vocab_size);
  for (int i = 0; i < s->batch; i++) {
    for (int64_t k = 0; k < lengths[i]; k++) {
      int32_t id = prompts[i][k];
      if (id >= 0 && id < s->vocab_size) host[i * s->vocab_size + id] = 1;
    }
  }
  hy_status status =
      hy_array_from_host(stream, &s->seen, HY_BOOL, HY_SIZES(s->batch, s->vocab_size), host);
  hy__mfree(host);
  return status;
}

hy_status hy__sampler_create(hy_stream* stream, int64_t vocab_size,
                             const hy_generate_options* options, const int32_t* const* prompts,
                             const int64_t* lengths, int batch, hy__sampler** out) {
  *out = NULL;
  HY_TRY(hy__sampler_check(options));
  hy__sampler* s = hy__calloc(1, sizeof *s + (size_t)batch * sizeof s->draws[0]);
  if (!s) return hy_fail(HY_OUT_OF_MEMORY, "no memory to sample %d sequences", batch);
  s->options = *options;
  s->vocab_size = vocab_size;
  s->batch = batch;
  for (int i = 0; i < batch; i++) s->draws[i] = options->seed + (uint64_t)i;
  hy_status status = HY_OK;
  if (options->repetition_penalty != 1) status = make_seen(stream, s, prompts, lengths);
  if (status != HY_OK)
    hy__sampler_destroy(s);
  else
    *out = s;
  return status;
}

void hy__sampler_destroy(hy__sampler* s) {
  if (!s) return;
  hy_array_release(s->seen);
  hy__mfree(s);
}

// splitmix64, as a number in [0, 1) that float32 has exactly.
static float draw(uint64_t* state) {
  *state += 0x9e3779b97f4a7c15ull;
  uint64_t z = *state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (float)((z ^ z >> 31) >> 40) * 0x1p-24f;
}

static hy_array* no_memory(hy_scope* s, int n) {
  return hy_scope_keep(s, hy_fail(HY_OUT_OF_MEMORY, "no memory to sample %d sequences", n), NULL);
}

// The sequences' rows of `seen`, (n) i64.
static hy_array* upload_rows(hy_scope* s, const int* sequences, int n) {
  int64_t *host = hy__malloc((size_t)n * sizeof *host), count = n;
  if (!host) return no_memory(s, n);
  for (int i = 0; i < n; i++) host[i] = sequences[i];
  hy_array* rows = hy_s_from_host(s, HY_I64, 1, &count, host);
  hy__mfree(host);
  return rows;
}

// seen[rows, ids] = true
static void see(hy_scope* s, const hy__sampler* sampler, hy_array* rows, hy_array* ids, int n) {
  hy_array* yes = hy_s_fill(s, hy_s_empty(s, HY_BOOL, HY_SIZES(n)), hy_int(1));
  const hy_attrs attrs = {.accumulate = {false}};
  hy_s_apply_into(s, HY_OP_index_put, (hy_array*[]){sampler->seen, yes, rows, ids}, 4, &attrs,
                  sampler->seen);
}

int64_t hy__sampler_words(int n) {
  return n * (SETTINGS + 1);
}

bool hy__sampler_draws(const hy__sampler* sampler) {
  return sampler->options.temperature > 0;
}

bool hy__sampler_has_state(const hy__sampler* sampler) {
  return sampler->seen != NULL;
}

// Settings (n, 5), then draws (n).
void hy__sampler_fill(hy__sampler* sampler, const int* sequences, int n, float* words) {
  const hy_generate_options* o = &sampler->options;
  for (int i = 0; i < n; i++) {
    float* row = words + i * SETTINGS;
    row[0] = (float)o->repetition_penalty;
    row[1] = (float)o->temperature;
    row[2] = (float)(o->top_k < sampler->vocab_size ? o->top_k : 0);
    row[3] = (float)o->top_p;
    row[4] = (float)o->min_p;
    words[n * SETTINGS + i] = draw(&sampler->draws[sequences[i]]);
  }
}

hy_array* hy__sampler_apply(hy_scope* s, const hy__sampler* sampler, hy_array* logits,
                            hy_array* words, hy_array* rows, int n) {
  if (!sampler->seen && !hy__sampler_draws(sampler))
    return hy_s_sample(s, logits, NULL, NULL, NULL);
  hy_array* settings =
      hy_s_view(s, hy_s_slice(s, words, 0, 0, n * SETTINGS, 1), HY_SIZES(n, SETTINGS));
  hy_array* draws = hy_s_slice(s, words, 0, n * SETTINGS, n * (SETTINGS + 1), 1);
  if (!sampler->seen) return hy_s_sample(s, logits, settings, draws, NULL);
  hy_array* seen =
      n == sampler->batch ? sampler->seen : hy_s_index_select(s, sampler->seen, rows, 0);
  hy_array* ids = hy_s_sample(s, logits, settings, draws, seen);
  see(s, sampler, rows, ids, n);
  return ids;
}

hy_array* hy__sampler_choose(hy_scope* s, hy__sampler* sampler, hy_array* logits,
                             const int* sequences, int n) {
  const int64_t count = hy__sampler_words(n);
  float* host = hy__malloc((size_t)count * sizeof *host);
  if (!host) return no_memory(s, n);
  hy__sampler_fill(sampler, sequences, n, host);
  hy_array* words = hy_s_from_host(s, HY_F32, 1, &count, host);
  hy__mfree(host);
  hy_array* rows = sampler->seen ? upload_rows(s, sequences, n) : NULL;
  return hy__sampler_apply(s, sampler, logits, words, rows, n);
}
