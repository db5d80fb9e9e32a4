// KV cache: blocks and who has them, and the pass that fills and reads them.
#include "model/kv_cache.h"

#include <string.h>

#include "base/memory.h"

struct hy__kv_cache {
  int64_t n_layers, n_blocks;
  hy_array **keys, **values;  // by layer: (blocks, HY__KV_BLOCK, G, E)
  int64_t* free_blocks;       // a stack
  int64_t n_free;
  hy_stream* stream;
  hy__kv_cache* next;  // of the layers behind these; its own account of blocks is not used
};

void hy__kv_cache_destroy(hy__kv_cache* cache) {
  if (!cache) return;
  for (int64_t i = 0; cache->keys && i < cache->n_layers; i++) {
    hy_array_release(cache->keys[i]);
    hy_array_release(cache->values[i]);
  }
  hy__kv_cache_destroy(cache->next);
  hy__mfree(cache->keys);
  hy__mfree(cache->free_blocks);
  hy__mfree(cache);
}

void hy__kv_cache_append(hy__kv_cache* cache, hy__kv_cache* next) {
  while (cache->next) cache = cache->next;
  cache->next = next;
}

hy__kv_cache* hy__kv_cache_next(const hy__kv_cache* cache) {
  return cache->next;
}

hy_status hy__kv_cache_create(hy_stream* stream, const hy__config* c, hy_dtype dtype,
                              int64_t tokens, hy__kv_cache** out) {
  *out = NULL;
  hy__kv_cache* cache = hy__calloc(1, sizeof *cache);
  if (!cache) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a cache");
  cache->stream = stream;
  cache->n_layers = c->n_layers;
  cache->n_blocks = (tokens + HY__KV_BLOCK - 1) / HY__KV_BLOCK;
  cache->keys = hy__calloc((size_t)(2 * c->n_layers), sizeof *cache->keys);
  cache->values = cache->keys ? cache->keys + c->n_layers : NULL;
  cache->free_blocks = hy__malloc((size_t)(cache->n_blocks + 1) * sizeof *cache->free_blocks);
  hy_status status = HY_OK;
  if (!cache->keys || !cache->free_blocks) {
    status = hy_fail(HY_OUT_OF_MEMORY, "no memory for a cache of %lld tokens", (long long)tokens);
  } else {
    for (int64_t i = 0; i < cache->n_blocks; i++) cache->free_blocks[i] = cache->n_blocks - 1 - i;
    cache->n_free = cache->n_blocks;
  }
  const int64_t shape[4] = {cache->n_blocks, HY__KV_BLOCK, c->n_kv_heads, c->head_dim};
  for (int64_t i = 0; i < c->n_layers && status == HY_OK; i++) {
    status = hy_array_zeros(stream, &cache->keys[i], dtype, 4, shape);
    if (status == HY_OK) status = hy_array_zeros(stream, &cache->values[i], dtype, 4, shape);
  }
  if (status != HY_OK) {
    hy__kv_cache_destroy(cache);
    return status;
  }
  *out = cache;
  return HY_OK;
}

static int64_t blocks_for(int64_t tokens) {
  return (tokens + HY__KV_BLOCK - 1) / HY__KV_BLOCK;
}

// A longer array that begins with the old one's blocks.
static hy_status lengthen(hy_stream* stream, const hy_array* old, int64_t n_blocks,
                          hy_array** out) {
  const hy_tensor* from = hy_array_tensor(old);
  int64_t shape[4];
  memcpy(shape, from->shape, sizeof shape);
  shape[0] = n_blocks;
  HY_TRY(hy_array_zeros(stream, out, from->dtype, 4, shape));
  hy_tensor front;
  HY_TRY(hy_slice(&front, hy_array_tensor(*out), 0, 0, from->shape[0], 1));
  return hy_copy(stream, &front, from);
}

hy_status hy__kv_cache_grow(hy_stream* stream, hy__kv_cache* cache, int64_t tokens) {
  // The first one last: blocks that it has all of them have.
  if (cache->next) HY_TRY(hy__kv_cache_grow(cache->next->stream, cache->next, tokens));
  int64_t n_blocks = blocks_for(tokens), n_arrays = 2 * cache->n_layers;
  if (n_blocks <= cache->n_blocks) return HY_OK;
  if (n_blocks < 2 * cache->n_blocks) n_blocks = 2 * cache->n_blocks;
  hy_array** arrays = hy__calloc((size_t)n_arrays, sizeof *arrays);
  int64_t* free_blocks = hy__malloc((size_t)(n_blocks + 1) * sizeof *free_blocks);
  hy_status status = HY_OK;
  if (!arrays || !free_blocks)
    status = hy_fail(HY_OUT_OF_MEMORY, "no memory for a cache of %lld tokens", (long long)tokens);
  for (int64_t i = 0; i < n_arrays && status == HY_OK; i++)
    status = lengthen(stream, cache->keys[i], n_blocks, &arrays[i]);
  if (status == HY_OK) {
    int64_t fresh = n_blocks - cache->n_blocks;
    for (int64_t i = 0; i < fresh; i++) free_blocks[i] = n_blocks - 1 - i;
    memcpy(free_blocks + fresh, cache->free_blocks, (size_t)cache->n_free * sizeof *free_blocks);
    int64_t* old_blocks = cache->free_blocks;
    hy_array** old = cache->keys;
    cache->free_blocks = free_blocks;
    cache->n_free += fresh;
    cache->n_blocks = n_blocks;
    cache->keys = arrays;
    cache->values = arrays + cache->n_layers;
    arrays = old;
    free_blocks = old_blocks;
  }
  for (int64_t i = 0; arrays && i < n_arrays; i++) hy_array_release(arrays[i]);
  hy__mfree(arrays);
  hy__mfree(free_blocks);
  return status;
}

