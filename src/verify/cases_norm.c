// Cases of normalisation and losses.
#include <math.h>
#include <string.h>

#include "ops/reference/element.h"
#include "ops/reference/walk.h"
#include "verify/case.h"

// The slope of a norm is 1 / sqrt(var + eps): values that spread well keep it below 8.
static void scaled(hy__case* c, int64_t terms) {
  c->terms = terms > 0 ? terms : 1;
  // hy__add_mean makes what the mean is off by count.
  bool with_mean = c->flavour == HY__FLAVOUR_PLAIN || c->flavour == HY__FLAVOUR_LARGE;
  c->scale = c->flavour == HY__FLAVOUR_SPECIAL ? 1e3 : with_mean ? 64 : 16;
  c->wide = true;
}

// The mean of errors is no larger than one of them, but for what the sum before it loses.
static int64_t of_means(int64_t size) {
  return 8 + size / 64;
}

// From what is lost beside any spread to what outweighs it.
static double draw_eps(hy__case* c) {
  static const double values[] = {1e-2, 0.1, 1, 5};
  double eps = values[hy__draw(c) % 4], usual = hy__draw_bool(c) ? 1e-5 : 1e-6;
  // A line of one element, or of equal ones, has no spread: only eps keeps its slope down.
  return c->flavour == HY__FLAVOUR_PLAIN ? usual : eps;
}

// For parameters and the backward ops: where statistics are infinite or NaN, which elements of the
// gradient are NaN depends on the order of the formula.
static hy_tensor* add_finite(hy__case* c, int ndim, const int64_t* shape) {
  hy_tensor* t = hy__add_input(c, c->dtype, ndim, shape);
  bool ranges = c->flavour == HY__FLAVOUR_SUBNORMAL || c->flavour == HY__FLAVOUR_HUGE;
  if (c->flavour == HY__FLAVOUR_SPECIAL || ranges) hy__fill_uniform(c, t, -4, 4);
  return t;
}

static hy_tensor* add_maybe(hy__case* c, int ndim, const int64_t* shape) {
  bool present = hy__draw_int(c, 0, 3) > 0 || hy__draw_present(c);
  hy_tensor* t = add_finite(c, ndim, shape);
  if (present) return t;
  *t = hy_tensor_absent();
  return NULL;
}

// Forward, a NaN makes its whole line NaN; what an infinity makes of the mean depends on the
// formula.
static hy_tensor* add_normalised(hy__case* c, int ndim, const int64_t* shape) {
  hy_tensor* t = hy__add_input(c, c->dtype, ndim, shape);
  hy__add_mean(c, t);
  // Lines of one element have no spread beside their mean; that nothing overflows is seen.
  if (c->flavour == HY__FLAVOUR_HUGE) c->scale *= fmax(1, hy__largest(t));
  if (c->flavour != HY__FLAVOUR_SPECIAL) return t;
  hy__fill_uniform(c, t, -4, 4);
  if (hy_tensor_numel(t) > 0) hy__store_f(t->dtype, hy__element(t, 0), NAN);
  return t;
}

// ---- layer norm and rms norm ----

// x of 1 to 3 dimensions, the last one or two of which are normalised; returns how many elements
// that is.
static int64_t draw_norm(hy__case* c, int* ndim, int64_t* shape, int* norm_dims) {
  hy__has_sizes_to(c, 3);
  *norm_dims = (int)hy__draw_int(c, 1, 2);
  int lead = (int)hy__draw_int(c, hy__is_model(c, 1), 2);
  if (hy__is_model(c, 2)) {
    *norm_dims = 4;
    lead = HY_MAX_DIMS - 4;
  }
  *ndim = lead + *norm_dims;
  int64_t size = 1;
  for (int d = 0; d < *ndim; d++) {
    shape[d] = d < lead ? hy__draw_size(c) : hy__draw_size_from_1(c);
    if (d > 0 && d < *ndim - 1 && shape[d] > 9) shape[d] = 9;
    if (d < *ndim - 1 && hy__is_model(c, 0)) shape[d] = d == 0 && lead == 1 ? 2 : 1;
    if (d == 0 && hy__is_model(c, 1)) shape[d] = hy__draw_sized(c, 1, 45007);
    if (d == *ndim - 1 && hy__is_model(c, 0)) shape[d] = hy__draw_sized(c, 0, 131101);
    if (d >= lead) size *= shape[d];
  }
  c->call.attrs.norm.norm_dims = *norm_dims;
  c->call.attrs.norm.eps = draw_eps(c);
  scaled(c, of_means(size));
  return size;
}

void hy__cases_layer_norm(hy__case* c) {
  int ndim, norm_dims;
  int64_t shape[HY_MAX_DIMS];
  draw_norm(c, &ndim, shape, &norm_dims);
  add_normalised(c, ndim, shape);
  add_maybe(c, norm_dims, shape + ndim - norm_dims);
  if (c->call.op == HY_OP_layer_norm) add_maybe(c, norm_dims, shape + ndim - norm_dims);
  if (hy__mistake(c, 1, HY_SHAPE, "a weight of the wrong size")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 1, (int64_t[]){shape[ndim - 1] + 1});
    if (c->call.op == HY_OP_layer_norm) hy__add_absent(c);
  }
  if (hy__mistake(c, 2, HY_SHAPE, "more dimensions to normalise than there are"))
    c->call.attrs.norm.norm_dims = 5;
}

