// Paged attention: keys and values in KV blocks, for several sequences at once.
//
// q holds the new tokens of all sequences one after another: those of sequence b are query_start[b]
// up to query_start[b + 1]. Sequence b has context_length[b] keys, its new tokens' own being the
// last ones, and key s is in block block_table[b][s / block_size]. Causal: a new token sees the
// keys up to its own.
#include "ops/reference/attention.h"
#include "ops/reference/element.h"
#include "ops/reference/indices.h"
#include "ops/reference/scratch.h"
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
                           "%lld it must be between %lld and %lld",
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

// ---- a decoding step ----

static int64_t bytes_of(const hy_tensor* t, int64_t elements) {
  return elements * (int64_t)hy_dtype_size(t->dtype);
}

// Heads first .. first + n - 1 of token b: [n, size].
static hy_tensor heads_of(const hy_tensor* qkv, int64_t b, int64_t first, int64_t n) {
  hy_tensor t = *qkv;
  t.data = (char*)qkv->data + bytes_of(qkv, b * qkv->stride[0] + first * qkv->stride[1]);
  t.ndim = 2;
  t.shape[0] = n;
  t.stride[0] = qkv->stride[1];
  t.shape[1] = qkv->shape[2];
  t.stride[1] = qkv->stride[2];
  return t;
}

// The key or value of every head at `slot`: [heads, size].
static hy_tensor slot_of(const hy_tensor* cache, int64_t slot) {
  hy_tensor t = *cache;
  int64_t block = slot / cache->shape[1], row = slot % cache->shape[1];
  t.data = (char*)cache->data + bytes_of(cache, block * cache->stride[0] + row * cache->stride[1]);
  t.ndim = 2;
  for (int d = 0; d < 2; d++) {
    t.shape[d] = cache->shape[2 + d];
    t.stride[d] = cache->stride[2 + d];
  }
  return t;
}

// x [n, size] turned to position `at` of the tables, into `to`.
static hy_status turn(const hy_call* call, const hy_tensor* x, int64_t at, hy_tensor* to) {
  hy_tensor in[3] = {*x, call->in[3], call->in[4]};
  for (int i = 1; i < 3; i++) {
    in[i].data = (char*)in[i].data + bytes_of(&in[i], at * in[i].stride[0]);
    in[i].ndim = 1;
    in[i].shape[0] = in[i].shape[1];
    in[i].stride[0] = in[i].stride[1];
  }
  return hy__ref_rope(&(hy_call){.op = HY_OP_rope, .n_in = 3, .n_out = 1, .in = in, .out = to});
}

static hy_status check_step(const hy_call* call) {
  const hy_tensor *table = &call->in[5], *cache = &call->in[0];
  int64_t positions = call->in[3].shape[0], room = table->shape[1] * cache->shape[1];
  if (room > positions) room = positions;
  for (int64_t b = 0; b < table->shape[0]; b++) {
    int64_t length = index_at(&call->in[6], b);
    if (length < 1 || length > room)
      return hy__call_fail(call, HY_INDEX,
                           "context_length[%lld] is %lld; with the new token, and by the tables, "
                           "it must be between 1 and %lld",
                           (long long)b, (long long)length, (long long)room);
    for (int64_t i = 0; i * cache->shape[1] < length; i++) {
      int64_t block = index_at(table, b * table->shape[1] + i);
      if (block < 0 || block >= cache->shape[0])
        return hy__call_fail(call, HY_INDEX, "block_table[%lld, %lld] is %lld; there are %lld",
                             (long long)b, (long long)i, (long long)block,
                             (long long)cache->shape[0]);
    }
  }
  return HY_OK;
}

