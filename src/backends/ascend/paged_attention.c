// Paged attention of the ascend backend: FusedInferAttentionScore for prefill and decode where the
// vendor's rules allow, and otherwise composed.
//
// The vendor wants the lengths of the sequences on the host, where the op has them on the device:
// they are read back, which waits for the stream. A capture cannot wait, and takes the other way.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/ascend/ascend.h"

enum { BOTTOM_RIGHT = 3, ALL_TOKENS = 2147483647 };

// ---- FusedInferAttentionScore ----

// Blocks of a multiple of 16 suit a step of one token for each sequence, others take 128. Whether
// as many tokens as sequences are one each is seen when the lengths are.
static bool suits_fused(const hy__task* task, const hy__paged_batch* b) {
  enum { MAX_SEQUENCES = 2048, MAX_HEADS = 256, MAX_GROUP = 64, MAX_ROW = 65535 };
  return ASCEND_CHIP(task)->flash_attention && !(task->stream && task->stream->capturing) &&
         (b->q->dtype == HY_F16 || b->q->dtype == HY_BF16) && b->size == b->value_size &&
         (b->size == 64 || b->size == 128) && b->block <= 512 &&
         b->block % (b->tokens == b->sequences ? 16 : 128) == 0 && b->heads <= MAX_HEADS &&
         b->heads / b->kv_heads <= MAX_GROUP && b->kv_heads * b->size <= MAX_ROW &&
         b->sequences <= MAX_SEQUENCES && hy_tensor_is_contiguous(b->k) &&
         hy_tensor_is_contiguous(b->v) && hy_tensor_is_contiguous(b->q) &&
         hy_tensor_is_contiguous(b->out);
}

// The values of tensors of integers, on the host, one after another: one wait for all.
static void read_back(hy__task* task, const hy_tensor* const* tensors, int n, int64_t* values) {
  hy_tensor wide[3];
  for (int i = 0; i < n; i++) wide[i] = hy__task_contiguous(task, tensors[i], HY_I64);
  if (!task->stream || task->status != HY_OK) return;
  task->status = hy__vendor_stream_sync(task->device, task->stream);
  for (int i = 0; i < n && task->status == HY_OK; i++) {
    size_t bytes = hy_tensor_bytes(&wide[i]);
    int error = task->device->vendor->copy(values, wide[i].data, bytes, HY_COPY_DEVICE_TO_HOST);
    if (error) task->status = hy__ascend_fail(error, "reading the lengths of sequences");
    values += hy_tensor_numel(&wide[i]);
  }
}

static void check_lengths(hy__task* task, const hy__paged_batch* b, const int64_t* start,
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

static bool one_each(const hy__paged_batch* b, const int64_t* start) {
  for (int64_t i = 0; i < b->sequences; i++)
    if (start[i + 1] - start[i] != 1) return false;
  return true;
}

// False: the lengths ask for another way.
static bool run_fused(hy__task* task, const hy__paged_batch* b) {
  int64_t n = b->sequences, n_table = n * b->blocks_each;
  int64_t* host = malloc((size_t)(2 * n + 1 + n_table) * sizeof *host);
  if (!host) {
    task->status = hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
    return true;
  }
  int64_t *start = host, *context = host + n + 1, *blocks = context + n;
  read_back(task, (const hy_tensor*[]){b->start, b->context, b->table}, 3, host);
  if (task->stream && task->status == HY_OK) check_lengths(task, b, start, context, blocks);
  if (task->stream && task->status == HY_OK && b->block % 128 != 0 && !one_each(b, start)) {
    free(host);
    return false;
  }
  hy_tensor cache[2], table = hy__task_contiguous(task, b->table, HY_I32);
  const int64_t shape[3] = {b->k->shape[0], b->block, b->kv_heads * b->size};
  cache[0] = hy__view(b->k, 3, shape);
  cache[1] = hy__view(b->v, 3, shape);
  const int64_t side[2] = {2048, 2048};
  hy_tensor ones = hy__task_temporary(task, HY_BOOL, 2, side);
  hy_tensor mask = hy__task_temporary(task, HY_BOOL, 2, side), none = hy_tensor_absent();
  hy__task_fill(task, &ones, hy_bool(true));
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
  return true;
}

hy_support hy__ascend_paged_attention(hy__task* task, const hy_call* call) {
  hy__paged_batch b;
  hy_support answer = hy__paged_batch_of(call, &b);
  if (answer != HY_SUPPORT_YES) return answer;
  TASK_NEED(ASCEND_CHIP(task)->fp32_products, NO_HARDWARE);
  if (suits_fused(task, &b) && run_fused(task, &b)) return task->answer;
  return hy__composed_paged_attention(task, call);
}
