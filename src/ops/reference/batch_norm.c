// Batch norm: over all dimensions but the second, channel by channel.
#include <math.h>

#include "ops/reference/moments.h"
#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"

static hy_tensor channel(const hy_tensor* x, int64_t c) {
  hy_tensor view = *x;
  view.data = (char*)x->data + c * x->stride[1] * (int64_t)hy_dtype_size(x->dtype);
  view.ndim = x->ndim - 1;
  for (int d = 1; d < view.ndim; d++) {
    view.shape[d] = x->shape[d + 1];
    view.stride[d] = x->stride[d + 1];
  }
  return view;
}

static int64_t channel_size(const hy_tensor* x) {
  int64_t n = 1;
  for (int d = 0; d < x->ndim; d++) n *= d == 1 ? 1 : x->shape[d];
  return n;
}

// Element c of a vector that may be absent.
static double load_or(const hy_tensor* t, int64_t c, double otherwise) {
  return hy__present(t) ? hy__load_f(t->dtype, hy__element(t, c)) : otherwise;
}

static void store_if_present(const hy_tensor* t, int64_t c, double value) {
  if (hy__present(t)) hy__store_f(t->dtype, hy__element(t, c), value);
}

hy_status hy__ref_batch_norm(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[1], *bias = &call->in[2];
  const hy_tensor *running_mean = &call->in[3], *running_var = &call->in[4];
  int64_t n = channel_size(x);
  double* v = hy__scratch(call, 1, n);
  if (!v) return HY_OUT_OF_MEMORY;
  for (int64_t c = 0; c < x->shape[1]; c++) {
    hy_tensor from = channel(x, c), to = channel(&call->out[0], c);
    hy__load_all_f(&from, v);
    hy__moments m = call->attrs.batch_norm.training
                        ? hy__measure(v, n)
                        : (hy__moments){load_or(running_mean, c, 0), load_or(running_var, c, 1)};
    double scale = 1 / sqrt(m.var + call->attrs.batch_norm.eps);
    double w = load_or(weight, c, 1), b = load_or(bias, c, 0);
    for (int64_t i = 0; i < n; i++) v[i] = (v[i] - m.mean) * scale * w + b;
    hy__store_all_f(&to, v);
    store_if_present(&call->out[1], c, m.mean);
    store_if_present(&call->out[2], c, scale);
  }
  hy__mfree(v);
  return HY_OK;
}

// Moves the running statistics towards the batch's; the variance they keep divides by n - 1.
hy_status hy__ref_batch_norm_update(const hy_call* call) {
  const hy_tensor *mean = &call->in[0], *var = &call->in[1], *x = &call->in[2];
  double momentum = call->attrs.batch_norm.momentum;
  int64_t n = channel_size(x);
  double* v = hy__scratch(call, 1, n);
  if (!v) return HY_OUT_OF_MEMORY;
  for (int64_t c = 0; c < x->shape[1]; c++) {
    hy_tensor from = channel(x, c);
    hy__load_all_f(&from, v);
    hy__moments m = hy__measure(v, n);
    double unbiased = m.var * (double)n / (double)(n - 1);
    double old_mean = load_or(mean, c, 0), old_var = load_or(var, c, 1);
    store_if_present(&call->out[0], c, (1 - momentum) * old_mean + momentum * m.mean);
    store_if_present(&call->out[1], c, (1 - momentum) * old_var + momentum * unbiased);
  }
  hy__mfree(v);
  return HY_OK;
}

// With h = (x - mean) rstd: dw = sum(dy h), db = sum(dy), and dx = w rstd (dy - (db + h dw) / n)
// when the statistics were the batch's, w rstd dy when they were constants.
hy_status hy__ref_batch_norm_backward(const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *x = &call->in[1], *mean = &call->in[2];
  const hy_tensor *rstd = &call->in[3], *weight = &call->in[4], *dx = &call->out[0];
  int64_t n = channel_size(x);
  double* g = hy__scratch(call, 2, n);
  if (!g) return HY_OUT_OF_MEMORY;
  double* h = g + n;
  for (int64_t c = 0; c < x->shape[1]; c++) {
    hy_tensor from = channel(x, c), above = channel(dy, c);
    double centre = load_or(mean, c, 0), scale = load_or(rstd, c, 1), w = load_or(weight, c, 1);
    double dw = 0, db = 0;
    hy__load_all_f(&from, h);
    hy__load_all_f(&above, g);
    for (int64_t i = 0; i < n; i++) {
      h[i] = (h[i] - centre) * scale;
      dw += g[i] * h[i];
      db += g[i];
    }
    store_if_present(&call->out[1], c, dw);
    store_if_present(&call->out[2], c, db);
    if (!hy__present(dx)) continue;
    for (int64_t i = 0; i < n; i++) {
      double shared = call->attrs.batch_norm.training ? (db + h[i] * dw) / (double)n : 0;
      g[i] = w * scale * (g[i] - shared);
    }
    hy_tensor to = channel(dx, c);
    hy__store_all_f(&to, g);
  }
  hy__mfree(g);
  return HY_OK;
}
