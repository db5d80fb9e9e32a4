// cat and stack of more inputs than a call holds: several calls, each into its part of the output.
#include "ops/internal.h"
#include "ops/rules/join.h"

static bool have_one_type(const hy_call* call) {
  for (int i = 0; i < call->n_in; i++) {
    if (call->in[i].dtype != call->out[0].dtype) return false;
  }
  return true;
}

// How much of the output an input fills.
static int64_t extent_of(const hy_call* call, const hy_tensor* t, int dim) {
  if (call->op == HY_OP_stack) return 1;
  return hy__is_void(t) ? 0 : t->shape[dim];
}

// Types differ: each input is converted into its place.
static hy_status put_one(hy_stream* stream, const hy_call* call, hy_tensor* part, int dim,
                         const hy_tensor* t) {
  if (hy__is_void(t)) return HY_OK;
  if (call->op == HY_OP_stack) HY_TRY(hy_select(part, part, dim, 0));
  return hy_cast(stream, part, t, part->dtype);
}

hy_status hy__join_many(hy_stream* stream, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  int dim = hy__wrap_dim(call->attrs.dim.dim, out->ndim);
  int most = have_one_type(call) ? HY_MAX_INPUTS : 1;
  int64_t at = 0;
  for (int first = 0; first < call->n_in; first += most) {
    int n = call->n_in - first < most ? call->n_in - first : most;
    int64_t size = 0;
    for (int i = first; i < first + n; i++) size += extent_of(call, &call->in[i], dim);
    hy_tensor part;
    HY_TRY(hy_slice(&part, out, dim, at, at + size, 1));
    at += size;
    if (size == 0) continue;
    hy_call some = *call;
    some.in = call->in + first;
    some.n_in = n;
    some.out = &part;
    HY_TRY(most == 1 ? put_one(stream, call, &part, dim, some.in) : hy_run(stream, &some));
  }
  return HY_OK;
}
