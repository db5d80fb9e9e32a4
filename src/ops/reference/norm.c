// Layer norm and rms norm, over the last dimensions.
#include <math.h>

#include "ops/reference/moments.h"
#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"

static double mean_square(const double* v, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; i++) total += v[i] * v[i];
  return total / (double)n;
}

// A parameter's elements, or n times the same number where it is absent.
static void load_parameter(const hy_tensor* t, int64_t n, double otherwise, double* values) {
  for (int64_t i = 0; i < n; i++) values[i] = otherwise;
  if (hy__present(t)) hy__load_all_f(t, values);
}

static void store_if_present(const hy_tensor* t, double value) {
  if (hy__present(t)) hy__store_f(t->dtype, t->data, value);
}

// The last `dims` dimensions, and how many elements they have.
static uint32_t last_dims(const hy_tensor* x, int64_t dims, int64_t* n) {
  uint32_t mask = 0;
  *n = 1;
  for (int64_t d = x->ndim - dims; d < x->ndim; d++) {
    mask |= 1u << d;
    *n *= x->shape[d];
  }
  return mask;
}

static hy_status normalize(const hy_call* call, const hy_tensor* weight, const hy_tensor* bias,
                           const hy_tensor* mean, const hy_tensor* rstd) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  bool centred = call->op == HY_OP_layer_norm;
  int64_t n;
  uint32_t mask = last_dims(x, call->attrs.norm.norm_dims, &n);
  double* v = hy__scratch(call, 3, n);
  if (!v) return HY_OUT_OF_MEMORY;
  double *w = v + n, *b = w + n;
  load_parameter(weight, n, 1, w);
  load_parameter(bias, n, 0, b);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 4, (const hy_tensor*[]){x, out, mean, rstd});
  while (hy__ref_slices_next(&l)) {
    hy__load_all_f(&l.slice[0], v);
    hy__moments m = centred ? hy__measure(v, n) : (hy__moments){0, mean_square(v, n)};
    double scale = 1 / sqrt(m.var + call->attrs.norm.eps);
    for (int64_t i = 0; i < n; i++) v[i] = (double)(v[i] - m.mean) * scale * w[i] + b[i];
    hy__store_all_f(&l.slice[1], v);
    store_if_present(&l.slice[2], (double)m.mean);
    store_if_present(&l.slice[3], scale);
  }
  hy__mfree(v);
  return HY_OK;
}

hy_status hy__ref_layer_norm(const hy_call* call) {
  return normalize(call, &call->in[1], &call->in[2], &call->out[1], &call->out[2]);
}

hy_status hy__ref_rms_norm(const hy_call* call) {
  static const hy_tensor absent;
  return normalize(call, &call->in[1], &absent, &absent, &call->out[1]);
}

// With h = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - h mean(g h)), where an rms norm
// has no mean and no mean(g); dw = sum(dy h) and db = sum(dy) over the slices.
static hy_status normalize_backward(const hy_call* call, const hy_tensor* mean,
                                    const hy_tensor* rstd, const hy_tensor* weight,
                                    const hy_tensor* dbias) {
  const hy_tensor *dy = &call->in[0], *x = &call->in[1], *dx = &call->out[0];
  bool centred = hy__present(mean);
  int64_t n;
  uint32_t mask = last_dims(x, call->attrs.norm.norm_dims, &n);
  double* g = hy__scratch(call, 5, n);
  if (!g) return HY_OUT_OF_MEMORY;
  double *h = g + n, *w = h + n, *dw = w + n, *db = dw + n;
  load_parameter(weight, n, 1, w);
  for (int64_t i = 0; i < n; i++) dw[i] = db[i] = 0;
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 5, (const hy_tensor*[]){x, dy, mean, rstd, dx});
  while (hy__ref_slices_next(&l)) {
    double centre = centred ? hy__load_f(mean->dtype, l.slice[2].data) : 0;
    double scale = hy__load_f(rstd->dtype, l.slice[3].data), sum_g = 0, sum_gh = 0;
    hy__load_all_f(&l.slice[0], h);
    hy__load_all_f(&l.slice[1], g);
    for (int64_t i = 0; i < n; i++) {
      h[i] = (h[i] - centre) * scale;
      dw[i] += g[i] * h[i];
      db[i] += g[i];
      g[i] *= w[i];
      sum_g += centred ? g[i] : 0;
      sum_gh += g[i] * h[i];
    }
    if (!hy__present(dx)) continue;
    for (int64_t i = 0; i < n; i++)
      g[i] = scale * (g[i] - sum_g / (double)n - h[i] * sum_gh / (double)n);
    hy__store_all_f(&l.slice[4], g);
  }
  if (hy__present(&call->out[1])) hy__store_all_f(&call->out[1], dw);
  if (hy__present(dbias)) hy__store_all_f(dbias, db);
  hy__mfree(g);
  return HY_OK;
}

hy_status hy__ref_layer_norm_backward(const hy_call* call) {
  return normalize_backward(call, &call->in[2], &call->in[3], &call->in[4], &call->out[2]);
}

hy_status hy__ref_rms_norm_backward(const hy_call* call) {
  static const hy_tensor absent;
  return normalize_backward(call, &absent, &call->in[2], &call->in[3], &absent);
}
