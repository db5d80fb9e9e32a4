// A loaded model: its files, its tokens, and one pass over new tokens.
#include "model/model.h"

#include <string.h>

#include "base/file.h"
#include "base/json_read.h"
#include "base/math.h"
#include "base/memory.h"
#include "model/adapter.h"
#include "model/forward_graph.h"
#include "model/load.h"
#include "model/pipeline.h"
#include "model/prompt.h"

// ---- loading ----

static void add_end(hy_model* model, const hy__json* value) {
  if (!value || !value->is_integer || value->integer < 0 || value->integer > INT32_MAX) return;
  for (int i = 0; i < model->n_ends; i++) {
    if (model->ends[i] == value->integer) return;
  }
  if (model->n_ends < HY__MAX_ENDS) model->ends[model->n_ends++] = (int32_t)value->integer;
}

// "eos_token_id" of a JSON file: a number or a list of them. A file that is not there says nothing.
static hy_status read_ends(hy_model* model, const char* folder, const char* name) {
  char path[4096], *text;
  size_t size;
  hy__json_document* document = NULL;
  HY_TRY(hy__join_path(folder, name, path, sizeof path));
  if (!hy__file_exists(path)) return HY_OK;
  HY_TRY(hy__read_file(path, HY__CONFIG_LIMIT, &text, &size));
  hy_status status = hy__json_parse(path, text, size, &document);
  hy__mfree(text);
  if (status != HY_OK) return status;
  const hy__json* ends = hy__json_get(hy__json_root(document), "eos_token_id");
  add_end(model, ends);
  if (ends && ends->kind == HY__JSON_ARRAY) {
    for (const hy__json* end = ends->first; end; end = end->next) add_end(model, end);
  }
  hy__json_free(document);
  return HY_OK;
}

hy_status hy__model_load_layers(hy_model* model, hy_device* device, const char* folder,
                                const hy_load_options* o, const hy__span* layers) {
  HY_TRY(hy_stream_create(device, &model->stream));
  HY_TRY(hy_tape_create(model->stream, &model->tape));
  hy_tape_set_recording(model->tape, false);
  HY_TRY(hy__transformer_load(model->stream, folder, o, layers, &model->transformer));
  if (o->adapter) HY_TRY(hy__adapter_load(model->stream, o->adapter, &model->transformer));
  return HY_OK;
}

static hy_status load(hy_model* model, hy_device* device, const char* folder,
                      const hy_load_options* o) {
  char path[4096];
  if (o->n_devices > 1)
    HY_TRY(hy__pipeline_load(model, folder, o));
  else
    HY_TRY(hy__model_load_layers(model, device, folder, o, NULL));
  // No graph has work of two devices, and collectives only those that are replayed by calls.
  bool talks = model->transformer.shard.comm != NULL;
  if (model->next || (talks && !hy_device_is_host(device))) model->captures = HY__CAPTURES_NOT;
  HY_TRY(hy__join_path(folder, "tokenizer.json", path, sizeof path));
  if (hy__file_exists(path)) HY_TRY(hy__tokenizer_load(path, &model->tokenizer));
  HY_TRY(read_ends(model, folder, "generation_config.json"));
  return read_ends(model, folder, "config.json");
}

hy_status hy_model_load_with(hy_device* device, const char* folder, const hy_load_options* options,
                             hy_model** out) {
  if (!device || !folder || !options || !out)
    return hy_fail(HY_INVALID_ARGUMENT, "loading a model: the %s is NULL",
                   !device    ? "device"
                   : !folder  ? "folder"
                   : !options ? "list of options"
                              : "place for the model");
  *out = NULL;
  if (options->format < HY_WEIGHTS_AS_FILE || options->format > HY_WEIGHTS_Q4)
    return hy_fail(HY_INVALID_ARGUMENT, "loading a model: %d is no format of weights",
                   (int)options->format);
  if (options->cached && options->format != HY_WEIGHTS_Q8 && options->format != HY_WEIGHTS_Q4)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "loading a model cached: only the formats q8 and q4 are packed");
  if (options->n_devices > 1 && options->devices[0] != device)
    return hy_fail(HY_INVALID_ARGUMENT, "loading a model: the first of its devices is another one");
  if ((options->comm || options->n_devices > 1) && options->cached)
    return hy_fail(HY_UNSUPPORTED, "packed weights are cached of whole models, not of parts");
  hy_model* model = hy__calloc(1, sizeof *model);
  if (!model) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a model");
  hy_status status = load(model, device, folder, options);
  if (status != HY_OK)
    hy_model_free(model);
  else
    *out = model;
  return status;
}

