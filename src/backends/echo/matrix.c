// Matrix products and attention, on the matrix engine.
#include <math.h>

#include "backends/echo/packets.h"

// The types of a product: f32 and bf16 in any mixture, or i8 into i32.
static hy_support load(hy__echo_batch* batch, const hy_call* call, int first, hy__echo_operand* out,
                       hy__echo_operand* a, hy__echo_operand* b) {
  if (call->op == HY_OP_int_mm && call->out[0].dtype == HY_I32) {
    HY__ECHO_NEED(hy__echo_number(batch, &call->out[0], out));
    HY__ECHO_NEED(hy__echo_number(batch, &call->in[first], a));
    return hy__echo_number(batch, &call->in[first + 1], b);
  }
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[first], a));
  return hy__echo_float(batch, &call->in[first + 1], b);
}

// mm, bmm, int_mm
hy_support hy__echo_product(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, a, b;
  HY__ECHO_NEED(load(batch, call, 0, &out, &a, &b));
  if (hy__echo_numel(&out) == 0) return HY_SUPPORT_YES;
  if (a.shape[a.ndim - 1] == 0) return hy__echo_fill(batch, &out, 0);
  return hy__echo_matmul(batch, false, &out, &a, &b);
}

// beta * x + alpha * a b. The product is added to beta * x in place, in f32; alpha goes into a
// copy of a.
hy_support hy__echo_addmm(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, a, b, x;
  float beta = (float)hy_scalar_f(call->attrs.addmm.beta);
  float alpha = (float)hy_scalar_f(call->attrs.addmm.alpha);
  HY__ECHO_NEED(load(batch, call, 1, &out, &a, &b));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &x));
  if (hy__echo_numel(&out) == 0) return HY_SUPPORT_YES;
  // Nothing to scale: the product goes on top of x, rounded once, in place where out is x.
  if (alpha == 1 && beta == 1 && hy__echo_numel(&a) > 0 && x.type == out.type &&
      x.ndim == out.ndim) {
    bool in_place = call->out[0].data == call->in[0].data;
    if (!in_place) HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_MOVE, 0, 0, &out, &x, NULL));
    return hy__echo_matmul(batch, true, &out, &a, &b);
  }
  hy__echo_operand sum = out;
  if (out.type != ECHO_NPU_F32) sum = hy__echo_temporary(batch, ECHO_NPU_F32, out.ndim, out.shape);
  bool product = hy__echo_numel(&a) > 0;
  if (beta == 0)
    HY__ECHO_NEED(hy__echo_fill(batch, &sum, 0));
  else
    HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_SCALE, beta, -0.0f, &sum, &x, NULL));
  if (product) {
    if (alpha != 1) {
      hy__echo_operand scaled = hy__echo_temporary(batch, ECHO_NPU_F32, 2, a.shape);
      HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_SCALE, alpha, -0.0f, &scaled, &a, NULL));
      a = scaled;
    }
    HY__ECHO_NEED(hy__echo_matmul(batch, true, &sum, &a, &b));
  }
  if (out.type == ECHO_NPU_F32) return HY_SUPPORT_YES;
  return hy__echo_map(batch, ECHO_NPU_FN_MOVE, 0, 0, &out, &sum, NULL);
}

static void transpose_last(hy__echo_operand* t) {
  int d = t->ndim - 2;
  int64_t shape = t->shape[d], stride = t->stride[d];
  t->shape[d] = t->shape[d + 1];
  t->stride[d] = t->stride[d + 1];
  t->shape[d + 1] = shape;
  t->stride[d + 1] = stride;
}

// Joins the dimensions before the last into one where all their strides allow it: one command then
// has all rows.
static void join_rows(hy__echo_operand* a, hy__echo_operand* c) {
  while (a->ndim > 2) {
    int d = a->ndim - 3;
    hy__echo_operand* both[2] = {a, c};
    for (int k = 0; k < 2; k++) {
      const hy__echo_operand* t = both[k];
      bool joins = t->shape[d] == 1 || t->shape[d + 1] == 1 ||
                   t->stride[d] == t->stride[d + 1] * t->shape[d + 1];
      if (!joins) return;
    }
    for (int k = 0; k < 2; k++) {
      hy__echo_operand* t = both[k];
      if (t->shape[d + 1] == 1) t->stride[d + 1] = t->stride[d];
      t->shape[d] *= t->shape[d + 1];
      t->stride[d] = t->stride[d + 1];
      t->shape[d + 1] = t->shape[d + 2];
      t->stride[d + 1] = t->stride[d + 2];
      t->ndim--;
    }
  }
}

