// Paged attention composed of gathered blocks, products and a softmax in f32. Lengths stay on the
// device: every token is multiplied with every slot, and what it may not see is masked.
#include <math.h>

#include "backends/common/composed.h"

static hy_tensor column(const hy_tensor* t) {
  return hy__view(t, 2, (const int64_t[]){hy_tensor_numel(t), 1});
}

// Which key slots a token may not see, bool [tokens, sequences, slots], and which slots hold none,
// bool [sequences, slots].
static hy_tensor hidden_slots(hy__task* task, const hy__paged_batch* b, hy_tensor* unused) {
  int64_t n = b->sequences, slots = b->blocks_each * b->block;
  hy_tensor start = hy__task_contiguous(task, b->start, task->rules->index);
  hy_tensor context = hy__task_contiguous(task, b->context, task->rules->index);
  hy_tensor first = hy__slice(&start, 0, 0, n), end = hy__slice(&start, 0, 1, n);
  hy_tensor tokens = hy__task_range(task, task->rules->index, b->tokens), token = column(&tokens);
  hy_tensor slot = hy__task_range(task, task->rules->index, slots);
  // A token is its sequence's where start <= token < end, and sees the slots up to its own:
  // slot <= token + (context - end).
  hy_tensor from = hy__task_compare(task, HY_OP_le, &first, &token);
  hy_tensor to = hy__task_compare(task, HY_OP_lt, &token, &end);
  hy_tensor own = hy__task_compare(task, HY_OP_logical_and, &from, &to);
  hy_tensor past = hy__task_binary(task, HY_OP_sub, &context, &end);
  hy_tensor last = hy__task_binary(task, HY_OP_add, &token, &past);
  const int64_t shape[3] = {b->tokens, n, 1};
  last = hy__view(&last, 3, shape);
  own = hy__view(&own, 3, shape);
  hy_tensor seen = hy__task_compare(task, HY_OP_le, &slot, &last);
  seen = hy__task_compare(task, HY_OP_logical_and, &seen, &own);
  hy_tensor lengths = column(&context);
  *unused = hy__task_compare(task, HY_OP_ge, &slot, &lengths);
  // The lengths themselves: 0 <= queries <= context <= slots, from 0 to the last token.
  hy_tensor queries = hy__task_binary(task, HY_OP_sub, &end, &first);
  hy_tensor bad[5] = {hy__task_compare_to(task, HY_OP_lt_scalar, &queries, 0),
                      hy__task_compare(task, HY_OP_lt, &context, &queries),
                      hy__task_compare_to(task, HY_OP_ge_scalar, &context, (double)slots + 1)};
  hy_tensor edge[2] = {hy__slice(&start, 0, 0, 1), hy__slice(&start, 0, n, 1)};
  bad[3] = hy__task_compare_to(task, HY_OP_ne_scalar, &edge[0], 0);
  bad[4] = hy__task_compare_to(task, HY_OP_ne_scalar, &edge[1], (double)b->tokens);
  hy_tensor any = bad[0];
  for (int i = 1; i < 5; i++) any = hy__task_compare(task, HY_OP_logical_or, &any, &bad[i]);
  hy__task_check(task, &any);
  return hy__task_not(task, &seen);
}

// The blocks of every sequence: i64 [sequences * blocks_each], those in use checked.
static hy_tensor blocks_of(hy__task* task, const hy__paged_batch* b, const hy_tensor* unused) {
  const int64_t shape[2] = {b->sequences, b->blocks_each};
  hy_tensor table = hy__task_contiguous(task, b->table, task->rules->index);
  hy_tensor inside = hy__task_temporary(task, task->rules->index, 2, shape);
  hy__task_clamp(task, &table, hy_int(0), hy_int(b->k->shape[0] - 1), &inside);
  hy_tensor outside = hy__task_compare(task, HY_OP_ne, &inside, &table);
  hy_tensor first_slot = *unused;  // of each block
  first_slot.shape[1] = b->blocks_each;
  first_slot.stride[1] = b->block;
  hy_tensor in_use = hy__task_not(task, &first_slot);
  hy_tensor bad = hy__task_compare(task, HY_OP_logical_and, &outside, &in_use);
  hy__task_check(task, &bad);
  const int64_t n = b->sequences * b->blocks_each;
  return hy__view(&inside, 1, &n);
}

