// Cases of reductions, scans, sorts and softmax.
#include <math.h>

#include "verify/case.h"

// A tensor of 0 to 4 dimensions.
static hy_tensor* add_any(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, 0, 4, shape);
  return hy__add_input(c, c->dtype, ndim, shape);
}

static int64_t draw_dim(hy__case* c, int ndim) {
  int n = ndim > 0 ? ndim : 1;
  return hy__draw_int(c, -n, n - 1);
}

// Some of the dimensions, in any order, from either end; now and then none, which means all.
static hy_dims draw_dims(hy__case* c, int ndim) {
  hy_dims dims = hy_all_dims();
  uint64_t chosen = hy__draw(c);
  for (int d = 0; d < ndim; d++) {
    int64_t named = chosen >> (8 + d) & 1 ? d - ndim : d;
    if (chosen >> d & 1) dims.dim[dims.n++] = named;
  }
  if (dims.n > 1 && chosen >> 20 & 1) {
    int64_t first = dims.dim[0];
    dims.dim[0] = dims.dim[1];
    dims.dim[1] = first;
  }
  return dims;
}

// How many elements fall into one.
static int64_t reduced(const hy_tensor* x, const hy_dims* dims) {
  int64_t n = 1;
  for (int i = 0; i < dims->n; i++)
    n *= x->ndim > 0 ? x->shape[dims->dim[i] < 0 ? dims->dim[i] + x->ndim : dims->dim[i]] : 1;
  return dims->n == 0 ? hy_tensor_numel(x) : n;
}

static void dim_mistakes(hy__case* c, int64_t* dim) {
  if (hy__mistake(c, 1, HY_SHAPE, "a dimension that is not there")) *dim = 7;
  if (hy__mistake(c, 2, HY_SHAPE, "a negative dimension that is not there")) *dim = -8;
}

// Every reduced dimension has at least one element.
static void without_empty(hy__case* c, hy_tensor* x, hy_dims* dims) {
  if (c->flavour != HY__FLAVOUR_EMPTY || reduced(x, dims) > 0) return;
  *dims = hy_one_dim(0);
  c->call.n_in = 0;
  hy__add_input(c, c->dtype, 2, (int64_t[]){3, 0});
}

void hy__cases_reduce(hy__case* c) {
  hy_tensor* x = add_any(c);
  hy_dims dims = draw_dims(c, x->ndim);
  bool keepdim = hy__draw_bool(c);
  hy_op op = c->call.op;
  if (op == HY_OP_max || op == HY_OP_min) {
    without_empty(c, x, &dims);
    hy__replace_zeros(&c->in[0], hy__draw_bool(c) ? 0.0 : -0.0);  // as for maximum
  }
  if (op == HY_OP_prod) {
    bool small = c->flavour == HY__FLAVOUR_SUBNORMAL, large = c->flavour == HY__FLAVOUR_HUGE;
    hy__fill_uniform(c, x, small ? 0.01 : large ? 20 : 0.8, small ? 0.02 : large ? 40 : 1.25);
  }
  // One that decides among many that do not.
  if (op == HY_OP_any || op == HY_OP_all) hy__fill_rarely(c, &c->in[0], op == HY_OP_any);
  c->call.attrs.reduce.dims = dims;
  c->call.attrs.reduce.keepdim = keepdim;
  c->terms = reduced(x, &dims);
  if (op == HY_OP_mean && c->terms > 0) c->terms = 2;  // the mean of errors is no larger than one
  if (hy__mistake(c, 3, HY_SHAPE, "a dimension named twice")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3});
    c->call.attrs.reduce.dims = (hy_dims){{1, -1}, 2};
  }
  if (c->wrong == 1 || c->wrong == 2) c->call.attrs.reduce.dims.n = 1;
  dim_mistakes(c, &c->call.attrs.reduce.dims.dim[0]);
  if ((op == HY_OP_max || op == HY_OP_min) &&
      hy__mistake(c, 4, HY_SHAPE, "the extremum of no elements")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 1, (int64_t[]){0});
    c->call.attrs.reduce.dims = hy_all_dims();
  }
}

void hy__cases_var(hy__case* c) {
  hy_tensor* x = add_any(c);
  hy_dims dims = draw_dims(c, x->ndim);
  c->call.attrs.var.dims = dims;
  c->call.attrs.var.keepdim = hy__draw_bool(c);
  c->call.attrs.var.correction = (double)hy__draw_int(c, 0, 4) / 2;
  c->terms = 4 + reduced(x, &dims) / 64;
  c->scale = hy__largest(x) * hy__largest(x);
  c->wide = true;
  hy__add_mean(c, x);
}

static void one_dim(hy__case* c, bool or_none) {
  hy_tensor* x = add_any(c);
  hy_dims dims = hy_one_dim(draw_dim(c, x->ndim));
  bool none = hy__draw_int(c, 0, 3) == 0;
  if (or_none && none) dims = hy_all_dims();
  without_empty(c, x, &dims);
  c->call.attrs.reduce.dims = dims;
  c->call.attrs.reduce.keepdim = hy__draw_bool(c);
  if (c->wrong == 1 || c->wrong == 2) c->call.attrs.reduce.dims.n = 1;
  dim_mistakes(c, &c->call.attrs.reduce.dims.dim[0]);
  if (hy__mistake(c, 3, HY_SHAPE, "the extremum of no elements")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 0});
    c->call.attrs.reduce.dims = hy_one_dim(1);
  }
}

