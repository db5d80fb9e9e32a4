// What the shape and dtype rules share.
#include "ops/rules/common.h"

const char* hy__input_name(const hy_call* call, int i) {
  const hy_op_info* info = hy_op_describe(call->op);
  return info->inputs[i < info->n_inputs ? i : info->n_inputs - 1].name;
}

hy_status hy__check_dtypes_among(const hy_call* call, int first, int end, uint32_t known) {
  for (int i = first; i < end; i++) {
    const hy_tensor* t = &call->in[i];
    if (!hy__present(t)) continue;
    if (!(known & HY_DTYPE_BIT(t->dtype)))
      return hy__call_fail(call, HY_DTYPE, "%s: %s is not a type this op takes",
                           hy__input_name(call, i), hy_dtype_name(t->dtype));
    if (t->layout != HY_LAYOUT_STRIDED)
      return hy__call_fail(call, HY_LAYOUT, "%s: %s is not a layout this op takes",
                           hy__input_name(call, i), hy_layout_name(t->layout));
  }
  return HY_OK;
}

hy_status hy__check_dtypes(const hy_call* call, int first, int end) {
  return hy__check_dtypes_among(call, first, end, hy_op_describe(call->op)->dtypes);
}

hy_status hy__check_index_dtype(const hy_call* call, int i) {
  hy_dtype dtype = call->in[i].dtype;
  if (dtype != HY_NONE && dtype != HY_I32 && dtype != HY_I64)
    return hy__call_fail(call, HY_DTYPE, "indices are i32 or i64, not %s", hy_dtype_name(dtype));
  return HY_OK;
}

hy_status hy__one_dim(const hy_call* call, int64_t dim, int ndim, int* out) {
  *out = hy__wrap_dim(dim, ndim);
  if (*out < 0)
    return hy__call_fail(call, HY_SHAPE, "dimension %lld is none of the %d of the tensor",
                         (long long)dim, ndim);
  return HY_OK;
}

hy_status hy__dims_mask(const hy_call* call, const hy_dims* dims, int ndim, uint32_t* mask) {
  uint32_t all = (1u << ndim) - 1, named = 0;
  if (dims->n < 0 || dims->n > HY_MAX_DIMS)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "a list of %lld dimensions",
                         (long long)dims->n);
  for (int i = 0; i < dims->n; i++) {
    int dim;
    HY_TRY(hy__one_dim(call, dims->dim[i], ndim, &dim));
    if (named & (1u << dim))
      return hy__call_fail(call, HY_SHAPE, "dimension %d is named twice", dim);
    named |= 1u << dim;
  }
  *mask = dims->n == 0 ? all : named & all;
  return HY_OK;
}

bool hy__same_shape(const hy_tensor* a, const hy_tensor* b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++) {
    if (a->shape[d] != b->shape[d]) return false;
  }
  return true;
}

void hy__copy_shape(hy_tensor* out, const hy_tensor* t) {
  out->ndim = t->ndim;
  for (int d = 0; d < t->ndim; d++) out->shape[d] = t->shape[d];
}

hy_status hy__need_ndim(const hy_call* call, int i, int ndim) {
  if (call->in[i].ndim == ndim) return HY_OK;
  return hy__call_fail(call, HY_SHAPE, "%s has %d dimensions; %d are needed",
                       hy__input_name(call, i), call->in[i].ndim, ndim);
}

static const char* shape_text(int ndim, const int64_t* shape, char* buffer, size_t size) {
  hy_tensor t;
  hy_status made = hy_tensor_init(&t, NULL, HY_U8, ndim, shape);
  if (made != HY_OK) return "an impossible shape";
  return hy_tensor_describe(&t, buffer, size) + 2;  // without the "u8"
}

#define TEXT(ndim, shape) shape_text(ndim, shape, (char[160]){0}, 160)

hy_status hy__need_shape(const hy_call* call, int i, int ndim, const int64_t* shape) {
  const hy_tensor* t = &call->in[i];
  if (!hy__present(t)) return HY_OK;
  bool fits = t->ndim == ndim;
  for (int d = 0; fits && d < ndim; d++) fits = t->shape[d] == shape[d];
  if (fits) return HY_OK;
  return hy__call_fail(call, HY_SHAPE, "%s must be %s", hy__input_name(call, i), TEXT(ndim, shape));
}

hy_status hy__need_broadcast(const hy_call* call, int i, int ndim, const int64_t* shape) {
  const hy_tensor* t = &call->in[i];
  if (!hy__present(t)) return HY_OK;
  bool fits = t->ndim <= ndim;
  for (int d = 0; fits && d < t->ndim; d++)
    fits = t->shape[d] == 1 || t->shape[d] == shape[d + ndim - t->ndim];
  if (fits) return HY_OK;
  return hy__call_fail(call, HY_SHAPE, "%s must broadcast to %s", hy__input_name(call, i),
                       TEXT(ndim, shape));
}

hy_status hy__need_alike(const hy_call* call, int first, int n) {
  for (int i = first; i < first + n; i++) {
    HY_TRY(hy__check_dtypes(call, i, i + 1));
    if (hy__present(&call->in[i]) && call->in[i].dtype != call->in[first].dtype)
      return hy__call_fail(call, HY_DTYPE, "%s is %s and %s is %s; one type is needed",
                           hy__input_name(call, first), hy_dtype_name(call->in[first].dtype),
                           hy__input_name(call, i), hy_dtype_name(call->in[i].dtype));
  }
  return HY_OK;
}
