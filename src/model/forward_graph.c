// A forward pass by graph, bound anew to each step's upload.
#include "model/forward_graph.h"

#include "base/memory.h"

struct hy__forward_graph {
  hy_graph* graph;
  hy_array* logits;
  hy_array *keys, *cos;  // what it was captured over, to tell whether it is still there
  bool deterministic;    // kernels were chosen so
  int64_t tokens, batch, width;
  hy_binding words;  // the pass's upload: where it was, and where it is
};

void hy__forward_graph_destroy(hy__forward_graph* g) {
  if (!g) return;
  hy_graph_destroy(g->graph);
  hy_array_release(g->logits);
  hy_array_release(g->keys);
  hy_array_release(g->cos);
  hy__mfree(g);
}

// All that a pass uploads is one piece of memory, from the ids to the block table.
static hy_binding words_of(const hy__kv_pass* pass) {
  const hy_tensor *first = hy_array_tensor(pass->ids), *last = hy_array_tensor(pass->block_table);
  const char* end = (const char*)last->data + hy_tensor_bytes(last);
  return (hy_binding){first->data, (size_t)(end - (const char*)first->data), first->data};
}

static bool serves(const hy__forward_graph* g, const hy_model* model, const hy__kv_pass* pass) {
  return g && g->deterministic == hy_deterministic() &&
         g->keys == hy__kv_cache_keys(pass->cache, 0) && g->cos == model->rope.cos &&
         g->tokens == pass->tokens && g->batch == hy_array_tensor(pass->last)->shape[0] &&
         g->width == hy_array_tensor(pass->block_table)->shape[1];
}

static hy_status capture(hy_model* model, hy__kv_pass* pass, hy__forward_graph* g) {
  hy_scope s;
  HY_TRY(hy_capture_begin(model->stream));
  hy_scope_begin(&s, model->tape);
  g->logits = hy_scope_give(&s, hy__pass_logits(&s, model, pass, NULL));
  hy_status status = hy_scope_end(&s);
  hy_status ended = hy_capture_end(model->stream, status == HY_OK ? &g->graph : NULL);
  HY_TRY(status == HY_OK ? ended : status);
  bool exact = hy_device_is_host(hy_stream_device(model->stream));
  return hy_graph_run_passes(g->graph, exact ? HY__EXACT_PASSES : HY_PASS_ALL, NULL);
}

static hy_status create(hy_model* model, hy__kv_pass* pass, hy__forward_graph** out) {
  hy__forward_graph* g = hy__calloc(1, sizeof *g);
  if (!g) return hy_fail(HY_OUT_OF_MEMORY, "no memory for the graph of a pass");
  g->keys = hy_array_retain(hy__kv_cache_keys(pass->cache, 0));
  g->cos = hy_array_retain(model->rope.cos);
  g->deterministic = hy_deterministic();
  g->tokens = pass->tokens;
  g->batch = hy_array_tensor(pass->last)->shape[0];
  g->width = hy_array_tensor(pass->block_table)->shape[1];
  g->words = words_of(pass);
  hy_status status = capture(model, pass, g);
  if (status == HY_OK)
    *out = g;
  else
    hy__forward_graph_destroy(g);
  return status;
}

static hy_status launch(hy_model* model, const hy__kv_pass* pass, hy__forward_graph* g,
                        hy_array** logits) {
  hy_binding words = g->words;
  words.now = words_of(pass).now;
  HY_TRY(hy_graph_bind(g->graph, &words, 1));
  HY_TRY(hy_graph_launch(g->graph, model->stream));
  *logits = hy_array_retain(g->logits);
  return HY_OK;
}

hy_status hy__forward_by_graph(hy_model* model, hy__kv_pass* pass, hy_array** logits) {
  bool decodes = pass->tokens == hy_array_tensor(pass->last)->shape[0];
  if (decodes && serves(model->forward, model, pass))
    return launch(model, pass, model->forward, logits);
  hy__forward_graph* fresh = NULL;
  HY_TRY(create(model, pass, &fresh));
  hy_status status = launch(model, pass, fresh, logits);
  if (decodes && status == HY_OK) {
    hy__forward_graph_destroy(model->forward);
    model->forward = fresh;
  } else {
    hy__forward_graph_destroy(fresh);
  }
  return status;
}