// x [..., K] by weight [N, K], on top of the bias.
hy_support hy__echo_linear(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x, weight, bias;
  HY__ECHO_NEED(load(batch, call, 0, &out, &x, &weight));
  bool has_bias = !hy_tensor_is_absent(&call->in[2]);
  if (has_bias) {
    HY__ECHO_NEED(hy__echo_float(batch, &call->in[2], &bias));
    if (hy__echo_numel(&out) > 0)
      HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_MOVE, 0, 0, &out, &bias, NULL));
  }
  if (hy__echo_numel(&out) == 0) return HY_SUPPORT_YES;
  if (hy__echo_numel(&x) == 0) return has_bias ? HY_SUPPORT_YES : hy__echo_fill(batch, &out, 0);
  if (x.ndim == 1) {
    x = hy__echo_expand(&x, 2, (int64_t[]){1, x.shape[0]});
    out = hy__echo_expand(&out, 2, (int64_t[]){1, out.shape[0]});
  }
  join_rows(&x, &out);
  if (x.shape[x.ndim - 2] > ECHO_NPU_MAX_DIM) return HY_SUPPORT_NO_SHAPE;
  transpose_last(&weight);
  int64_t shape[HY_MAX_DIMS + 1];
  for (int d = 0; d < x.ndim - 2; d++) shape[d] = x.shape[d];
  shape[x.ndim - 2] = weight.shape[0];
  shape[x.ndim - 1] = weight.shape[1];
  weight = hy__echo_expand(&weight, x.ndim, shape);
  return hy__echo_matmul(batch, has_bias, &out, &x, &weight);
}

// ---- Attention ----

// [..., H, rows, cols] as [..., Hkv, group, rows, cols]; what has one head per group repeats it.
static hy__echo_operand by_group(const hy__echo_operand* t, int64_t kv_heads, int64_t group) {
  hy__echo_operand g = *t;
  int head = t->ndim - 3;
  bool shared = t->shape[head] == kv_heads && group > 1;
  g.ndim++;
  for (int d = g.ndim - 1; d > head + 1; d--) {
    g.shape[d] = t->shape[d - 1];
    g.stride[d] = t->stride[d - 1];
  }
  g.shape[head] = kv_heads;
  g.shape[head + 1] = group;
  g.stride[head] = shared ? t->stride[head] : t->stride[head] * group;
  g.stride[head + 1] = shared ? 0 : t->stride[head];
  return g;
}

// Scores of all heads are in memory at once: T * S for each.
hy_support hy__echo_attend(hy__echo_batch* batch, double scale, hy_causal causal,
                           const hy__echo_operand* out_heads, const hy__echo_operand* q_heads,
                           const hy__echo_operand* k_heads, const hy__echo_operand* v_heads) {
  int head = q_heads->ndim - 3;
  int64_t queries = q_heads->shape[head + 1], keys = k_heads->shape[head + 1];
  int64_t size = q_heads->shape[head + 2], kv_heads = k_heads->shape[head];
  if (hy__echo_numel(out_heads) == 0) return HY_SUPPORT_YES;
  if (keys == 0 || size == 0 || (causal == HY_CAUSAL_BOTTOM_RIGHT && queries > keys))
    return HY_SUPPORT_NO_SHAPE;
  int64_t group = q_heads->shape[head] / kv_heads;
  if (scale == 0) scale = 1 / sqrt((double)size);
  hy__echo_operand q = by_group(q_heads, kv_heads, group), k = by_group(k_heads, kv_heads, group);
  hy__echo_operand v = by_group(v_heads, kv_heads, group);
  hy__echo_operand out = by_group(out_heads, kv_heads, group);
  transpose_last(&k);
  // The one query of each head: the heads of a group are rows of one product, and read their keys
  // and values once.
  if (queries == 1 && causal != HY_CAUSAL_TOP_LEFT) {
    causal = HY_CAUSAL_NONE;
    q = hy__echo_select(&q, head + 2, 0);
    out = hy__echo_select(&out, head + 2, 0);
    k = hy__echo_select(&k, head + 1, 0);
    v = hy__echo_select(&v, head + 1, 0);
  }
  int64_t shape[HY_MAX_DIMS + 1];
  for (int d = 0; d < q.ndim - 1; d++) shape[d] = q.shape[d];
  shape[q.ndim - 1] = keys;
  hy__echo_operand scores = hy__echo_temporary(batch, ECHO_NPU_F32, q.ndim, shape);
  hy__echo_row_function softmax = {
      .function = ECHO_NPU_FN_SOFTMAX,
      .flags = causal == HY_CAUSAL_NONE ? 0 : ECHO_NPU_FLAG_CAUSAL,
      .alpha = (float)scale,
      .causal = causal == HY_CAUSAL_TOP_LEFT ? 1 : (uint32_t)(keys - queries + 1)};
  HY__ECHO_NEED(hy__echo_matmul(batch, false, &scores, &q, &k));
  HY__ECHO_NEED(hy__echo_rows(batch, &softmax, &scores, &scores, NULL));
  return hy__echo_matmul(batch, false, &out, &scores, &v);
}

// Masks are left to the fallback, which gives 0 where a query sees no key; so are the logarithms
// that only a backward needs.
hy_support hy__echo_sdpa(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, q, k, v;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &q));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[1], &k));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[2], &v));
  if (!hy_tensor_is_absent(&call->in[3]) || !hy_tensor_is_absent(&call->out[1]))
    return HY_SUPPORT_NO_ATTRIBUTE;
  if (q.ndim < 3 || q.ndim == HY_MAX_DIMS || k.ndim != q.ndim || v.ndim != q.ndim)
    return HY_SUPPORT_NO_SHAPE;
  for (int d = 0; d < q.ndim - 3; d++)
    if (k.shape[d] != q.shape[d] || v.shape[d] != q.shape[d]) return HY_SUPPORT_NO_SHAPE;
  return hy__echo_attend(batch, call->attrs.attention.scale, call->attrs.attention.causal, &out, &q,
                         &k, &v);
}
