// cat and stack: copies into slices of the output.
#include "ops/rules/join.h"
#include "ops/reference/indices.h"

hy_status hy__ref_cat(const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  int dim = hy__wrap_dim(call->attrs.dim.dim, out->ndim);
  int64_t at = 0;
  for (int i = 0; i < call->n_in; i++) {
    const hy_tensor* t = &call->in[i];
    if (hy__is_void(t)) continue;
    hy_tensor slice;
    HY_TRY(hy_slice(&slice, out, dim, at, at + t->shape[dim], 1));
    hy__copy_view(&slice, t);
    at += t->shape[dim];
  }
  return HY_OK;
}

hy_status hy__ref_stack(const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  int dim = hy__wrap_dim(call->attrs.dim.dim, out->ndim);
  for (int i = 0; i < call->n_in; i++) {
    hy_tensor slice;
    HY_TRY(hy_select(&slice, out, dim, i));
    hy__copy_view(&slice, &call->in[i]);
  }
  return HY_OK;
}
