// What a model has read: tokens whose keys and values are kept, so that a longer text that begins
// with them need not be read from its start.
#ifndef HALYARD_MODEL_CONTEXT_H_
#define HALYARD_MODEL_CONTEXT_H_

#include "model/model.h"

struct hy_context {
  hy_model* model;  // not owned
  hy__kv_cache* cache;
  hy__sequence sequence;
  int32_t* ids;  // of the tokens in the cache, sequence.length of them
  int64_t capacity;
  struct hy__decoder* decoder;  // of the last answer, for the next; may be NULL
};

// Makes the context hold the longest start that it shares with `ids`, all but the last of them at
// most, and room for `tokens` in all. Gives how many tokens need not be read again.
hy_status hy__context_begin(hy_context* context, const int32_t* ids, int64_t n, int64_t tokens,
                            int64_t* kept);
// After the cache has taken `n` tokens and some of `more`: notes which they are.
void hy__context_note(hy_context* context, const int32_t* ids, int64_t n, const int32_t* more);
// Forgets all, as must be done when a pass over the cache has failed.
void hy__context_clear(hy_context* context);

#endif  // HALYARD_MODEL_CONTEXT_H_
