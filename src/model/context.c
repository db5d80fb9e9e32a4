// Prefix reuse: what the KV cache keeps between prompts that begin alike.
#include "model/context.h"

#include <string.h>

#include "base/memory.h"
#include "model/decode.h"

hy_status hy_context_create(hy_model* model, hy_context** out) {
  if (!model || !out) return hy_fail(HY_INVALID_ARGUMENT, "hy_context_create: an argument is NULL");
  *out = hy__calloc(1, sizeof **out);
  if (!*out) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a context");
  (*out)->model = model;
  return HY_OK;
}

void hy_context_destroy(hy_context* context) {
  if (!context) return;
  hy__decoder_destroy(context->decoder);
  hy__context_clear(context);
  hy__model_cache_release(context->model, context->cache);
  hy__mfree(context->ids);
  hy__mfree(context);
}

void hy__context_clear(hy_context* context) {
  if (context->cache) hy__sequence_free(context->cache, &context->sequence);
}

static hy_status make_room(hy_context* c, int64_t tokens) {
  hy_model* model = c->model;
  if (tokens > c->capacity) {
    int32_t* ids = hy__realloc(c->ids, (size_t)tokens * sizeof *ids);
    if (!ids)
      return hy_fail(HY_OUT_OF_MEMORY, "no memory for a context of %lld tokens", (long long)tokens);
    c->ids = ids;
    c->capacity = tokens;
  }
  if (c->cache) return hy__kv_cache_grow(model->stream, c->cache, tokens);
  return hy__model_cache(model, tokens, &c->cache);
}

hy_status hy__context_begin(hy_context* c, const int32_t* ids, int64_t n, int64_t tokens,
                            int64_t* kept) {
  int64_t same = 0, most = c->sequence.length < n - 1 ? c->sequence.length : n - 1;
  while (same < most && c->ids[same] == ids[same]) same++;
  if (c->cache) hy__sequence_cut(c->cache, &c->sequence, same);
  *kept = same;
  return make_room(c, tokens);
}

void hy__context_note(hy_context* c, const int32_t* ids, int64_t n, const int32_t* more) {
  memcpy(c->ids, ids, (size_t)n * sizeof *ids);
  if (c->sequence.length > n)
    memcpy(c->ids + n, more, (size_t)(c->sequence.length - n) * sizeof *more);
}
