// Shapes and types of quantised, sparse and mixture-of-experts layers.
#include "ops/rules/common.h"

// The types a weight may be quantised to; i4 is always packed.
#define QUANTIZED (HY_DTYPE_BIT(HY_I8) | HY_DTYPE_BIT(HY_I4) | HY_FLOAT8S)

static hy_status check_quantized(const hy_call* call, int i) {
  if (QUANTIZED & HY_DTYPE_BIT(call->in[i].dtype)) return HY_OK;
  return hy__call_fail(call, HY_DTYPE, "%s is i8, i4, f8e4m3 or f8e5m2, not %s",
                       hy__input_name(call, i), hy_dtype_name(call->in[i].dtype));
}

// Input i holds a scale for each group along the last dimension of q: [..., K / group].
static hy_status check_scale(const hy_call* call, int i, const hy_tensor* q) {
  const hy_tensor* scale = &call->in[i];
  int last = q->ndim - 1;
  HY_TRY(hy__need_ndim(call, i, q->ndim));
  bool fits =
      scale->shape[last] > 0 ? q->shape[last] % scale->shape[last] == 0 : q->shape[last] == 0;
  for (int d = 0; d < last; d++) fits = fits && scale->shape[d] == q->shape[d];
  if (fits) return HY_OK;
  return hy__call_fail(call, HY_SHAPE,
                       "the scale has one number for each group of equal size along the rows");
}

hy_status hy__dtype_quantize(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  hy_dtype to = call->attrs.quantize.dtype;
  if (to <= HY_NONE || to >= HY_DTYPE_COUNT || !(QUANTIZED & HY_DTYPE_BIT(to)))
    return hy__call_fail(call, HY_DTYPE, "quantized types are i8, i4, f8e4m3 and f8e5m2, not %s",
                         hy_dtype_name(to));
  out[0].dtype = to;
  if (to == HY_I4) out[0].layout = HY_LAYOUT_PACKED_I4;
  out[1].dtype = HY_F32;
  return HY_OK;
}

hy_status hy__shape_quantize(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  int64_t group = call->attrs.quantize.group;
  if (x->ndim < 1) return hy__call_fail(call, HY_SHAPE, "x needs at least 1 dimension");
  int64_t size = x->shape[x->ndim - 1];
  if (group < 0 || (group > 0 && size % group != 0))
    return hy__call_fail(call, HY_SHAPE, "rows of %lld do not fall into groups of %lld",
                         (long long)size, (long long)group);
  if (call->attrs.quantize.dtype == HY_I4 && size % 2 != 0)
    return hy__call_fail(call, HY_SHAPE, "i4 packs two numbers a byte: rows of %lld are odd",
                         (long long)size);
  hy__copy_shape(&out[0], x);
  hy__copy_shape(&out[1], x);
  out[1].shape[x->ndim - 1] = group > 0 ? size / group : 1;
  return HY_OK;
}

hy_status hy__dtype_dequantize(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_quantized(call, 0));
  HY_TRY(hy__check_dtypes_among(call, 1, 2, HY_DTYPE_BIT(HY_F32)));
  hy_dtype to = call->attrs.cast.dtype;
  if (to <= HY_NONE || to >= HY_DTYPE_COUNT || !(HY_FLOATS & HY_DTYPE_BIT(to)))
    return hy__call_fail(call, HY_DTYPE, "the result is f32, f64, f16 or bf16, not %s",
                         hy_dtype_name(to));
  out->dtype = to;
  return HY_OK;
}

hy_status hy__shape_dequantize(const hy_call* call, hy_tensor* out) {
  const hy_tensor* q = &call->in[0];
  if (q->ndim < 1) return hy__call_fail(call, HY_SHAPE, "q needs at least 1 dimension");
  HY_TRY(check_scale(call, 1, q));
  hy__copy_shape(out, q);
  return HY_OK;
}

// ---- layers: x [..., K], a weight that stands for [N, K], bias [N] at input `bias_at` ----

static hy_status layer_output(const hy_call* call, int64_t n, int64_t k, int bias_at,
                              hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  if (x->ndim < 1 || x->shape[x->ndim - 1] != k)
    return hy__call_fail(call, HY_SHAPE, "the weight takes rows of %lld", (long long)k);
  HY_TRY(hy__need_shape(call, bias_at, 1, &n));
  hy__copy_shape(out, x);
  out->shape[x->ndim - 1] = n;
  return HY_OK;
}

static hy_status check_layer_dtypes(const hy_call* call, int bias_at, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out->dtype = call->in[0].dtype;
  return hy__check_dtypes_among(call, bias_at, bias_at + 1, HY_DTYPE_BIT(out->dtype));
}

