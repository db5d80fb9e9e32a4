// Shards: who has which part, reading it from a file, and the collectives of a pass.
#include "model/shard.h"

#include <math.h>
#include <string.h>

#include "base/math.h"
#include "base/memory.h"

// ---- who has what ----

hy__span hy__shard_range(int64_t n, int64_t unit, int rank, int size) {
  int64_t units = n / unit;
  int64_t first = units * rank / size, end = units * (rank + 1) / size;
  return (hy__span){first * unit, (end - first) * unit};
}

// Either each rank has several key-value heads, or several ranks share one and divide the query
// heads that look at it.
static hy_status split_heads(const hy__config* c, int rank, int size, hy__shard* shard) {
  int64_t g = c->n_kv_heads, queries = c->n_heads / g;  // that share a key-value head
  if (g % size == 0) {
    shard->kv_heads = hy__shard_range(g, 1, rank, size);
    shard->heads = (hy__span){shard->kv_heads.first * queries, shard->kv_heads.size * queries};
    return HY_OK;
  }
  if (size % g != 0)
    return hy_fail(
        HY_UNSUPPORTED,
        "%d ranks cannot share %lld key-value heads: one of the numbers has to divide the other",
        size, (long long)g);
  int sharing = size / (int)g, head = rank / sharing;
  if (queries < sharing)
    return hy_fail(HY_UNSUPPORTED, "%d ranks are more than the model's %lld heads", size,
                   (long long)c->n_heads);
  shard->kv_heads = (hy__span){head, 1};
  shard->heads = hy__shard_range(queries, 1, rank % sharing, sharing);
  shard->heads.first += head * queries;
  return HY_OK;
}

hy_status hy__shard_split(int rank, int size, hy__config* c, hy__shard* shard) {
  enum { UNIT = 32 };  // columns of quantised weights that share a scale
  *shard = (hy__shard){
      .rank = rank, .size = size, .whole = *c, .layers = {.first = 0, .size = c->n_layers}};
  if (size == 1) return HY_OK;
  HY_TRY(split_heads(c, rank, size, shard));
  int64_t f = c->intermediate_size, unit = f % UNIT == 0 && f / UNIT >= size ? UNIT : 1;
  // Equal parts but for the last, so that gathered logits are in the order of tokens.
  int64_t rows = ceil_div(c->vocab_size, size);
  if (f < size || rows * (size - 1) >= c->vocab_size)
    return hy_fail(HY_UNSUPPORTED, "%d ranks cannot share an MLP of %lld and %lld tokens", size,
                   (long long)f, (long long)c->vocab_size);
  shard->mlp = hy__shard_range(f, unit, rank, size);
  shard->vocab = (hy__span){rows * rank, min_i64(rows, c->vocab_size - rows * rank)};
  c->n_heads = shard->heads.size;
  c->n_kv_heads = shard->kv_heads.size;
  c->intermediate_size = shard->mlp.size;
  return HY_OK;
}

hy_status hy__shard_init(hy_comm* comm, hy__config* config, hy__shard* shard) {
  if (!comm) return hy__shard_split(0, 1, config, shard);
  HY_TRY(hy__shard_split(hy_comm_rank(comm), hy_comm_size(comm), config, shard));
  if (shard->size > 1) shard->comm = comm;
  return HY_OK;
}

void hy__shard_cut(hy__span layers, hy__config* config, hy__shard* shard) {
  shard->layers = layers;
  config->n_layers = layers.size;
}

bool hy__shard_is_first(const hy__shard* shard) {
  return shard->layers.first == 0;
}

bool hy__shard_is_last(const hy__shard* shard) {
  return shard->layers.first + shard->layers.size == shard->whole.n_layers;
}

int64_t hy__shard_vocab(const hy__shard* shard, const hy__config* config) {
  return shard->size > 1 ? shard->vocab.size : config->vocab_size;
}

// ---- weights ----

static hy__span times(hy__span r, int64_t n) {
  return (hy__span){r.first * n, r.size * n};
}

hy_status hy__shard_slice(const hy__shard* shard, const char* name, int ndim, const int64_t* own,
                          hy__slice* slice) {
  const hy__config* w = &shard->whole;
  int64_t e = w->head_dim, f = w->intermediate_size;
  const hy__span q = times(shard->heads, e), kv = times(shard->kv_heads, e), mlp = shard->mlp;
  const struct {
    const char* layer;
    bool by_columns;
    hy__span part;
    int64_t all;
  } plan[] = {{"q_proj", false, q, w->n_heads * e},
              {"k_proj", false, kv, w->n_kv_heads * e},
              {"v_proj", false, kv, w->n_kv_heads * e},
              {"o_proj", true, q, w->n_heads * e},
              {"gate_proj", false, mlp, f},
              {"up_proj", false, mlp, f},
              {"down_proj", true, mlp, f},
              {"embed_tokens", false, shard->vocab, w->vocab_size},
              {"lm_head", false, shard->vocab, w->vocab_size}};
  int64_t columns = ndim == 2 ? own[1] : 1;
  *slice = (hy__slice){{own[0], columns}, {0, own[0]}, {0, columns}};
  if (shard->size <= 1) return HY_OK;
  for (size_t i = 0; i < sizeof plan / sizeof plan[0]; i++) {
    if (!strstr(name, plan[i].layer)) continue;
    // A reads what the layer reads, B writes what it writes.
    bool by_columns = plan[i].by_columns;
    if (strstr(name, by_columns ? "lora_B" : "lora_A")) return HY_OK;
    if (by_columns && ndim == 1) {  // a bias is added once
      if (shard->rank > 0) slice->rows.size = 0;
      return HY_OK;
    }
    slice->shape[by_columns] = plan[i].all;
    *(by_columns ? &slice->columns : &slice->rows) = plan[i].part;
    return HY_OK;
  }
  if (ndim == 1) return HY_OK;
  return hy_fail(HY_UNSUPPORTED, "%s cannot be split among ranks: no rule says how", name);
}

