#include "model/cache.h"

#include <string.h>

#include "base/memory.h"

struct hy__cache {
  int64_t n_layers, n_blocks;
  hy_array **keys, **values;  // by layer: (blocks, HY__CACHE_BLOCK, G, E)
  int64_t* free_blocks;       // a stack
  int64_t n_free;
};

void hy__cache_destroy(hy__cache* cache) {
  if (!cache) return;
  for (int64_t i = 0; cache->keys && i < cache->n_layers; i++) {
    hy_array_release(cache->keys[i]);
    hy_array_release(cache->values[i]);
  }
  hy__mfree(cache->keys);
  hy__mfree(cache->free_blocks);
  hy__mfree(cache);
}

hy_status hy__cache_create(hy_stream* stream, const hy__config* c, hy_dtype dtype, int64_t tokens,
                           hy__cache** out) {
  *out = NULL;
  hy__cache* cache = hy__calloc(1, sizeof *cache);
  if (!cache) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a cache");
  cache->n_layers = c->n_layers;
  cache->n_blocks = (tokens + HY__CACHE_BLOCK - 1) / HY__CACHE_BLOCK;
  cache->keys = hy__calloc((size_t)(2 * c->n_layers), sizeof *cache->keys);
  cache->free_blocks = hy__malloc((size_t)(cache->n_blocks + 1) * sizeof *cache->free_blocks);
  hy_status status = HY_OK;
  if (!cache->keys || !cache->free_blocks) {
    status = hy_fail(HY_OUT_OF_MEMORY, "no memory for a cache of %lld tokens", (long long)tokens);
  } else {
    cache->values = cache->keys + c->n_layers;
    for (int64_t i = 0; i < cache->n_blocks; i++) cache->free_blocks[i] = cache->n_blocks - 1 - i;
    cache->n_free = cache->n_blocks;
  }
  const int64_t shape[4] = {cache->n_blocks, HY__CACHE_BLOCK, c->n_kv_heads, c->head_dim};
  for (int64_t i = 0; i < c->n_layers && status == HY_OK; i++) {
    status = hy_array_zeros(stream, &cache->keys[i], dtype, 4, shape);
    if (status == HY_OK) status = hy_array_zeros(stream, &cache->values[i], dtype, 4, shape);
  }
  if (status != HY_OK) {
    hy__cache_destroy(cache);
    return status;
  }
  *out = cache;
  return HY_OK;
}

