// Prompts on a device apart: shapes, and the graphs of those that came again.
#include "model/prompt.h"

#include "base/memory.h"
#include "model/decode.h"
#include "model/decode_block.h"

enum {
  LEAST_TOKENS = 64,   // of a padded pass
  MOST_TOKENS = 4096,  // from here on the host is ahead of the device by far
  PLACES = 24,         // shapes that are remembered, of several caches
};
#define MOST_BYTES ((uint64_t)256 << 20)  // that graphs hold

// A shape that has been seen, and its graph where that was often. Which cache and tables of angles
// it was captured over tells whether those are still there.
typedef struct place {
  hy__kv_shape shape;
  uint64_t cache;
  hy_array* cos;
  bool deterministic;  // kernels were chosen so
  int calls;           // how often it was run by calls
  bool refused;        // something among its calls cannot be captured, or it holds too much
  uint64_t used;       // when, by the clock; 0: an empty place
  hy_array* words;     // what a launch reads, uploaded before it
  hy_graph* graph;
  hy_array* logits;
} place;

struct hy__prompt_graphs {
  place places[PLACES];
  int after;  // so many passes by calls
  uint64_t clock;
};

// ---- shapes ----

// Four sizes between a power of 2 and the next, so that a fifth is padding at most.
static int64_t round_tokens(int64_t n) {
  int64_t step = LEAST_TOKENS;
  while (n > 8 * step) step *= 2;
  return (n + step - 1) / step * step;
}

// A power of 2: a context that grows changes it seldom.
static int64_t round_width(int64_t least) {
  int64_t width = LEAST_TOKENS / HY__KV_BLOCK;
  while (width < least) width *= 2;
  return width;
}

// The padding is in the table too, as a sequence.
static hy__kv_shape pad(const hy__kv_shape* shape) {
  int64_t tokens = round_tokens(shape->tokens);
  int64_t blocks = (tokens - shape->tokens + HY__KV_BLOCK - 1) / HY__KV_BLOCK;
  int64_t width = round_width(shape->width > blocks ? shape->width : blocks);
  bool whole = shape->whole && (shape->batch == 1 || tokens == shape->tokens);
  return (hy__kv_shape){tokens, shape->batch, width, true, whole};
}

// ---- graphs ----

static void empty(place* p) {
  hy_graph_destroy(p->graph);
  hy_array_release(p->cos);
  hy_array_release(p->words);
  hy_array_release(p->logits);
  *p = (place){0};
}

hy_status hy__prompt_graphs_create(int after, hy__prompt_graphs** out) {
  *out = hy__calloc(1, sizeof **out);
  if (!*out) return hy_fail(HY_OUT_OF_MEMORY, "no memory for the graphs of prompts");
  (*out)->after = after;
  return HY_OK;
}

void hy__prompt_graphs_destroy(hy__prompt_graphs* graphs) {
  for (int i = 0; graphs && i < PLACES; i++) empty(&graphs->places[i]);
  hy__mfree(graphs);
}

static uint64_t bytes_of(const place* p) {
  return p->graph ? hy_graph_memory(p->graph) + hy_tensor_bytes(hy_array_tensor(p->words)) : 0;
}

int hy__prompt_graphs_count(const hy__prompt_graphs* graphs, uint64_t* bytes) {
  int count = 0;
  *bytes = 0;
  for (int i = 0; graphs && i < PLACES; i++) {
    count += graphs->places[i].graph != NULL;
    *bytes += bytes_of(&graphs->places[i]);
  }
  return count;
}

static bool is_of(const place* p, const hy_model* model, uint64_t cache,
                  const hy__kv_shape* shape) {
  return p->used && p->cache == cache && p->cos == model->rope.cos &&
         p->deterministic == hy_deterministic() && p->shape.tokens == shape->tokens &&
         p->shape.batch == shape->batch && p->shape.width == shape->width &&
         p->shape.whole == shape->whole;
}

// An empty place, or the one that was not used for longest, but for `except`.
static place* oldest(hy__prompt_graphs* g, const place* except) {
  place* found = NULL;
  for (int i = 0; i < PLACES; i++) {
    place* p = &g->places[i];
    if (p != except && (!found || p->used < found->used)) found = p;
  }
  return found;
}

static place* find(hy__prompt_graphs* g, const hy_model* model, uint64_t cache,
                   const hy__kv_shape* shape) {
  place* p = NULL;
  for (int i = 0; i < PLACES && !p; i++)
    if (is_of(&g->places[i], model, cache, shape)) p = &g->places[i];
  if (!p) {
    p = oldest(g, NULL);
    empty(p);
    *p = (place){.shape = *shape,
                 .cache = cache,
                 .cos = hy_array_retain(model->rope.cos),
                 .deterministic = hy_deterministic()};
  }
  p->used = ++g->clock;
  return p;
}

