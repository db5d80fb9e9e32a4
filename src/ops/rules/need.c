#include "ops/rules/need.h"

const char* hy__input_name(const hy_call* call, int i) {
  const hy_op_info* info = hy_op_describe(call->op);
  return info->inputs[i < info->n_inputs ? i : info->n_inputs - 1].name;
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

hy_status hy__need_dtype(const hy_call* call, int i, uint32_t set) {
  const hy_tensor* t = &call->in[i];
  if (!hy__present(t)) return HY_OK;
  if (!(set & HY_DTYPE_BIT(t->dtype)))
    return hy__call_fail(call, HY_DTYPE, "%s may not be %s", hy__input_name(call, i),
                         hy_dtype_name(t->dtype));
  if (t->layout != HY_LAYOUT_STRIDED)
    return hy__call_fail(call, HY_LAYOUT, "%s must be strided, not %s", hy__input_name(call, i),
                         hy_layout_name(t->layout));
  return HY_OK;
}

hy_status hy__need_alike(const hy_call* call, int first, int n) {
  for (int i = first; i < first + n; i++) {
    HY_TRY(hy__need_dtype(call, i, hy_op_describe(call->op)->dtypes));
    if (hy__present(&call->in[i]) && call->in[i].dtype != call->in[first].dtype)
      return hy__call_fail(call, HY_DTYPE, "%s is %s and %s is %s; one type is needed",
                           hy__input_name(call, first), hy_dtype_name(call->in[first].dtype),
                           hy__input_name(call, i), hy_dtype_name(call->in[i].dtype));
  }
  return HY_OK;
}
