// KV cache, paged: keys and values of past tokens, in blocks that sequences of any length share.
#ifndef HALYARD_MODEL_KV_CACHE_H_
#define HALYARD_MODEL_KV_CACHE_H_

#include "model/transformer.h"

enum { HY__KV_BLOCK = 16 };  // tokens

typedef struct hy__kv_cache hy__kv_cache;

// Room for `tokens` in all, rounded up to blocks, in the type the model computes in.
hy_status hy__kv_cache_create(hy_stream* stream, const hy__config* config, hy_dtype dtype,
                              int64_t tokens, hy__kv_cache** cache);
void hy__kv_cache_destroy(hy__kv_cache* cache);  // NULL is fine
// The cache of the layers behind these, on another device and of the same blocks, belongs to the
// first, which keeps account of them for both.
void hy__kv_cache_append(hy__kv_cache* cache, hy__kv_cache* next);
hy__kv_cache* hy__kv_cache_next(const hy__kv_cache* cache);  // NULL behind the last
// More room, where `tokens` do not fit; what is there stays. On failure nothing has changed.
hy_status hy__kv_cache_grow(hy_stream* stream, hy__kv_cache* cache, int64_t tokens);

// A sequence's place in the cache; zeroed is an empty one.
typedef struct hy__sequence {
  int64_t length;  // tokens that are in the cache
  int64_t* blocks;
  int64_t n_blocks, capacity;
} hy__sequence;
void hy__sequence_free(hy__kv_cache* cache, hy__sequence* sequence);
// Keeps the first `length` tokens and gives back the blocks of the others.
void hy__sequence_cut(hy__kv_cache* cache, hy__sequence* sequence, int64_t length);

// Blocks for so many more tokens of each, or HY_OUT_OF_MEMORY and none; lengths stay.
hy_status hy__sequences_reserve(hy__kv_cache* cache, hy__sequence* const* sequences,
                                const int64_t* tokens, int batch);
// Keys of a layer, (blocks, HY__KV_BLOCK, G, E); other ones after the cache has grown.
hy_array* hy__kv_cache_keys(const hy__kv_cache* cache, int layer);
// A number that no other cache has had, and this one not before it grew: its memory is where it
// was.
uint64_t hy__kv_cache_id(const hy__kv_cache* cache);
uint64_t hy__kv_cache_bytes(
    const hy__kv_cache* cache);  // of keys and values, those behind included
// One new token a sequence, by the op rope_paged_attention: qkv (B, H + 2G, E) -> (B, H, E).
hy_array* hy__kv_cache_step(hy_scope* s, hy__kv_cache* cache, int layer, hy_array* qkv,
                            hy_array* cos, hy_array* sin, hy_array* table, hy_array* lengths);

// One pass over new tokens of several sequences: the tokens, where their keys go, and what each may
// see. On the device, by one upload, and the scope's.
typedef struct hy__kv_pass {
  hy__kv_cache* cache;
  hy_array* words;                                       // what all of the following are parts of
  int64_t tokens, batch;                                 // N, of all sequences; how many these are
  bool whole;                                            // as hy__kv_shape has it
  hy_array *ids, *positions;                             // (N) i64; positions in their sequences
  hy_array* last;                                        // (B) i64: the last token of each sequence
  hy_array* slots;                                       // (N) i64: where keys and values go
  hy_array *block_table, *query_start, *context_length;  // as paged_attention has them
} hy__kv_pass;
// Makes room and counts the tokens into the sequences. HY_OUT_OF_MEMORY when the cache is full, and
// then nothing has changed.
hy_status hy__kv_pass_begin(hy_scope* s, hy__kv_cache* cache, hy__sequence* const* sequences,
                            const int32_t* const* ids, const int64_t* counts, int batch,
                            hy__kv_pass* pass);

// The sizes of a pass: tokens, sequences, and columns of the block table. A padded one has a
// sequence more, of the tokens that fill it up; they are 0, at position 0, are not kept, and nobody
// sees them.
typedef struct hy__kv_shape {
  int64_t tokens, batch, width;
  bool padded;
  bool whole;  // sequences from their start, of one length: nothing in the cache is to be seen
} hy__kv_shape;
// What the new tokens need, and the blocks that their sequences have.
hy__kv_shape hy__kv_shape_of(hy__sequence* const* sequences, const int64_t* counts, int batch);
// hy__kv_pass_begin of a shape that is large enough. The upload goes to `words` where that is not
// NULL, as many as the shape needs.
hy_status hy__kv_pass_begin_shaped(hy_scope* s, hy__kv_cache* cache, hy__sequence* const* sequences,
                                   const int32_t* const* ids, const int64_t* counts,
                                   const hy__kv_shape* shape, hy_array* words, hy__kv_pass* pass);
int64_t hy__kv_shape_words(const hy__kv_shape* shape);  // i64
// The parts of what was uploaded, or will be.
void hy__kv_pass_divide(hy_scope* s, hy__kv_cache* cache, const hy__kv_shape* shape,
                        hy_array* words, hy__kv_pass* pass);
// Attention of a layer by the op rope_cache, and by sdpa where sequences are whole, else by
// paged_attention: qkv (N, H + 2G, E), not turned yet -> (N, H, E). cos and sin are of all
// positions, (P, E / 2).
hy_array* hy__kv_pass_attend(hy_scope* s, const hy__kv_pass* pass, int layer, hy_array* qkv,
                             hy_array* cos, hy_array* sin);

// The same pass over the layers of `cache`, on the device of the scope; waits for it.
hy_status hy__kv_pass_copy(hy_scope* s, const hy__kv_pass* from, hy__kv_cache* cache,
                           hy__kv_pass* pass);
// Attention that stores this pass's keys and values and looks at all of its sequences' past.
hy__tf_attention hy__attend_cached(hy__kv_pass* pass);

#endif  // HALYARD_MODEL_KV_CACHE_H_
