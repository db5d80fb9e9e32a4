// Shapes and types of attention and rotary positions.
#include "ops/rules/common.h"

// ---- scaled dot product attention ----

static hy_status check_causal(const hy_call* call) {
  hy_causal causal = call->attrs.attention.causal;
  if (causal >= HY_CAUSAL_NONE && causal <= HY_CAUSAL_BOTTOM_RIGHT) return HY_OK;
  return hy__call_fail(call, HY_INVALID_ARGUMENT, "%d is no kind of causal mask", (int)causal);
}

hy_status hy__dtype_attention(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__need_alike(call, 0, 3));
  HY_TRY(hy__check_dtypes_among(call, 3, 4, HY_FLOATS | HY_BOOLS));
  HY_TRY(check_causal(call));
  out[0].dtype = call->in[0].dtype;
  out[1].dtype = call->in[0].dtype == HY_F64 ? HY_F64 : HY_F32;
  return HY_OK;
}

hy_status hy__dtype_attention_backward(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__need_alike(call, 0, 5));
  uint32_t lse = call->in[0].dtype == HY_F64 ? HY_DTYPE_BIT(HY_F64) : HY_DTYPE_BIT(HY_F32);
  HY_TRY(hy__check_dtypes_among(call, 5, 6, lse));
  HY_TRY(hy__check_dtypes_among(call, 6, 7, HY_FLOATS | HY_BOOLS));
  HY_TRY(check_causal(call));
  for (int i = 0; i < 3; i++) out[i].dtype = call->in[0].dtype;
  return HY_OK;
}

// q [..., H, T, D], k [..., Hkv, S, D], v [..., Hkv, S, Dv] from input q_at on, and the mask.
static hy_status check_attention(const hy_call* call, int q_at, int mask_at) {
  const hy_tensor *q = &call->in[q_at], *k = q + 1, *v = q + 2;
  int n = q->ndim;
  if (n < 3)
    return hy__call_fail(call, HY_SHAPE,
                         "q needs at least 3 dimensions: [..., heads, queries, size]");
  HY_TRY(hy__need_ndim(call, q_at + 1, n));
  HY_TRY(hy__need_ndim(call, q_at + 2, n));
  for (int d = 0; d < n; d++) {
    bool fits = d == n - 1 || k->shape[d] == v->shape[d];
    if (d < n - 3) fits = fits && q->shape[d] == k->shape[d];
    if (!fits)
      return hy__call_fail(call, HY_SHAPE, "q, k and v do not fit together in dimension %d", d);
  }
  if (k->shape[n - 1] != q->shape[n - 1])
    return hy__call_fail(call, HY_SHAPE, "the head sizes of q and k are %lld and %lld",
                         (long long)q->shape[n - 1], (long long)k->shape[n - 1]);
  int64_t heads = q->shape[n - 3], kv_heads = k->shape[n - 3];
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0)
    return hy__call_fail(call, HY_SHAPE, "%lld query heads are no multiple of %lld key heads",
                         (long long)heads, (long long)kv_heads);
  int64_t scores[HY_MAX_DIMS];
  for (int d = 0; d < n - 1; d++) scores[d] = q->shape[d];
  scores[n - 1] = k->shape[n - 2];
  return hy__need_broadcast(call, mask_at, n, scores);
}

hy_status hy__shape_attention(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_attention(call, 0, 3));
  const hy_tensor *q = &call->in[0], *v = &call->in[2];
  hy__copy_shape(&out[0], q);
  out[0].shape[q->ndim - 1] = v->shape[q->ndim - 1];
  hy__copy_shape(&out[1], q);
  out[1].ndim = q->ndim - 1;
  return HY_OK;
}

hy_status hy__shape_attention_backward(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_attention(call, 1, 6));
  const hy_tensor *q = &call->in[1], *v = &call->in[3];
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < q->ndim - 1; d++) shape[d] = q->shape[d];
  shape[q->ndim - 1] = v->shape[q->ndim - 1];
  HY_TRY(hy__need_shape(call, 0, q->ndim, shape));
  HY_TRY(hy__need_shape(call, 4, q->ndim, shape));
  HY_TRY(hy__need_shape(call, 5, q->ndim - 1, shape));
  for (int i = 0; i < 3; i++) hy__copy_shape(&out[i], &call->in[1 + i]);
  return HY_OK;
}

// ---- paged attention ----

hy_status hy__dtype_paged_attention(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__need_alike(call, 0, 3));
  for (int i = 3; i < 6; i++) HY_TRY(hy__check_index_dtype(call, i));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}

