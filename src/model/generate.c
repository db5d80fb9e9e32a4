// Generating text: prefill, then one token at a time, for one or several sequences.
#include <string.h>

#include "base/env.h"
#include "base/math.h"
#include "base/memory.h"
#include "model/context.h"
#include "model/decode.h"
#include "model/sampler.h"

void hy_generate_defaults(hy_generate_options* options) {
  if (!options) return;
  *options = (hy_generate_options){.max_tokens = 256, .top_p = 1, .repetition_penalty = 1};
}

// ---- the text of an answer ----

// Bytes of the tokens so far. What has been given out stays; what may be the start of a stop or of
// a character waits.
typedef struct answer {
  const hy__tokenizer* tokenizer;
  const hy_generate_options* options;
  char* bytes;
  size_t length, capacity, given;
} answer;

static hy_status append(answer* a, int32_t id) {
  size_t size;
  bool special;
  const char* bytes = a->tokenizer ? hy__tokenizer_bytes(a->tokenizer, id, &size, &special) : NULL;
  if (!bytes || special) return HY_OK;
  if (a->length + size > a->capacity) {
    size_t capacity = 2 * (a->length + size) + 256;
    char* grown = hy__realloc(a->bytes, capacity);
    if (!grown) return hy_fail(HY_OUT_OF_MEMORY, "no memory for the answer");
    a->bytes = grown;
    a->capacity = capacity;
  }
  memcpy(a->bytes + a->length, bytes, size);
  a->length += size;
  return HY_OK;
}

// Where a stop begins in what has not been given out, or the length where none does.
static size_t find_stop(const answer* a) {
  size_t first = a->length;
  for (int i = 0; i < a->options->n_stops; i++) {
    size_t n = strlen(a->options->stops[i]);
    void* at = n && a->length > a->given
                   ? memmem(a->bytes + a->given, a->length - a->given, a->options->stops[i], n)
                   : NULL;
    if (at && (size_t)((char*)at - a->bytes) < first) first = (size_t)((char*)at - a->bytes);
  }
  return first;
}

// How many bytes at the end must wait: the start of a stop, or of a character that is not whole
// yet.
static size_t held_back(const answer* a) {
  size_t held = 0, fresh = a->length - a->given;
  for (int i = 0; i < a->options->n_stops; i++) {
    size_t n = strlen(a->options->stops[i]);
    for (size_t k = n > 0 ? n - 1 : 0; k > held; k--) {
      if (k <= fresh && memcmp(a->bytes + a->length - k, a->options->stops[i], k) == 0) held = k;
    }
  }
  for (size_t k = 1; k <= 3 && k <= fresh; k++) {
    unsigned char c = (unsigned char)a->bytes[a->length - k];
    size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 0;
    if (need > k && k > held) held = k;
    if (need || c < 0x80) break;
  }
  return held;
}

// ---- the loop ----

typedef struct stream_state {
  hy__sequence own, *sequence;  // its own, or its context's
  answer answer;
  int32_t next;  // the token to run next
  int64_t tokens;
  bool done;
} stream_state;

typedef struct run {
  hy_model* model;
  const hy_generate_options* options;
  hy_on_token on_token;
  void* token_context;
  hy_context* context;  // of the one sequence; NULL in a batch
  hy__kv_cache* cache;
  hy__sampler* sampler;
  hy__decoder* decoder;  // of a batch
  bool cancelled;
  stream_state* states;
  int batch;
  int32_t* const* ids;  // per sequence; NULL, or entries NULL: not wanted
  hy_stop_reason stop;
  int64_t kept;  // tokens of the prompt that the context has
} run;

static bool is_end(const hy_model* model, int32_t id) {
  for (int i = 0; i < model->n_ends; i++) {
    if (model->ends[i] == id) return true;
  }
  return false;
}

// Gives out what can be: all of it at the end. False when the caller has had enough.
static bool give_out(const run* r, answer* a, int32_t id, size_t until) {
  bool go_on = true;
  if (r->on_token)
    go_on = r->on_token(r->token_context, id, a->length > a->given ? a->bytes + a->given : "",
                        until - a->given);
  a->given = until;
  return go_on;
}

