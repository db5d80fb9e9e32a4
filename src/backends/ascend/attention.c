// Attention of the ascend backend: FlashAttentionScore and its gradient where the vendor's rules
// allow, and otherwise composed.
#include <math.h>
#include <string.h>

#include "backends/ascend/ascend.h"

// ---- FlashAttentionScore ----

// The vendor's rules, and no mask of the caller's: theirs is the other way round, and a query that
// sees nothing is not as the op says.
static bool suits_flash(const hy__task* task, const hy__heads* h, const hy_tensor* q,
                        const hy_tensor* mask) {
  return ASCEND_CHIP(task)->flash_attention && q->ndim == 4 &&
         (q->dtype == HY_F16 || q->dtype == HY_BF16) && !hy__heads_may_be_blind(h, mask) &&
         h->size == h->value_size && h->size % 16 == 0 && h->size <= 256 && h->queries > 0;
}

// The compressed causal mask: true, which hides, above the diagonal.
static hy_tensor triangle(hy__task* task) {
  const int64_t shape[2] = {2048, 2048};
  hy_tensor ones = hy__task_temporary(task, HY_BOOL, 2, shape);
  hy__task_fill(task, &ones, hy_bool(true));
  hy_tensor mask = hy__task_temporary(task, HY_BOOL, 2, shape);
  ASCEND_RUN(task, Triu, ASCEND_T(&ones), 1, ASCEND_T(&mask));
  return mask;
}

static int sparse_mode(hy_causal causal) {
  return causal == HY_CAUSAL_NONE ? 0 : causal == HY_CAUSAL_TOP_LEFT ? 2 : 3;
}

#define ALL_TOKENS 2147483647

static void flash_forward(hy__task* task, const hy_call* call, const hy__heads* h) {
  const hy_tensor none = hy_tensor_absent(), *lse = &call->out[1];
  hy_tensor mask = h->causal == HY_CAUSAL_NONE ? none : triangle(task);
  const int64_t shape[4] = {h->batch, h->heads, h->queries, 8};
  hy_tensor most = hy__task_temporary(task, HY_F32, 4, shape);
  hy_tensor sum = hy__task_temporary(task, HY_F32, 4, shape);
  ASCEND_RUN(task, FlashAttentionScore, ASCEND_IN(0), ASCEND_IN(1), ASCEND_IN(2), ASCEND_T(&none),
             ASCEND_T(&none), ASCEND_T(&none), ASCEND_T(&mask), NULL, h->scale, 1.0, ALL_TOKENS,
             ALL_TOKENS, h->heads, "BNSD", 0, sparse_mode(h->causal), ASCEND_T(&most),
             ASCEND_T(&sum), ASCEND_T(&none), ASCEND_OUT(0));
  if (!hy__present(lse)) return;
  hy_tensor a = hy__slice(&most, 3, 0, 1), b = hy__slice(&sum, 3, 0, 1);
  hy_tensor log = hy__task_temporary(task, HY_F32, 4, a.shape);
  ASCEND_RUN(task, Log, ASCEND_T(&b), ASCEND_T(&log));
  hy_tensor total = hy__task_binary(task, HY_OP_add, &log, &a);
  total = hy__view(&total, 3, total.shape);
  hy__task_copy(task, lse, &total);
}

// p = exp(score - max) / sum holds with lse for the largest score and 1 for the sum.
static void flash_backward(hy__task* task, const hy_call* call, const hy__heads* h) {
  const hy_tensor none = hy_tensor_absent(), *lse = &call->in[5];
  hy_tensor mask = h->causal == HY_CAUSAL_NONE ? none : triangle(task);
  const int64_t shape[4] = {h->batch, h->heads, h->queries, 8};
  hy_tensor most = hy__task_temporary(task, HY_F32, 4, shape), wide = *lse;
  wide.ndim = 4;
  wide.shape[3] = 1;
  wide.stride[3] = 0;
  hy__task_copy(task, &most, &wide);
  hy_tensor sum = hy__task_filled(task, HY_F32, 4, shape, 1), grads[3];
  for (int i = 0; i < 3; i++)
    grads[i] = hy__present(&call->out[i])
                   ? call->out[i]
                   : hy__task_temporary(task, call->in[1 + i].dtype, 4, call->in[1 + i].shape);
  ASCEND_RUN(task, FlashAttentionScoreGrad, ASCEND_IN(1), ASCEND_IN(2), ASCEND_IN(3), ASCEND_IN(0),
             ASCEND_T(&none), ASCEND_T(&none), ASCEND_T(&none), ASCEND_T(&mask), ASCEND_T(&most),
             ASCEND_T(&sum), ASCEND_T(&none), ASCEND_IN(4), NULL, h->scale, 1.0, ALL_TOKENS,
             ALL_TOKENS, h->heads, "BNSD", 0, sparse_mode(h->causal), ASCEND_T(&grads[0]),
             ASCEND_T(&grads[1]), ASCEND_T(&grads[2]), ASCEND_T(&none));
}

// ---- The ops ----

hy_support hy__ascend_sdpa(hy__task* task, const hy_call* call) {
  const hy_tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
  hy__heads h = hy__heads_of(call, q, k, v);
  TASK_NEED(ASCEND_CHIP(task)->fp32_products, NO_HARDWARE);
  bool alike = k->dtype == q->dtype && v->dtype == q->dtype && call->out[0].dtype == q->dtype;
  if (!alike || h.keys == 0 || !suits_flash(task, &h, q, &call->in[3]))
    return hy__composed_sdpa(task, call);
  flash_forward(task, call, &h);
  return task->answer;
}

static bool all_alike(const hy_call* call, hy_dtype dtype) {
  for (int i = 0; i < 5; i++)
    if (call->in[i].dtype != dtype) return false;
  for (int i = 0; i < 3; i++)
    if (call->out[i].dtype != HY_NONE && call->out[i].dtype != dtype) return false;
  return call->in[5].dtype == HY_F32;
}

hy_support hy__ascend_sdpa_backward(hy__task* task, const hy_call* call) {
  const hy_tensor* q = &call->in[1];
  hy__heads h = hy__heads_of(call, q, &call->in[2], &call->in[3]);
  TASK_NEED(ASCEND_CHIP(task)->fp32_products, NO_HARDWARE);
  if (!all_alike(call, q->dtype) || h.keys == 0 || !suits_flash(task, &h, q, &call->in[6]))
    return hy__composed_sdpa_backward(task, call);
  flash_backward(task, call, &h);
  return task->answer;
}
