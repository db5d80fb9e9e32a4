// Random choices and data. Everything comes from splitmix64, so that a case is the same everywhere.
#include <math.h>

#include "ops/reference/element.h"
#include "ops/reference/walk.h"
#include "verify/case.h"

uint64_t hy__draw(hy__case* c) {
  uint64_t z = (c->random += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t hy__draw_int(hy__case* c, int64_t low, int64_t high) {
  uint64_t drawn = hy__draw(c);
  return high <= low ? low : low + (int64_t)(drawn % (uint64_t)(high - low + 1));
}

double hy__draw_real(hy__case* c, double low, double high) {
  return low + (high - low) * ((double)(hy__draw(c) >> 11) * 0x1p-53);
}

bool hy__draw_bool(hy__case* c) {
  return hy__draw(c) >> 63;
}

hy_dtype hy__draw_dtype(hy__case* c, uint32_t dtypes) {
  int64_t nth = hy__draw_int(c, 0, __builtin_popcount(dtypes) - 1);
  for (int d = 0; d < HY_DTYPE_COUNT; d++) {
    if ((dtypes & HY_DTYPE_BIT(d)) && nth-- == 0) return (hy_dtype)d;
  }
  return HY_NONE;
}

// ---- sizes ----

static int64_t limited(const hy__case* c, int64_t size) {
  return c->key.limit > 0 && size > c->key.limit ? c->key.limit : size;
}

int64_t hy__draw_size(hy__case* c) {
  uint64_t drawn = hy__draw(c);
  if (c->flavour == HY__FLAVOUR_EMPTY && (drawn & 1)) return 0;
  return hy__draw_size_from_1(c);
}

int64_t hy__draw_size_from_1(hy__case* c) {
  static const int64_t usual[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17};
  static const int64_t large[] = {33, 64, 65, 96, 100};
  uint64_t drawn = hy__draw(c) >> 8;
  if (c->flavour == HY__FLAVOUR_TINY) return limited(c, drawn % 4 ? 1 : 2);
  if (c->key.quick) return limited(c, c->flavour == HY__FLAVOUR_LARGE ? 17 : usual[drawn % 5]);
  if (c->flavour == HY__FLAVOUR_LARGE) return limited(c, large[drawn % 5]);
  return limited(c, usual[drawn % 11]);
}

int64_t hy__draw_small(hy__case* c, int64_t most) {
  return limited(c, hy__draw_int(c, 1, most));
}

int hy__draw_shape(hy__case* c, int low, int high, int64_t* shape) {
  int64_t budget = c->key.quick ? 256 : 3000;
  int ndim = (int)hy__draw_int(c, low, high);
  bool to_lowest = hy__draw_bool(c);
  if (c->flavour == HY__FLAVOUR_TINY && to_lowest) ndim = low;
  for (int d = 0; d < ndim; d++) shape[d] = hy__draw_size(c);
  if (ndim > 0) {
    // One long dimension where the case is a large one, one of size 0 where it is an empty one.
    int d = (int)hy__draw_int(c, 0, ndim - 1);
    int64_t length = hy__draw_int(c, 2000, 20000);
    if (c->flavour == HY__FLAVOUR_EMPTY) shape[d] = 0;
    if (c->flavour == HY__FLAVOUR_LARGE) {
      budget = c->key.quick ? 2000 : 30000;
      shape[d] = limited(c, c->key.quick ? length / 10 : length);
    }
  }
  for (;;) {
    int64_t numel = 1;
    int smallest = -1;
    for (int d = 0; d < ndim; d++) {
      numel *= shape[d];
      if (shape[d] > 1 && (smallest < 0 || shape[d] < shape[smallest])) smallest = d;
    }
    if (numel <= budget || smallest < 0) return ndim;
    shape[smallest] = ndim > 1 ? (shape[smallest] + 1) / 2 : budget;
  }
}

hy_scalar hy__draw_scalar(hy__case* c, hy_dtype dtype) {
  int64_t whole = hy__draw_int(c, -3, 3);
  double real = hy__draw_real(c, -3, 3);
  uint64_t kind = hy__draw(c);
  if (c->flavour == HY__FLAVOUR_MIXED) {
    c->mixed = true;
    if (kind % 3 == 0) return hy_bool(whole > 0);
    return kind % 3 == 1 ? hy_int(whole) : hy_float(real);
  }
  if (dtype == HY_BOOL) return hy_bool(whole > 0);
  if (!hy_dtype_is_float(dtype) || kind % 4 == 0) return hy_int(whole);
  return hy_float(real);
}

// ---- data ----

static int64_t lowest(hy_dtype dtype) {
  return dtype == HY_U8 || dtype == HY_BOOL ? 0
                                            : (int64_t)((uint64_t)-1 << (hy_dtype_bits(dtype) - 1));
}

static int64_t highest(hy_dtype dtype) {
  return dtype == HY_BOOL ? 1 : dtype == HY_U8 ? 255 : ~lowest(dtype);
}

static int64_t clipped(hy_dtype dtype, int64_t value) {
  return value < lowest(dtype) ? lowest(dtype) : value > highest(dtype) ? highest(dtype) : value;
}

static double special(hy__case* c) {
  static const double values[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 100, -100, 1e-3, 1, -1};
  return values[hy__draw(c) % 10];
}

// Values of both signs. Half of the tensors hold quarters only, so that ties and equal values
// occur; integers reach the ends of their type now and then, where they wrap.
void hy__fill_any(hy__case* c, hy_tensor* t) {
  bool coarse = hy__draw_bool(c);
  int64_t numel = hy_tensor_numel(t);
  for (int64_t i = 0; i < numel; i++) {
    char* at = hy__element(t, i);
    uint64_t kind = hy__draw(c);
    if (hy_dtype_is_float(t->dtype)) {
      double value = coarse ? (double)hy__draw_int(c, -16, 16) / 4 : hy__draw_real(c, -4, 4);
      if (c->flavour == HY__FLAVOUR_SPECIAL && kind % 5 == 0) value = special(c);
      hy__store_f(t->dtype, at, value);
    } else {
      int64_t value = coarse ? hy__draw_int(c, -5, 5) : hy__draw_int(c, -100, 100);
      if (kind % 16 == 0) value = kind & 16 ? lowest(t->dtype) : highest(t->dtype);
      if (t->dtype == HY_U8 && value < 0) value = -value;
      hy__store_i(t->dtype, at, t->dtype == HY_BOOL ? (int64_t)(kind >> 63) : value);
    }
  }
}

void hy__fill_uniform(hy__case* c, hy_tensor* t, double low, double high) {
  int64_t numel = hy_tensor_numel(t);
  for (int64_t i = 0; i < numel; i++) {
    double value = hy__draw_real(c, low, high);
    if (hy_dtype_is_float(t->dtype))
      hy__store_f(t->dtype, hy__element(t, i), value);
    else
      hy__store_i(t->dtype, hy__element(t, i), clipped(t->dtype, (int64_t)ceil(value)));
  }
}

void hy__fill_ints(hy__case* c, hy_tensor* t, int64_t low, int64_t high) {
  int64_t numel = hy_tensor_numel(t);
  for (int64_t i = 0; i < numel; i++) {
    int64_t value = hy__draw_int(c, low, high);
    if (hy_dtype_is_float(t->dtype))
      hy__store_f(t->dtype, hy__element(t, i), (double)value);
    else
      hy__store_i(t->dtype, hy__element(t, i), clipped(t->dtype, value));
  }
}

static int64_t distinct_values(hy_dtype dtype) {
  bool narrow = hy_dtype_bits(dtype) == 8 || dtype == HY_BF16;
  return narrow ? 113 : dtype == HY_F16 ? 2039 : 20011;
}

int64_t hy__distinct_limit(hy_dtype dtype, int64_t size) {
  int64_t most = distinct_values(dtype);
  return size < most ? size : most;
}

// Steps of an eighth (of one for integers) in an order that looks random: i * 37 + start modulo a
// prime that the type can count to.
void hy__fill_distinct(hy__case* c, hy_tensor* t) {
  int64_t numel = hy_tensor_numel(t), start = hy__draw_int(c, 0, 100);
  int64_t prime = distinct_values(t->dtype);
  for (int64_t i = 0; i < numel; i++) {
    int64_t sum = 0, rest = i;
    for (int d = t->ndim - 1; d >= 0; d--) {
      sum += rest % t->shape[d];
      rest /= t->shape[d];
    }
    int64_t value = (sum * 37 + start) % prime - (t->dtype == HY_U8 ? 0 : prime / 2);
    if (hy_dtype_is_float(t->dtype))
      hy__store_f(t->dtype, hy__element(t, i), (double)value / 8);
    else
      hy__store_i(t->dtype, hy__element(t, i), value);
  }
}
