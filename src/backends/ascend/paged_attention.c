// Paged attention of the ascend backend: FusedInferAttentionScore for prefill and decode where the
// vendor's rules allow, and otherwise gathered keys, products and a softmax in f32.
//
// The vendor wants the lengths of the sequences on the host, where the op has them on the device:
// they are read back, which waits for the stream. A capture cannot wait, and takes the other way.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/ascend/ascend.h"

enum { KEEP_DTYPE = 0, BOTTOM_RIGHT = 3, ALL_TOKENS = 2147483647, TO_HOST = 2 };

static bool is_float(const hy_tensor* t) {
  return t->dtype == HY_F32 || t->dtype == HY_F16 || t->dtype == HY_BF16;
}

typedef struct batch {
  const hy_tensor *q, *k, *v, *table, *start, *context, *out;
  int64_t tokens, heads, kv_heads, size, value_size, block, sequences, blocks_each;
  double scale;
} batch;

// ---- FusedInferAttentionScore ----

// Blocks of a multiple of 16 suit a step of one token for each sequence, others take 128. Whether
// as many tokens as sequences are one each is seen when the lengths are.
static bool suits_fused(const hy__ascend_task* task, const batch* b) {
  enum { MAX_SEQUENCES = 2048, MAX_HEADS = 256, MAX_GROUP = 64, MAX_ROW = 65535 };
  return task->device->chip->flash_attention && !(task->stream && task->stream->capturing) &&
         (b->q->dtype == HY_F16 || b->q->dtype == HY_BF16) && b->size == b->value_size &&
         (b->size == 64 || b->size == 128) && b->block <= 512 &&
         b->block % (b->tokens == b->sequences ? 16 : 128) == 0 && b->heads <= MAX_HEADS &&
         b->heads / b->kv_heads <= MAX_GROUP && b->kv_heads * b->size <= MAX_ROW &&
         b->sequences <= MAX_SEQUENCES && hy_tensor_is_contiguous(b->k) &&
         hy_tensor_is_contiguous(b->v) && hy_tensor_is_contiguous(b->q) &&
         hy_tensor_is_contiguous(b->out);
}

// The values of tensors of integers, on the host, one after another: one wait for all.
static void read_back(hy__ascend_task* task, const hy_tensor* const* tensors, int n,
                      int64_t* values) {
  hy_tensor wide[3];
  for (int i = 0; i < n; i++) wide[i] = hy__ascend_contiguous(task, tensors[i], HY_I64);
  if (!task->stream || task->status != HY_OK) return;
  task->status = hy__ascend_stream_sync(task->device, task->stream);
  for (int i = 0; i < n && task->status == HY_OK; i++) {
    size_t bytes = hy_tensor_bytes(&wide[i]);
    int error = hy__acl.aclrtMemcpy(values, bytes, wide[i].data, bytes, TO_HOST);
    if (error) task->status = hy__ascend_fail(error, "reading the lengths of sequences");
    values += hy_tensor_numel(&wide[i]);
  }
}

static void check_lengths(hy__ascend_task* task, const batch* b, const int64_t* start,
                          const int64_t* context, const int64_t* table) {
  bool good = start[0] == 0 && start[b->sequences] == b->tokens;
  for (int64_t i = 0; good && i < b->sequences; i++) {
    int64_t queries = start[i + 1] - start[i];
    good = queries >= 0 && context[i] >= queries && context[i] <= b->blocks_each * b->block;
    for (int64_t k = 0; good && k * b->block < context[i]; k++) {
      int64_t block = table[i * b->blocks_each + k];
      good = block >= 0 && block < b->k->shape[0];
    }
  }
  if (!good)
    task->status = hy__backend_host->fail(
        HY_INDEX, "paged_attention: query_start, context_length or block_table is out of range");
}

static void compose(hy__ascend_task* task, const batch* b);

static bool one_each(const batch* b, const int64_t* start) {
  for (int64_t i = 0; i < b->sequences; i++)
    if (start[i + 1] - start[i] != 1) return false;
  return true;
}