hy_status hy_model_load(hy_device* device, const char* folder, const char* adapter,
                        hy_weight_format format, hy_model** model) {
  const hy_load_options options = {.adapter = adapter, .format = format};
  return hy_model_load_with(device, folder, &options, model);
}

hy_status hy_model_load_cached(hy_device* device, const char* folder, const char* adapter,
                               hy_weight_format format, hy_model** model) {
  const hy_load_options options = {.adapter = adapter, .format = format, .cached = true};
  return hy_model_load_with(device, folder, &options, model);
}

void hy_model_free(hy_model* model) {
  if (!model) return;
  hy_model_free(model->next);
  hy__forward_graph_destroy(model->forward);
  hy__prompt_graphs_destroy(model->prompts);
  hy__kv_cache_destroy(model->spare);
  hy__transformer_release(&model->transformer);
  hy__rope_release(&model->rope);
  hy__tokenizer_free(model->tokenizer);
  hy_tape_destroy(model->tape);
  hy_comm_destroy(model->comm);
  hy_stream_destroy(model->stream);
  hy__mfree(model);
}

int64_t hy_model_vocab_size(const hy_model* model) {
  return !model ? 0 : model->transformer.config.vocab_size;
}

int64_t hy_model_max_positions(const hy_model* model) {
  return !model ? 0 : model->transformer.config.max_positions;
}

hy_dtype hy__model_dtype(const hy_model* model) {
  return model->transformer.config.dtype;
}

int32_t hy__model_end_of_text(const hy_model* model) {
  static const char* const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
  for (int i = 0; model->tokenizer && i < 3; i++) {
    int32_t id = hy__tokenizer_added_id(model->tokenizer, names[i]);
    if (id >= 0 && id < hy_model_vocab_size(model)) return id;
  }
  return model->n_ends > 0 ? model->ends[0] : -1;
}

bool hy__weight_format_named(const char* name, hy_weight_format* format) {
  static const char* const names[] = {"f32", "bf16", "q8", "q4"};
  static const hy_weight_format formats[] = {HY_WEIGHTS_F32, HY_WEIGHTS_BF16, HY_WEIGHTS_Q8,
                                             HY_WEIGHTS_Q4};
  *format = HY_WEIGHTS_AS_FILE;
  for (int i = 0; name && i < 4; i++) {
    if (strcmp(name, names[i]) == 0) *format = formats[i];
  }
  return !name || *format != HY_WEIGHTS_AS_FILE;
}

// ---- tokens ----

hy_status hy__model_need_tokenizer(const hy_model* model) {
  return model->tokenizer
             ? HY_OK
             : hy_fail(HY_UNSUPPORTED,
                       "the model's folder has no tokenizer.json; give ids instead of text");
}

hy_status hy_model_encode(const hy_model* model, const char* text, size_t length, unsigned flags,
                          int32_t* ids, int64_t capacity, int64_t* count) {
  if (!model || (!text && length > 0) || !count || (!ids && capacity > 0))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_model_encode: an argument is NULL");
  if (flags > (HY_ENCODE_PLAIN | HY_ENCODE_BARE))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_model_encode: there are no such flags as %u", flags);
  *count = 0;
  HY_TRY(hy__model_need_tokenizer(model));
  unsigned how = (flags & HY_ENCODE_BARE ? 0 : HY__ENCODE_AFFIXES) |
                 (flags & HY_ENCODE_PLAIN ? HY__ENCODE_PLAIN : 0);
  return hy__tokenizer_encode(model->tokenizer, text, length, how, ids, capacity, count);
}