hy_status hy__slice_take(const hy__slice* slice, const hy_tensor* whole, hy_tensor* part,
                         void** copy) {
  size_t element = hy_dtype_size(whole->dtype), row = (size_t)slice->shape[1] * element;
  size_t kept = (size_t)slice->columns.size * element;
  char* from =
      (char*)whole->data + (size_t)slice->rows.first * row + (size_t)slice->columns.first * element;
  const int64_t shape[2] = {slice->rows.size, slice->columns.size};
  *copy = NULL;
  HY_TRY(hy_tensor_init(part, from, whole->dtype, whole->ndim, shape));
  if (kept == row) return HY_OK;
  char* to = hy__malloc(kept * (size_t)shape[0] + 1);
  if (!to) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a part of a weight");
  for (int64_t i = 0; i < shape[0]; i++)
    memcpy(to + (size_t)i * kept, from + (size_t)i * row, kept);
  part->data = *copy = to;
  return HY_OK;
}

// ---- passes ----

hy_array* hy__shard_sum(hy_scope* s, const hy__shard* shard, hy_array* x) {
  if (!shard->comm || s->status != HY_OK) return x;
  const hy_tensor* t = hy_array_tensor(x);
  HY_SCOPE_TRY(s, hy_comm_all_reduce(shard->comm, hy_tape_stream(s->tape), t->data, t->data,
                                     hy_tensor_numel(t), t->dtype, HY_REDUCE_SUM));
  return x;
}

hy_array* hy__shard_rows(hy_scope* s, const hy__shard* shard, hy_array* ids, hy_array** elsewhere) {
  hy_array* row = hy_s_sub_scalar(s, ids, hy_int(shard->vocab.first), hy_int(1));
  hy_array* inside = hy_s_clamp(s, row, hy_int(0), hy_int(shard->vocab.size - 1));
  *elsewhere = hy_s_view(s, hy_s_ne(s, row, inside), HY_SIZES(-1, 1));
  return inside;
}

// x (...) of every rank as (size, ...).
static hy_array* gather(hy_scope* s, const hy__shard* shard, hy_array* x) {
  if (s->status != HY_OK) return NULL;
  const hy_tensor* t = hy_array_tensor(x);
  int64_t n = hy_tensor_numel(t), shape[HY_MAX_DIMS + 1] = {shard->size};
  memcpy(shape + 1, t->shape, (size_t)t->ndim * sizeof shape[0]);
  hy_array* all = hy_s_empty(s, t->dtype, t->ndim + 1, shape);
  if (s->status != HY_OK) return NULL;
  HY_SCOPE_TRY(s, hy_comm_all_gather(shard->comm, hy_tape_stream(s->tape), t->data,
                                     hy_array_tensor(all)->data, n, t->dtype));
  return all;
}

hy_array* hy__shard_gather(hy_scope* s, const hy__shard* shard, hy_array* logits) {
  if (!shard->comm) return logits;
  int mark = hy_scope_mark(s), size = shard->size;
  int64_t n = hy_s_size(s, logits, 0), all = shard->whole.vocab_size, rows = ceil_div(all, size);
  if (shard->vocab.size < rows) {  // the last rank's part is the shorter one
    hy_array* padding = hy_s_zeros(s, HY_F32, HY_SIZES(n, rows - shard->vocab.size));
    logits = hy_s_cat(s, (hy_array*[]){logits, padding}, 2, 1);
  }
  hy_array* parts = hy_s_transpose(s, gather(s, shard, logits), 0, 1);  // (N, size, rows)
  hy_array* whole = hy_s_reshape(s, parts, HY_SIZES(n, size * rows));
  if (size * rows > all) whole = hy_s_contiguous(s, hy_s_slice(s, whole, 1, 0, all, 1));
  return hy_scope_pop(s, mark, whole);
}

// Among equals the first rank's, as among equal logits the first.
hy_array* hy__shard_argmax(hy_scope* s, const hy__shard* shard, hy_array* logits) {
  int mark = hy_scope_mark(s);
  int64_t n = hy_s_size(s, logits, 0);
  hy_array* id = hy_s_view(s, hy_s_sample(s, logits, NULL, NULL, NULL), HY_SIZES(n, 1));
  hy_array* none = hy_s_lt_scalar(s, id, hy_int(0));
  hy_array* at = hy_s_clamp(s, id, hy_int(0), hy_no_scalar());
  hy_array* value = hy_s_masked_fill(s, hy_s_gather(s, logits, at, 1), none, hy_float(-INFINITY));
  hy_array* token = hy_s_add_scalar(s, at, hy_int(shard->vocab.first), hy_int(1));
  // As floats, which hold every token of a vocabulary below 2^24.
  token = hy_s_cast(s, hy_s_masked_fill(s, token, none, hy_int(-1)), HY_F32);
  hy_array* all = gather(s, shard, hy_s_cat(s, (hy_array*[]){value, token}, 2, 1));
  hy_array* values = hy_s_select(s, all, 2, 0);  // (size, N)
  hy_array* best = hy_s_argmax(s, values, hy_one_dim(0), true);
  hy_array* ids = hy_s_gather(s, hy_s_contiguous(s, hy_s_select(s, all, 2, 1)), best, 0);
  return hy_scope_pop(s, mark, hy_s_view(s, hy_s_cast(s, ids, HY_I64), HY_SIZES(n)));
}