static void run_fused(hy__ascend_task* task, const batch* b) {
  int64_t n = b->sequences, n_table = n * b->blocks_each;
  int64_t* host = malloc((size_t)(2 * n + 1 + n_table) * sizeof *host);
  if (!host) {
    task->status = hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
    return;
  }
  int64_t *start = host, *context = host + n + 1, *blocks = context + n;
  read_back(task, (const hy_tensor*[]){b->start, b->context, b->table}, 3, host);
  if (task->stream && task->status == HY_OK) check_lengths(task, b, start, context, blocks);
  if (task->stream && task->status == HY_OK && b->block % 128 != 0 && !one_each(b, start)) {
    free(host);
    compose(task, b);
    return;
  }
  hy_tensor cache[2], table = hy__ascend_contiguous(task, b->table, HY_I32);
  const int64_t shape[3] = {b->k->shape[0], b->block, b->kv_heads * b->size};
  cache[0] = hy__ascend_view(b->k, 3, shape);
  cache[1] = hy__ascend_view(b->v, 3, shape);
  const int64_t side[2] = {2048, 2048};
  hy_tensor ones = hy__ascend_temporary(task, HY_BOOL, 2, side);
  hy_tensor mask = hy__ascend_temporary(task, HY_BOOL, 2, side), none = hy_tensor_absent();
  hy__ascend_fill(task, &ones, hy_bool(true));
  ASCEND_RUN(task, Triu, ASCEND_T(&ones), 1, ASCEND_T(&mask));
#define NONE ASCEND_T(&none)
  ASCEND_RUN(task, FusedInferAttentionScoreV3, ASCEND_T(b->q), hy__ascend_list(task, &cache[0], 1),
             hy__ascend_list(task, &cache[1], 1), NONE, ASCEND_T(&mask),
             hy__ascend_ints(task, start + 1, (int)n), hy__ascend_ints(task, context, (int)n), NONE,
             NONE, NONE, NONE, NONE, NONE, NONE, ASCEND_T(&table), NONE, NONE, NONE, NONE, NONE,
             NONE, NONE, NONE, NULL, NONE, NONE, NONE, b->heads, b->scale, ALL_TOKENS, ALL_TOKENS,
             "TND", b->kv_heads, BOTTOM_RIGHT, 0, b->block, 0, false, 0, 0, ASCEND_T(b->out), NONE);
#undef NONE
  free(host);
}

// ---- By products ----

static hy_tensor column(const hy_tensor* t) {
  return hy__ascend_view(t, 2, (const int64_t[]){hy_tensor_numel(t), 1});
}

// Which key slots a token may not see, bool [tokens, sequences, slots], and which slots hold none,
// bool [sequences, slots].
static hy_tensor hidden_slots(hy__ascend_task* task, const batch* b, hy_tensor* unused) {
  int64_t n = b->sequences, slots = b->blocks_each * b->block;
  hy_tensor start = hy__ascend_contiguous(task, b->start, HY_I64);
  hy_tensor context = hy__ascend_contiguous(task, b->context, HY_I64);
  hy_tensor first = hy__ascend_slice(&start, 0, 0, n), end = hy__ascend_slice(&start, 0, 1, n);
  hy_tensor tokens = hy__ascend_range(task, HY_I64, b->tokens), token = column(&tokens);
  hy_tensor slot = hy__ascend_range(task, HY_I64, slots);
  // A token is its sequence's where start <= token < end, and sees the slots up to its own:
  // slot <= token + (context - end).
  hy_tensor from = hy__ascend_compare(task, ASCEND_LE, &first, &token);
  hy_tensor to = hy__ascend_compare(task, ASCEND_LT, &token, &end);
  hy_tensor own = hy__ascend_compare(task, ASCEND_AND, &from, &to);
  hy_tensor past = hy__ascend_binary(task, ASCEND_SUB, &context, &end);
  hy_tensor last = hy__ascend_binary(task, ASCEND_ADD, &token, &past);
  const int64_t shape[3] = {b->tokens, n, 1};
  last = hy__ascend_view(&last, 3, shape);
  own = hy__ascend_view(&own, 3, shape);
  hy_tensor seen = hy__ascend_compare(task, ASCEND_LE, &slot, &last);
  seen = hy__ascend_compare(task, ASCEND_AND, &seen, &own);
  hy_tensor lengths = column(&context);
  *unused = hy__ascend_compare(task, ASCEND_GE, &slot, &lengths);
  // The lengths themselves: 0 <= queries <= context <= slots, from 0 to the last token.
  hy_tensor queries = hy__ascend_binary(task, ASCEND_SUB, &end, &first);
  hy_tensor bad[5] = {hy__ascend_compare_to(task, ASCEND_LT, &queries, 0),
                      hy__ascend_compare(task, ASCEND_LT, &context, &queries),
                      hy__ascend_compare_to(task, ASCEND_GE, &context, (double)slots + 1)};
  hy_tensor edge[2] = {hy__ascend_slice(&start, 0, 0, 1), hy__ascend_slice(&start, 0, n, 1)};
  bad[3] = hy__ascend_compare_to(task, ASCEND_NE, &edge[0], 0);
  bad[4] = hy__ascend_compare_to(task, ASCEND_NE, &edge[1], (double)b->tokens);
  hy_tensor any = bad[0];
  for (int i = 1; i < 5; i++) any = hy__ascend_compare(task, ASCEND_OR, &any, &bad[i]);
  hy__ascend_check(task, &any);
  return hy__ascend_not(task, &seen);
}