void hy__sequence_cut(hy__kv_cache* cache, hy__sequence* s, int64_t length) {
  while (s->n_blocks > blocks_for(length))
    cache->free_blocks[cache->n_free++] = s->blocks[--s->n_blocks];
  s->length = length;
}

void hy__sequence_free(hy__kv_cache* cache, hy__sequence* s) {
  hy__sequence_cut(cache, s, 0);
  hy__mfree(s->blocks);
  memset(s, 0, sizeof *s);
}

static hy_status grow(hy__sequence* s, int64_t blocks) {
  if (blocks <= s->capacity) return HY_OK;
  int64_t capacity = blocks > 2 * s->capacity ? blocks : 2 * s->capacity;
  int64_t* list = hy__realloc(s->blocks, (size_t)capacity * sizeof *list);
  if (!list) return hy_fail(HY_OUT_OF_MEMORY, "no memory for the blocks of a sequence");
  s->blocks = list;
  s->capacity = capacity;
  return HY_OK;
}

// Gives every sequence the blocks its new tokens need, or none of them any.
static hy_status make_room(hy__kv_cache* cache, hy__sequence* const* sequences,
                           const int64_t* new_tokens, int batch) {
  int64_t wanted = 0;
  for (int i = 0; i < batch; i++) {
    int64_t blocks = blocks_for(sequences[i]->length + new_tokens[i]);
    HY_TRY(grow(sequences[i], blocks));
    if (blocks > sequences[i]->n_blocks) wanted += blocks - sequences[i]->n_blocks;
  }
  if (wanted > cache->n_free)
    return hy_fail(
        HY_OUT_OF_MEMORY,
        "the key-value cache is full: %lld blocks of %d tokens are wanted, %lld of %lld are free",
        (long long)wanted, HY__KV_BLOCK, (long long)cache->n_free, (long long)cache->n_blocks);
  for (int i = 0; i < batch; i++) {
    int64_t blocks = blocks_for(sequences[i]->length + new_tokens[i]);
    while (sequences[i]->n_blocks < blocks)
      sequences[i]->blocks[sequences[i]->n_blocks++] = cache->free_blocks[--cache->n_free];
  }
  return HY_OK;
}

hy_status hy__sequences_reserve(hy__kv_cache* cache, hy__sequence* const* sequences,
                                const int64_t* tokens, int batch) {
  return make_room(cache, sequences, tokens, batch);
}

hy_array* hy__kv_cache_keys(const hy__kv_cache* cache, int layer) {
  return cache->keys[layer];
}

hy_array* hy__kv_cache_step(hy_scope* s, hy__kv_cache* cache, int layer, hy_array* qkv,
                            hy_array* cos, hy_array* sin, hy_array* table, hy_array* lengths) {
  hy_array *keys = cache->keys[layer], *values = cache->values[layer];
  if (s->status != HY_OK) return NULL;
  int64_t heads = hy_s_size(s, qkv, 1) - 2 * hy_s_size(s, keys, 2);
  hy_array* out = hy_s_empty(s, hy_array_tensor(qkv)->dtype,
                             HY_SIZES(hy_s_size(s, qkv, 0), heads, hy_s_size(s, qkv, 2)));
  const hy_attrs attrs = {.scale = {0}};
  HY_SCOPE_TRY(s, hy_array_apply_into(s->tape, HY_OP_rope_paged_attention,
                                      (hy_array*[]){keys, values, qkv, cos, sin, table, lengths}, 7,
                                      &attrs, (hy_array*[]){keys, values, out}, 3));
  return out;
}

// The parts of a pass's upload, all i64, one behind the other.
typedef struct layout {
  int64_t tokens, batch, width;  // width: of the block table
} layout;

static int64_t words_of(const layout* l) {
  return 3 * l->tokens + 3 * l->batch + 1 + l->batch * l->width;
}

