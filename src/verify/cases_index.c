// Cases of indexing and joining.
#include "ops/reference/element.h"
#include "ops/reference/walk.h"
#include "verify/case.h"

static hy_dtype draw_index_dtype(hy__case* c) {
  return hy__draw_int(c, 0, 2) ? HY_I64 : HY_I32;
}

static hy_tensor* add_index(hy__case* c, int ndim, const int64_t* shape, int64_t bound) {
  hy_dtype dtype = draw_index_dtype(c);
  hy_tensor* t = hy__add_input(c, dtype, ndim, shape);
  hy__fill_ints(c, t, 0, bound - 1);
  return t;
}

// Indices along `dim` without repetition; the dimension is at most `bound` long.
static hy_tensor* add_distinct_index(hy__case* c, int ndim, const int64_t* shape, int dim,
                                     int64_t bound) {
  hy_tensor* t = hy__add_contiguous(c, draw_index_dtype(c), ndim, shape);
  int64_t numel = hy_tensor_numel(t), start = hy__draw_int(c, 0, bound - 1);
  for (int64_t i = 0; i < numel; i++) {
    int64_t along = i;
    for (int d = ndim - 1; d > dim; d--) along /= shape[d];
    along = ndim > 0 ? along % shape[dim] : 0;
    hy__store_i(t->dtype, hy__element(t, i), (start + along) % bound);
  }
  return t;
}

// A shape without empty dimensions, 1 to 3 of them, and one of the dimensions. Of models: that one
// has more than 2^17 elements, another one has, or there are as many dimensions as there can be.
static int draw_indexed(hy__case* c, int64_t* shape, int* dim) {
  int ndim = (int)hy__draw_int(c, 1, 3);
  if (c->flavour == HY__FLAVOUR_MODEL) ndim = c->model == 1 ? HY_MAX_DIMS : 2;
  *dim = (int)hy__draw_int(c, 0, ndim - 1);
  for (int d = 0; d < ndim; d++) {
    shape[d] = hy__draw_size_from_1(c);
    if (d > 0 && shape[d] > 20) shape[d] = 20;
    if (hy__is_model(c, 1) && shape[d] > 2) shape[d] = 2;
    if (hy__is_model(c, 0) && d == *dim) shape[d] = hy__draw_sized(c, 0, 131101);
    if (hy__is_model(c, 2) && d != *dim) shape[d] = hy__draw_sized(c, 2, 65551);
  }
  return ndim;
}

// How many of 1 to `all` indices a case has; in cases of models nearly all, or a thousand.
static int64_t draw_part(hy__case* c, int64_t all) {
  int64_t drawn = hy__draw_int(c, 1, all);
  return c->flavour != HY__FLAVOUR_MODEL ? drawn : all > 1 ? all - 1 : all;
}

static int64_t either_end(hy__case* c, int dim, int ndim) {
  return hy__draw_bool(c) ? dim : dim - ndim;
}

// ---- embedding ----

// The shape of the ids: 0 to 2 dimensions; of models, many ids or many dimensions.
static int draw_ids(hy__case* c, int64_t* shape) {
  int ndim = (int)hy__draw_int(c, 0, 2);
  if (hy__is_model(c, 2)) ndim = 1;
  if (hy__is_model(c, 3)) ndim = HY_MAX_DIMS - 1;
  for (int d = 0; d < ndim; d++) {
    shape[d] = d == 0 ? hy__draw_sized(c, 2, 45007) : hy__draw_size(c);
    if (c->flavour != HY__FLAVOUR_MODEL && shape[d] > 64) shape[d] = 64;
    if (hy__is_model(c, 3) && shape[d] > 2) shape[d] = 2;
  }
  return ndim;
}

static int64_t draw_rows(hy__case* c) {
  int64_t usual = hy__draw_size_from_1(c);
  return hy__is_model(c, 0) ? hy__draw_sized(c, 0, 32003) : usual;
}

void hy__cases_embedding(hy__case* c) {
  int64_t rows = draw_rows(c), width = hy__draw_sized(c, 1, 20011), shape[HY_MAX_DIMS];
  int ndim = draw_ids(c, shape);
  hy__add_input(c, c->dtype, 2, (int64_t[]){rows, width});
  add_index(c, ndim, shape, rows);
  c->call.attrs.padding.padding_index = hy__draw_int(c, -1, rows - 1);
  if (hy__mistake_in_data(c, 1, HY_INDEX, "a row that is not there")) {
    c->call.n_in = 1;
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), rows, rows);
  }
  if (hy__mistake_in_data(c, 2, HY_INDEX, "a negative row")) {
    c->call.n_in = 1;
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), -1, -1);
  }
  if (hy__mistake(c, 3, HY_DTYPE, "rows named by floats")) {
    c->call.n_in = 1;
    hy__add_input(c, HY_F32, 1, (int64_t[]){2});
  }
}