static int64_t blocks_for(int64_t tokens) {
  return (tokens + HY__CACHE_BLOCK - 1) / HY__CACHE_BLOCK;
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

hy_status hy__cache_grow(hy_stream* stream, hy__cache* cache, int64_t tokens) {
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

void hy__sequence_cut(hy__cache* cache, hy__sequence* s, int64_t length) {
  while (s->n_blocks > blocks_for(length))
    cache->free_blocks[cache->n_free++] = s->blocks[--s->n_blocks];
  s->length = length;
}

void hy__sequence_free(hy__cache* cache, hy__sequence* s) {
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
static hy_status make_room(hy__cache* cache, hy__sequence* const* sequences,
                           const int64_t* new_tokens, int batch) {
  int64_t wanted = 0;
  for (int i = 0; i < batch; i++) {
    int64_t blocks = blocks_for(sequences[i]->length + new_tokens[i]);
    HY_TRY(grow(sequences[i], blocks));
    wanted += blocks - sequences[i]->n_blocks;
  }
  if (wanted > cache->n_free)
    return hy_fail(
        HY_OUT_OF_MEMORY,
        "the key-value cache is full: %lld blocks of %d tokens are wanted, %lld of %lld are free",
        (long long)wanted, HY__CACHE_BLOCK, (long long)cache->n_free, (long long)cache->n_blocks);
  for (int i = 0; i < batch; i++) {
    int64_t blocks = blocks_for(sequences[i]->length + new_tokens[i]);
    while (sequences[i]->n_blocks < blocks)
      sequences[i]->blocks[sequences[i]->n_blocks++] = cache->free_blocks[--cache->n_free];
  }
  return HY_OK;
}

// Fills the host's copies: slot and position of each token, block table, starts and lengths.
static void describe(hy__sequence* const* sequences, const int64_t* new_tokens, int batch,
                     int64_t width, int64_t* slots, int64_t* positions, int64_t* table,
                     int64_t* starts, int64_t* lengths) {
  int64_t at = 0;
  for (int i = 0; i < batch; i++) {
    const hy__sequence* s = sequences[i];
    starts[i] = at;
    for (int64_t p = s->length; p < s->length + new_tokens[i]; p++, at++) {
      positions[at] = p;
      slots[at] = s->blocks[p / HY__CACHE_BLOCK] * HY__CACHE_BLOCK + p % HY__CACHE_BLOCK;
    }
    lengths[i] = s->length + new_tokens[i];
    for (int64_t b = 0; b < width; b++) table[i * width + b] = b < s->n_blocks ? s->blocks[b] : 0;
  }
  starts[batch] = at;
}

hy_status hy__pass_begin(hy_stream* stream, hy__cache* cache, hy__sequence* const* sequences,
                         const int64_t* new_tokens, int batch, hy__pass* pass) {
  memset(pass, 0, sizeof *pass);
  HY_TRY(make_room(cache, sequences, new_tokens, batch));
  int64_t total = 0, width = 1;
  for (int i = 0; i < batch; i++) {
    total += new_tokens[i];
    if (sequences[i]->n_blocks > width) width = sequences[i]->n_blocks;
  }
  pass->cache = cache;
  pass->tokens = total;
  pass->positions = hy__malloc((size_t)(total + 1) * sizeof *pass->positions);
  int64_t* host = hy__malloc((size_t)(total + batch * width + 2 * batch + 1) * sizeof *host);
  hy_status status = HY_OK;
  if (!pass->positions || !host)
    status = hy_fail(HY_OUT_OF_MEMORY, "no memory for a pass of %lld tokens", (long long)total);
  if (status == HY_OK) {
    int64_t *slots = host, *table = slots + total, *starts = table + batch * width,
            *lengths = starts + batch + 1;
    const int64_t n = batch, starts_shape = batch + 1, table_shape[2] = {batch, width};
    describe(sequences, new_tokens, batch, width, slots, pass->positions, table, starts, lengths);
    status = hy_array_from_host(stream, &pass->slots, HY_I64, 1, &total, slots);
    if (status == HY_OK)
      status = hy_array_from_host(stream, &pass->block_table, HY_I64, 2, table_shape, table);
    if (status == HY_OK)
      status = hy_array_from_host(stream, &pass->query_start, HY_I64, 1, &starts_shape, starts);
    if (status == HY_OK)
      status = hy_array_from_host(stream, &pass->context_length, HY_I64, 1, &n, lengths);
  }
  hy__mfree(host);
  if (status != HY_OK) {
    hy__pass_end(pass);
    return status;
  }
  for (int i = 0; i < batch; i++) sequences[i]->length += new_tokens[i];
  return HY_OK;
}

void hy__pass_end(hy__pass* pass) {
  hy_array_release(pass->slots);
  hy_array_release(pass->block_table);
  hy_array_release(pass->query_start);
  hy_array_release(pass->context_length);
  hy__mfree(pass->positions);
  memset(pass, 0, sizeof *pass);
}

// Writes rows (N, G, E) into the slots of a cache seen as (blocks * HY__CACHE_BLOCK, G, E).
static hy_status store(hy_tape* tape, const hy__pass* pass, hy_array* cache, hy_array* rows) {
  const hy_tensor* shape = hy_array_tensor(cache);
  hy_array* flat = NULL;
  HY_TRY(hy_array_view(NULL, &flat, cache, 3, (int64_t[]){-1, shape->shape[2], shape->shape[3]}));
  hy_attrs attrs = {.accumulate = {false}};
  hy_status status = hy_array_apply_into(
      tape, HY_OP_index_put, (hy_array*[]){flat, rows, pass->slots}, 3, &attrs, &flat, 1);
  hy_array_release(flat);
  return status;
}

static hy_status attend_cached(void* context, hy_tape* tape, int layer, hy_array* q, hy_array* k,
                               hy_array* v, hy_array** out) {
  const hy__pass* pass = context;
  hy_array *keys = pass->cache->keys[layer], *values = pass->cache->values[layer];
  HY_TRY(store(tape, pass, keys, k));
  HY_TRY(store(tape, pass, values, v));
  return hy_array_paged_attention(tape, out, q, keys, values, pass->block_table, pass->query_start,
                                  pass->context_length, 0);
}

hy__attention hy__attend_cached(hy__pass* pass) {
  return (hy__attention){attend_cached, pass};
}