// The blocks of every sequence: i64 [sequences * blocks_each], those in use checked.
static hy_tensor blocks_of(hy__ascend_task* task, const batch* b, const hy_tensor* unused) {
  const int64_t shape[2] = {b->sequences, b->blocks_each};
  hy_tensor table = hy__ascend_contiguous(task, b->table, HY_I64);
  hy_tensor inside = hy__ascend_temporary(task, HY_I64, 2, shape);
  ASCEND_RUN(task, Clamp, ASCEND_T(&table), ASCEND_I(0), ASCEND_I(b->k->shape[0] - 1),
             ASCEND_T(&inside));
  hy_tensor outside = hy__ascend_compare(task, ASCEND_NE, &inside, &table);
  hy_tensor first_slot = *unused;  // of each block
  first_slot.shape[1] = b->blocks_each;
  first_slot.stride[1] = b->block;
  hy_tensor in_use = hy__ascend_not(task, &first_slot);
  hy_tensor bad = hy__ascend_compare(task, ASCEND_AND, &outside, &in_use);
  hy__ascend_check(task, &bad);
  const int64_t n = b->sequences * b->blocks_each;
  return hy__ascend_view(&inside, 1, &n);
}

// A cache's blocks as f32 [kv_heads, sequences * slots, size], a view.
static hy_tensor gathered(hy__ascend_task* task, const batch* b, const hy_tensor* cache,
                          const hy_tensor* blocks, const hy_tensor* unused) {
  int64_t n = blocks->shape[0], slots = n * b->block, size = cache->shape[3];
  hy_tensor all = hy__ascend_temporary(task, cache->dtype, 4,
                                       (const int64_t[]){n, b->block, b->kv_heads, size});
  ASCEND_RUN(task, IndexSelect, ASCEND_T(cache), 0, ASCEND_T(blocks), ASCEND_T(&all));
  hy_tensor wide = hy__ascend_as(task, &all, HY_F32);
  // Whatever unused slots hold must not meet a probability of 0.
  hy_tensor rows = hy__ascend_view(&wide, 3, (const int64_t[]){slots, b->kv_heads, size});
  hy_tensor mask = hy__ascend_view(unused, 3, (const int64_t[]){slots, 1, 1});
  hy__ascend_masked_fill(task, &rows, &mask, 0);
  return hy__ascend_permuted(&rows, (const int[]){1, 0, 2});
}