void hy__cases_embedding_backward(hy__case* c) {
  int64_t rows = draw_rows(c), shape[HY_MAX_DIMS];
  int ndim = draw_ids(c, shape);
  shape[ndim] = hy__draw_sized(c, 1, 20011);
  hy__add_input(c, c->dtype, ndim + 1, shape);
  add_index(c, ndim, shape, rows);
  c->call.attrs.rows.rows = rows;
  c->call.attrs.rows.padding_index = hy__draw_int(c, -1, rows - 1);
  if (c->call.attrs.rows.padding_index >= 0 && hy_tensor_numel(&c->in[1]) > 0)
    hy__store_i(c->in[1].dtype, hy__element(&c->in[1], 0), c->call.attrs.rows.padding_index);
  c->terms = hy_tensor_numel(&c->in[1]) + 1;
  if (hy__mistake_in_data(c, 1, HY_INDEX, "a row that is not there")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3});
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), rows, rows);
  }
}

// ---- gather and scatter ----

void hy__cases_gather(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], index[HY_MAX_DIMS];
  hy__has_sizes_to(c, 3);
  int dim, ndim = draw_indexed(c, shape, &dim);
  for (int d = 0; d < ndim; d++) index[d] = draw_part(c, shape[d]);
  if (c->flavour == HY__FLAVOUR_EMPTY) index[dim] = 0;
  hy__add_input(c, c->dtype, ndim, shape);
  add_index(c, ndim, index, shape[dim]);
  c->call.attrs.dim.dim = either_end(c, dim, ndim);
  if (hy__mistake_in_data(c, 1, HY_INDEX, "an index that is not there")) {
    c->call.n_in = 1;
    for (int d = 0; d < ndim; d++) index[d] = 1;
    hy__fill_ints(c, hy__add_input(c, HY_I64, ndim, index), shape[dim], shape[dim]);
  }
  if (hy__mistake(c, 2, HY_SHAPE, "a dimension that is not there")) c->call.attrs.dim.dim = 7;
  if (hy__mistake(c, 3, HY_SHAPE, "an index with another number of dimensions")) {
    c->call.n_in = 1;
    hy__fill_ints(c, hy__add_input(c, HY_I64, 4, (int64_t[]){1, 1, 1, 1}), 0, 0);
  }
  if (hy__mistake(c, 4, HY_DTYPE, "an index of floats")) {
    c->call.n_in = 1;
    hy__add_input(c, HY_F32, ndim, index);
  }
}

void hy__cases_scatter(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], index[HY_MAX_DIMS], source[HY_MAX_DIMS];
  hy__has_sizes_to(c, 3);
  int dim, ndim = draw_indexed(c, shape, &dim);
  for (int d = 0; d < ndim; d++) {
    index[d] = draw_part(c, shape[d]);
    source[d] = index[d] + hy__draw_int(c, 0, 1);
  }
  if (c->flavour == HY__FLAVOUR_EMPTY) index[dim] = 0;
  hy_scatter_mode mode = hy__draw_bool(c) ? HY_SCATTER_ADD : HY_SCATTER_SET;
  hy__add_input(c, c->dtype, ndim, shape);
  if (mode == HY_SCATTER_ADD)
    add_index(c, ndim, index, shape[dim]);
  else
    add_distinct_index(c, ndim, index, dim, shape[dim]);
  hy__add_input(c, c->dtype, ndim, source);
  c->call.attrs.scatter.dim = either_end(c, dim, ndim);
  c->call.attrs.scatter.mode = mode;
  c->terms = index[dim] + 1;
  if (hy__mistake_in_data(c, 1, HY_INDEX, "an index that is not there"))
    hy__fill_ints(c, &c->in[1], shape[dim], shape[dim]);
  if (hy__mistake(c, 2, HY_SHAPE, "a dimension that is not there")) c->call.attrs.scatter.dim = -7;
  if (hy__mistake(c, 3, HY_SHAPE, "an index larger than its source")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 1, (int64_t[]){5});
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){4}), 0, 4);
    hy__add_input(c, c->dtype, 1, (int64_t[]){3});
    c->call.attrs.scatter.dim = 0;
  }
}