// Takes the token chosen after a step into the answer.
static hy_status accept(run* r, int index, int32_t id) {
  stream_state* s = &r->states[index];
  if (!r->options->ignore_end && is_end(r->model, id)) {
    s->done = true;
    r->stop = HY_STOP_END;
    if (s->answer.length > s->answer.given) give_out(r, &s->answer, id, s->answer.length);
    return HY_OK;
  }
  if (r->ids && r->ids[index]) r->ids[index][s->tokens] = id;
  s->tokens++;
  s->next = id;
  HY_TRY(append(&s->answer, id));
  size_t stop = find_stop(&s->answer);
  bool stopped = stop < s->answer.length, full = s->tokens >= r->options->max_tokens;
  size_t until = stopped ? stop
                 : full  ? s->answer.length
                         : s->answer.length - held_back(&s->answer);
  bool go_on = give_out(r, &s->answer, id, until);
  s->done = stopped || full || !go_on;
  if (s->done) r->stop = stopped ? HY_STOP_TEXT : !go_on ? HY_STOP_CALLER : HY_STOP_LENGTH;
  return HY_OK;
}

// Sequences that take part in a step, by their number, and what each of them runs.
typedef struct round_of {
  int* active;
  hy__sequence** sequences;
  const int32_t** ids;
  int64_t *counts, *next;  // new tokens; the token chosen after them
  int n;
} round_of;

static void add_to(round_of* now, run* r, int index, const int32_t* ids, int64_t count) {
  now->active[now->n] = index;
  now->sequences[now->n] = r->states[index].sequence;
  now->ids[now->n] = ids;
  now->counts[now->n++] = count;
}

// Runs the new tokens and accepts a token for each sequence.
static hy_status step(run* r, const round_of* now) {
  const bool prompts = r->states[now->active[0]].tokens == 0;
  const hy__step tokens = {.cache = r->cache,
                           .sequences = now->sequences,
                           .ids = now->ids,
                           .counts = now->counts,
                           .batch = now->n,
                           .options = prompts ? r->options : NULL};
  HY_TRY(hy__model_step(r->model, &tokens, r->sampler, now->active, now->next));
  for (int i = 0; i < now->n; i++) HY_TRY(accept(r, now->active[i], (int32_t)now->next[i]));
  return HY_OK;
}

static bool is_cancelled(const run* r) {
  const hy_generate_options* o = r->options;
  int64_t most = 0;
  for (int i = 0; i < r->batch; i++) {
    if (r->states[i].tokens > most) most = r->states[i].tokens;
  }
  return o->on_progress &&
         !o->on_progress(o->progress_context, (double)most / (double)o->max_tokens);
}

// ---- steps by a graph ----

static int64_t tokens_left(const run* r, const round_of* now) {
  int64_t most = 0;
  for (int i = 0; i < now->n; i++)
    most = max_i64(most, r->options->max_tokens - r->states[now->active[i]].tokens);
  return most;
}

// For the sequences of the round, with blocks for all that they may still run; NULL where steps run
// call by call. A context keeps its own.
static hy_status find_decoder(run* r, const round_of* now, hy__decoder** decoder) {
  enum { ROUND = 256 };
  int64_t left = tokens_left(r, now), longest = 0;
  for (int i = 0; i < now->n; i++) {
    now->counts[i] = left;
    longest = max_i64(longest, now->sequences[i]->length + left);
  }
  hy__decoder** kept = r->context ? &r->context->decoder : &r->decoder;
  *decoder = *kept;
  if (!hy__decoder_serves(*kept, r->cache, r->sampler, now->n, longest)) {
    hy__decoder_destroy(*kept);
    *kept = NULL;
    HY_TRY(hy__decoder_create(r->model, r->cache, r->sampler, now->active, now->n,
                              (longest + ROUND - 1) / ROUND * ROUND, kept));
  }
  *decoder = *kept;
  return *decoder ? hy__sequences_reserve(r->cache, now->sequences, now->counts, now->n) : HY_OK;
}

// Accepts the tokens of the oldest step; a sequence that is done runs along unheard.
static hy_status accept_step(run* r, const round_of* now, hy__decoder* decoder, int* alive) {
  HY_TRY(hy__decoder_read(decoder, now->next));
  *alive = 0;
  for (int i = 0; i < now->n; i++) {
    stream_state* s = &r->states[now->active[i]];
    if (s->done) continue;
    s->sequence->length++;
    HY_TRY(accept(r, now->active[i], (int32_t)now->next[i]));
    *alive += !s->done;
  }
  return HY_OK;
}