hy_status hy_model_decode(const hy_model* model, const int32_t* ids, int64_t n, char* text,
                          size_t capacity, size_t* length) {
  if (!model || (!ids && n > 0) || !length || (!text && capacity > 0))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_model_decode: an argument is NULL");
  HY_TRY(hy__model_need_tokenizer(model));
  *length = 0;
  for (int64_t i = 0; i < n; i++) {
    size_t size;
    bool special;
    const char* bytes = hy__tokenizer_bytes(model->tokenizer, ids[i], &size, &special);
    if (!bytes) return hy_fail(HY_INDEX, "%d is no token of this model", (int)ids[i]);
    for (size_t b = 0; b < size; b++, (*length)++) {
      if (*length + 1 < capacity) text[*length] = bytes[b];
    }
  }
  if (capacity > 0) text[*length < capacity ? *length : capacity - 1] = 0;
  return HY_OK;
}

// ---- a step ----

#define SPARE_BYTES ((uint64_t)256 << 20)  // of a cache that nobody uses

static hy_status check_ids(const hy_model* model, const hy__step* step) {
  int64_t vocab = hy_model_vocab_size(model);
  for (int i = 0; i < step->batch; i++) {
    for (int64_t k = 0; k < step->counts[i]; k++) {
      int32_t id = step->ids[i][k];
      if (id < 0 || id >= vocab)
        return hy_fail(HY_INDEX, "%d is no token: the vocabulary has %lld", (int)id,
                       (long long)vocab);
    }
  }
  return HY_OK;
}

hy_status hy__model_reserve(hy_model* model, int64_t positions) {
  if (model->next) HY_TRY(hy__model_reserve(model->next, positions));
  return hy__rope_reserve(model->stream, &model->transformer.config, positions, &model->rope);
}

static hy_status create_cache(const hy_model* model, int64_t tokens, hy__kv_cache** cache) {
  hy__kv_cache* next = NULL;
  if (model->next) HY_TRY(create_cache(model->next, tokens, &next));
  hy_status status = hy__kv_cache_create(model->stream, &model->transformer.config,
                                         hy__model_dtype(model), tokens, cache);
  if (status == HY_OK)
    hy__kv_cache_append(*cache, next);
  else
    hy__kv_cache_destroy(next);
  return status;
}

hy_status hy__model_cache(hy_model* model, int64_t tokens, hy__kv_cache** cache) {
  hy__kv_cache* spare = model->spare;
  model->spare = NULL;
  if (spare && hy__kv_cache_grow(model->stream, spare, tokens) == HY_OK) {
    *cache = spare;
    return HY_OK;
  }
  hy__kv_cache_destroy(spare);
  return create_cache(model, tokens, cache);
}

void hy__model_cache_release(hy_model* model, hy__kv_cache* cache) {
  bool keeps = cache && model->prompts && hy__kv_cache_bytes(cache) <= SPARE_BYTES;
  if (keeps) {
    hy__kv_cache* smaller = model->spare;
    model->spare = cache;
    cache = smaller;
  }
  hy__kv_cache_destroy(cache);
}

hy_array* hy__model_layers(hy_scope* s, const hy_model* model, hy__kv_pass* pass,
                           const hy_generate_options* options, hy_array* x) {
  hy__tf_attention attention = hy__attend_cached(pass);
  hy__tf_pass p = {
      .s = s, .model = &model->transformer, .attention = &attention, .options = options};
  hy__rope_both(s, &model->rope, pass->positions, &p.cos, &p.sin);
  return hy__transformer_blocks(&p, x);
}

hy_array* hy__model_last(hy_scope* s, const hy_model* model, const hy__kv_pass* pass, hy_array* x) {
  const hy__transformer* t = &model->transformer;
  hy_array* normed = hy_s_rms_norm(s, x, t->norm, 1, t->config.norm_eps);
  return hy__logits(s, t, hy_s_index_select(s, normed, pass->last, 0));
}

hy_array* hy__pass_logits(hy_scope* s, const hy_model* model, hy__kv_pass* pass,
                          const hy_generate_options* options) {
  hy_array* x = hy__embed(s, &model->transformer, pass->ids);
  return hy__model_last(s, model, pass, hy__model_layers(s, model, pass, options, x));
}

// Tokens from which on a capture, a millisecond or two, is little beside the pass.
enum { GRAPH_TOKENS = 256 };

// On the host prompts, where passes fuse and activations share a plan's memory; steps are the
// decoder's. Not for those who watch: a launch is not interrupted.
static bool runs_by_graph(const hy_model* model, const hy__step* step) {
  int64_t tokens = 0;
  for (int i = 0; i < step->batch; i++) tokens += step->counts[i];
  if (step->options && step->options->on_progress) return false;
  if (model->captures == HY__CAPTURES_FORWARD) return true;
  return tokens >= GRAPH_TOKENS && model->captures != HY__CAPTURES_NOT &&
         hy_device_is_host(hy_stream_device(model->stream));
}