static hy_status record(hy_model* model, hy__kv_cache* cache, place* p) {
  hy_scope s;
  hy__kv_pass pass;
  int64_t words = hy__kv_shape_words(&p->shape);
  HY_TRY(hy_array_empty(model->stream, &p->words, HY_I64, 1, &words));
  HY_TRY(hy_capture_begin(model->stream));
  hy_scope_begin(&s, model->tape);
  hy__kv_pass_divide(&s, cache, &p->shape, p->words, &pass);
  p->logits =
      hy_scope_give(&s, hy__prompt_logits(&s, &model->transformer, &model->rope, &pass, NULL));
  hy_status status = hy_scope_end(&s);
  hy_status ended = hy_capture_end(model->stream, status == HY_OK ? &p->graph : NULL);
  HY_TRY(status == HY_OK ? ended : status);
  return hy_graph_run_passes(p->graph, HY__EXACT_PASSES, NULL);
}

static void drop(place* p) {
  hy_graph_destroy(p->graph);
  hy_array_release(p->words);
  hy_array_release(p->logits);
  p->graph = NULL;
  p->words = p->logits = NULL;
}

// Others make room for it where all together hold too much. Without memory for a graph the pass may
// still run by calls.
static hy_status capture(hy_model* model, hy__kv_cache* cache, place* p) {
  hy__prompt_graphs* g = model->prompts;
  hy_status status = record(model, cache, p);
  p->refused = status == HY_UNSUPPORTED || status == HY_OUT_OF_MEMORY || bytes_of(p) > MOST_BYTES;
  if (status != HY_OK || p->refused) drop(p);
  uint64_t bytes;
  for (hy__prompt_graphs_count(g, &bytes); bytes > MOST_BYTES; hy__prompt_graphs_count(g, &bytes))
    empty(oldest(g, p));
  return p->refused ? HY_OK : status;
}

// ---- passes ----

bool hy__prompt_serves(const hy_model* model, const hy__step* step) {
  bool decodes = true;
  for (int i = 0; i < step->batch; i++) decodes &= step->counts[i] == 1;
  return !decodes && !model->next && !hy_device_is_host(hy_stream_device(model->stream)) &&
         hy__prompt_is_fused(&model->transformer);
}

static hy_array* by_calls(hy_scope* s, hy_model* model, const hy__step* step,
                          const hy__kv_shape* shape) {
  hy__kv_pass pass;
  HY_SCOPE_TRY(s, hy__kv_pass_begin_shaped(s, step->cache, step->sequences, step->ids, step->counts,
                                           shape, NULL, &pass));
  if (s->status != HY_OK) return NULL;
  return hy__prompt_logits(s, &model->transformer, &model->rope, &pass, step->options);
}

static hy_array* by_graph(hy_scope* s, hy_model* model, const hy__step* step, const place* p) {
  hy__kv_pass pass;
  HY_SCOPE_TRY(s, hy__tf_ask(step->options));
  HY_SCOPE_TRY(s, hy__kv_pass_begin_shaped(s, step->cache, step->sequences, step->ids, step->counts,
                                           &p->shape, p->words, &pass));
  HY_SCOPE_TRY(s, hy_graph_launch(p->graph, model->stream));
  return s->status == HY_OK ? hy_scope_keep(s, HY_OK, hy_array_retain(p->logits)) : NULL;
}

hy_array* hy__prompt_forward(hy_scope* s, hy_model* model, const hy__step* step) {
  hy__kv_shape shape = hy__kv_shape_of(step->sequences, step->counts, step->batch);
  HY_SCOPE_TRY(s, hy__model_find_captures(model));
  if (s->status != HY_OK) return NULL;
  if (shape.tokens > MOST_TOKENS || model->captures != HY__CAPTURES)
    return by_calls(s, model, step, &shape);
  if (!model->prompts)
    HY_SCOPE_TRY(s, hy__prompt_graphs_create(HY__PROMPTS_BEFORE, &model->prompts));
  if (s->status != HY_OK) return NULL;
  hy__kv_shape padded = pad(&shape);
  place* p = find(model->prompts, model, hy__kv_cache_id(step->cache), &padded);
  if (p->calls >= model->prompts->after && !p->graph && !p->refused)
    HY_SCOPE_TRY(s, capture(model, step->cache, p));
  if (s->status != HY_OK) return NULL;
  if (p->graph) return by_graph(s, model, step, p);
  p->calls++;
  return by_calls(s, model, step, &padded);
}