hy_status hy__dtype_linear_quantized(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_quantized(call, 1));
  HY_TRY(hy__check_dtypes_among(call, 2, 3, HY_DTYPE_BIT(HY_F32)));
  return check_layer_dtypes(call, 3, out);
}

hy_status hy__shape_linear_quantized(const hy_call* call, hy_tensor* out) {
  const hy_tensor* weight = &call->in[1];
  HY_TRY(hy__need_ndim(call, 1, 2));
  HY_TRY(check_scale(call, 2, weight));
  return layer_output(call, weight->shape[0], weight->shape[1], 3, out);
}

hy_status hy__dtype_linear_int8(const hy_call* call, hy_tensor* out) {
  const uint32_t results = HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_BF16) | HY_DTYPE_BIT(HY_F16);
  HY_TRY(hy__check_dtypes(call, 0, 1));
  HY_TRY(hy__check_dtypes_among(call, 1, 2, HY_DTYPE_BIT(HY_F32)));
  if (call->in[2].dtype != HY_I8 && call->in[2].dtype != HY_I4)
    return hy__call_fail(call, HY_DTYPE, "the weight is i8 or i4, not %s",
                         hy_dtype_name(call->in[2].dtype));
  HY_TRY(hy__check_dtypes_among(call, 3, 4, HY_DTYPE_BIT(HY_F32)));
  hy_dtype to = call->attrs.cast.dtype;
  if (to <= HY_NONE || to >= HY_DTYPE_COUNT || !(results & HY_DTYPE_BIT(to)))
    return hy__call_fail(call, HY_DTYPE, "the result is f32, bf16 or f16, not %s",
                         hy_dtype_name(to));
  out->dtype = to;
  return hy__check_dtypes_among(call, 4, 5, HY_DTYPE_BIT(to));
}

hy_status hy__shape_linear_int8(const hy_call* call, hy_tensor* out) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[2];
  if (x->ndim < 1) return hy__call_fail(call, HY_SHAPE, "x needs at least 1 dimension");
  HY_TRY(hy__need_ndim(call, 2, 2));
  HY_TRY(check_scale(call, 1, x));
  HY_TRY(check_scale(call, 3, weight));
  return layer_output(call, weight->shape[0], weight->shape[1], 4, out);
}

hy_status hy__dtype_sparsify_2_4(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out[0].dtype = call->in[0].dtype;
  out[1].dtype = HY_U8;
  out[1].layout = HY_LAYOUT_SPARSE_2_4;
  return HY_OK;
}

hy_status hy__shape_sparsify_2_4(const hy_call* call, hy_tensor* out) {
  const hy_tensor* weight = &call->in[0];
  HY_TRY(hy__need_ndim(call, 0, 2));
  if (weight->shape[1] % 8 != 0)
    return hy__call_fail(call, HY_SHAPE, "rows of %lld are no multiple of 8",
                         (long long)weight->shape[1]);
  for (int i = 0; i < 2; i++) hy__copy_shape(&out[i], weight);
  out[0].shape[1] = weight->shape[1] / 2;
  out[1].shape[1] = weight->shape[1] / 8;
  return HY_OK;
}

hy_status hy__dtype_linear_sparse_2_4(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_layer_dtypes(call, 3, out));
  HY_TRY(hy__check_dtypes_among(call, 1, 2, HY_DTYPE_BIT(out->dtype)));
  if (call->in[2].layout != HY_LAYOUT_SPARSE_2_4)
    return hy__call_fail(call, HY_LAYOUT,
                         "the codes have the layout sparse_2_4, as sparsify_2_4 "
                         "makes them");
  return HY_OK;
}

hy_status hy__shape_linear_sparse_2_4(const hy_call* call, hy_tensor* out) {
  const hy_tensor* values = &call->in[1];
  HY_TRY(hy__need_ndim(call, 1, 2));
  if (values->shape[1] % 4 != 0)
    return hy__call_fail(call, HY_SHAPE, "rows of %lld values are no multiple of 4",
                         (long long)values->shape[1]);
  HY_TRY(hy__need_shape(call, 2, 2, (int64_t[]){values->shape[0], values->shape[1] / 4}));
  return layer_output(call, values->shape[0], values->shape[1] * 2, 3, out);
}

hy_status hy__dtype_pack_fractal_nz(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  out->dtype = call->in[0].dtype;
  out->layout = HY_LAYOUT_FRACTAL_NZ;
  return HY_OK;
}

