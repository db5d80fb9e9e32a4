// One step of an optimizer, in double throughout; the parameter moves by the state before that is
// rounded to its type.
#include <math.h>

#include "ops/reference/slices.h"

// m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  and with both corrected for having
// started at 0:  param = param (1 - lr weight_decay) - lr m' / (sqrt(v') + eps).
hy_status hy__ref_adamw(const hy_call* call) {
  hy_attrs_adamw a = call->attrs.adamw;
  double step_size = a.lr / (1 - pow(a.beta1, (double)a.step));
  double root_correction = sqrt(1 - pow(a.beta2, (double)a.step));
  const hy_tensor *in = call->in, *out = call->out;
  hy__walk w;
  hy__walk_begin(&w, &out[0], 7,
                 (const hy_tensor*[]){&out[0], &out[1], &out[2], &in[0], &in[1], &in[2], &in[3]});
  while (hy__walk_next(&w)) {
    double param[HY__ROW], m[HY__ROW], v[HY__ROW], grad[HY__ROW];
    double* rows[4] = {param, m, v, grad};
    for (int k = 0; k < 4; k++)
      hy__load_row_f(in[k].dtype, w.at[3 + k], w.step[3 + k], w.n, rows[k]);
    for (int64_t i = 0; i < w.n; i++) {
      double g = a.maximize ? -grad[i] : grad[i];
      m[i] = a.beta1 * m[i] + (1 - a.beta1) * g;
      v[i] = a.beta2 * v[i] + (1 - a.beta2) * g * g;
      param[i] *= 1 - a.lr * a.weight_decay;
      param[i] -= step_size * m[i] / (sqrt(v[i]) / root_correction + a.eps);
    }
    for (int k = 0; k < 3; k++) hy__store_row_f(out[k].dtype, w.at[k], w.step[k], w.n, rows[k]);
  }
  return HY_OK;
}

// g = grad + weight_decay param. With momentum, velocity = momentum velocity + (1 - dampening) g,
// or g at the first step, and the parameter moves by it (nesterov: by g + momentum velocity);
// without, it moves by g, and the velocity stays as it is.
hy_status hy__ref_sgd(const hy_call* call) {
  hy_attrs_sgd a = call->attrs.sgd;
  const hy_tensor *param = &call->in[0], *grad = &call->in[2];
  bool has_velocity = hy__present(&call->in[1]), keeps_velocity = hy__present(&call->out[1]);
  // An absent velocity is walked as a stand-in that is neither read nor written.
  const hy_tensor* old_velocity = has_velocity ? &call->in[1] : param;
  const hy_tensor* new_velocity = keeps_velocity ? &call->out[1] : param;
  hy__walk w;
  hy__walk_begin(&w, &call->out[0], 5,
                 (const hy_tensor*[]){&call->out[0], new_velocity, param, old_velocity, grad});
  while (hy__walk_next(&w)) {
    double p[HY__ROW], v[HY__ROW] = {0}, g[HY__ROW];
    hy__load_row_f(param->dtype, w.at[2], w.step[2], w.n, p);
    if (has_velocity) hy__load_row_f(old_velocity->dtype, w.at[3], w.step[3], w.n, v);
    hy__load_row_f(grad->dtype, w.at[4], w.step[4], w.n, g);
    for (int64_t i = 0; i < w.n; i++) {
      double slope = a.maximize ? -g[i] : g[i];
      if (a.weight_decay != 0) slope += a.weight_decay * p[i];  // 0 times infinity is no decay
      if (a.momentum != 0) {
        v[i] = a.first ? slope : a.momentum * v[i] + (1 - a.dampening) * slope;
        slope = a.nesterov ? slope + a.momentum * v[i] : v[i];
      }
      p[i] -= a.lr * slope;
    }
    hy__store_row_f(call->out[0].dtype, w.at[0], w.step[0], w.n, p);
    if (keeps_velocity) hy__store_row_f(new_velocity->dtype, w.at[1], w.step[1], w.n, v);
  }
  return HY_OK;
}