// ---- whole slices ----

void hy__cases_index_select(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], n = hy__draw_sized(c, 0, 45007);
  hy__has_sizes_to(c, 3);
  int dim, ndim = draw_indexed(c, shape, &dim);
  if (n > 20 && c->flavour != HY__FLAVOUR_MODEL) n = 20;
  hy__add_input(c, c->dtype, ndim, shape);
  add_index(c, 1, &n, shape[dim]);
  c->call.attrs.dim.dim = either_end(c, dim, ndim);
  if (hy__mistake_in_data(c, 1, HY_INDEX, "an index that is not there")) {
    c->call.n_in = 1;
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){1}), shape[dim], shape[dim]);
  }
  if (hy__mistake(c, 2, HY_SHAPE, "a dimension that is not there")) c->call.attrs.dim.dim = 5;
  if (hy__mistake(c, 3, HY_SHAPE, "an index of two dimensions")) {
    c->call.n_in = 1;
    hy__fill_ints(c, hy__add_input(c, HY_I64, 2, (int64_t[]){1, 1}), 0, 0);
  }
}

void hy__cases_index_add(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], source[HY_MAX_DIMS];
  hy__has_sizes_to(c, 3);
  int dim, ndim = draw_indexed(c, shape, &dim);
  for (int d = 0; d < ndim; d++) source[d] = shape[d];
  source[dim] = hy__draw_sized(c, 0, 45007);
  if (source[dim] > 20 && c->flavour != HY__FLAVOUR_MODEL) source[dim] = 20;
  hy__add_input(c, c->dtype, ndim, shape);
  add_index(c, 1, &source[dim], shape[dim]);
  hy__add_input(c, c->dtype, ndim, source);
  c->call.attrs.dim.dim = either_end(c, dim, ndim);
  c->terms = source[dim] + 1;
  if (hy__mistake_in_data(c, 1, HY_INDEX, "an index that is not there"))
    hy__fill_ints(c, &c->in[1], shape[dim], shape[dim]);
  if (hy__mistake(c, 2, HY_SHAPE, "fewer indices than slices")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 1, (int64_t[]){5});
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), 0, 4);
    hy__add_input(c, c->dtype, 1, (int64_t[]){3});
    c->call.attrs.dim.dim = 0;
  }
}

// ---- index lists ----

// Up to three indices that broadcast together, negative ones among them; an absent one keeps its
// dimension. Where values are stored, no two of them may go to one place.
static void add_index_list(hy__case* c, int ndim, const int64_t* shape, bool distinct) {
  int64_t common[3];
  int lists = (int)hy__draw_int(c, 1, ndim), whole = (int)hy__draw_int(c, 0, lists - 1);
  int n = distinct ? 1 : (int)hy__draw_int(c, 0, 2);
  if (hy__is_model(c, 0) || (hy__is_model(c, 1) && n > 1)) n = 1;
  for (int d = 0; d < n; d++) common[d] = hy__draw_small_sized(c, 4, d, 45007);
  if (c->flavour == HY__FLAVOUR_EMPTY && n > 0) common[0] = 0;
  if (distinct && common[0] > shape[whole]) common[0] = shape[whole];
  for (int i = 0; i < lists; i++) {
    bool present = i == whole || hy__draw_int(c, 0, 2) > 0;
    int skip = n > 0 && i != whole && hy__draw_bool(c) && !distinct;
    if (!present) {
      hy__add_absent(c);
    } else if (distinct && i == whole) {
      add_distinct_index(c, 1, common, 0, shape[i]);
    } else {
      hy_tensor* t = add_index(c, n - skip, common + skip, shape[i]);
      if (hy__draw_bool(c)) hy__fill_ints(c, t, -shape[i], shape[i] - 1);
    }
  }
}

void hy__cases_index(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  hy__has_sizes_to(c, 3);
  int dim, ndim = draw_indexed(c, shape, &dim);
  if (hy__is_model(c, 0)) {  // a long list picks from a long vector
    shape[0] = shape[dim];
    ndim = 1;
  }
  hy__add_input(c, c->dtype, ndim, shape);
  add_index_list(c, ndim, shape, false);
  if (hy__mistake_in_data(c, 1, HY_INDEX, "an index that is not there")) {
    c->call.n_in = 1;
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), shape[0], shape[0]);
  }
  if (hy__mistake_in_data(c, 2, HY_INDEX, "a negative index that is not there")) {
    c->call.n_in = 1;
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), -shape[0] - 1, -shape[0] - 1);
  }
  if (hy__mistake(c, 3, HY_SHAPE, "indices that do not broadcast")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){4, 4});
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), 0, 3);
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){3}), 0, 3);
  }
  if (hy__mistake(c, 4, HY_SHAPE, "more indices than dimensions")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 1, (int64_t[]){4});
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), 0, 3);
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), 0, 3);
  }
}

