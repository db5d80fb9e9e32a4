// Keys and values of past tokens, in blocks that sequences of any length share.
#ifndef HALYARD_MODEL_CACHE_H_
#define HALYARD_MODEL_CACHE_H_

#include "model/transformer.h"

enum { HY__CACHE_BLOCK = 16 };  // tokens

typedef struct hy__cache hy__cache;

// Room for `tokens` in all, rounded up to blocks, in the type the model computes in.
hy_status hy__cache_create(hy_stream* stream, const hy__config* config, hy_dtype dtype,
                           int64_t tokens, hy__cache** cache);
void hy__cache_destroy(hy__cache* cache);  // NULL is fine
// More room, where `tokens` do not fit; what is there stays. On failure nothing has changed.
hy_status hy__cache_grow(hy_stream* stream, hy__cache* cache, int64_t tokens);

// A sequence's place in the cache; zeroed is an empty one.
typedef struct hy__sequence {
  int64_t length;  // tokens that are in the cache
  int64_t* blocks;
  int64_t n_blocks, capacity;
} hy__sequence;
void hy__sequence_free(hy__cache* cache, hy__sequence* sequence);
// Keeps the first `length` tokens and gives back the blocks of the others.
void hy__sequence_cut(hy__cache* cache, hy__sequence* sequence, int64_t length);

// One pass over new tokens of several sequences: where their keys go, and what each may see. Made
// on the device once for all layers. begin makes room and counts the tokens into the sequences;
// HY_OUT_OF_MEMORY when the cache is full (then nothing has changed).
typedef struct hy__pass {
  hy__cache* cache;
  int64_t tokens;
  int64_t* positions;  // of each token in its sequence
  hy_array *slots, *block_table, *query_start, *context_length;
} hy__pass;
hy_status hy__pass_begin(hy_stream* stream, hy__cache* cache, hy__sequence* const* sequences,
                         const int64_t* new_tokens, int batch, hy__pass* pass);
void hy__pass_end(hy__pass* pass);
// Attention that stores this pass's keys and values and looks at all of its sequences' past.
hy__attention hy__attend_cached(hy__pass* pass);

#endif  // HALYARD_MODEL_CACHE_H_