// Until all are done, or so many that a smaller graph is worth its capture: half of them on a
// device that runs one step while the host looks at the one before, one of them where the host
// computes.
static hy_status decode_round(run* r, const round_of* now, hy__decoder* decoder) {
  int64_t left = tokens_left(r, now);
  int alive = now->n, ahead = hy__decoder_ahead(decoder);
  HY_TRY(hy__decoder_begin(decoder, r->sampler, now->active, now->sequences, now->ids));
  for (;;) {
    bool enough = ahead == 1 ? alive < now->n : alive == 0 || 2 * alive <= now->n;
    while (!enough && left > 0 && hy__decoder_unread(decoder) < ahead) {
      HY_TRY(hy__decoder_launch(decoder));
      left--;
    }
    if (alive == 0 || hy__decoder_unread(decoder) == 0) return HY_OK;
    HY_TRY(accept_step(r, now, decoder, &alive));
    r->cancelled = alive > 0 && is_cancelled(r);
    if (r->cancelled) return HY_OK;
  }
}

static hy_status decode(run* r, round_of* now) {
  for (;;) {
    now->n = 0;
    for (int i = 0; i < r->batch; i++) {
      if (!r->states[i].done) add_to(now, r, i, &r->states[i].next, 1);
    }
    if (now->n == 0) return HY_OK;
    if (r->cancelled || is_cancelled(r)) {
      r->stop = HY_STOP_CALLER;
      return HY_OK;
    }
    hy__decoder* decoder;
    HY_TRY(find_decoder(r, now, &decoder));
    if (decoder) {
      HY_TRY(decode_round(r, now, decoder));
      continue;
    }
    for (int i = 0; i < now->n; i++) now->counts[i] = 1;
    HY_TRY(step(r, now));
  }
}

static hy_status prepare(run* r, const int32_t* const* prompts, const int64_t* lengths) {
  hy_model* model = r->model;
  int64_t blocks = 0, longest = 0;
  r->states = hy__calloc((size_t)r->batch, sizeof *r->states);
  if (!r->states) return hy_fail(HY_OUT_OF_MEMORY, "no memory to generate %d answers", r->batch);
  for (int i = 0; i < r->batch; i++) {
    if (!prompts[i] || lengths[i] < 1)
      return hy_fail(HY_INVALID_ARGUMENT, "prompt %d is empty; a model needs at least one token",
                     i);
    if (r->options->max_tokens > hy_model_max_positions(model) - lengths[i])
      return hy_fail(HY_INVALID_ARGUMENT,
                     "%lld tokens of prompt and %lld new ones exceed the model's %lld positions",
                     (long long)lengths[i], (long long)r->options->max_tokens,
                     (long long)hy_model_max_positions(model));
    int64_t tokens = lengths[i] + r->options->max_tokens;
    blocks += (tokens + HY__KV_BLOCK - 1) / HY__KV_BLOCK;
    longest = tokens > longest ? tokens : longest;
    stream_state* s = &r->states[i];
    s->sequence = r->context ? &r->context->sequence : &s->own;
    s->answer = (answer){.tokenizer = model->tokenizer, .options = r->options};
  }
  HY_TRY(hy__sampler_create(model->stream, hy_model_vocab_size(model), r->options, prompts, lengths,
                            r->batch, &r->sampler));
  HY_TRY(hy__model_reserve(model, longest));
  if (!r->context) return hy__model_cache(model, blocks * HY__KV_BLOCK, &r->cache);
  HY_TRY(hy__context_begin(r->context, prompts[0], lengths[0], lengths[0] + r->options->max_tokens,
                           &r->kept));
  r->cache = r->context->cache;
  return HY_OK;
}

static void clean_up(run* r) {
  hy__decoder_destroy(r->decoder);
  for (int i = 0; r->states && i < r->batch; i++) {
    if (r->cache) hy__sequence_free(r->cache, &r->states[i].own);
    hy__mfree(r->states[i].answer.bytes);
  }
  hy__mfree(r->states);
  hy__sampler_destroy(r->sampler);
  if (!r->context) hy__model_cache_release(r->model, r->cache);
}