// The values have the shape of what the indices pick, told by the op `index`.
void hy__cases_index_put(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  hy__has_sizes_to(c, 3);
  bool accumulate = hy__draw_bool(c);
  int dim, ndim = draw_indexed(c, shape, &dim);
  if (hy__is_model(c, 0)) {  // a long list picks from a long vector
    shape[0] = shape[dim];
    ndim = 1;
  }
  hy__add_input(c, c->dtype, ndim, shape);
  hy__add_input(c, c->dtype, 0, NULL);
  add_index_list(c, ndim, shape, !accumulate);
  c->call.attrs.accumulate.accumulate = accumulate;
  hy_tensor picked[HY_MAX_OUTPUTS], in[HY_MAX_INPUTS];
  int n = 0;
  for (int i = 0; i < c->call.n_in; i++) {
    if (i != 1) in[n++] = c->in[i];
  }
  hy_call index = {.op = HY_OP_index, .n_in = n, .in = in};
  bool whole = hy__draw_bool(c);
  if (whole && hy_infer(&index, picked) == HY_OK) {
    int total = c->call.n_in;
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, picked[0].ndim, picked[0].shape);
    c->call.n_in = total;
  }
  c->terms = 64;
  if (hy__mistake_in_data(c, 1, HY_INDEX, "an index that is not there")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 0, NULL);
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), shape[0], shape[0]);
  }
  if (hy__mistake(c, 2, HY_SHAPE, "values that do not broadcast")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 1, (int64_t[]){5});
    hy__add_input(c, c->dtype, 1, (int64_t[]){3});
    hy__fill_ints(c, hy__add_input(c, HY_I64, 1, (int64_t[]){2}), 0, 4);
  }
}

// ---- joining ----

static void add_parts(hy__case* c, int ndim, int64_t* shape, int dim, bool may_differ) {
  int n = (int)hy__draw_small_sized(c, 4, 3, 40);
  for (int i = 0; i < n; i++) {
    hy_dtype other = hy__draw_dtype(c, HY_ALL_DTYPES);
    bool mixes = i > 0 && c->flavour == HY__FLAVOUR_MIXED;
    c->mixed |= mixes && other != c->dtype;
    if (may_differ && i > 0) {
      shape[dim] = hy__draw_sized(c, 0, 65551);
      if (shape[dim] > 20 && c->flavour != HY__FLAVOUR_MODEL) shape[dim] = 20;
    }
    hy__add_input(c, mixes ? other : c->dtype, ndim, shape);
  }
}

void hy__cases_cat(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  int dim, ndim = draw_indexed(c, shape, &dim);
  add_parts(c, ndim, shape, dim, true);
  c->call.attrs.dim.dim = either_end(c, dim, ndim);
  if (hy__mistake(c, 1, HY_SHAPE, "sizes that differ beside the dimension")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3});
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 4});
    c->call.attrs.dim.dim = 0;
  }
  if (hy__mistake(c, 2, HY_SHAPE, "a dimension that is not there")) c->call.attrs.dim.dim = 6;
  if (hy__mistake(c, 3, HY_INVALID_ARGUMENT, "nothing to join")) c->call.n_in = 0;
}

void hy__cases_stack(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  bool many = hy__is_model(c, 3);
  int ndim = many ? 1 : hy__draw_shape(c, 0, 3, shape);
  if (many) shape[0] = hy__draw_size(c);
  add_parts(c, ndim, shape, 0, false);
  c->call.attrs.dim.dim = hy__draw_int(c, -ndim - 1, ndim);
  if (hy__mistake(c, 1, HY_SHAPE, "shapes that differ")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 1, (int64_t[]){3});
    hy__add_input(c, c->dtype, 1, (int64_t[]){4});
    c->call.attrs.dim.dim = 0;
  }
  if (hy__mistake(c, 2, HY_SHAPE, "a dimension that is not there")) c->call.attrs.dim.dim = 6;
  if (hy__mistake(c, 3, HY_INVALID_ARGUMENT, "nothing to join")) c->call.n_in = 0;
}
