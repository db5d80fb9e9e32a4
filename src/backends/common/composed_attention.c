// Attention composed of products and a softmax in f32, with its gradient; rotary embedding.
#include <math.h>
#include <string.h>

#include "backends/common/composed.h"

hy__heads hy__heads_of(const hy_call* call, const hy_tensor* q, const hy_tensor* k,
                       const hy_tensor* v) {
  int n = q->ndim;
  hy__heads h = {.batch = 1,
                 .heads = q->shape[n - 3],
                 .kv_heads = k->shape[n - 3],
                 .queries = q->shape[n - 2],
                 .keys = k->shape[n - 2],
                 .size = q->shape[n - 1],
                 .value_size = v->shape[n - 1],
                 .scale = call->attrs.attention.scale,
                 .causal = call->attrs.attention.causal};
  for (int d = 0; d < n - 3; d++) h.batch *= q->shape[d];
  if (h.scale == 0) h.scale = 1 / sqrt((double)h.size);
  return h;
}

bool hy__heads_may_be_blind(const hy__heads* h, const hy_tensor* mask) {
  return hy__present(mask) || (h->causal == HY_CAUSAL_BOTTOM_RIGHT && h->queries > h->keys);
}

// [..., n, rows, size] as f32 [batch * kv_heads, n / kv_heads * rows, size]: the heads that share
// keys stand one below the other.
static hy_tensor grouped(hy__task* task, const hy_tensor* t, const hy__heads* h) {
  int n = t->ndim;
  hy_tensor whole = hy__task_contiguous(task, t, HY_F32);
  const int64_t shape[3] = {h->batch * h->kv_heads, t->shape[n - 3] / h->kv_heads * t->shape[n - 2],
                            t->shape[n - 1]};
  return hy__view(&whole, 3, shape);
}

// Scores as [batch, heads, queries, keys], which is what [batch * kv_heads, ...] is in memory.
static hy_tensor by_head(const hy_tensor* scores, const hy__heads* h) {
  const int64_t shape[4] = {h->batch, h->heads, h->queries, h->keys};
  return hy__view(scores, 4, shape);
}

static hy_tensor scores_of(hy__task* task, const hy_tensor* q, const hy_tensor* k,
                           const hy_tensor* mask, const hy__heads* h) {
  hy_tensor keys = hy__transposed(k);
  hy_tensor flat = hy__task_bmm(task, q, &keys), scores = by_head(&flat, h);
  hy__task_scale(task, &scores, h->scale);
  if (mask->dtype == HY_BOOL) {
    hy_tensor hidden = hy__task_not(task, mask);
    hy__task_masked_fill(task, &scores, &hidden, -INFINITY);
  } else if (hy__present(mask)) {
    hy_tensor wide = hy__task_as(task, mask, HY_F32);
    hy__task_binary_to(task, HY_OP_add, &scores, &wide, &scores);
  }
  if (h->causal != HY_CAUSAL_NONE) {
    const int64_t shape[2] = {h->queries, h->keys};
    int64_t above = h->causal == HY_CAUSAL_TOP_LEFT ? 1 : h->keys - h->queries + 1;
    hy_tensor ones = hy__task_temporary(task, HY_BOOL, 2, shape);
    hy_tensor hidden = hy__task_temporary(task, HY_BOOL, 2, shape);
    hy__task_fill(task, &ones, hy_bool(true));
    hy__task_call(task, HY_OP_triu, 1, &ones, &hidden, (hy_attrs){.tri = {above}});
    hy__task_masked_fill(task, &scores, &hidden, -INFINITY);
  }
  return scores;
}

// The mask must broadcast over [batch, heads, queries, keys]: the leading dimensions are one there.
static bool mask_fits(const hy_tensor* mask, const hy_tensor* q) {
  if (!hy__present(mask)) return true;
  return (mask->dtype == HY_BOOL || hy__is_half_or_f32(mask)) && (q->ndim <= 4 || mask->ndim <= 3);
}

static void compose_forward(hy__task* task, const hy_call* call, const hy__heads* h) {
  const hy_tensor *mask = &call->in[3], *out = &call->out[0], *lse = &call->out[1];
  hy_tensor q = grouped(task, &call->in[0], h), k = grouped(task, &call->in[1], h),
            v = grouped(task, &call->in[2], h);
  hy_tensor scores = scores_of(task, &q, &k, mask, h);
  bool blind = hy__heads_may_be_blind(h, mask), wants_lse = hy__present(lse);
  hy_tensor most = hy_tensor_absent(), sees_nothing = hy_tensor_absent();
  if (blind || wants_lse) most = hy__task_row_max(task, &scores);
  if (blind) sees_nothing = hy__task_compare_to(task, HY_OP_eq_scalar, &most, -INFINITY);
  hy_tensor p = hy__task_softmax(task, HY_OP_softmax, &scores);
  if (blind) hy__task_masked_fill(task, &p, &sees_nothing, 0);
  if (wants_lse) {
    hy_tensor below = hy__task_binary(task, HY_OP_sub, &scores, &most);
    hy__task_unary(task, HY_OP_exp, &below, &below);
    hy_tensor sum = hy__task_row_sum(task, &below);
    hy__task_unary(task, HY_OP_log, &sum, &sum);
    hy_tensor total = hy__task_binary(task, HY_OP_add, &sum, &most);
    if (blind) hy__task_masked_fill(task, &total, &sees_nothing, -INFINITY);
    total = hy__view(&total, lse->ndim, lse->shape);
    hy__task_copy(task, lse, &total);
  }
  p = hy__view(&p, 3, (const int64_t[]){q.shape[0], q.shape[1], h->keys});
  hy_tensor result = hy__task_bmm(task, &p, &v);
  result = hy__view(&result, out->ndim, out->shape);
  hy__task_copy(task, out, &result);
}