static hy_status generate(run* r, const int32_t* const* prompts, const int64_t* lengths,
                          hy_generate_result* result) {
  size_t n = (size_t)r->batch;
  round_of now = {.active = hy__malloc(n * sizeof *now.active),
                  .sequences = hy__malloc(n * sizeof(hy__sequence*)),
                  .ids = hy__malloc(n * sizeof(const int32_t*)),
                  .counts = hy__malloc(n * sizeof *now.counts),
                  .next = hy__malloc(n * sizeof *now.next)};
  hy_status status = HY_OK;
  if (!now.active || !now.sequences || !now.ids || !now.counts || !now.next)
    status = hy_fail(HY_OUT_OF_MEMORY, "no memory to generate %d answers", r->batch);
  int64_t start = hy__now_ns();
  for (int i = 0; i < r->batch && status == HY_OK; i++) {
    add_to(&now, r, i, prompts[i] + r->kept, lengths[i] - r->kept);
    result->prompt_tokens += lengths[i];
  }
  if (status == HY_OK) status = step(r, &now);
  int64_t middle = hy__now_ns();
  if (status == HY_OK) status = decode(r, &now);
  result->prefill_seconds = 1e-9 * (double)(middle - start);
  result->decode_seconds = 1e-9 * (double)(hy__now_ns() - middle);
  hy__mfree(now.active);
  hy__mfree(now.sequences);
  hy__mfree(now.ids);
  hy__mfree(now.counts);
  hy__mfree(now.next);
  return status;
}

static hy_status run_all(run* r, const int32_t* const* prompts, const int64_t* lengths,
                         int64_t* counts, hy_generate_result* result) {
  hy_generate_result unused;
  if (!result) result = &unused;
  memset(result, 0, sizeof *result);
  hy_status status = prepare(r, prompts, lengths);
  if (status == HY_OK) status = generate(r, prompts, lengths, result);
  result->stop = r->stop;
  result->kept_tokens = r->kept;
  for (int i = 0; status == HY_OK && i < r->batch; i++) {
    result->tokens += r->states[i].tokens;
    if (counts) counts[i] = r->states[i].tokens;
  }
  clean_up(r);
  return status;
}

hy_status hy_context_generate(hy_context* context, const int32_t* prompt, int64_t n,
                              const hy_generate_options* options, hy_on_token on_token,
                              void* token_context, int32_t* ids, hy_generate_result* result) {
  if (!context || !prompt || !options || options->max_tokens < 1)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "generating needs a model, a prompt, and at least one token to make");
  // Of more than the model's positions there is an error below, before any is made.
  int64_t room = hy_model_max_positions(context->model);
  if (options->max_tokens < room) room = options->max_tokens;
  int32_t* own = ids ? NULL : hy__malloc((size_t)room * sizeof *own);
  if (!ids && !own) return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)room);
  if (!ids) ids = own;
  run r = {.model = context->model,
           .options = options,
           .on_token = on_token,
           .token_context = token_context,
           .context = context,
           .batch = 1,
           .ids = &ids};
  hy_status status = run_all(&r, &prompt, &n, NULL, result);
  if (status == HY_OK)
    hy__context_note(context, prompt, n, ids);
  else
    hy__context_clear(context);
  hy__mfree(own);
  return status;
}

hy_status hy_model_generate(hy_model* model, const int32_t* prompt, int64_t n,
                            const hy_generate_options* options, hy_on_token on_token, void* context,
                            int32_t* ids, hy_generate_result* result) {
  hy_context* fresh;
  HY_TRY(hy_context_create(model, &fresh));
  hy_status status = hy_context_generate(fresh, prompt, n, options, on_token, context, ids, result);
  hy_context_destroy(fresh);
  return status;
}

hy_status hy_model_generate_batch(hy_model* model, const int32_t* const* prompts,
                                  const int64_t* lengths, int batch,
                                  const hy_generate_options* options, int32_t* const* ids,
                                  int64_t* counts, hy_generate_result* result) {
  if (!model || !prompts || !lengths || batch < 1 || !options || options->max_tokens < 1 || !ids ||
      !counts)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_model_generate_batch: an argument is missing");
  run r = {.model = model, .options = options, .batch = batch, .ids = ids};
  return run_all(&r, prompts, lengths, counts, result);
}
