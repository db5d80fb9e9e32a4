// A step of a model as a graph: the forward pass over memory that stays, with the sampler behind
// it.
#include "model/step_graph.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { SETTINGS = 5 };

struct hy__step_graph {
  hy_model* model;
  int64_t tokens, positions, width;  // width: of the block table
  hy__kv_cache* cache;
  hy__sequence sequence;
  // Device memory, and the host's copy of what is uploaded at once.
  hy_array* words;
  int64_t* host;
  hy__kv_pass pass;
  hy_array* slot_of;             // (positions) i64: where a position's keys go
  hy_array *settings, *draw_of;  // (1, 5) and (positions) f32
  hy_array* chosen;              // (1) i64
  hy_array* history;             // (positions) i64: what decoding chose at each
  // Where the graph is the forward pass alone: what it reads and writes beside the above.
  hy_array *slots, *logits;
  hy_generate_options options;
  hy_graph* graph;
};

void hy__step_graph_destroy(hy__step_graph* g) {
  if (!g) return;
  hy_stream_sync(g->model->stream);
  hy_graph_destroy(g->graph);
  hy_array* const arrays[] = {g->words,
                              g->pass.ids,
                              g->pass.positions,
                              g->pass.last,
                              g->pass.block_table,
                              g->pass.query_start,
                              g->pass.context_length,
                              g->slot_of,
                              g->settings,
                              g->draw_of,
                              g->chosen,
                              g->history,
                              g->slots,
                              g->logits};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) hy_array_release(arrays[i]);
  if (g->cache) hy__sequence_free(g->cache, &g->sequence);
  hy__kv_cache_destroy(g->cache);
  hy__mfree(g->host);
  hy__mfree(g);
}

hy_graph* hy__step_graph_get(const hy__step_graph* g) {
  return g->graph;
}

// ---- weights ----

static hy_status fix_array(hy_graph* graph, const hy_array* a) {
  if (!a) return HY_OK;
  const hy_tensor* t = hy_array_tensor(a);
  return hy_graph_mark_constant(graph, t->data, hy_tensor_bytes(t));
}

static hy_status fix_linear(hy_graph* graph, const hy__linear* l) {
  HY_TRY(fix_array(graph, l->weight));
  HY_TRY(fix_array(graph, l->scale));
  return fix_array(graph, l->bias);
}

hy_status hy__step_graph_fix_weights(hy__step_graph* g) {
  const hy__transformer* t = &g->model->transformer;
  HY_TRY(fix_array(g->graph, t->embedding));
  HY_TRY(fix_array(g->graph, t->embedding_scale));
  HY_TRY(fix_array(g->graph, t->norm));
  HY_TRY(fix_linear(g->graph, &t->head));
  for (int64_t i = 0; i < t->config.n_layers; i++) {
    const hy__tf_block* b = &t->blocks[i];
    // Fused matrices before those that are their rows.
    const hy__linear* const layers[] = {&b->qkv, &b->gate_up, &b->q,  &b->k,   &b->v,
                                        &b->o,   &b->gate,    &b->up, &b->down};
    hy_array* const norms[] = {b->input_norm, b->post_norm, b->q_norm, b->k_norm};
    for (size_t k = 0; k < sizeof layers / sizeof layers[0]; k++)
      HY_TRY(fix_linear(g->graph, layers[k]));
    for (size_t k = 0; k < sizeof norms / sizeof norms[0]; k++)
      HY_TRY(fix_array(g->graph, norms[k]));
  }
  return HY_OK;
}

// ---- memory ----

// ids, positions; last, starts, length; the block table.
static hy_status divide(hy__step_graph* g) {
  hy_scope s;
  hy_scope_begin(&s, g->model->tape);
  int64_t at = 0;
#define PART(n) (at += (n), hy_s_slice(&s, g->words, 0, at - (n), at, 1))
  g->pass.ids = hy_scope_give(&s, PART(g->tokens));
  g->pass.positions = hy_scope_give(&s, PART(g->tokens));
  g->pass.last = hy_scope_give(&s, PART(1));
  g->pass.query_start = hy_scope_give(&s, PART(2));
  g->pass.context_length = hy_scope_give(&s, PART(1));
  g->pass.block_table = hy_scope_give(&s, hy_s_view(&s, PART(g->width), HY_SIZES(1, g->width)));
#undef PART
  return hy_scope_end(&s);
}