void hy__cases_rms_norm(hy__case* c) {
  hy__cases_layer_norm(c);
}

void hy__cases_layer_norm_backward(hy__case* c) {
  int ndim, norm_dims;
  int64_t shape[HY_MAX_DIMS];
  int64_t size = draw_norm(c, &ndim, shape, &norm_dims);
  bool layer = c->call.op == HY_OP_layer_norm_backward;
  add_finite(c, ndim, shape);
  hy_tensor in[3] = {*add_finite(c, ndim, shape), hy_tensor_absent(), hy_tensor_absent()};
  hy_op forward = layer ? HY_OP_layer_norm : HY_OP_rms_norm;
  if (layer) hy__add_result(c, forward, &c->call.attrs, 3, in, 1);
  hy__add_result(c, forward, &c->call.attrs, layer ? 3 : 2, in, layer ? 2 : 1);
  add_maybe(c, norm_dims, shape + ndim - norm_dims);
  // The weight's gradient sums over all lines.
  int64_t numel = 1;
  for (int d = 0; d < ndim; d++) numel *= shape[d];
  scaled(c, of_means(size) + numel / size);
  if (hy__mistake(c, 1, HY_SHAPE, "x and dy of different shapes")) {
    shape[ndim - 1]++;
    hy_tensor kept[5];
    memcpy(kept, c->in, sizeof kept);
    int n = c->call.n_in;
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, ndim, shape);
    for (int i = 1; i < n; i++) c->in[c->call.n_in++] = kept[i];
  }
}

void hy__cases_rms_norm_backward(hy__case* c) {
  hy__cases_layer_norm_backward(c);
}

// ---- batch norm ----

static int draw_batch(hy__case* c, int64_t* shape) {
  int ndim = c->flavour == HY__FLAVOUR_MODEL ? 4 : (int)hy__draw_int(c, 2, 4);
  shape[0] = hy__draw_small_sized(c, 6, 1, 10007) + 1;
  shape[1] = hy__draw_small_sized(c, 5, 0, 20011) + (c->flavour == HY__FLAVOUR_GAPS);
  for (int d = 2; d < ndim; d++) shape[d] = hy__draw_small_sized(c, 4, d, 20021);
  c->call.attrs.batch_norm.training = hy__draw_bool(c);
  c->call.attrs.batch_norm.momentum = hy__draw_bool(c) ? 0.1 : hy__draw_real(c, 0, 1);
  c->call.attrs.batch_norm.eps = draw_eps(c);
  int64_t numel = 1;
  for (int d = 0; d < ndim; d++) numel *= shape[d];
  scaled(c, of_means(numel / shape[1]));
  return ndim;
}

static void add_running(hy__case* c, int64_t channels) {
  hy__add_input(c, c->dtype, 1, &channels);
  hy_tensor* var = hy__add_input(c, c->dtype, 1, &channels);
  hy__fill_uniform(c, var, 0.2, 4);
}

void hy__cases_batch_norm(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = draw_batch(c, shape);
  add_normalised(c, ndim, shape);
  add_maybe(c, 1, &shape[1]);
  add_maybe(c, 1, &shape[1]);
  if (c->call.attrs.batch_norm.training) {
    hy__add_absent(c);
    hy__add_absent(c);
  } else {
    add_running(c, shape[1]);
  }
  if (hy__mistake(c, 1, HY_SHAPE, "a weight of the wrong size")) {
    hy_tensor kept[5];
    memcpy(kept, c->in, sizeof kept);
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 1, (int64_t[]){shape[1] + 1});
    for (int i = 2; i < 5; i++) c->in[c->call.n_in++] = kept[i];
  }
  if (hy__mistake(c, 2, HY_INVALID_ARGUMENT, "no statistics where none are computed")) {
    c->call.attrs.batch_norm.training = false;
    c->in[3] = c->in[4] = hy_tensor_absent();
  }
}

void hy__cases_batch_norm_update(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = draw_batch(c, shape);
  add_running(c, shape[1]);
  add_normalised(c, ndim, shape);
  c->scale *= 16;
}

void hy__cases_batch_norm_backward(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = draw_batch(c, shape);
  add_finite(c, ndim, shape);
  hy_tensor in[5] = {*add_finite(c, ndim, shape)};
  for (int i = 1; i < 5; i++) in[i] = hy_tensor_absent();
  hy_attrs attrs = c->call.attrs;
  attrs.batch_norm.training = true;
  scaled(c, hy_tensor_numel(&in[0]) / shape[1]);
  hy__add_result(c, HY_OP_batch_norm, &attrs, 5, in, 1);
  hy__add_result(c, HY_OP_batch_norm, &attrs, 5, in, 2);
  add_maybe(c, 1, &shape[1]);
}

