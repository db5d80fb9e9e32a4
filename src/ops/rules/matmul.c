// Shapes and types of matrix products.
#include "ops/rules/common.h"

static hy_status check_inner(const hy_call* call, int64_t a, int64_t b) {
  if (a == b) return HY_OK;
  return hy__call_fail(call, HY_SHAPE, "the inner sizes %lld and %lld differ", (long long)a,
                       (long long)b);
}

hy_status hy__shape_mm(const hy_call* call, hy_tensor* out) {
  const hy_tensor *a = &call->in[0], *b = &call->in[1];
  HY_TRY(hy__need_ndim(call, 0, 2));
  HY_TRY(hy__need_ndim(call, 1, 2));
  HY_TRY(check_inner(call, a->shape[1], b->shape[0]));
  out->ndim = 2;
  out->shape[0] = a->shape[0];
  out->shape[1] = b->shape[1];
  return HY_OK;
}

hy_status hy__shape_bmm(const hy_call* call, hy_tensor* out) {
  const hy_tensor *a = &call->in[0], *b = &call->in[1];
  HY_TRY(hy__need_ndim(call, 0, 3));
  HY_TRY(hy__need_ndim(call, 1, 3));
  if (a->shape[0] != b->shape[0])
    return hy__call_fail(call, HY_SHAPE, "the batch sizes %lld and %lld differ; expand one first",
                         (long long)a->shape[0], (long long)b->shape[0]);
  HY_TRY(check_inner(call, a->shape[2], b->shape[1]));
  out->ndim = 3;
  out->shape[0] = a->shape[0];
  out->shape[1] = a->shape[1];
  out->shape[2] = b->shape[2];
  return HY_OK;
}

hy_status hy__shape_addmm(const hy_call* call, hy_tensor* out) {
  const hy_tensor *a = &call->in[1], *b = &call->in[2];
  HY_TRY(hy__need_ndim(call, 1, 2));
  HY_TRY(hy__need_ndim(call, 2, 2));
  HY_TRY(check_inner(call, a->shape[1], b->shape[0]));
  out->ndim = 2;
  out->shape[0] = a->shape[0];
  out->shape[1] = b->shape[1];
  return hy__need_broadcast(call, 0, 2, out->shape);
}

hy_status hy__shape_linear(const hy_call* call, hy_tensor* out) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[1];
  HY_TRY(hy__need_ndim(call, 1, 2));
  if (x->ndim < 1) return hy__call_fail(call, HY_SHAPE, "x needs at least 1 dimension");
  HY_TRY(check_inner(call, x->shape[x->ndim - 1], weight->shape[1]));
  HY_TRY(hy__need_shape(call, 2, 1, weight->shape));
  out->ndim = x->ndim;
  for (int d = 0; d < x->ndim - 1; d++) out->shape[d] = x->shape[d];
  out->shape[x->ndim - 1] = weight->shape[0];
  return HY_OK;
}

hy_status hy__dtype_addmm(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__dtype_alike(call, out));
  bool is_int = hy_dtype_is_int(out->dtype);
  if (is_int && (call->attrs.addmm.alpha.kind == HY_F64 || call->attrs.addmm.beta.kind == HY_F64))
    return hy__call_fail(call, HY_DTYPE, "integer inputs need integer alpha and beta");
  return HY_OK;
}

hy_status hy__dtype_int_mm(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__dtype_alike(call, out));
  out->dtype = HY_I32;
  return HY_OK;
}
