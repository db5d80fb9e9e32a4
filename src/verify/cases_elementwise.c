// Cases of the elementwise ops.
#include <math.h>
#include <string.h>

#include "ops/reference/element.h"
#include "ops/reference/walk.h"
#include "verify/case.h"

static hy_tensor* add_any(hy__case* c, hy_dtype dtype) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, 0, 4, shape);
  return hy__add_input(c, dtype, ndim, shape);
}

// A shape that broadcasts to `shape`: leading dimensions left out, others of size 1.
static int narrow(hy__case* c, int ndim, const int64_t* shape, int64_t* narrowed) {
  int skip = hy__draw_int(c, 0, 3) == 0 ? (int)hy__draw_int(c, 0, ndim) : 0;
  bool ones = hy__draw_int(c, 0, 2) == 0;
  for (int d = skip; d < ndim; d++) narrowed[d - skip] = ones && hy__draw_bool(c) ? 1 : shape[d];
  return ndim - skip;
}

// n inputs that broadcast together, the first of the case's type, the others of types in `dtypes`
// that promote with it where the case mixes types.
static void add_broadcast(hy__case* c, int n, uint32_t dtypes) {
  int64_t shape[HY_MAX_DIMS], narrowed[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, 0, 4, shape);
  int whole = (int)hy__draw_int(c, 0, n - 1);
  for (int i = 0; i < n; i++) {
    hy_dtype dtype = c->dtype;
    if (i > 0 && c->flavour == HY__FLAVOUR_MIXED) {
      dtype = hy__draw_dtype(c, dtypes);
      c->mixed |= dtype != c->dtype;
    }
    if (i == whole || c->flavour == HY__FLAVOUR_IN_PLACE) {
      hy__add_input(c, dtype, ndim, shape);
    } else {
      int narrow_ndim = narrow(c, ndim, shape, narrowed);
      hy__add_input(c, dtype, narrow_ndim, narrowed);
    }
  }
  if (n > 1 && hy__mistake(c, 1, HY_SHAPE, "sizes that do not broadcast")) {
    c->call.n_in = 0;
    for (int i = 0; i < n; i++) hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3 + i});
  }
}

void hy__cases_unary(hy__case* c) {
  hy_tensor* x = add_any(c, c->dtype);
  if (c->call.op == HY_OP_relu) hy__replace_zeros(x, 0.0);  // as for maximum
}

static bool has_any_magnitude(const hy__case* c) {
  return c->flavour == HY__FLAVOUR_SUBNORMAL || c->flavour == HY__FLAVOUR_HUGE;
}

// Mostly where the op is defined; the case of special values has the rest.
void hy__cases_unary_positive(hy__case* c) {
  hy_tensor* x = add_any(c, c->dtype);
  if (has_any_magnitude(c) && hy_dtype_is_float(c->dtype))
    hy__make_positive(x);
  else if (c->flavour != HY__FLAVOUR_SPECIAL)
    hy__fill_uniform(c, x, 0.05, 6);
}

void hy__cases_cast(hy__case* c) {
  hy_tensor* x = add_any(c, c->dtype);
  hy_dtype to = hy__draw_dtype(c, HY_ALL_DTYPES | HY_FLOAT8S);
  if (c->flavour == HY__FLAVOUR_IN_PLACE) to = c->dtype;
  // What a negative, infinite or NaN float gives as an integer is the machine's own affair.
  if (hy_dtype_is_float(c->dtype) && !hy_dtype_is_float(to)) hy__fill_uniform(c, x, -4, 4);
  if (hy_dtype_is_float(c->dtype) && to == HY_U8) hy__fill_uniform(c, x, 0, 8);
  // Nearly all that both types hold; a double holds no more than 53 bits of it.
  if (c->flavour == HY__FLAVOUR_HUGE && hy_dtype_is_float(c->dtype) && hy_dtype_is_int(to) &&
      to != HY_U8) {
    double most = fmin(ldexp(0.99, hy_dtype_bits(to) - 1), hy__finite_max(c->dtype));
    hy__fill_uniform(c, x, -most, most);
  }
  c->call.attrs.cast.dtype = to;
  if (hy__mistake(c, 1, HY_DTYPE, "a cast to i4")) c->call.attrs.cast.dtype = HY_I4;
  if (hy__mistake(c, 2, HY_DTYPE, "a cast to no type")) c->call.attrs.cast.dtype = HY_NONE;
}

void hy__cases_gelu(hy__case* c) {
  add_any(c, c->dtype);
  c->call.attrs.gelu.approximate = hy__draw_bool(c);
}

void hy__cases_clamp(hy__case* c) {
  hy__replace_zeros(add_any(c, c->dtype), 0.0);  // as for maximum
  hy_scalar low = hy__draw_scalar(c, c->dtype), high = hy__draw_scalar(c, c->dtype);
  uint64_t which = hy__draw(c) % 3;
  c->call.attrs.clamp.low = which == 1 ? hy_no_scalar() : low;
  c->call.attrs.clamp.high = which == 2 ? hy_no_scalar() : high;
}