hy_status hy__shape_paged_attention(const hy_call* call, hy_tensor* out) {
  const hy_tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *table = &call->in[3];
  HY_TRY(hy__need_ndim(call, 0, 3));
  HY_TRY(hy__need_ndim(call, 1, 4));
  HY_TRY(hy__need_ndim(call, 2, 4));
  HY_TRY(hy__need_ndim(call, 3, 2));
  HY_TRY(
      hy__need_shape(call, 1, 4, (int64_t[]){k->shape[0], k->shape[1], k->shape[2], q->shape[2]}));
  HY_TRY(
      hy__need_shape(call, 2, 4, (int64_t[]){k->shape[0], k->shape[1], k->shape[2], v->shape[3]}));
  HY_TRY(hy__need_shape(call, 4, 1, (int64_t[]){table->shape[0] + 1}));
  HY_TRY(hy__need_shape(call, 5, 1, (int64_t[]){table->shape[0]}));
  if (k->shape[1] == 0) return hy__call_fail(call, HY_SHAPE, "the cache's blocks hold no keys");
  if (k->shape[2] == 0 ? q->shape[1] != 0 : q->shape[1] % k->shape[2] != 0)
    return hy__call_fail(call, HY_SHAPE, "%lld query heads are no multiple of %lld key heads",
                         (long long)q->shape[1], (long long)k->shape[2]);
  hy__copy_shape(out, q);
  out->shape[2] = v->shape[3];
  return HY_OK;
}

// ---- new tokens of a paged cache ----

hy_status hy__dtype_rope_paged_attention(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__need_alike(call, 0, 3));
  HY_TRY(hy__need_alike(call, 3, 2));
  for (int i = 5; i < 7; i++) HY_TRY(hy__check_index_dtype(call, i));
  for (int i = 0; i < 3; i++) out[i].dtype = call->in[0].dtype;
  return HY_OK;
}

// Caches, qkv and angles; the outputs are the caches and the heads of q.
static hy_status check_turned(const hy_call* call, hy_tensor* out) {
  const hy_tensor *k = &call->in[0], *qkv = &call->in[2], *cosine = &call->in[3];
  HY_TRY(hy__need_ndim(call, 0, 4));
  HY_TRY(hy__need_shape(call, 1, 4, k->shape));
  HY_TRY(hy__need_ndim(call, 2, 3));
  HY_TRY(hy__need_ndim(call, 3, 2));
  int64_t kv_heads = k->shape[2], size = k->shape[3], heads = qkv->shape[1] - 2 * kv_heads;
  if (size % 2 != 0) return hy__call_fail(call, HY_SHAPE, "the head size must be even");
  if (k->shape[1] == 0) return hy__call_fail(call, HY_SHAPE, "the cache's blocks hold no keys");
  HY_TRY(hy__need_shape(call, 2, 3, (int64_t[]){qkv->shape[0], qkv->shape[1], size}));
  if (heads < 0 || (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0))
    return hy__call_fail(call, HY_SHAPE,
                         "of %lld heads, %lld are keys and as many values; what is left is no "
                         "multiple of that",
                         (long long)qkv->shape[1], (long long)kv_heads);
  for (int i = 3; i < 5; i++)
    HY_TRY(hy__need_shape(call, i, 2, (int64_t[]){cosine->shape[0], size / 2}));
  for (int i = 0; i < 2; i++) hy__copy_shape(&out[i], k);
  hy__copy_shape(&out[2], qkv);
  out[2].shape[1] = heads;
  return HY_OK;
}

hy_status hy__shape_rope_paged_attention(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_turned(call, out));
  HY_TRY(hy__need_ndim(call, 5, 2));
  int64_t sequences = call->in[2].shape[0];
  HY_TRY(hy__need_shape(call, 5, 2, (int64_t[]){sequences, call->in[5].shape[1]}));
  return hy__need_shape(call, 6, 1, (int64_t[]){sequences});
}

hy_status hy__shape_rope_cache(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_turned(call, out));
  for (int i = 5; i < 7; i++) HY_TRY(hy__need_shape(call, i, 1, call->in[2].shape));
  out[2].shape[1] += call->in[0].shape[2];
  return HY_OK;
}

// ---- rotary positions ----

// The angles may be wider than x, as they are where x is a half type.
hy_status hy__dtype_rope(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes_among(call, 0, 1, HY_FLOATS));
  HY_TRY(hy__need_alike(call, 1, 2));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}

hy_status hy__shape_rope(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  if (x->ndim < 1 || x->shape[x->ndim - 1] % 2 != 0)
    return hy__call_fail(call, HY_SHAPE, "the last dimension of x must be even");
  int64_t half[HY_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) half[d] = x->shape[d];
  half[x->ndim - 1] /= 2;
  HY_TRY(hy__need_broadcast(call, 1, x->ndim, half));
  HY_TRY(hy__need_broadcast(call, 2, x->ndim, half));
  hy__copy_shape(out, x);
  return HY_OK;
}