// Writes a token's key and value to `slot`, unless that is -1, and to `turned` as many of its
// turned heads, those of q first, as it has.
static hy_status keep_token(const hy_call* call, int64_t token, int64_t at, int64_t slot,
                            const hy_tensor* turned) {
  const hy_tensor *qkv = &call->in[2], *out = call->out;
  int64_t kv_heads = out[0].shape[2], heads = qkv->shape[1] - 2 * kv_heads;
  if (slot >= 0) {
    hy_tensor k = heads_of(qkv, token, heads, kv_heads);
    hy_tensor v = heads_of(qkv, token, heads + kv_heads, kv_heads);
    hy_tensor k_slot = slot_of(&out[0], slot), v_slot = slot_of(&out[1], slot);
    hy__copy_view(&v_slot, &v);
    HY_TRY(turn(call, &k, at, &k_slot));
  }
  hy_tensor from = heads_of(qkv, token, 0, turned->shape[1]);
  hy_tensor to = heads_of(turned, token, 0, turned->shape[1]);
  return turn(call, &from, at, &to);
}

static hy_status step_token(const hy_call* call, int64_t b, const hy_tensor* q) {
  const hy_tensor* table = &call->in[5];
  int64_t block_size = call->in[0].shape[1], at = index_at(&call->in[6], b) - 1;
  int64_t block = index_at(table, b * table->shape[1] + at / block_size);
  return keep_token(call, b, at, block * block_size + at % block_size, q);
}

static void begin_caches(const hy_call* call) {
  for (int i = 0; i < 2; i++) {
    if (call->out[i].data != call->in[i].data) hy__copy_view(&call->out[i], &call->in[i]);
  }
}

hy_status hy__ref_rope_paged_attention(const hy_call* call) {
  const hy_tensor *qkv = &call->in[2], *out = call->out;
  int64_t sequences = qkv->shape[0], count = hy_tensor_numel(&out[2]);
  HY_TRY(check_step(call));
  begin_caches(call);
  double* memory = hy__scratch(call, count + sequences + 1, 1);
  if (!memory) return HY_OUT_OF_MEMORY;
  int64_t* starts = (int64_t*)memory;
  for (int64_t b = 0; b <= sequences; b++) starts[b] = b;
  hy_tensor q = out[2], start = {.data = starts, .dtype = HY_I64, .ndim = 1};
  q.data = memory + sequences + 1;
  q.stride[2] = 1;
  q.stride[1] = q.shape[2];
  q.stride[0] = q.shape[1] * q.shape[2];
  start.shape[0] = sequences + 1;
  start.stride[0] = 1;
  hy_status status = HY_OK;
  for (int64_t b = 0; b < sequences && status == HY_OK; b++) status = step_token(call, b, &q);
  hy_tensor in[6] = {q, out[0], out[1], call->in[5], start, call->in[6]}, to = out[2];
  if (status == HY_OK)
    status = hy__ref_paged_attention(&(hy_call){.op = HY_OP_paged_attention,
                                                .n_in = 6,
                                                .n_out = 1,
                                                .in = in,
                                                .out = &to,
                                                .attrs = call->attrs});
  hy__mfree(memory);
  return status;
}

// ---- new tokens of a prompt ----

hy_status hy__ref_rope_cache(const hy_call* call) {
  const hy_tensor *cache = &call->in[0], *position = &call->in[5], *slot = &call->in[6];
  int64_t tokens = call->in[2].shape[0], positions = call->in[3].shape[0];
  int64_t slots = cache->shape[0] * cache->shape[1];
  for (int64_t i = 0; i < tokens; i++) {
    int64_t at = index_at(position, i), to = index_at(slot, i);
    if (at < 0 || at >= positions)
      return hy__call_fail(call, HY_INDEX, "position[%lld] is %lld; the tables have %lld",
                           (long long)i, (long long)at, (long long)positions);
    if (to < -1 || to >= slots)
      return hy__call_fail(call, HY_INDEX, "slot[%lld] is %lld; the cache has %lld", (long long)i,
                           (long long)to, (long long)slots);
  }
  begin_caches(call);
  for (int64_t i = 0; i < tokens; i++)
    HY_TRY(keep_token(call, i, index_at(position, i), index_at(slot, i), &call->out[2]));
  return HY_OK;
}