// ids, positions, slots; last, starts, lengths; the block table.
static void describe(const layout* l, hy__sequence* const* sequences, const int32_t* const* ids,
                     const int64_t* counts, int64_t* words) {
  int64_t *positions = words + l->tokens, *slots = positions + l->tokens;
  int64_t *last = slots + l->tokens, *starts = last + l->batch, *lengths = starts + l->batch + 1;
  int64_t *table = lengths + l->batch, at = 0;
  for (int64_t i = 0; i < l->batch; i++) {
    const hy__sequence* seq = sequences[i];
    starts[i] = at;
    for (int64_t k = 0; k < counts[i]; k++, at++) {
      int64_t p = seq->length + k;
      words[at] = ids[i][k];
      positions[at] = p;
      slots[at] = seq->blocks[p / HY__KV_BLOCK] * HY__KV_BLOCK + p % HY__KV_BLOCK;
    }
    last[i] = at - 1;
    lengths[i] = seq->length + counts[i];
    for (int64_t b = 0; b < l->width; b++) *table++ = b < seq->n_blocks ? seq->blocks[b] : 0;
  }
  starts[l->batch] = at;
}

static hy_array* next_part(hy_scope* s, hy_array* words, int64_t* at, int64_t n) {
  *at += n;
  return hy_s_slice(s, words, 0, *at - n, *at, 1);
}

static void upload(hy_scope* s, const layout* l, const int64_t* host, hy__kv_pass* pass) {
  int64_t n = words_of(l), at = 0;
  hy_array* words = pass->words = hy_s_from_host(s, HY_I64, 1, &n, host);
  pass->ids = next_part(s, words, &at, l->tokens);
  pass->positions = next_part(s, words, &at, l->tokens);
  pass->slots = next_part(s, words, &at, l->tokens);
  pass->last = next_part(s, words, &at, l->batch);
  pass->query_start = next_part(s, words, &at, l->batch + 1);
  pass->context_length = next_part(s, words, &at, l->batch);
  pass->block_table =
      hy_s_view(s, next_part(s, words, &at, l->batch * l->width), HY_SIZES(l->batch, l->width));
}

hy_status hy__kv_pass_begin(hy_scope* s, hy__kv_cache* cache, hy__sequence* const* sequences,
                            const int32_t* const* ids, const int64_t* counts, int batch,
                            hy__kv_pass* pass) {
  HY_TRY(make_room(cache, sequences, counts, batch));
  layout l = {.batch = batch, .width = 1};
  for (int i = 0; i < batch; i++) {
    l.tokens += counts[i];
    if (sequences[i]->n_blocks > l.width) l.width = sequences[i]->n_blocks;
  }
  *pass = (hy__kv_pass){.cache = cache, .tokens = l.tokens, .batch = l.batch};
  int64_t* host = hy__malloc((size_t)words_of(&l) * sizeof *host);
  if (!host)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for a pass of %lld tokens", (long long)l.tokens);
  describe(&l, sequences, ids, counts, host);
  upload(s, &l, host, pass);
  hy__mfree(host);
  for (int i = 0; i < batch && s->status == HY_OK; i++) sequences[i]->length += counts[i];
  return s->status;
}

hy_status hy__kv_pass_copy(hy_scope* s, const hy__kv_pass* from, hy__kv_cache* cache,
                           hy__kv_pass* pass) {
  const hy_tensor* words = hy_array_tensor(from->words);
  const layout l = {from->tokens, from->batch, hy_array_tensor(from->block_table)->shape[1]};
  int64_t* host = hy__malloc(hy_tensor_bytes(words));
  if (!host)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for a pass of %lld tokens", (long long)l.tokens);
  *pass = (hy__kv_pass){.cache = cache, .tokens = l.tokens, .batch = l.batch};
  HY_SCOPE_TRY(s, hy_array_to_host(from->cache->stream, from->words, host, hy_tensor_bytes(words)));
  upload(s, &l, host, pass);
  hy__mfree(host);
  return s->status;
}

// Writes rows (N, G, E) into the slots of a cache seen as (blocks * HY__KV_BLOCK, G, E).
static void store(hy_scope* s, const hy__kv_pass* pass, hy_array* cache, hy_array* rows) {
  hy_array* flat =
      hy_s_view(s, cache, HY_SIZES(-1, hy_s_size(s, cache, 2), hy_s_size(s, cache, 3)));
  const hy_attrs attrs = {.accumulate = {false}};
  hy_s_apply_into(s, HY_OP_index_put, (hy_array*[]){flat, rows, pass->slots}, 3, &attrs, flat);
}

static hy_array* attend_cached(void* context, hy_scope* s, int layer, hy_array* q, hy_array* k,
                               hy_array* v) {
  const hy__kv_pass* pass = context;
  hy_array *keys = pass->cache->keys[layer], *values = pass->cache->values[layer];
  store(s, pass, keys, k);
  store(s, pass, values, v);
  return hy_s_paged_attention(s, q, keys, values, pass->block_table, pass->query_start,
                              pass->context_length, 0);
}

hy__tf_attention hy__attend_cached(hy__kv_pass* pass) {
  return (hy__tf_attention){attend_cached, pass};
}
