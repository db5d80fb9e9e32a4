// Paged attention: keys and values in KV blocks, for several sequences at once.
//
// q holds the new tokens of all sequences one after another: those of sequence b are query_start[b]
// up to query_start[b + 1]. Sequence b has context_length[b] keys, its new tokens' own being the
// last ones, and key s is in block block_table[b][s / block_size]. Causal: a new token sees the
// keys up to its own.
#include "ops/reference/attention.h"
#include "ops/reference/element.h"
#include "ops/reference/walk.h"

typedef struct sequence {
  int64_t first, queries, keys;
} sequence;

static int64_t index_at(const hy_tensor* t, int64_t i) {
  return hy__load_i(t->dtype, hy__element(t, i));
}

static sequence sequence_at(const hy_call* call, int64_t b) {
  sequence s = {.first = index_at(&call->in[4], b)};
  s.queries = index_at(&call->in[4], b + 1) - s.first;
  s.keys = index_at(&call->in[5], b);
  return s;
}

// Every index is checked before anything is written.
static hy_status check_indices(const hy_call* call) {
  const hy_tensor *cache = &call->in[1], *table = &call->in[3], *start = &call->in[4];
  int64_t tokens = call->in[0].shape[0], sequences = table->shape[0], most = table->shape[1];
  int64_t block_size = cache->shape[1];
  if (index_at(start, 0) != 0 || index_at(start, sequences) != tokens)
    return hy__call_fail(call, HY_INDEX, "query_start must go from 0 to %lld, not %lld to %lld",
                         (long long)tokens, (long long)index_at(start, 0),
                         (long long)index_at(start, sequences));
  for (int64_t b = 0; b < sequences; b++) {
    int64_t first = index_at(start, b), next = index_at(start, b + 1);
    if (first < 0 || next < first || next > tokens)
      return hy__call_fail(call, HY_INDEX, "query_start falls at sequence %lld", (long long)b);
    sequence s = sequence_at(call, b);
    if (s.keys < s.queries || s.keys > most * block_size)
      return hy__call_fail(call, HY_INDEX,
                           "context_length[%lld] is %lld; with %lld new tokens and %lld blocks of "
                           "%lld it lies between %lld and %lld",
                           (long long)b, (long long)s.keys, (long long)s.queries, (long long)most,
                           (long long)block_size, (long long)s.queries,
                           (long long)(most * block_size));
    for (int64_t i = 0; i * block_size < s.keys; i++) {
      int64_t block = index_at(table, b * most + i);
      if (block < 0 || block >= cache->shape[0])
        return hy__call_fail(
            call, HY_INDEX, "block_table[%lld, %lld] is %lld; the cache has %lld blocks",
            (long long)b, (long long)i, (long long)block, (long long)cache->shape[0]);
    }
  }
  return HY_OK;
}

// The n keys or values of one head in one block: [n, size].
static hy_tensor block_of(const hy_tensor* cache, int64_t block, int64_t head, int64_t n) {
  hy_tensor t = *cache;
  t.data = (char*)cache->data + (block * cache->stride[0] + head * cache->stride[2]) *
                                    (int64_t)hy_dtype_size(cache->dtype);
  t.ndim = 2;
  t.shape[0] = n;
  t.stride[0] = cache->stride[1];
  t.shape[1] = cache->shape[3];
  t.stride[1] = cache->stride[3];
  return t;
}

static void load_sequence(hy__head* head, const hy_call* call, int64_t b, int64_t kv_head) {
  const hy_tensor *k = &call->in[1], *v = &call->in[2], *table = &call->in[3];
  int64_t block_size = k->shape[1];
  for (int64_t first = 0; first < head->keys; first += block_size) {
    int64_t left = head->keys - first, n = left < block_size ? left : block_size;
    int64_t block = index_at(table, b * table->shape[1] + first / block_size);
    hy_tensor keys = block_of(k, block, kv_head, n), values = block_of(v, block, kv_head, n);
    hy__head_load(head, first, &keys, &values);
  }
}

static char* token_of(const hy_tensor* t, int64_t token, int64_t head) {
  return (char*)t->data +
         (token * t->stride[0] + head * t->stride[1]) * (int64_t)hy_dtype_size(t->dtype);
}

hy_status hy__ref_paged_attention(const hy_call* call) {
  HY_TRY(check_indices(call));
  const hy_tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *out = &call->out[0];
  int64_t kv_heads = k->shape[2], group = kv_heads > 0 ? q->shape[1] / kv_heads : 0;
  for (int64_t b = 0; b < call->in[3].shape[0]; b++) {
    sequence s = sequence_at(call, b);
    if (s.queries == 0) continue;
    hy__head head;
    HY_TRY(hy__head_begin(&head, call, s.keys, q->shape[2], v->shape[3], call->attrs.scale.scale));
    for (int64_t h = 0; h < kv_heads * group; h++) {
      if (h % group == 0) load_sequence(&head, call, b, h / group);
      for (int64_t t = 0; t < s.queries; t++) {
        hy__load_row_f(q->dtype, token_of(q, s.first + t, h), q->stride[2], head.size, head.q);
        hy__head_score(&head, s.keys - s.queries + t + 1, NULL);
        hy__head_attend(&head);
        hy__store_row_f(out->dtype, token_of(out, s.first + t, h), out->stride[2], head.value_size,
                        head.out);
      }
    }
    hy__head_end(&head);
  }
  return HY_OK;
}