// Of 0 and -0 either may be the larger: there is one kind of zero in a case.
void hy__cases_binary(hy__case* c) {
  add_broadcast(c, 2, c->info->dtypes);
  bool chooses = c->call.op == HY_OP_maximum || c->call.op == HY_OP_minimum;
  double zero = hy__draw_bool(c) ? 0.0 : -0.0;
  for (int i = 0; chooses && i < 2; i++) hy__replace_zeros(&c->in[i], zero);
}

void hy__cases_compare(hy__case* c) {
  add_broadcast(c, 2, c->info->dtypes);
}

// alpha must not have more of a category than the tensors.
static hy_scalar draw_alpha(hy__case* c, hy_dtype dtype) {
  int64_t whole = hy__draw_int(c, -3, 3);
  double real = hy__draw_real(c, -2, 2);
  uint64_t kind = hy__draw(c) % 3;
  if (kind == 0) return hy_int(1);
  if (dtype == HY_BOOL) return hy_int(1);
  return hy_dtype_is_float(dtype) && kind == 1 ? hy_float(real) : hy_int(whole);
}

void hy__cases_alpha(hy__case* c) {
  add_broadcast(c, 2, c->info->dtypes);
  c->call.attrs.alpha.alpha = draw_alpha(c, c->dtype);
}

static hy_rounding draw_rounding(hy__case* c) {
  return (hy_rounding)hy__draw_int(c, HY_ROUND_NONE, HY_ROUND_FLOOR);
}

void hy__cases_div(hy__case* c) {
  add_broadcast(c, 2, c->info->dtypes);
  hy_rounding rounding = c->flavour == HY__FLAVOUR_SUBNORMAL ? HY_ROUND_NONE : draw_rounding(c);
  c->call.attrs.rounding.rounding = rounding;
  hy_tensor* b = &c->in[1];
  if (!hy_dtype_is_float(b->dtype))
    hy__fill_ints(c, b, 1, c->flavour == HY__FLAVOUR_HUGE ? 127 : 7);
  if (hy_dtype_is_int(b->dtype) && b->dtype != HY_U8 && hy__draw_bool(c))
    hy__fill_ints(c, b, -7, -1);
}

// Small powers, so that few results overflow; integers to no negative power, which is an error.
void hy__cases_pow(hy__case* c) {
  add_broadcast(c, 2, c->info->dtypes);
  if (c->flavour == HY__FLAVOUR_SPECIAL) return;
  bool in_floats = hy_dtype_is_float(c->in[0].dtype) || hy_dtype_is_float(c->in[1].dtype);
  if (has_any_magnitude(c) && hy_dtype_is_float(c->in[0].dtype))
    hy__make_positive(&c->in[0]);
  else
    hy__fill_uniform(c, &c->in[0], in_floats ? 0.1 : -5, 4);
  hy__fill_uniform(c, &c->in[1], in_floats ? -3 : 0, 3);
}

void hy__cases_shift(hy__case* c) {
  add_broadcast(c, 2, c->info->dtypes);
  hy__fill_ints(c, &c->in[1], 0, hy_dtype_bits(c->dtype) - 2);
}

void hy__cases_scalar(hy__case* c) {
  add_any(c, c->dtype);
  c->call.attrs.value.value = hy__draw_scalar(c, c->dtype);
}

void hy__cases_scalar_alpha(hy__case* c) {
  add_any(c, c->dtype);
  c->call.attrs.value_alpha.value = hy__draw_scalar(c, c->dtype);
  c->call.attrs.value_alpha.alpha = draw_alpha(c, c->dtype);
}

void hy__cases_scalar_div(hy__case* c) {
  add_any(c, c->dtype);
  hy_scalar value = hy__draw_scalar(c, c->dtype);
  if (hy_scalar_f(value) == 0) value = hy_int(2);
  c->call.attrs.value_rounding.value = value;
  c->call.attrs.value_rounding.rounding = draw_rounding(c);
}

void hy__cases_scalar_pow(hy__case* c) {
  hy_tensor* x = add_any(c, c->dtype);
  bool is_float = hy_dtype_is_float(c->dtype);
  int64_t whole = hy__draw_int(c, is_float ? -2 : 0, 3);
  double real = hy__draw_real(c, 0.1, 3);
  bool any = c->flavour == HY__FLAVOUR_SPECIAL || has_any_magnitude(c);
  if (!any || (!is_float && c->call.op == HY_OP_rpow_scalar))
    hy__fill_uniform(c, x, is_float ? -3 : 0, 3);
  bool as_real = is_float && hy__draw_bool(c);
  c->call.attrs.value.value = as_real ? hy_float(real) : hy_int(whole);
}