// A cache's blocks as f32 [kv_heads, sequences * slots, size], a view.
static hy_tensor gathered(hy__task* task, const hy__paged_batch* b, const hy_tensor* cache,
                          const hy_tensor* blocks, const hy_tensor* unused) {
  int64_t n = blocks->shape[0], slots = n * b->block, size = cache->shape[3];
  hy_tensor all =
      hy__task_temporary(task, cache->dtype, 4, (const int64_t[]){n, b->block, b->kv_heads, size});
  const hy_tensor in[] = {*cache, *blocks};
  hy__task_call(task, HY_OP_index_select, 2, in, &all, (hy_attrs){.dim = {0}});
  hy_tensor wide = hy__task_as(task, &all, HY_F32);
  // Whatever unused slots hold must not meet a probability of 0.
  hy_tensor rows = hy__view(&wide, 3, (const int64_t[]){slots, b->kv_heads, size});
  hy_tensor mask = hy__view(unused, 3, (const int64_t[]){slots, 1, 1});
  hy__task_masked_fill(task, &rows, &mask, 0);
  return hy__permuted(&rows, (const int[]){1, 0, 2});
}

static void compose(hy__task* task, const hy__paged_batch* b) {
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
  q4 = hy__permuted(&q4, forth);
  hy_tensor q = hy__task_contiguous(task, &q4, HY_F32);
  q = hy__view(&q, 3, (const int64_t[]){b->kv_heads, group * b->tokens, b->size});
  hy_tensor k_t = hy__transposed(&k);
  hy_tensor scores = hy__task_bmm(task, &q, &k_t);
  hy__task_scale(task, &scores, b->scale);
  hy_tensor each = hy__view(&scores, 3, (const int64_t[]){b->kv_heads * group, b->tokens, slots});
  hy_tensor mask = hy__view(&hidden, 2, (const int64_t[]){b->tokens, slots});
  hy__task_masked_fill(task, &each, &mask, -INFINITY);
  hy_tensor p = hy__task_softmax(task, HY_OP_softmax, &scores);
  hy_tensor result = hy__task_bmm(task, &p, &v);
  hy_tensor heads =
      hy__view(&result, 4, (const int64_t[]){b->kv_heads, group, b->tokens, b->value_size});
  heads = hy__permuted(&heads, back);
  hy_tensor whole = hy__task_contiguous(task, &heads, HY_F32);
  whole = hy__view(&whole, 3, b->out->shape);
  hy__task_copy(task, b->out, &whole);
}

hy_support hy__paged_batch_of(const hy_call* call, hy__paged_batch* b) {
  *b = (hy__paged_batch){.q = &call->in[0],
                         .k = &call->in[1],
                         .v = &call->in[2],
                         .table = &call->in[3],
                         .start = &call->in[4],
                         .context = &call->in[5],
                         .out = &call->out[0]};
  b->tokens = b->q->shape[0];
  b->heads = b->q->shape[1];
  b->size = b->q->shape[2];
  b->block = b->k->shape[1];
  b->kv_heads = b->k->shape[2];
  b->value_size = b->v->shape[3];
  b->sequences = b->table->shape[0];
  b->blocks_each = b->table->shape[1];
  b->scale = call->attrs.scale.scale != 0 ? call->attrs.scale.scale : 1 / sqrt((double)b->size);
  TASK_NEED(hy__is_half_or_f32(b->q) && b->k->dtype == b->q->dtype && b->v->dtype == b->q->dtype &&
                b->out->dtype == b->q->dtype,
            NO_DTYPE);
  for (int i = 3; i < 6; i++)
    TASK_NEED(call->in[i].dtype == HY_I32 || call->in[i].dtype == HY_I64, NO_DTYPE);
  TASK_NEED(b->kv_heads > 0 && b->sequences > 0 && b->blocks_each > 0 && b->k->shape[0] > 0 &&
                b->block > 0,
            NO_SHAPE);
  return HY_SUPPORT_YES;
}

hy_support hy__composed_paged_attention(hy__task* task, const hy_call* call) {
  hy__paged_batch b;
  hy_support answer = hy__paged_batch_of(call, &b);
  if (answer != HY_SUPPORT_YES) return answer;
  task->trusts = true;  // the blocks' numbers, once they are clamped
  compose(task, &b);
  return task->answer;
}