// ---- cross entropy ----

static int draw_classes(hy__case* c, int64_t* shape, int64_t* target) {
  hy__has_sizes_to(c, 4);
  int ndim = (int)hy__draw_int(c, 1, 3);
  if (c->flavour == HY__FLAVOUR_MODEL) ndim = c->model == 2 ? 3 : c->model == 3 ? HY_MAX_DIMS : 2;
  int at = ndim == 1 ? 0 : 1, n = 0;
  for (int d = 0; d < ndim; d++) {
    shape[d] = d == at ? hy__draw_size_from_1(c) : d >= 2 ? hy__draw_small(c, 4) : hy__draw_size(c);
    if (c->flavour == HY__FLAVOUR_MODEL && d == 2 && c->model == 2)
      shape[d] = hy__draw_sized(c, 2, 20011);
    if (c->flavour == HY__FLAVOUR_MODEL && d == at && c->model == 0)
      shape[d] = hy__draw_sized(c, 0, 32003);
    if (c->flavour == HY__FLAVOUR_MODEL && d == 0 && c->model == 1)
      shape[d] = hy__draw_sized(c, 1, 20021);
    if (hy__is_model(c, 3) && shape[d] > 2) shape[d] = 2;
    if (hy__is_model(c, 0) && d == 0) shape[d] += 4;
    if (d != at) target[n++] = shape[d];
  }
  return ndim;
}

static void add_cross_entropy(hy__case* c, int ndim, const int64_t* shape, const int64_t* target) {
  int64_t classes = shape[ndim == 1 ? 0 : 1];
  if (c->call.op == HY_OP_cross_entropy)
    hy__add_input(c, c->dtype, ndim, shape);
  else
    add_finite(c, ndim, shape);
  hy_tensor* labels = hy__add_input(c, HY_I64, ndim - 1, target);
  hy__fill_ints(c, labels, 0, classes - 1);
  const int64_t ignored[4] = {-100, 0, classes - 1, hy__draw_int(c, -9, classes - 1)};
  c->call.attrs.cross_entropy.ignore_index = ignored[hy__is_model(c, 0) ? 2 : hy__draw(c) % 4];
  c->call.attrs.cross_entropy.reduction = (hy_reduction)hy__draw_int(c, 0, HY_REDUCTION_SUM);
  if (c->flavour == HY__FLAVOUR_GAPS) c->call.attrs.cross_entropy.reduction = HY_REDUCTION_NONE;
  c->call.attrs.cross_entropy.label_smoothing = hy__draw_bool(c) ? 0 : hy__draw_real(c, 0, 0.5);
  bool half = hy_dtype_size(c->dtype) == 2;
  c->call.attrs.cross_entropy.dtype = half && hy__draw_bool(c) ? HY_F32 : HY_NONE;
  if (hy_tensor_numel(labels) > 2)
    hy__store_i(HY_I64, hy__element(labels, 1), c->call.attrs.cross_entropy.ignore_index);
  hy_tensor* weight = add_maybe(c, 1, &classes);
  if (weight) hy__fill_uniform(c, weight, 0.2, 2);
  scaled(c, 64 + hy_tensor_numel(&c->in[0]) / 16);
}

void hy__cases_cross_entropy(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], target[HY_MAX_DIMS];
  int ndim = draw_classes(c, shape, target);
  add_cross_entropy(c, ndim, shape, target);
  if (hy__mistake_in_data(c, 1, HY_INDEX, "a class that is not there")) {
    c->call.attrs.cross_entropy.ignore_index = -100;
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3});
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), 3, 3);
    hy__add_absent(c);
  }
  if (hy__mistake(c, 2, HY_SHAPE, "more targets than rows")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3});
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){3}), 0, 2);
    hy__add_absent(c);
  }
  if (hy__mistake(c, 3, HY_DTYPE, "targets that are no indices")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3});
    hy__add_input(c, HY_F32, 1, (int64_t[]){2});
    hy__add_absent(c);
  }
}

void hy__cases_cross_entropy_backward(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], target[HY_MAX_DIMS];
  int ndim = draw_classes(c, shape, target);
  add_cross_entropy(c, ndim, shape, target);
  bool each = c->call.attrs.cross_entropy.reduction == HY_REDUCTION_NONE;
  // The gradient of the loss has the loss's type and shape, which the op itself tells.
  hy_tensor in[3], loss[HY_MAX_OUTPUTS];
  memcpy(in, c->in, sizeof in);
  hy_call forward = {.op = HY_OP_cross_entropy, .n_in = 3, .in = in, .attrs = c->call.attrs};
  hy_dtype dtype = hy_infer(&forward, loss) == HY_OK ? loss[0].dtype : c->dtype;
  hy__fill_uniform(c, hy__add_input(c, dtype, each ? ndim - 1 : 0, target), -2, 2);
}