// All blocks that the sequence will ever need, by a pass over as many tokens that is not run.
static hy_status reserve_blocks(hy__step_graph* g) {
  int32_t* ids = hy__calloc((size_t)g->positions, sizeof *ids);
  if (!ids) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a step of a model");
  hy_scope s;
  hy__kv_pass unused;
  hy_scope_begin(&s, g->model->tape);
  HY_SCOPE_TRY(&s, hy__kv_pass_begin(&s, g->cache, (hy__sequence*[]){&g->sequence},
                                     (const int32_t*[]){ids}, &g->positions, 1, &unused));
  hy_status status = hy_scope_end(&s);
  hy__mfree(ids);
  return status;
}

// splitmix64, as a number in [0, 1) that float32 has exactly: the sampler's draws in order.
static float draw(uint64_t* state) {
  *state += 0x9e3779b97f4a7c15ull;
  uint64_t z = *state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (float)((z ^ z >> 31) >> 40) * 0x1p-24f;
}

// The first draw is that of the step at position `first`.
static hy_status upload_draws(hy__step_graph* g, int64_t first) {
  float* draws = hy__calloc((size_t)g->positions, sizeof *draws);
  if (!draws) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a step of a model");
  uint64_t state = g->options.seed;
  for (int64_t p = first; p < g->positions; p++) draws[p] = draw(&state);
  const hy_tensor* to = hy_array_tensor(g->draw_of);
  hy_status status = hy_upload(g->model->stream, to->data, draws, hy_tensor_bytes(to));
  hy__mfree(draws);
  return status;
}

static hy_status upload_tables(hy__step_graph* g) {
  hy_stream* stream = g->model->stream;
  const hy_generate_options* o = &g->options;
  int64_t vocab = hy_model_vocab_size(g->model);
  float settings[SETTINGS] = {(float)o->repetition_penalty, (float)o->temperature,
                              (float)(o->top_k < vocab ? o->top_k : 0), (float)o->top_p,
                              (float)o->min_p};
  int64_t* slots = hy__malloc((size_t)g->positions * sizeof *slots);
  if (!slots) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a step of a model");
  for (int64_t p = 0; p < g->positions; p++)
    slots[p] = g->sequence.blocks[p / HY__KV_BLOCK] * HY__KV_BLOCK + p % HY__KV_BLOCK;
  hy_status status = hy_array_from_host(stream, &g->slot_of, HY_I64, 1, &g->positions, slots);
  hy__mfree(slots);
  HY_TRY(status);
  HY_TRY(hy_array_from_host(stream, &g->settings, HY_F32, HY_SIZES(1, SETTINGS), settings));
  HY_TRY(hy_array_zeros(stream, &g->draw_of, HY_F32, 1, &g->positions));
  HY_TRY(hy_array_zeros(stream, &g->history, HY_I64, 1, &g->positions));
  return upload_draws(g, 0);
}

static hy_status allocate(hy__step_graph* g) {
  hy_model* model = g->model;
  g->width = (g->positions + HY__KV_BLOCK - 1) / HY__KV_BLOCK;
  int64_t words = 2 * g->tokens + 4 + g->width;
  g->host = hy__calloc((size_t)words, sizeof *g->host);
  if (!g->host) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a step of a model");
  HY_TRY(hy__model_reserve(model, g->positions));
  HY_TRY(hy__kv_cache_create(model->stream, &model->transformer.config, hy__model_dtype(model),
                             g->positions, &g->cache));
  HY_TRY(reserve_blocks(g));
  HY_TRY(hy_array_zeros(model->stream, &g->words, HY_I64, 1, &words));
  HY_TRY(divide(g));
  HY_TRY(hy_array_zeros(model->stream, &g->chosen, HY_I64, HY_SIZES(1)));
  g->pass.cache = g->cache;
  g->pass.tokens = g->tokens;
  return upload_tables(g);
}

// ---- the step ----

// The token chosen is the next to run, one position further; -1, no choice, becomes 0 there.
static void move_on(hy_scope* s, const hy__step_graph* g) {
  const hy_attrs at_least_0 = {.clamp = {hy_int(0), hy_no_scalar()}};
  const hy_attrs one_more = {.value_alpha = {hy_int(1), hy_int(1)}};
  const hy_attrs replace = {.accumulate = {false}};
  hy_array *chosen = g->chosen, *ids = g->pass.ids, *positions = g->pass.positions,
           *length = g->pass.context_length;
  hy_s_apply_into(s, HY_OP_index_put, (hy_array*[]){g->history, chosen, positions}, 3, &replace,
                  g->history);
  hy_s_apply_into(s, HY_OP_clamp, &chosen, 1, &at_least_0, ids);
  hy_s_apply_into(s, HY_OP_add_scalar, &positions, 1, &one_more, positions);
  hy_s_apply_into(s, HY_OP_add_scalar, &length, 1, &one_more, length);
}

