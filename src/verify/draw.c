// Random choices and data. Everything comes from splitmix64, so that a case is the same everywhere.
#include <math.h>
#include <string.h>

#include "ops/reference/element.h"
#include "ops/reference/walk.h"
#include "verify/tolerance.h"

uint64_t hy__draw(hy__case* c) {
  uint64_t z = (c->random += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t hy__draw_int(hy__case* c, int64_t low, int64_t high) {
  uint64_t drawn = hy__draw(c), span = (uint64_t)high - (uint64_t)low + 1;
  if (high <= low) return low;
  return (int64_t)((uint64_t)low + (span > 0 ? drawn % span : drawn));
}

double hy__draw_real(hy__case* c, double low, double high) {
  return low + (high - low) * ((double)(hy__draw(c) >> 11) * 0x1p-53);
}

bool hy__draw_bool(hy__case* c) {
  return hy__draw(c) >> 63;
}

bool hy__draw_present(hy__case* c) {
  return hy__draw_bool(c) || c->flavour == HY__FLAVOUR_MODEL || c->flavour == HY__FLAVOUR_GAPS;
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
  if (c->flavour == HY__FLAVOUR_MODEL) return limited(c, 1 + (int64_t)(drawn % 3));
  if (c->key.quick) return limited(c, c->flavour == HY__FLAVOUR_LARGE ? 17 : usual[drawn % 5]);
  if (c->flavour == HY__FLAVOUR_LARGE) return limited(c, large[drawn % 5]);
  return limited(c, usual[drawn % 11]);
}

int64_t hy__draw_small(hy__case* c, int64_t most) {
  return limited(c, hy__draw_int(c, 1, most));
}

bool hy__is_model(const hy__case* c, int which) {
  return c->flavour == HY__FLAVOUR_MODEL && c->model == which;
}

void hy__has_sizes_to(hy__case* c, int sizes) {
  c->missing |= c->flavour == HY__FLAVOUR_MODEL && c->model >= sizes;
}

static int64_t model_size(const hy__case* c, int64_t size) {
  bool whole = c->main && (!c->key.quick || (c->key.seed + (uint64_t)c->key.op) % 48 == 0);
  return limited(c, size > HY__EVERY_TYPE && !whole ? size / 16 : size);
}

int64_t hy__draw_sized(hy__case* c, int which, int64_t size) {
  int64_t usual = hy__draw_size(c);
  return hy__is_model(c, which) ? model_size(c, size) : usual;
}

int64_t hy__draw_small_sized(hy__case* c, int64_t most, int which, int64_t size) {
  int64_t usual = hy__draw_small(c, c->flavour == HY__FLAVOUR_MODEL && most > 3 ? 3 : most);
  return hy__is_model(c, which) ? model_size(c, size) : usual;
}

static int draw_model_shape(hy__case* c, int low, int high, int64_t* shape) {
  hy__has_sizes_to(c, high < 3 ? 1 : 3);
  int most = high >= 4 ? HY_MAX_DIMS : high == 3 ? HY_MAX_DIMS - 1 : high, ndim = most;
  if (c->model == 0) ndim = low > 1 ? low : high > 1 ? (int)hy__draw_int(c, 1, 2) : 1;
  if (c->model == 2) ndim = 5;
  for (int d = 0; d < ndim; d++) shape[d] = limited(c, c->model == 1 ? hy__draw_int(c, 1, 3) : 1);
  int at = (int)hy__draw_int(c, 0, ndim - 1);
  if (c->model == 0) shape[at] = model_size(c, (1 << 17) + hy__draw_int(c, 1, 999));
  if (c->model == 2) {
    shape[at] = model_size(c, hy__draw_int(c, 20001, 25000));
    shape[(at + 1) % ndim] = limited(c, 2);
  }
  return ndim;
}

int hy__draw_shape(hy__case* c, int low, int high, int64_t* shape) {
  if (c->flavour == HY__FLAVOUR_MODEL) return draw_model_shape(c, low, high, shape);
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

// In turn, so that a tensor of some size has all of them.
static double special(hy__case* c) {
  static const double values[] = {NAN, -0.0, INFINITY, -INFINITY, 0.0, 100, -100, 1e-3, 1, -1};
  return values[c->specials++ % 10];
}

// Exponents of the smallest and the largest numbers of a type.
static int lowest_exponent(const hy__case* c, hy_dtype dtype) {
  if (c->key.narrow && dtype != HY_F16 && hy_dtype_bits(dtype) > 8) return -31;
  switch (dtype) {
    case HY_F64: return -1074;
    case HY_F32: return -149;
    case HY_BF16: return -133;
    case HY_F16: return -24;
    case HY_F8E4M3: return -9;
    default: return -16;
  }
}

static int highest_exponent(const hy__case* c, hy_dtype dtype) {
  if (c->key.narrow && hy_dtype_bits(dtype) > 8) return 14;
  switch (dtype) {
    case HY_F64: return 1023;
    case HY_F32:
    case HY_BF16: return 127;
    case HY_F8E4M3: return 8;
    default: return 15;
  }
}

double hy__finite_max(hy_dtype dtype) {
  switch (dtype) {
    case HY_F64: return 0x1.fffffffffffffp1023;
    case HY_F32: return 0x1.fffffep127;
    case HY_BF16: return 0x1.fep127;
    case HY_F16: return 65504;
    case HY_F8E4M3: return 448;
    default: return 57344;
  }
}

// Below where one order of a few additions and factors overflows and another does not.
static int spare_exponents(const hy__case* c) {
  return hy__knows_terms(c) ? 4 : 0;
}

static double largest_drawn(const hy__case* c, hy_dtype dtype) {
  return c->key.narrow ? 0x1p15 : ldexp(hy__finite_max(dtype), -spare_exponents(c));
}

// Every magnitude of the type, from one end to 1. Half of the large ones are where exponential
// functions end, among them the last numbers before they overflow or vanish.
static double any_magnitude(hy__case* c, hy_dtype dtype) {
  bool huge = c->flavour == HY__FLAVOUR_HUGE;
  int exponent = (int)(huge ? hy__draw_int(c, 0, highest_exponent(c, dtype) - spare_exponents(c))
                            : hy__draw_int(c, lowest_exponent(c, dtype), 0));
  double most = largest_drawn(c, dtype), value = ldexp(hy__draw_real(c, 1, 2), exponent);
  uint64_t kind = hy__draw(c);
  if (huge && kind & 2) value = hy__draw_real(c, 0, 1.1 * log(hy__finite_max(dtype)));
  if (huge && kind % 61 == 0) value = most;
  value = fmin(value, most);
  return kind >> 63 ? -value : value;
}

// In the middle of the subnormal numbers.
static double subnormal(const hy__case* c, hy_dtype dtype) {
  return ldexp(3, (lowest_exponent(c, dtype) + 1 - highest_exponent(c, dtype)) / 2);
}

// The end of the range.
static double extreme(hy__case* c, hy_dtype dtype) {
  double most = largest_drawn(c, dtype);
  double value = c->flavour == HY__FLAVOUR_HUGE ? most : subnormal(c, dtype);
  return hy__draw_bool(c) ? value : -value;
}

// How many inputs are multiplied before they are added up, or how often one by itself.
static int factors(hy_op op) {
  switch (op) {
    case HY_OP_sum:
    case HY_OP_mean:
    case HY_OP_cumsum:
    case HY_OP_scatter:
    case HY_OP_index_add:
    case HY_OP_index_put:
    case HY_OP_embedding_backward:
    case HY_OP_max_pool2d_backward:
    case HY_OP_avg_pool2d:
    case HY_OP_avg_pool2d_backward:
    case HY_OP_conv2d:
    case HY_OP_sgd: return 1;
    case HY_OP_einsum: return 5;
    default: return 2;
  }
}

// One magnitude for the whole tensor, as large or small as sums of products can bear.
static double tensor_magnitude(const hy__case* c, hy_dtype dtype) {
  int highest = (highest_exponent(c, dtype) - 22) / factors(c->call.op);
  int lowest = lowest_exponent(c, dtype) / (factors(c->call.op) + 1);
  int exponent = c->flavour == HY__FLAVOUR_HUGE ? highest : lowest;
  return ldexp(1, exponent > 0 || c->flavour != HY__FLAVOUR_HUGE ? exponent : 0);
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
  bool fills = c->call.op == HY_OP_fill || c->call.op == HY_OP_masked_fill;
  if (c->flavour == HY__FLAVOUR_SPECIAL && fills && (HY_DTYPE_BIT(dtype) & HY_FLOATS)) {
    const double values[] = {-INFINITY, NAN, -0.0, INFINITY};
    return hy_float(values[c->key.index % 4]);
  }
  if (c->flavour == HY__FLAVOUR_HUGE && fills && hy_dtype_is_float(dtype))
    return hy_float(-largest_drawn(c, dtype));
  if (c->flavour == HY__FLAVOUR_SUBNORMAL && fills && hy_dtype_is_float(dtype))
    return hy_float(-subnormal(c, dtype));
  if (c->flavour == HY__FLAVOUR_HUGE && hy_dtype_is_int(dtype))
    return hy_int(hy__draw_int(c, lowest(dtype) / 2, highest(dtype) / 2));
  if ((c->flavour == HY__FLAVOUR_HUGE || c->flavour == HY__FLAVOUR_SUBNORMAL) &&
      hy_dtype_is_float(dtype) && kind % 4 != 0)
    return hy_float(hy__round_to(dtype, any_magnitude(c, dtype)));
  if (!hy_dtype_is_float(dtype) || kind % 4 == 0) return hy_int(whole);
  return hy_float(real);
}

// How many elements of a tensor are drawn: a long contiguous one repeats them, which costs a copy.
// A prime, so that nothing of a power of two is alike.
#define PERIOD 4099

static int64_t n_drawn(const hy_tensor* t) {
  int64_t numel = t->data ? hy_tensor_numel(t) : 0;
  return numel > PERIOD && hy_tensor_is_contiguous(t) ? PERIOD : numel;
}

static void repeat(hy_tensor* t, int64_t drawn) {
  size_t size = hy_dtype_size(t->dtype), have = (size_t)drawn * size;
  size_t all = t->data ? (size_t)hy_tensor_numel(t) * size : 0;
  for (; have > 0 && have < all; have *= 2)
    memcpy((char*)t->data + have, t->data, have < all - have ? have : all - have);
}

// Values of both signs. Half of the tensors hold quarters only, so that ties and equal values
// occur; integers reach the ends of their type now and then, where they wrap.
void hy__fill_any(hy__case* c, hy_tensor* t) {
  bool coarse = hy__draw_bool(c),
       ranges = c->flavour == HY__FLAVOUR_SUBNORMAL || c->flavour == HY__FLAVOUR_HUGE;
  bool mixes = ranges && hy__mixes_magnitudes(c), contiguous = hy_tensor_is_contiguous(t);
  bool is_float = hy_dtype_is_float(t->dtype);
  double magnitude = ranges && is_float ? tensor_magnitude(c, t->dtype) : 1;
  int64_t numel = n_drawn(t), size = (int64_t)hy_dtype_size(t->dtype);
  for (int64_t i = 0; i < numel; i++) {
    char* at = contiguous ? (char*)t->data + i * size : hy__element(t, i);
    uint64_t kind = hy__draw(c);
    if (is_float && mixes) {
      hy__store_f(t->dtype, at, i == 0 ? extreme(c, t->dtype) : any_magnitude(c, t->dtype));
    } else if (is_float) {
      double value = coarse ? (double)hy__draw_int(c, -16, 16) / 4 : hy__draw_real(c, -4, 4);
      if (c->flavour == HY__FLAVOUR_SPECIAL && (kind % 5 == 0 || i < 3)) value = special(c);
      hy__store_f(t->dtype, at, value * magnitude);
    } else {
      int64_t value = coarse ? hy__draw_int(c, -5, 5) : hy__draw_int(c, -100, 100);
      if (kind % 16 == 0) value = kind & 16 ? lowest(t->dtype) : highest(t->dtype);
      if (t->dtype == HY_U8 && value < 0) value = -value;
      // Every bit, so that 64-bit numbers that no double holds occur.
      if (c->flavour == HY__FLAVOUR_HUGE) value = (int64_t)hy__draw(c);
      hy__store_i(t->dtype, at, t->dtype == HY_BOOL ? (int64_t)(kind >> 63) : value);
    }
  }
  repeat(t, numel);
}

void hy__fill_rarely(hy__case* c, hy_tensor* t, bool ones) {
  if (c->flavour == HY__FLAVOUR_SPECIAL) return;
  int64_t numel = n_drawn(t);
  for (int64_t i = 0; i < numel; i++) {
    bool one = (hy__draw(c) % 16 == 0) == ones;
    if (hy_dtype_is_float(t->dtype))
      hy__store_f(t->dtype, hy__element(t, i), one);
    else
      hy__store_i(t->dtype, hy__element(t, i), one);
  }
  repeat(t, numel);
}

void hy__make_positive(hy_tensor* t) {
  int64_t numel = hy_tensor_numel(t);
  for (int64_t i = 0; i < numel; i++) {
    char* at = hy__element(t, i);
    hy__store_f(t->dtype, at, fabs(hy__load_f(t->dtype, at)));
  }
}

void hy__add_mean(hy__case* c, hy_tensor* t) {
  const double mean = 1024;
  bool wanted = c->flavour == HY__FLAVOUR_PLAIN || c->flavour == HY__FLAVOUR_LARGE;
  int64_t numel = wanted && t->dtype != HY_BF16 && !c->key.simple ? hy_tensor_numel(t) : 0;
  for (int64_t i = 0; i < numel; i++) {
    char* at = hy__element(t, i);
    hy__store_f(t->dtype, at, hy__load_f(t->dtype, at) + mean);
  }
}

void hy__replace_zeros(hy_tensor* t, double zero) {
  int64_t numel = hy_dtype_is_float(t->dtype) ? hy_tensor_numel(t) : 0;
  for (int64_t i = 0; i < numel; i++) {
    char* at = hy__element(t, i);
    if (hy__load_f(t->dtype, at) == 0) hy__store_f(t->dtype, at, zero);
  }
}

double hy__largest(const hy_tensor* t) {
  double most = 0;
  if (!hy_dtype_is_float(t->dtype) || t->layout != HY_LAYOUT_STRIDED || !t->data) return 0;
  if (hy_tensor_numel(t) == 0) return 0;
  double row[HY__ROW];
  hy__walk w;
  hy__walk_begin(&w, t, 1, (const hy_tensor*[]){t});
  while (hy__walk_next(&w)) {
    hy__load_row_f(t->dtype, w.at[0], w.step[0], w.n, row);
    for (int64_t i = 0; i < w.n; i++) {
      double value = fabs(row[i]);
      if (isfinite(value) && value > most) most = value;
    }
  }
  return most;
}

void hy__fill_uniform(hy__case* c, hy_tensor* t, double low, double high) {
  bool contiguous = hy_tensor_is_contiguous(t);
  int64_t numel = n_drawn(t), size = (int64_t)hy_dtype_size(t->dtype);
  for (int64_t i = 0; i < numel; i++) {
    char* at = contiguous ? (char*)t->data + i * size : hy__element(t, i);
    double value = hy__draw_real(c, low, high);
    if (hy_dtype_is_float(t->dtype))
      hy__store_f(t->dtype, at, value);
    else
      hy__store_i(t->dtype, at, clipped(t->dtype, (int64_t)ceil(value)));
  }
  repeat(t, numel);
}

void hy__fill_ints(hy__case* c, hy_tensor* t, int64_t low, int64_t high) {
  int64_t numel = n_drawn(t);
  for (int64_t i = 0; i < numel; i++) {
    int64_t value = hy__draw_int(c, low, high);
    if (hy_dtype_is_float(t->dtype))
      hy__store_f(t->dtype, hy__element(t, i), (double)value);
    else
      hy__store_i(t->dtype, hy__element(t, i), clipped(t->dtype, value));
  }
  repeat(t, numel);
}

static int64_t distinct_values(hy_dtype dtype) {
  return hy_dtype_bits(dtype) == 8 ? 251 : hy_dtype_bits(dtype) == 16 ? 2039 : 20011;
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
    // Of 64 bits, beyond what a double holds.
    if (t->dtype == HY_I64) value += value * ((int64_t)1 << 40) * 8;
    if (t->dtype == HY_BF16)  // too coarse for eighths: neighbours by their bits, from 2^-63 up
      *(uint16_t*)hy__element(t, i) = (uint16_t)(0x2000 + value + prime);
    else if (hy_dtype_is_float(t->dtype))
      hy__store_f(t->dtype, hy__element(t, i), (double)value / 8);
    else
      hy__store_i(t->dtype, hy__element(t, i), value);
  }
}
