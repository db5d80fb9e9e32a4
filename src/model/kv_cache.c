// KV cache: blocks and who has them, and the pass that fills and reads them.
#include "model/kv_cache.h"

#include <stdatomic.h>
#include <string.h>

#include "base/math.h"
#include "base/memory.h"

struct hy__kv_cache {
  int64_t n_layers, n_blocks;
  hy_array **keys, **values;  // by layer: (blocks, HY__KV_BLOCK, G, E)
  int64_t* free_blocks;       // a stack
  int64_t n_free;
  hy_stream* stream;
  hy__kv_cache* next;  // of the layers behind these; its own account of blocks is not used
  uint64_t id;
};

static uint64_t next_id(void) {
  static atomic_uint_least64_t last;
  return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

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
  cache->id = next_id();
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
    cache->id = next_id();
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

uint64_t hy__kv_cache_id(const hy__kv_cache* cache) {
  return cache->id;
}

uint64_t hy__kv_cache_bytes(const hy__kv_cache* cache) {
  uint64_t bytes = cache->next ? hy__kv_cache_bytes(cache->next) : 0;
  for (int64_t i = 0; i < cache->n_layers; i++)
    bytes += 2 * (uint64_t)hy_tensor_bytes(hy_array_tensor(cache->keys[i]));
  return bytes;
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

// ---- a pass ----

// Of paged attention, that of the padding among them.
static int64_t n_sequences(const hy__kv_shape* shape) {
  return shape->batch + shape->padded;
}

int64_t hy__kv_shape_words(const hy__kv_shape* shape) {
  return 3 * shape->tokens + shape->batch + 1 + n_sequences(shape) * (2 + shape->width);
}

hy__kv_shape hy__kv_shape_of(hy__sequence* const* sequences, const int64_t* counts, int batch) {
  hy__kv_shape shape = {.batch = batch, .width = 1, .whole = true};
  for (int i = 0; i < batch; i++) {
    shape.whole &= sequences[i]->length == 0 && counts[i] == counts[0];
    shape.tokens += counts[i];
    shape.width = max_i64(shape.width, blocks_for(sequences[i]->length + counts[i]));
    shape.width = max_i64(shape.width, sequences[i]->n_blocks);
  }
  return shape;
}

// All i64, one behind the other: ids, positions, slots; last, starts, lengths; the block table.
static void describe(const hy__kv_shape* shape, hy__sequence* const* sequences,
                     const int32_t* const* ids, const int64_t* counts, int64_t* words) {
  int64_t *positions = words + shape->tokens, *slots = positions + shape->tokens;
  int64_t *last = slots + shape->tokens, *starts = last + shape->batch;
  int64_t *lengths = starts + n_sequences(shape) + 1, *table = lengths + n_sequences(shape), at = 0;
  for (int64_t i = 0; i < shape->batch; i++) {
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
    for (int64_t b = 0; b < shape->width; b++) *table++ = b < seq->n_blocks ? seq->blocks[b] : 0;
  }
  starts[shape->batch] = at;
  if (!shape->padded) return;
  starts[shape->batch + 1] = shape->tokens;
  lengths[shape->batch] = shape->tokens - at;
  for (; at < shape->tokens; at++) {
    words[at] = positions[at] = 0;
    slots[at] = -1;
  }
  memset(table, 0, (size_t)shape->width * sizeof *table);
}

static hy_array* next_part(hy_scope* s, hy_array* words, int64_t* at, int64_t n) {
  *at += n;
  return hy_s_slice(s, words, 0, *at - n, *at, 1);
}

void hy__kv_pass_divide(hy_scope* s, hy__kv_cache* cache, const hy__kv_shape* shape,
                        hy_array* words, hy__kv_pass* pass) {
  int64_t at = 0, sequences = n_sequences(shape);
  *pass = (hy__kv_pass){.cache = cache,
                        .words = words,
                        .tokens = shape->tokens,
                        .batch = shape->batch,
                        .whole = shape->whole};
  pass->ids = next_part(s, words, &at, shape->tokens);
  pass->positions = next_part(s, words, &at, shape->tokens);
  pass->slots = next_part(s, words, &at, shape->tokens);
  pass->last = next_part(s, words, &at, shape->batch);
  pass->query_start = next_part(s, words, &at, sequences + 1);
  pass->context_length = next_part(s, words, &at, sequences);
  pass->block_table = hy_s_view(s, next_part(s, words, &at, sequences * shape->width),
                                HY_SIZES(sequences, shape->width));
}

hy_status hy__kv_pass_begin_shaped(hy_scope* s, hy__kv_cache* cache, hy__sequence* const* sequences,
                                   const int32_t* const* ids, const int64_t* counts,
                                   const hy__kv_shape* shape, hy_array* words, hy__kv_pass* pass) {
  int batch = (int)shape->batch;
  HY_TRY(make_room(cache, sequences, counts, batch));
  int64_t n = hy__kv_shape_words(shape);
  int64_t* host = hy__malloc((size_t)n * sizeof *host);
  if (!host)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for a pass of %lld tokens",
                   (long long)shape->tokens);
  describe(shape, sequences, ids, counts, host);
  if (words)
    HY_SCOPE_TRY(
        s, hy_upload(cache->stream, hy_array_tensor(words)->data, host, (size_t)n * sizeof *host));
  else
    words = hy_s_from_host(s, HY_I64, 1, &n, host);
  hy__mfree(host);
  hy__kv_pass_divide(s, cache, shape, words, pass);
  for (int i = 0; i < batch && s->status == HY_OK; i++) sequences[i]->length += counts[i];
  return s->status;
}

hy_status hy__kv_pass_begin(hy_scope* s, hy__kv_cache* cache, hy__sequence* const* sequences,
                            const int32_t* const* ids, const int64_t* counts, int batch,
                            hy__kv_pass* pass) {
  hy__kv_shape shape = hy__kv_shape_of(sequences, counts, batch);
  return hy__kv_pass_begin_shaped(s, cache, sequences, ids, counts, &shape, NULL, pass);
}

hy_status hy__kv_pass_copy(hy_scope* s, const hy__kv_pass* from, hy__kv_cache* cache,
                           hy__kv_pass* pass) {
  const hy_tensor* words = hy_array_tensor(from->words);
  const hy__kv_shape shape = {from->tokens, from->batch,
                              hy_array_tensor(from->block_table)->shape[1], false, from->whole};
  int64_t n = hy__kv_shape_words(&shape);
  int64_t* host = hy__malloc(hy_tensor_bytes(words));
  if (!host)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for a pass of %lld tokens",
                   (long long)shape.tokens);
  HY_SCOPE_TRY(s, hy_array_to_host(from->cache->stream, from->words, host, hy_tensor_bytes(words)));
  hy__kv_pass_divide(s, cache, &shape, hy_s_from_host(s, HY_I64, 1, &n, host), pass);
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

// Heads first .. last - 1 of (N, heads, E) as (batch, heads, N / batch, E).
static hy_array* by_sequence(hy_scope* s, const hy__kv_pass* pass, hy_array* x, int64_t first,
                             int64_t last) {
  hy_array* heads = hy_s_slice(s, x, 1, first, last, 1);
  const int64_t length = pass->tokens / pass->batch;
  return hy_s_transpose(
      s, hy_s_view(s, heads, HY_SIZES(pass->batch, length, last - first, hy_s_size(s, x, 2))), 1,
      2);
}

hy_array* hy__kv_pass_attend(hy_scope* s, const hy__kv_pass* pass, int layer, hy_array* qkv,
                             hy_array* cos, hy_array* sin) {
  hy_array *keys = pass->cache->keys[layer], *values = pass->cache->values[layer];
  if (s->status != HY_OK) return NULL;
  int64_t n = hy_s_size(s, keys, 2), heads = hy_s_size(s, qkv, 1) - 2 * n;
  int64_t size = hy_s_size(s, qkv, 2);
  hy_dtype dtype = hy_array_tensor(qkv)->dtype;
  hy_array* qk = hy_s_empty(s, dtype, HY_SIZES(pass->tokens, heads + n, size));
  HY_SCOPE_TRY(s, hy_array_apply_into(
                      s->tape, HY_OP_rope_cache,
                      (hy_array*[]){keys, values, qkv, cos, sin, pass->positions, pass->slots}, 7,
                      NULL, (hy_array*[]){keys, values, qk}, 3));
  if (!pass->whole)
    return hy_s_paged_attention(s, hy_s_slice(s, qk, 1, 0, heads, 1), keys, values,
                                pass->block_table, pass->query_start, pass->context_length, 0);
  hy_array* out = hy_s_empty(s, dtype, HY_SIZES(pass->tokens, heads, size));
  hy_array* const in[] = {by_sequence(s, pass, qk, 0, heads),
                          by_sequence(s, pass, qk, heads, heads + n),
                          by_sequence(s, pass, qkv, heads + n, heads + 2 * n), NULL};
  hy_array* to = by_sequence(s, pass, out, 0, heads);
  const hy_attrs attrs = {.attention = {.causal = HY_CAUSAL_TOP_LEFT}};
  HY_SCOPE_TRY(s,
               hy_array_apply_into(s->tape, HY_OP_sdpa, in, 4, &attrs, (hy_array*[]){to, NULL}, 2));
  return out;
}
