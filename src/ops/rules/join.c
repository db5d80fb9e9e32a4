// Shapes of the ops that join tensors.
#include "ops/rules/join.h"
#include "ops/rules/common.h"

static hy_status check_list(const hy_call* call) {
  if (call->n_in == 0)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "at least one tensor is needed");
  for (int i = 0; i < call->n_in; i++) {
    if (!hy__present(&call->in[i]))
      return hy__call_fail(call, HY_INVALID_ARGUMENT, "tensor %d is absent", i);
  }
  return HY_OK;
}

hy_status hy__shape_cat(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_list(call));
  const hy_tensor* model = NULL;
  int dim = 0;
  for (int i = 0; i < call->n_in; i++) {
    const hy_tensor* t = &call->in[i];
    if (t->ndim == 0)
      return hy__call_fail(call, HY_SHAPE, "tensor %d has no dimension to join along", i);
    if (hy__is_void(t)) continue;
    if (!model) {
      model = t;
      HY_TRY(hy__one_dim(call, call->attrs.dim.dim, t->ndim, &dim));
      hy__copy_shape(out, t);
      out->shape[dim] = 0;
    }
    bool fits = t->ndim == model->ndim;
    for (int d = 0; fits && d < t->ndim; d++) fits = d == dim || t->shape[d] == model->shape[d];
    if (!fits)
      return hy__call_fail(call, HY_SHAPE, "tensor %d differs from the first outside dimension %d",
                           i, dim);
    if (__builtin_add_overflow(out->shape[dim], t->shape[dim], &out->shape[dim]))
      return hy__call_fail(call, HY_SHAPE, "the joined size overflows 64 bits");
  }
  if (!model) hy__copy_shape(out, &call->in[0]);
  return HY_OK;
}

hy_status hy__shape_stack(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_list(call));
  const hy_tensor* first = &call->in[0];
  if (first->ndim == HY_MAX_DIMS)
    return hy__call_fail(call, HY_SHAPE, "the result would have %d dimensions; at most %d fit",
                         HY_MAX_DIMS + 1, HY_MAX_DIMS);
  int dim;
  HY_TRY(hy__one_dim(call, call->attrs.dim.dim, first->ndim + 1, &dim));
  for (int i = 1; i < call->n_in; i++) {
    if (!hy__same_shape(&call->in[i], first))
      return hy__call_fail(call, HY_SHAPE, "tensor %d has not the shape of the first", i);
  }
  out->ndim = first->ndim + 1;
  for (int d = 0; d < out->ndim; d++)
    out->shape[d] = d == dim ? call->n_in : first->shape[d < dim ? d : d - 1];
  return HY_OK;
}
