// Softmax along a dimension, shifted by its maximum so that no exponential overflows.
#include <math.h>

#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"
#include "ops/rules/common.h"

static double maximum(const double* v, int64_t n) {
  double most = -INFINITY;
  for (int64_t i = 0; i < n; i++) most = isnan(v[i]) || v[i] > most ? v[i] : most;
  return most;
}

// What both kinds of op need: the slices' dimension and length.
static uint32_t lane_mask(const hy_call* call, int64_t* n) {
  const hy_tensor* x = &call->in[0];
  int dim = hy__wrap_dim(call->attrs.dim.dim, x->ndim);
  *n = x->ndim > 0 ? x->shape[dim] : 1;
  return x->ndim > 0 ? 1u << dim : 0;
}

hy_status hy__ref_softmax(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  int64_t n;
  uint32_t mask = lane_mask(call, &n);
  double* v = hy__scratch(call, 1, n);
  if (!v) return HY_OUT_OF_MEMORY;
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 2, (const hy_tensor*[]){x, out});
  while (hy__ref_slices_next(&l)) {
    hy__load_all_f(&l.slice[0], v);
    double most = maximum(v, n);
    long double sum = 0;  // of many doubles one after another a double would lose digits
    for (int64_t i = 0; i < n; i++) sum += exp(v[i] - most);
    double total = (double)sum;
    for (int64_t i = 0; i < n; i++)
      v[i] = call->op == HY_OP_softmax ? exp(v[i] - most) / total : v[i] - most - log(total);
    hy__store_all_f(&l.slice[1], v);
  }
  hy__mfree(v);
  return HY_OK;
}

// From the output y: dx = y (dy - sum(dy y)) for softmax, dx = dy - exp(y) sum(dy) for its
// logarithm.
hy_status hy__ref_softmax_backward(const hy_call* call) {
  bool is_log = call->op == HY_OP_log_softmax_backward;
  int64_t n;
  uint32_t mask = lane_mask(call, &n);
  double* dy = hy__scratch(call, 2, n);
  if (!dy) return HY_OUT_OF_MEMORY;
  double* y = dy + n;
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 3,
                       (const hy_tensor*[]){&call->in[0], &call->in[1], &call->out[0]});
  while (hy__ref_slices_next(&l)) {
    hy__load_all_f(&l.slice[0], dy);
    hy__load_all_f(&l.slice[1], y);
    double total = 0;
    for (int64_t i = 0; i < n; i++) total += is_log ? dy[i] : dy[i] * y[i];
    for (int64_t i = 0; i < n; i++)
      dy[i] = is_log ? dy[i] - exp(y[i]) * total : y[i] * (dy[i] - total);
    hy__store_all_f(&l.slice[2], dy);
  }
  hy__mfree(dy);
  return HY_OK;
}