hy_status hy__shape_pack_fractal_nz(const hy_call* call, hy_tensor* out) {
  const hy_tensor* weight = &call->in[0];
  HY_TRY(hy__need_ndim(call, 0, 2));
  if (weight->shape[0] % 16 != 0 || weight->shape[1] % 16 != 0)
    return hy__call_fail(call, HY_SHAPE, "a matrix of %lld x %lld has no blocks of 16 x 16",
                         (long long)weight->shape[0], (long long)weight->shape[1]);
  hy__copy_shape(out, weight);
  return HY_OK;
}

hy_status hy__dtype_linear_fractal_nz(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_layer_dtypes(call, 2, out));
  if (call->in[1].layout != HY_LAYOUT_FRACTAL_NZ)
    return hy__call_fail(call, HY_LAYOUT,
                         "the weight has the layout fractal_nz, as pack_fractal_nz makes it");
  if (call->in[1].dtype != out->dtype)
    return hy__call_fail(call, HY_DTYPE, "the weight is %s, not %s", hy_dtype_name(out->dtype),
                         hy_dtype_name(call->in[1].dtype));
  return HY_OK;
}

hy_status hy__shape_linear_fractal_nz(const hy_call* call, hy_tensor* out) {
  const hy_tensor* weight = &call->in[1];
  return layer_output(call, weight->shape[0], weight->shape[1], 2, out);
}

// ---- fused: [rms_norm], linear, [silu gate], [residual] ----

hy_status hy__dtype_fused_linear(const hy_call* call, hy_tensor* out) {
  hy_dtype x = call->in[0].dtype, to = call->attrs.fused_linear.dtype;
  HY_TRY(hy__check_dtypes(call, 0, 1));
  HY_TRY(hy__check_dtypes_among(call, 1, 2, HY_DTYPE_BIT(x)));
  if (call->in[3].dtype == HY_NONE) {
    HY_TRY(hy__check_dtypes_among(call, 2, 3, HY_DTYPE_BIT(x)));
  } else {
    HY_TRY(check_quantized(call, 2));
    HY_TRY(hy__check_dtypes_among(call, 3, 4, HY_DTYPE_BIT(HY_F32)));
  }
  HY_TRY(hy__check_dtypes_among(call, 4, 6, HY_DTYPE_BIT(x)));
  if (to != x && to != HY_F32)
    return hy__call_fail(call, HY_DTYPE, "the result is %s or f32, not %s", hy_dtype_name(x),
                         hy_dtype_name(to));
  out->dtype = to;
  return HY_OK;
}

hy_status hy__shape_fused_linear(const hy_call* call, hy_tensor* out) {
  const hy_tensor* weight = &call->in[2];
  HY_TRY(hy__need_ndim(call, 2, 2));
  HY_TRY(hy__need_shape(call, 1, 1, &weight->shape[1]));
  if (call->in[3].dtype != HY_NONE) HY_TRY(check_scale(call, 3, weight));
  HY_TRY(layer_output(call, weight->shape[0], weight->shape[1], 4, out));
  if (call->attrs.fused_linear.gated) {
    if (weight->shape[0] % 2 != 0)
      return hy__call_fail(call, HY_SHAPE, "%lld outputs have no halves",
                           (long long)weight->shape[0]);
    out->shape[out->ndim - 1] /= 2;
  }
  return hy__need_shape(call, 5, out->ndim, out->shape);
}

// ---- mixture of experts ----

hy_status hy__dtype_fused_moe(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__need_alike(call, 0, 3));
  HY_TRY(hy__check_dtypes_among(call, 3, 4, HY_FLOATS));
  HY_TRY(hy__check_index_dtype(call, 4));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}

hy_status hy__shape_fused_moe(const hy_call* call, hy_tensor* out) {
  const hy_tensor *x = &call->in[0], *gate_up = &call->in[1], *weight = &call->in[3];
  HY_TRY(hy__need_ndim(call, 0, 2));
  HY_TRY(hy__need_ndim(call, 1, 3));
  HY_TRY(hy__need_ndim(call, 3, 2));
  int64_t tokens = x->shape[0], size = x->shape[1], experts = gate_up->shape[0];
  int64_t hidden = gate_up->shape[1] / 2;
  HY_TRY(hy__need_shape(call, 1, 3, (int64_t[]){experts, 2 * hidden, size}));
  HY_TRY(hy__need_shape(call, 2, 3, (int64_t[]){experts, size, hidden}));
  HY_TRY(hy__need_shape(call, 3, 2, (int64_t[]){tokens, weight->shape[1]}));
  HY_TRY(hy__need_shape(call, 4, 2, (int64_t[]){tokens, weight->shape[1]}));
  hy__copy_shape(out, x);
  return HY_OK;
}