static void compose(hy__ascend_task* task, const batch* b) {
  int64_t group = b->heads / b->kv_heads, slots = b->sequences * b->blocks_each * b->block;
  hy_tensor unused, hidden = hidden_slots(task, b, &unused);
  hy_tensor blocks = blocks_of(task, b, &unused);
  hy_tensor k = gathered(task, b, b->k, &blocks, &unused);
  hy_tensor v = gathered(task, b, b->v, &blocks, &unused);
  // q [tokens, kv_heads, group, size] as [kv_heads, group, tokens, size]
  hy_tensor q4 = *b->q;
  q4.ndim = 4;
  q4.shape[3] = b->size;
  q4.stride[3] = b->q->stride[2];
  q4.shape[2] = group;
  q4.stride[2] = b->q->stride[1];
  q4.shape[1] = b->kv_heads;
  q4.stride[1] = b->q->stride[1] * group;
  static const int forth[4] = {1, 2, 0, 3}, back[4] = {2, 0, 1, 3};
  q4 = hy__ascend_permuted(&q4, forth);
  hy_tensor q = hy__ascend_contiguous(task, &q4, HY_F32);
  q = hy__ascend_view(&q, 3, (const int64_t[]){b->kv_heads, group * b->tokens, b->size});
  hy_tensor k_t = hy__ascend_transposed(&k);
  const int64_t shape[3] = {b->kv_heads, group * b->tokens, slots};
  hy_tensor scores = hy__ascend_temporary(task, HY_F32, 3, shape);
  ASCEND_RUN(task, BatchMatMul, ASCEND_T(&q), ASCEND_T(&k_t), ASCEND_T(&scores), KEEP_DTYPE);
  hy__ascend_scale(task, &scores, b->scale);
  hy_tensor each =
      hy__ascend_view(&scores, 3, (const int64_t[]){b->kv_heads * group, b->tokens, slots});
  hy_tensor mask = hy__ascend_view(&hidden, 2, (const int64_t[]){b->tokens, slots});
  hy__ascend_masked_fill(task, &each, &mask, -INFINITY);
  hy_tensor p = hy__ascend_temporary(task, HY_F32, 3, shape);
  ASCEND_RUN(task, Softmax, ASCEND_T(&scores), 2, ASCEND_T(&p));
  hy_tensor result = hy__ascend_temporary(
      task, HY_F32, 3, (const int64_t[]){b->kv_heads, group * b->tokens, b->value_size});
  ASCEND_RUN(task, BatchMatMul, ASCEND_T(&p), ASCEND_T(&v), ASCEND_T(&result), KEEP_DTYPE);
  hy_tensor heads =
      hy__ascend_view(&result, 4, (const int64_t[]){b->kv_heads, group, b->tokens, b->value_size});
  heads = hy__ascend_permuted(&heads, back);
  hy_tensor whole = hy__ascend_contiguous(task, &heads, HY_F32);
  whole = hy__ascend_view(&whole, 3, b->out->shape);
  hy__ascend_copy(task, b->out, &whole);
}

hy_support hy__ascend_paged_attention(hy__ascend_task* task, const hy_call* call) {
  batch b = {.q = &call->in[0],
             .k = &call->in[1],
             .v = &call->in[2],
             .table = &call->in[3],
             .start = &call->in[4],
             .context = &call->in[5],
             .out = &call->out[0]};
  b.tokens = b.q->shape[0];
  b.heads = b.q->shape[1];
  b.size = b.q->shape[2];
  b.block = b.k->shape[1];
  b.kv_heads = b.k->shape[2];
  b.value_size = b.v->shape[3];
  b.sequences = b.table->shape[0];
  b.blocks_each = b.table->shape[1];
  b.scale = call->attrs.scale.scale != 0 ? call->attrs.scale.scale : 1 / sqrt((double)b.size);
  ASCEND_NEED(is_float(b.q) && b.k->dtype == b.q->dtype && b.v->dtype == b.q->dtype &&
                  b.out->dtype == b.q->dtype,
              NO_DTYPE);
  for (int i = 3; i < 6; i++)
    ASCEND_NEED(call->in[i].dtype == HY_I32 || call->in[i].dtype == HY_I64, NO_DTYPE);
  ASCEND_NEED(
      b.kv_heads > 0 && b.sequences > 0 && b.blocks_each > 0 && b.k->shape[0] > 0 && b.block > 0,
      NO_SHAPE);
  ASCEND_NEED(task->device->chip->fp32_products, NO_HARDWARE);
  if (suits_fused(task, &b))
    run_fused(task, &b);
  else
    compose(task, &b);
  return task->answer;
}