void hy__cases_reduce_one(hy__case* c) {
  one_dim(c, true);
}

void hy__cases_reduce_dim(hy__case* c) {
  one_dim(c, false);
  if (hy__mistake(c, 4, HY_INVALID_ARGUMENT, "no dimension where one is needed"))
    c->call.attrs.reduce.dims = hy_all_dims();
}

void hy__cases_scan(hy__case* c) {
  hy_tensor* x = add_any(c);
  c->call.attrs.scan.dim = draw_dim(c, x->ndim);
  c->call.attrs.scan.reverse = hy__draw_int(c, 0, 3) == 0;
  for (int d = 0; d < x->ndim; d++) c->terms = x->shape[d] > c->terms ? x->shape[d] : c->terms;
  dim_mistakes(c, &c->call.attrs.scan.dim);
}

void hy__cases_sort(hy__case* c) {
  hy_tensor* x = add_any(c);
  c->call.attrs.sort.dim = draw_dim(c, x->ndim);
  c->call.attrs.sort.descending = hy__draw_bool(c);
  dim_mistakes(c, &c->call.attrs.sort.dim);
}

// Which of equal values come first is open, so there are none; so is the order of unsorted results,
// so they are sorted where there are several.
void hy__cases_topk(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, 0, 4, shape);
  if (hy__is_model(c, 0)) {  // lines of equal values cannot be, but many lines can
    ndim = 2;
    shape[0] = hy__draw_sized(c, 0, 67);
    shape[1] = hy__draw_sized(c, 0, 2003);
  }
  for (int d = 0; d < ndim; d++) shape[d] = hy__distinct_limit(c->dtype, shape[d]);
  hy_tensor* x = hy__add_unrepeated(c, c->dtype, ndim, shape);
  int64_t dim = draw_dim(c, x->ndim), longest = x->ndim > 0 ? 0 : 1;
  hy__fill_distinct(c, x);
  if (x->ndim > 0) longest = x->shape[dim < 0 ? dim + x->ndim : dim];
  int64_t fewest = longest > 1000 ? 101 : longest / 2;
  if (longest > 1000) longest = 1000;
  c->call.attrs.topk.dim = dim;
  c->call.attrs.topk.k = hy__draw_int(c, c->flavour == HY__FLAVOUR_MODEL ? fewest : 0, longest);
  c->call.attrs.topk.largest = hy__draw_bool(c);
  c->call.attrs.topk.sorted = c->call.attrs.topk.k > 1 || hy__draw_bool(c);
  dim_mistakes(c, &c->call.attrs.topk.dim);
  if (hy__mistake(c, 3, HY_INVALID_ARGUMENT, "k larger than the dimension"))
    c->call.attrs.topk.k = 1 << 20;
  if (hy__mistake(c, 4, HY_INVALID_ARGUMENT, "a negative k")) c->call.attrs.topk.k = -1;
}

// Rows of the lowest number, which masks leave, and of numbers whose exponential nothing holds.
static void fill_extremes(hy__case* c, hy_tensor* x) {
  double most = hy__finite_max(x->dtype);
  if (c->flavour == HY__FLAVOUR_HUGE) hy__fill_uniform(c, x, -most, -most);
  if (c->flavour == HY__FLAVOUR_SUBNORMAL)
    hy__fill_uniform(c, x, -fmin(1e10, most), fmin(1e10, most));
}

void hy__cases_softmax(hy__case* c) {
  hy_tensor* x = add_any(c);
  fill_extremes(c, x);
  // The largest is subtracted first, which leaves the size of what is left.
  c->scale = fmin(hy__largest(x), 16);
  c->wide = true;
  c->call.attrs.dim.dim = draw_dim(c, x->ndim);
  dim_mistakes(c, &c->call.attrs.dim.dim);
}

void hy__cases_softmax_backward(hy__case* c) {
  hy_tensor* dy = add_any(c);
  // An infinity beside a probability that underflows to 0 on some devices gives NaN there.
  hy__fill_uniform(c, dy, -4, 4);
  c->call.attrs.dim.dim = draw_dim(c, dy->ndim);
  hy_tensor* x = hy__add_input(c, c->dtype, dy->ndim, dy->shape);
  fill_extremes(c, x);
  hy_op forward = c->call.op == HY_OP_softmax_backward ? HY_OP_softmax : HY_OP_log_softmax;
  hy_tensor of = *x;
  c->call.n_in = 1;
  hy__add_result(c, forward, &c->call.attrs, 1, &of, 0);
  for (int d = 0; d < dy->ndim; d++) c->terms = dy->shape[d] > c->terms ? dy->shape[d] : c->terms;
  c->scale = 16;
  c->wide = true;
  dim_mistakes(c, &c->call.attrs.dim.dim);
  if (hy__mistake(c, 3, HY_SHAPE, "two shapes where one is needed")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 1, (int64_t[]){3});
    hy__add_input(c, c->dtype, 1, (int64_t[]){4});
    c->call.attrs.dim.dim = 0;
  }
}