static hy_array* find_slots(hy_scope* s, const hy__step_graph* g) {
  return hy_s_index_select(s, g->slot_of, g->pass.positions, 0);
}

// The logits behind the last token.
static hy_array* forward(hy_scope* s, const hy__step_graph* g, hy_array* slots) {
  hy_model* model = g->model;
  hy__kv_pass pass = g->pass;
  pass.slots = slots;
  hy__tf_attention attention = hy__attend_cached(&pass);
  hy__tf_pass p = {.s = s, .model = &model->transformer, .attention = &attention};
  hy__rope_both(s, &model->rope, pass.positions, &p.cos, &p.sin);
  hy_array* hidden = hy_s_index_select(s, hy__transformer_apply(&p, pass.ids), pass.last, 0);
  return hy__logits(s, &model->transformer, hidden);
}

// Of a part of the vocabulary, on every rank the same token.
static hy_array* sample(hy_scope* s, const hy__step_graph* g, hy_array* logits) {
  const hy__shard* shard = &g->model->transformer.shard;
  if (shard->comm && !(g->options.temperature > 0)) return hy__shard_argmax(s, shard, logits);
  hy_array* last = hy_s_index_select(s, g->pass.positions, g->pass.last, 0);
  hy_array* draws = hy_s_index_select(s, g->draw_of, last, 0);
  return hy_s_sample(s, hy__shard_gather(s, shard, logits), g->settings, draws, NULL);
}

static void choose(hy_scope* s, const hy__step_graph* g, hy_array* logits) {
  hy_s_copy_into(s, g->chosen, sample(s, g, logits));
}

static hy_status step(hy__step_graph* g) {
  hy_scope s;
  hy_scope_begin(&s, g->model->tape);
  choose(&s, g, forward(&s, g, find_slots(&s, g)));
  if (g->tokens == 1) move_on(&s, g);
  return hy_scope_end(&s);
}

static hy_status capture(hy__step_graph* g) {
  HY_TRY(hy_capture_begin(g->model->stream));
  hy_status status = step(g);
  hy_status ended = hy_capture_end(g->model->stream, status == HY_OK ? &g->graph : NULL);
  return status == HY_OK ? ended : status;
}

// Of a device that captures but does not choose tokens: all but that. HY_UNSUPPORTED where it does
// not capture that either, or a launch would be no more than the calls.
static hy_status capture_forward(hy__step_graph* g) {
  hy_stream* stream = g->model->stream;
  hy_scope s;
  HY_TRY(hy_array_zeros(stream, &g->slots, HY_I64, 1, &g->tokens));
  HY_TRY(hy_capture_begin(stream));
  hy_scope_begin(&s, g->model->tape);
  g->logits = hy_scope_give(&s, forward(&s, g, g->slots));
  hy_status status = hy_scope_end(&s);
  hy_status ended = hy_capture_end(stream, status == HY_OK ? &g->graph : NULL);
  HY_TRY(status == HY_OK ? ended : status);
  if (hy_graph_is_native(g->graph)) return HY_OK;
  return hy_fail(HY_UNSUPPORTED, "the device has no graphs of its own");
}

hy_status hy__step_graph_create(hy_model* model, int64_t tokens, int64_t positions,
                                const hy_generate_options* options, hy__step_graph** out) {
  *out = NULL;
  if (tokens < 1 || tokens > positions || positions > hy_model_max_positions(model))
    return hy_fail(HY_INVALID_ARGUMENT, "a step of %lld tokens among %lld; the model has %lld",
                   (long long)tokens, (long long)positions,
                   (long long)hy_model_max_positions(model));
  HY_TRY(hy__sampler_check(options));
  if (options->repetition_penalty != 1)
    return hy_fail(HY_UNSUPPORTED, "a step that is captured has no repetition penalty");
  hy__step_graph* g = hy__calloc(1, sizeof *g);
  if (!g) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a step of a model");
  g->model = model;
  g->tokens = tokens;
  g->positions = positions;
  g->options = *options;
  hy_status status = allocate(g);
  if (status == HY_OK) status = capture(g);
  if (status == HY_UNSUPPORTED) {
    char why[320];
    snprintf(why, sizeof why, "%s", hy_last_error());
    status = capture_forward(g);
    if (status == HY_UNSUPPORTED) hy_fail(status, "%s", why);
  }
  if (status == HY_OK)
    *out = g;
  else
    hy__step_graph_destroy(g);
  return status;
}

