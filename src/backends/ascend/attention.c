// Attention of the ascend backend: FlashAttentionScore and its gradient where the vendor's rules
// allow, and otherwise products and a softmax in f32, which allow everything. Rotary embedding.
#include <math.h>
#include <string.h>

#include "backends/ascend/ascend.h"

enum { KEEP_DTYPE = 0 };

static bool is_float(const hy_tensor* t) {
  return t->dtype == HY_F32 || t->dtype == HY_F16 || t->dtype == HY_BF16;
}

typedef struct heads {
  int64_t batch, heads, kv_heads, queries, keys, size, value_size;
  double scale;
  hy_causal causal;
} heads;

static heads describe(const hy_call* call, const hy_tensor* q, const hy_tensor* k,
                      const hy_tensor* v) {
  int n = q->ndim;
  heads h = {.batch = 1,
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

// Whether a query may see no key at all.
static bool may_be_blind(const heads* h, const hy_tensor* mask) {
  return hy__ascend_present(mask) || (h->causal == HY_CAUSAL_BOTTOM_RIGHT && h->queries > h->keys);
}

// ---- FlashAttentionScore ----

// The vendor's rules, and no mask of the caller's: theirs is the other way round, and a query that
// sees nothing is not as the op says.
static bool suits_flash(const hy__ascend_task* task, const heads* h, const hy_tensor* q,
                        const hy_tensor* mask) {
  return task->device->chip->flash_attention && q->ndim == 4 &&
         (q->dtype == HY_F16 || q->dtype == HY_BF16) && !may_be_blind(h, mask) &&
         h->size == h->value_size && h->size % 16 == 0 && h->size <= 256 && h->queries > 0;
}

// The compressed causal mask: true, which hides, above the diagonal.
static hy_tensor triangle(hy__ascend_task* task) {
  const int64_t shape[2] = {2048, 2048};
  hy_tensor ones = hy__ascend_temporary(task, HY_BOOL, 2, shape);
  hy__ascend_fill(task, &ones, hy_bool(true));
  hy_tensor mask = hy__ascend_temporary(task, HY_BOOL, 2, shape);
  ASCEND_RUN(task, Triu, ASCEND_T(&ones), 1, ASCEND_T(&mask));
  return mask;
}

static int sparse_mode(hy_causal causal) {
  return causal == HY_CAUSAL_NONE ? 0 : causal == HY_CAUSAL_TOP_LEFT ? 2 : 3;
}

#define ALL_TOKENS 2147483647

static void flash_forward(hy__ascend_task* task, const hy_call* call, const heads* h) {
  const hy_tensor none = hy_tensor_absent(), *lse = &call->out[1];
  hy_tensor mask = h->causal == HY_CAUSAL_NONE ? none : triangle(task);
  const int64_t shape[4] = {h->batch, h->heads, h->queries, 8};
  hy_tensor most = hy__ascend_temporary(task, HY_F32, 4, shape);
  hy_tensor sum = hy__ascend_temporary(task, HY_F32, 4, shape);
  ASCEND_RUN(task, FlashAttentionScore, ASCEND_IN(0), ASCEND_IN(1), ASCEND_IN(2), ASCEND_T(&none),
             ASCEND_T(&none), ASCEND_T(&none), ASCEND_T(&mask), NULL, h->scale, 1.0, ALL_TOKENS,
             ALL_TOKENS, h->heads, "BNSD", 0, sparse_mode(h->causal), ASCEND_T(&most),
             ASCEND_T(&sum), ASCEND_T(&none), ASCEND_OUT(0));
  if (!hy__ascend_present(lse)) return;
  hy_tensor a = hy__ascend_slice(&most, 3, 0, 1), b = hy__ascend_slice(&sum, 3, 0, 1);
  hy_tensor log = hy__ascend_temporary(task, HY_F32, 4, a.shape);
  ASCEND_RUN(task, Log, ASCEND_T(&b), ASCEND_T(&log));
  hy_tensor total = hy__ascend_binary(task, ASCEND_ADD, &log, &a);
  total = hy__ascend_view(&total, 3, total.shape);
  hy__ascend_copy(task, lse, &total);
}

// p = exp(score - max) / sum holds with lse for the largest score and 1 for the sum.
static void flash_backward(hy__ascend_task* task, const hy_call* call, const heads* h) {
  const hy_tensor none = hy_tensor_absent(), *lse = &call->in[5];
  hy_tensor mask = h->causal == HY_CAUSAL_NONE ? none : triangle(task);
  const int64_t shape[4] = {h->batch, h->heads, h->queries, 8};
  hy_tensor most = hy__ascend_temporary(task, HY_F32, 4, shape), wide = *lse;
  wide.ndim = 4;
  wide.shape[3] = 1;
  wide.stride[3] = 0;
  hy__ascend_copy(task, &most, &wide);
  hy_tensor sum = hy__ascend_filled(task, HY_F32, 4, shape, 1), grads[3];
  for (int i = 0; i < 3; i++)
    grads[i] = hy__ascend_present(&call->out[i])
                   ? call->out[i]
                   : hy__ascend_temporary(task, call->in[1 + i].dtype, 4, call->in[1 + i].shape);
  ASCEND_RUN(task, FlashAttentionScoreGrad, ASCEND_IN(1), ASCEND_IN(2), ASCEND_IN(3), ASCEND_IN(0),
             ASCEND_T(&none), ASCEND_T(&none), ASCEND_T(&none), ASCEND_T(&mask), ASCEND_T(&most),
             ASCEND_T(&sum), ASCEND_T(&none), ASCEND_IN(4), NULL, h->scale, 1.0, ALL_TOKENS,
             ALL_TOKENS, h->heads, "BNSD", 0, sparse_mode(h->causal), ASCEND_T(&grads[0]),
             ASCEND_T(&grads[1]), ASCEND_T(&grads[2]), ASCEND_T(&none));
}

// ---- By products ----

// [..., n, rows, size] as f32 [batch * kv_heads, n / kv_heads * rows, size]: the heads that share
// keys stand one below the other.
static hy_tensor grouped(hy__ascend_task* task, const hy_tensor* t, const heads* h) {
  int n = t->ndim;
  hy_tensor whole = hy__ascend_contiguous(task, t, HY_F32);
  const int64_t shape[3] = {h->batch * h->kv_heads, t->shape[n - 3] / h->kv_heads * t->shape[n - 2],
                            t->shape[n - 1]};
  return hy__ascend_view(&whole, 3, shape);
}

static hy_tensor product(hy__ascend_task* task, const hy_tensor* a, const hy_tensor* b) {
  hy_tensor out = hy__ascend_temporary(task, HY_F32, 3,
                                       (const int64_t[]){a->shape[0], a->shape[1], b->shape[2]});
  ASCEND_RUN(task, BatchMatMul, ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out), KEEP_DTYPE);
  return out;
}

// Scores as [batch, heads, queries, keys], which is what [batch * kv_heads, ...] is in memory.
static hy_tensor by_head(const hy_tensor* scores, const heads* h) {
  const int64_t shape[4] = {h->batch, h->heads, h->queries, h->keys};
  return hy__ascend_view(scores, 4, shape);
}

static hy_tensor scores_of(hy__ascend_task* task, const hy_tensor* q, const hy_tensor* k,
                           const hy_tensor* mask, const heads* h) {
  hy_tensor keys = hy__ascend_transposed(k);
  hy_tensor flat = product(task, q, &keys), scores = by_head(&flat, h);
  hy__ascend_scale(task, &scores, h->scale);
  if (mask->dtype == HY_BOOL) {
    hy_tensor hidden = hy__ascend_not(task, mask);
    hy__ascend_masked_fill(task, &scores, &hidden, -INFINITY);
  } else if (hy__ascend_present(mask)) {
    hy_tensor wide = hy__ascend_as(task, mask, HY_F32);
    ASCEND_RUN(task, Add, ASCEND_T(&scores), ASCEND_T(&wide), ASCEND_I(1), ASCEND_T(&scores));
  }
  if (h->causal != HY_CAUSAL_NONE) {
    const int64_t shape[2] = {h->queries, h->keys};
    int64_t above = h->causal == HY_CAUSAL_TOP_LEFT ? 1 : h->keys - h->queries + 1;
    hy_tensor ones = hy__ascend_temporary(task, HY_BOOL, 2, shape);
    hy_tensor hidden = hy__ascend_temporary(task, HY_BOOL, 2, shape);
    hy__ascend_fill(task, &ones, hy_bool(true));
    ASCEND_RUN(task, Triu, ASCEND_T(&ones), above, ASCEND_T(&hidden));
    hy__ascend_masked_fill(task, &scores, &hidden, -INFINITY);
  }
  return scores;
}

// The mask must broadcast over [batch, heads, queries, keys]: the leading dimensions are one there.
static bool mask_fits(const hy_tensor* mask, const hy_tensor* q) {
  if (!hy__ascend_present(mask)) return true;
  return (mask->dtype == HY_BOOL || is_float(mask)) && (q->ndim <= 4 || mask->ndim <= 3);
}

static void compose_forward(hy__ascend_task* task, const hy_call* call, const heads* h) {
  const hy_tensor *mask = &call->in[3], *out = &call->out[0], *lse = &call->out[1];
  hy_tensor q = grouped(task, &call->in[0], h), k = grouped(task, &call->in[1], h),
            v = grouped(task, &call->in[2], h);
  hy_tensor scores = scores_of(task, &q, &k, mask, h);
  hy_tensor p = hy__ascend_temporary(task, HY_F32, 4, scores.shape);
  bool blind = may_be_blind(h, mask), wants_lse = hy__ascend_present(lse);
  hy_tensor most = hy_tensor_absent(), sees_nothing = hy_tensor_absent();
  if (blind || wants_lse) most = hy__ascend_row_max(task, &scores);
  if (blind) sees_nothing = hy__ascend_compare_to(task, ASCEND_EQ, &most, -INFINITY);
  ASCEND_RUN(task, Softmax, ASCEND_T(&scores), 3, ASCEND_T(&p));
  if (blind) hy__ascend_masked_fill(task, &p, &sees_nothing, 0);
  if (wants_lse) {
    hy_tensor below = hy__ascend_binary(task, ASCEND_SUB, &scores, &most);
    ASCEND_RUN(task, Exp, ASCEND_T(&below), ASCEND_T(&below));
    hy_tensor sum = hy__ascend_row_sum(task, &below);
    ASCEND_RUN(task, Log, ASCEND_T(&sum), ASCEND_T(&sum));
    hy_tensor total = hy__ascend_binary(task, ASCEND_ADD, &sum, &most);
    if (blind) hy__ascend_masked_fill(task, &total, &sees_nothing, -INFINITY);
    total = hy__ascend_view(&total, lse->ndim, lse->shape);
    hy__ascend_copy(task, lse, &total);
  }
  p = hy__ascend_view(&p, 3, (const int64_t[]){q.shape[0], q.shape[1], h->keys});
  hy_tensor result = product(task, &p, &v);
  result = hy__ascend_view(&result, out->ndim, out->shape);
  hy__ascend_copy(task, out, &result);
}

hy_support hy__ascend_sdpa(hy__ascend_task* task, const hy_call* call) {
  const hy_tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
  heads h = describe(call, q, k, v);
  ASCEND_NEED(is_float(q) && k->dtype == q->dtype && v->dtype == q->dtype, NO_DTYPE);
  ASCEND_NEED(call->out[0].dtype == q->dtype, NO_DTYPE);
  ASCEND_NEED(mask_fits(&call->in[3], q) && h.keys > 0, NO_SHAPE);
  ASCEND_NEED(task->device->chip->fp32_products, NO_HARDWARE);
  if (suits_flash(task, &h, q, &call->in[3]))
    flash_forward(task, call, &h);
  else
    compose_forward(task, call, &h);
  return task->answer;
}

static void give(hy__ascend_task* task, const hy_tensor* out, const hy_tensor* grad) {
  hy_tensor shaped = hy__ascend_view(grad, out->ndim, out->shape);
  hy__ascend_copy(task, out, &shaped);
}

// p = exp(score - lse); dv = p' dout; ds = p (dout v' - sum(dout out)); dq = ds k; dk = ds' q.
static void compose_backward(hy__ascend_task* task, const hy_call* call, const heads* h) {
  hy_tensor dout = grouped(task, &call->in[0], h), q = grouped(task, &call->in[1], h),
            k = grouped(task, &call->in[2], h), v = grouped(task, &call->in[3], h),
            out = grouped(task, &call->in[4], h);
  hy_tensor scores = scores_of(task, &q, &k, &call->in[6], h);
  hy_tensor lse = hy__ascend_contiguous(task, &call->in[5], HY_F32);
  lse = hy__ascend_view(&lse, 4, (const int64_t[]){h->batch, h->heads, h->queries, 1});
  hy_tensor p = hy__ascend_binary(task, ASCEND_SUB, &scores, &lse);
  ASCEND_RUN(task, Exp, ASCEND_T(&p), ASCEND_T(&p));
  hy_tensor sees_nothing = hy__ascend_compare_to(task, ASCEND_EQ, &lse, -INFINITY);
  hy__ascend_masked_fill(task, &p, &sees_nothing, 0);
  p = hy__ascend_view(&p, 3, (const int64_t[]){q.shape[0], q.shape[1], h->keys});
  hy_tensor p_t = hy__ascend_transposed(&p), v_t = hy__ascend_transposed(&v);
  if (hy__ascend_present(&call->out[2])) {
    hy_tensor dv = product(task, &p_t, &dout);
    give(task, &call->out[2], &dv);
  }
  hy_tensor each = hy__ascend_binary(task, ASCEND_MUL, &dout, &out);
  hy_tensor delta = hy__ascend_row_sum(task, &each);
  hy_tensor ds = product(task, &dout, &v_t);
  ds = hy__ascend_binary(task, ASCEND_SUB, &ds, &delta);
  ds = hy__ascend_binary(task, ASCEND_MUL, &ds, &p);
  hy__ascend_scale(task, &ds, h->scale);
  if (hy__ascend_present(&call->out[0])) {
    hy_tensor dq = product(task, &ds, &k);
    give(task, &call->out[0], &dq);
  }
  if (hy__ascend_present(&call->out[1])) {
    hy_tensor ds_t = hy__ascend_transposed(&ds), dk = product(task, &ds_t, &q);
    give(task, &call->out[1], &dk);
  }
}

hy_support hy__ascend_sdpa_backward(hy__ascend_task* task, const hy_call* call) {
  const hy_tensor* q = &call->in[1];
  heads h = describe(call, q, &call->in[2], &call->in[3]);
  for (int i = 0; i < 5; i++) ASCEND_NEED(call->in[i].dtype == q->dtype, NO_DTYPE);
  for (int i = 0; i < 3; i++)
    ASCEND_NEED(call->out[i].dtype == HY_NONE || call->out[i].dtype == q->dtype, NO_DTYPE);
  ASCEND_NEED(is_float(q) && call->in[5].dtype == HY_F32, NO_DTYPE);
  ASCEND_NEED(mask_fits(&call->in[6], q) && h.keys > 0 && h.queries > 0, NO_SHAPE);
  ASCEND_NEED(task->device->chip->fp32_products, NO_HARDWARE);
  if (suits_flash(task, &h, q, &call->in[6]))
    flash_backward(task, call, &h);
  else
    compose_backward(task, call, &h);
  return task->answer;
}

// ---- Rotary embedding ----

// x1 cos - x2 sin and x2 cos + x1 sin, in f32.
hy_support hy__ascend_rope(hy__ascend_task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  int last = x->ndim - 1;
  int64_t half = x->shape[last] / 2;
  for (int i = 0; i < 3; i++) ASCEND_NEED(is_float(&call->in[i]), NO_DTYPE);
  ASCEND_NEED(out->dtype == x->dtype, NO_DTYPE);
  double sign = call->attrs.rope.inverse ? -1 : 1;
  hy_tensor wide = hy__ascend_contiguous(task, x, HY_F32);
  hy_tensor cos = hy__ascend_as(task, &call->in[1], HY_F32);
  hy_tensor sin = hy__ascend_as(task, &call->in[2], HY_F32);
  hy_tensor turned = hy__ascend_temporary(task, HY_F32, x->ndim, x->shape);
  hy_tensor from[2], to[2];
  for (int i = 0; i < 2; i++) {
    int64_t start = call->attrs.rope.interleaved ? i : i * half;
    from[i] = hy__ascend_slice(&wide, last, start, half);
    to[i] = hy__ascend_slice(&turned, last, start, half);
    if (call->attrs.rope.interleaved) from[i].stride[last] = to[i].stride[last] = 2;
  }
  for (int i = 0; i < 2; i++) {
    ASCEND_RUN(task, Mul, ASCEND_T(&from[i]), ASCEND_T(&cos), ASCEND_T(&to[i]));
    ASCEND_RUN(task, Addcmul, ASCEND_T(&to[i]), ASCEND_T(&from[1 - i]), ASCEND_T(&sin),
               ASCEND_F(i == 0 ? -sign : sign), ASCEND_T(&to[i]));
  }
  hy__ascend_copy(task, out, &turned);
  return task->answer;
}