hy_array* hy__model_forward(hy_scope* s, hy_model* model, const hy__step* step) {
  int64_t longest = 0;
  for (int i = 0; i < step->batch; i++)
    longest = max_i64(longest, step->sequences[i]->length + step->counts[i]);
  hy__kv_pass pass;
  HY_SCOPE_TRY(s, check_ids(model, step));
  HY_SCOPE_TRY(s, hy__model_reserve(model, longest));
  if (s->status == HY_OK && hy__prompt_serves(model, step))
    return hy__prompt_forward(s, model, step);
  HY_SCOPE_TRY(s, hy__kv_pass_begin(s, step->cache, step->sequences, step->ids, step->counts,
                                    step->batch, &pass));
  if (s->status != HY_OK) return NULL;
  if (runs_by_graph(model, step)) {
    hy_array* logits = NULL;
    hy_status status = hy__forward_by_graph(model, &pass, &logits);
    if (status != HY_UNSUPPORTED) return hy_scope_keep(s, status, logits);
    model->captures = HY__CAPTURES_NOT;  // something among the calls cannot be captured
  }
  if (model->next) {
    hy_array* x = hy__embed(s, &model->transformer, pass.ids);
    x = hy__model_layers(s, model, &pass, step->options, x);
    return hy__pipeline_follow(s, model, &pass, step->options, x);
  }
  return hy__pass_logits(s, model, &pass, step->options);
}

hy_status hy__model_check_chosen(const int64_t* next, int n) {
  for (int i = 0; i < n; i++) {
    if (next[i] < 0)
      return hy_fail(HY_DEVICE_FAILED,
                     "the model gave no usable logits: all are NaN or minus infinity");
  }
  return HY_OK;
}

// On every rank the same tokens. The largest logit needs one number of each rank, any other choice
// all of theirs.
static hy_array* choose(hy_scope* s, const hy_model* model, hy_array* logits, hy__sampler* sampler,
                        const int* rows, int n) {
  const hy__shard* shard = &model->transformer.shard;
  if (shard->comm && !hy__sampler_draws(sampler) && !hy__sampler_has_state(sampler))
    return hy__shard_argmax(s, shard, logits);
  return hy__sampler_choose(s, sampler, hy__shard_gather(s, shard, logits), rows, n);
}

hy_status hy__model_step(hy_model* model, const hy__step* step, hy__sampler* sampler,
                         const int* rows, int64_t* next) {
  hy_scope s;
  hy_scope_begin(&s, model->tape);
  hy_array* logits = hy__model_forward(&s, model, step);
  hy_array* ids = choose(&s, model, logits, sampler, rows, step->batch);
  HY_SCOPE_TRY(&s, hy_array_to_host(model->stream, ids, next, (size_t)step->batch * sizeof *next));
  HY_TRY(hy_scope_end(&s));
  return hy__model_check_chosen(next, step->batch);
}

hy_status hy_model_logits(hy_model* model, const int32_t* ids, int64_t n, float* logits) {
  if (!model || !ids || n < 1 || !logits)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_model_logits needs at least one token");
  if (n > hy_model_max_positions(model))
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_model_logits: %lld tokens exceed the model's %lld positions", (long long)n,
                   (long long)hy_model_max_positions(model));
  hy__kv_cache* cache;
  HY_TRY(hy__model_cache(model, n, &cache));
  hy__sequence sequence = {0};
  const hy__step step = {cache, (hy__sequence*[]){&sequence}, &ids, &n, 1, NULL};
  hy_scope s;
  hy_scope_begin(&s, model->tape);
  hy_array* scores = hy__model_forward(&s, model, &step);
  scores = hy__shard_gather(&s, &model->transformer.shard, scores);
  size_t bytes = (size_t)hy_model_vocab_size(model) * sizeof *logits;
  HY_SCOPE_TRY(&s, hy_array_to_host(model->stream, scores, logits, bytes));
  hy_status status = hy_scope_end(&s);
  hy__sequence_free(cache, &sequence);
  hy__model_cache_release(model, cache);
  return status;
}