hy_status hy__step_graph_prompt(hy__step_graph* g, const int32_t* ids, int64_t n) {
  if (g->tokens != 1 || n < 1 || n > g->positions)
    return hy_fail(HY_INVALID_ARGUMENT, "a prompt of %lld tokens; there are %lld positions",
                   (long long)n, (long long)g->positions);
  HY_TRY(upload_draws(g, n - 1));
  g->sequence.length = 0;
  if (n > 1) {
    const int64_t count = n - 1;
    const hy__step step = {.cache = g->cache,
                           .sequences = (hy__sequence*[]){&g->sequence},
                           .ids = &ids,
                           .counts = &count,
                           .batch = 1};
    hy_scope s;
    hy_scope_begin(&s, g->model->tape);
    hy__model_forward(&s, g->model, &step);
    HY_TRY(hy_scope_end(&s));
  }
  return hy__step_graph_begin(g, n - 1, ids + n - 1);
}

hy_status hy__step_graph_begin(hy__step_graph* g, int64_t length, const int32_t* ids) {
  if (length < 0 || length > g->positions - g->tokens)
    return hy_fail(HY_INVALID_ARGUMENT, "a step from position %lld on; there are %lld",
                   (long long)length, (long long)g->positions);
  int64_t *positions = g->host + g->tokens, *last = positions + g->tokens, *starts = last + 1;
  for (int64_t i = 0; i < g->tokens; i++) {
    g->host[i] = ids[i];
    positions[i] = length + i;
  }
  *last = g->tokens - 1;
  starts[0] = 0;
  starts[1] = g->tokens;
  starts[2] = length + g->tokens;  // behind them
  memcpy(starts + 3, g->sequence.blocks, (size_t)g->width * sizeof *starts);
  const hy_tensor* words = hy_array_tensor(g->words);
  return hy_upload(g->model->stream, words->data, g->host, hy_tensor_bytes(words));
}

bool hy__step_graph_is_whole(const hy__step_graph* g) {
  return !g->logits;
}

// move_on where the token is chosen on the host in any case.
static hy_status move_on_by_host(hy__step_graph* g) {
  int64_t token, position = g->host[g->tokens];
  int64_t* history = hy_array_tensor(g->history)->data;
  HY_TRY(hy_array_to_host(g->model->stream, g->chosen, &token, sizeof token));
  HY_TRY(hy_upload(g->model->stream, history + position, &token, sizeof token));
  const int32_t next = token < 0 ? 0 : (int32_t)token;
  return position + 1 < g->positions ? hy__step_graph_begin(g, position + 1, &next) : HY_OK;
}

hy_status hy__step_graph_launch(hy__step_graph* g) {
  hy_scope s;
  if (hy__step_graph_is_whole(g)) return hy_graph_launch(g->graph, g->model->stream);
  hy_scope_begin(&s, g->model->tape);
  hy_s_copy_into(&s, g->slots, find_slots(&s, g));
  HY_TRY(hy_scope_end(&s));
  HY_TRY(hy_graph_launch(g->graph, g->model->stream));
  hy_scope_begin(&s, g->model->tape);
  choose(&s, g, g->logits);
  HY_TRY(hy_scope_end(&s));
  return g->tokens == 1 ? move_on_by_host(g) : HY_OK;
}

hy_status hy__step_graph_run(hy__step_graph* g) {
  return step(g);
}

hy_status hy__step_graph_history(hy__step_graph* g, int64_t first, int64_t n, int32_t* tokens) {
  if (first < 0 || n < 0 || n > g->positions - first)
    return hy_fail(HY_INVALID_ARGUMENT, "tokens %lld to %lld; there are %lld positions",
                   (long long)first, (long long)(first + n), (long long)g->positions);
  int64_t* host = hy__malloc((size_t)(n + 1) * sizeof *host);
  if (!host) return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)n);
  const int64_t* from = (const int64_t*)hy_array_tensor(g->history)->data + first;
  hy_status status =
      hy_memcpy(g->model->stream, host, from, (size_t)n * sizeof *host, HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(g->model->stream);
  for (int64_t i = 0; i < n && status == HY_OK; i++) {
    tokens[i] = (int32_t)host[i];
    if (host[i] < 0) status = hy_fail(HY_DEVICE_FAILED, "the model gave no usable logits");
  }
  hy__mfree(host);
  return status;
}

hy_status hy__step_graph_token(hy__step_graph* g, int64_t* token) {
  HY_TRY(hy_array_to_host(g->model->stream, g->chosen, token, sizeof *token));
  if (*token >= 0) return HY_OK;
  return hy_fail(HY_DEVICE_FAILED,
                 "the model gave no usable logits: all are NaN or minus infinity");
}