void hy__cases_where(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], narrowed[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, 0, 4, shape);
  hy__add_input(c, HY_BOOL, ndim, shape);
  bool of_floats = has_any_magnitude(c) || c->flavour == HY__FLAVOUR_SPECIAL;
  hy_dtype dtype = hy__draw_dtype(c, of_floats ? HY_FLOATS : HY_ALL_DTYPES);
  for (int i = 0; i < 2; i++) {
    hy_dtype other = hy__draw_dtype(c, HY_ALL_DTYPES);
    int narrow_ndim = narrow(c, ndim, shape, narrowed);
    bool mixes = i == 1 && c->flavour == HY__FLAVOUR_MIXED;
    c->mixed |= mixes && other != dtype;
    hy__add_input(c, mixes ? other : dtype, narrow_ndim, narrowed);
  }
  if (hy__mistake(c, 1, HY_SHAPE, "sizes that do not broadcast")) {
    c->call.n_in = 1;
    hy__add_input(c, HY_F32, 1, (int64_t[]){2});
    hy__add_input(c, HY_F32, 1, (int64_t[]){3});
  }
}

void hy__cases_masked_fill(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], narrowed[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, 0, 4, shape);
  hy__add_input(c, c->dtype, ndim, shape);
  int narrow_ndim = narrow(c, ndim, shape, narrowed);
  hy__add_input(c, HY_BOOL, narrow_ndim, narrowed);
  hy_scalar value = hy__draw_scalar(c, c->dtype);
  // A number that the type cannot hold is an error, unlike in arithmetic.
  if (value.kind == HY_F64 && !hy_dtype_is_float(c->dtype)) value = hy_int(1);
  if (c->dtype == HY_BOOL) value = hy_bool(true);
  if (c->dtype == HY_U8 && hy_scalar_i(value) < 0) value = hy_int(3);
  c->call.attrs.value.value = value;
  if (hy__mistake(c, 1, HY_DTYPE, "a mask of numbers")) c->in[1].dtype = HY_U8;
  if (hy__mistake(c, 2, HY_SHAPE, "a mask larger than the tensor")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 1, (int64_t[]){3});
    hy__add_input(c, HY_BOOL, 2, (int64_t[]){2, 3});
  }
}

void hy__cases_addc(hy__case* c) {
  add_broadcast(c, 3, c->info->dtypes);
  if (c->flavour == HY__FLAVOUR_HUGE) hy__fill_uniform(c, &c->in[1], -4, 4);
  if (c->call.op == HY_OP_addcdiv && c->flavour != HY__FLAVOUR_SPECIAL)
    hy__fill_uniform(c, &c->in[2], 0.5, 4);
  c->call.attrs.value.value = draw_alpha(c, c->dtype);
}

void hy__cases_tri(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, 2, 4, shape);
  hy__add_input(c, c->dtype, ndim, shape);
  int64_t furthest = c->flavour == HY__FLAVOUR_LARGE || c->flavour == HY__FLAVOUR_MODEL ? 300 : 4;
  c->call.attrs.tri.diagonal = hy__draw_int(c, -furthest, furthest);
  if (hy__mistake(c, 1, HY_SHAPE, "a vector where a matrix is needed")) c->in[0].ndim = 1;
}

static void add_alike(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, 0, 4, shape);
  hy_tensor* dy = hy__add_input(c, c->dtype, ndim, shape);
  // An infinity times a slope that underflows on some devices is NaN there.
  if (c->flavour == HY__FLAVOUR_SPECIAL) hy__fill_uniform(c, dy, -4, 4);
  if (c->flavour == HY__FLAVOUR_SPECIAL && hy_tensor_numel(dy) > 1)
    hy__store_f(c->dtype, hy__element(dy, 1), -0.0);
  hy_tensor* x = hy__add_input(c, c->dtype, ndim, shape);
  if (c->call.op == HY_OP_relu_backward && hy_tensor_numel(x) > 1)
    hy__store_f(c->dtype, hy__element(x, 1), 1);
  // Where the functions end; the powers in their derivatives overflow soon behind.
  double end = 1.1 * log(hy__finite_max(c->dtype));
  if (c->flavour == HY__FLAVOUR_HUGE) hy__fill_uniform(c, x, -end, end);
  if (hy__mistake(c, 1, HY_DTYPE, "two types where one is needed")) {
    c->call.n_in = 1;
    hy__add_input(c, HY_F64, ndim, shape);
  }
}

void hy__cases_alike(hy__case* c) {
  add_alike(c);
  // An output of sigmoid or tanh is within [-1, 1].
  if (c->call.op == HY_OP_sigmoid_backward || c->call.op == HY_OP_tanh_backward)
    hy__fill_uniform(c, &c->in[1], c->call.op == HY_OP_tanh_backward ? -1 : 0, 1);
}

void hy__cases_alike_gelu(hy__case* c) {
  add_alike(c);
  c->call.attrs.gelu.approximate = hy__draw_bool(c);
}