hy_support hy__composed_sdpa(hy__task* task, const hy_call* call) {
  const hy_tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
  hy__heads h = hy__heads_of(call, q, k, v);
  TASK_NEED(hy__is_half_or_f32(q) && k->dtype == q->dtype && v->dtype == q->dtype, NO_DTYPE);
  TASK_NEED(call->out[0].dtype == q->dtype, NO_DTYPE);
  TASK_NEED(mask_fits(&call->in[3], q) && h.keys > 0, NO_SHAPE);
  compose_forward(task, call, &h);
  return task->answer;
}

static void give(hy__task* task, const hy_tensor* out, const hy_tensor* grad) {
  hy_tensor shaped = hy__view(grad, out->ndim, out->shape);
  hy__task_copy(task, out, &shaped);
}

// p = exp(score - lse); dv = p' dout; ds = p (dout v' - sum(dout out)); dq = ds k; dk = ds' q.
static void compose_backward(hy__task* task, const hy_call* call, const hy__heads* h) {
  hy_tensor dout = grouped(task, &call->in[0], h), q = grouped(task, &call->in[1], h),
            k = grouped(task, &call->in[2], h), v = grouped(task, &call->in[3], h),
            out = grouped(task, &call->in[4], h);
  hy_tensor scores = scores_of(task, &q, &k, &call->in[6], h);
  hy_tensor lse = hy__task_contiguous(task, &call->in[5], HY_F32);
  lse = hy__view(&lse, 4, (const int64_t[]){h->batch, h->heads, h->queries, 1});
  hy_tensor p = hy__task_binary(task, HY_OP_sub, &scores, &lse);
  hy__task_unary(task, HY_OP_exp, &p, &p);
  hy_tensor sees_nothing = hy__task_compare_to(task, HY_OP_eq_scalar, &lse, -INFINITY);
  hy__task_masked_fill(task, &p, &sees_nothing, 0);
  p = hy__view(&p, 3, (const int64_t[]){q.shape[0], q.shape[1], h->keys});
  hy_tensor p_t = hy__transposed(&p), v_t = hy__transposed(&v);
  if (hy__present(&call->out[2])) {
    hy_tensor dv = hy__task_bmm(task, &p_t, &dout);
    give(task, &call->out[2], &dv);
  }
  hy_tensor each = hy__task_binary(task, HY_OP_mul, &dout, &out);
  hy_tensor delta = hy__task_row_sum(task, &each);
  hy_tensor ds = hy__task_bmm(task, &dout, &v_t);
  ds = hy__task_binary(task, HY_OP_sub, &ds, &delta);
  ds = hy__task_binary(task, HY_OP_mul, &ds, &p);
  hy__task_scale(task, &ds, h->scale);
  if (hy__present(&call->out[0])) {
    hy_tensor dq = hy__task_bmm(task, &ds, &k);
    give(task, &call->out[0], &dq);
  }
  if (hy__present(&call->out[1])) {
    hy_tensor ds_t = hy__transposed(&ds), dk = hy__task_bmm(task, &ds_t, &q);
    give(task, &call->out[1], &dk);
  }
}

hy_support hy__composed_sdpa_backward(hy__task* task, const hy_call* call) {
  const hy_tensor* q = &call->in[1];
  hy__heads h = hy__heads_of(call, q, &call->in[2], &call->in[3]);
  for (int i = 0; i < 5; i++) TASK_NEED(call->in[i].dtype == q->dtype, NO_DTYPE);
  for (int i = 0; i < 3; i++)
    TASK_NEED(call->out[i].dtype == HY_NONE || call->out[i].dtype == q->dtype, NO_DTYPE);
  TASK_NEED(hy__is_half_or_f32(q) && call->in[5].dtype == HY_F32, NO_DTYPE);
  TASK_NEED(mask_fits(&call->in[6], q) && h.keys > 0 && h.queries > 0, NO_SHAPE);
  compose_backward(task, call, &h);
  return task->answer;
}

// ---- Rotary embedding ----

// x1 cos - x2 sin and x2 cos + x1 sin, in f32.
hy_support hy__composed_rope(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  int last = x->ndim - 1;
  int64_t half = x->shape[last] / 2;
  for (int i = 0; i < 3; i++) TASK_NEED(hy__is_half_or_f32(&call->in[i]), NO_DTYPE);
  TASK_NEED(out->dtype == x->dtype, NO_DTYPE);
  double sign = call->attrs.rope.inverse ? -1 : 1;
  hy_tensor wide = hy__task_contiguous(task, x, HY_F32);
  hy_tensor cos = hy__task_as(task, &call->in[1], HY_F32);
  hy_tensor sin = hy__task_as(task, &call->in[2], HY_F32);
  hy_tensor turned = hy__task_temporary(task, HY_F32, x->ndim, x->shape);
  hy_tensor from[2], to[2];
  for (int i = 0; i < 2; i++) {
    int64_t start = call->attrs.rope.interleaved ? i : i * half;
    from[i] = hy__slice(&wide, last, start, half);
    to[i] = hy__slice(&turned, last, start, half);
    if (call->attrs.rope.interleaved) from[i].stride[last] = to[i].stride[last] = 2;
  }
  for (int i = 0; i < 2; i++) {
    const hy_tensor in[] = {to[i], from[1 - i], sin};
    hy__task_binary_to(task, HY_OP_mul, &from[i], &cos, &to[i]);
    hy__task_call(task, HY_OP_addcmul, 3, in, &to[i],
                  (hy_attrs){.value = {hy_float(i == 0 ? -sign : sign)}});
  }
  hy__task_copy(task, out, &turned);
  return task->answer;
}
