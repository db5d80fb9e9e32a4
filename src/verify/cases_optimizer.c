// Cases of the optimizers.
#include <math.h>

#include "verify/case.h"

static int draw_parameter(hy__case* c, int64_t* shape) {
  return hy__draw_shape(c, 0, 4, shape);
}

void hy__cases_adamw(hy__case* c) {
  hy_attrs_adamw* a = &c->call.attrs.adamw;
  int64_t shape[HY_MAX_DIMS];
  int ndim = draw_parameter(c, shape);
  hy__add_input(c, c->dtype, ndim, shape);
  hy_tensor* m = hy__add_input(c, c->dtype, ndim, shape);
  // Whether two infinities meet in the moment depends on how it is interpolated.
  hy__fill_uniform(c, m, -2, 2);
  hy_tensor* v = hy__add_input(c, c->dtype, ndim, shape);
  hy__fill_uniform(c, v, 0.01, 2);
  hy__add_input(c, c->dtype, ndim, shape);
  a->lr = hy__draw_real(c, 1e-4, 0.1);
  a->beta1 = hy__draw_bool(c) ? 0.9 : hy__draw_real(c, 0, 0.95);
  a->beta2 = hy__draw_bool(c) ? 0.999 : hy__draw_real(c, 0.5, 0.99);
  a->eps = hy__draw_bool(c) ? 1e-8 : hy__draw_real(c, 1e-3, 0.5);
  a->weight_decay = hy__draw_bool(c) ? 0 : hy__draw_real(c, 0.01, 1);
  a->step = hy__draw_bool(c) ? hy__draw_int(c, 1, 20) : hy__draw_int(c, 1000, 1000000);
  a->maximize = hy__draw_bool(c);
  // Early steps divide the moments by little.
  for (int i = 0; i < 4; i++) c->scale = fmax(c->scale, 4 * hy__largest(&c->in[i]));
  c->wide = true;
  if (hy__mistake(c, 1, HY_SHAPE, "a gradient of the wrong shape")) {
    c->call.n_in = 3;
    shape[ndim] = 2;
    hy__add_input(c, c->dtype, ndim + 1, shape);
  }
}

void hy__cases_sgd(hy__case* c) {
  hy_attrs_sgd* a = &c->call.attrs.sgd;
  int64_t shape[HY_MAX_DIMS];
  int ndim = draw_parameter(c, shape);
  bool velocity = hy__draw_bool(c);
  hy__add_input(c, c->dtype, ndim, shape);
  if (velocity)
    hy__add_input(c, c->dtype, ndim, shape);
  else
    hy__add_absent(c);
  hy__add_input(c, c->dtype, ndim, shape);
  a->lr = hy__draw_real(c, 1e-3, 0.5);
  a->momentum = !velocity ? 0 : hy__draw_bool(c) ? 0.9 : hy__draw_real(c, 0.1, 0.99);
  a->nesterov = velocity && hy__draw_bool(c);
  a->dampening = velocity && !a->nesterov && hy__draw_bool(c) ? hy__draw_real(c, 0.1, 0.9) : 0;
  a->weight_decay = hy__draw_bool(c) ? 0 : hy__draw_real(c, 0.01, 1);
  a->first = velocity && hy__draw_bool(c);
  a->maximize = hy__draw_bool(c);
  if (hy__mistake(c, 1, HY_SHAPE, "a gradient of the wrong shape")) {
    c->call.n_in = 2;
    shape[ndim] = 2;
    hy__add_input(c, c->dtype, ndim + 1, shape);
  }
}
