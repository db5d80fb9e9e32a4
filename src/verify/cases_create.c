// Cases of the ops that create from nothing, and of dropout.
#include <math.h>

#include "verify/case.h"

static hy_tensor* add_created(hy__case* c, int most_dims) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, most_dims == 1, most_dims, shape);
  return hy__add_output(c, c->dtype, ndim, shape);
}

void hy__cases_fill(hy__case* c) {
  add_created(c, 4);
  c->call.attrs.value.value = hy__draw_scalar(c, c->dtype);
  if (c->dtype == HY_U8) c->call.attrs.value.value = hy_int(hy__draw_int(c, 0, 255));
}

void hy__cases_arange(hy__case* c) {
  add_created(c, 1);
  int64_t n = c->out[0].shape[0];
  bool whole = !hy_dtype_is_float(c->dtype) || hy__draw_bool(c);
  double start = hy__draw_real(c, -4, 4), step = hy__draw_real(c, -1, 1);
  int64_t first = hy__draw_int(c, 0, 9), stride = hy__draw_int(c, -1, 3);
  // Narrow integers must not run out of their range; wide ones pass what a double holds.
  if (hy_dtype_bits(c->dtype) == 8 && n > 17) stride = 0;
  if (c->dtype == HY_U8 && stride < 0) first = 30;
  if (c->dtype == HY_I64 && (c->flavour == HY__FLAVOUR_HUGE || hy__draw_bool(c))) {
    first = hy__draw_int(c, -((int64_t)1 << 61), (int64_t)1 << 61);
    stride = hy__draw_int(c, -((int64_t)1 << 40), (int64_t)1 << 40);
  }
  c->scale =
      fmax(fabs(whole ? (double)first : start), fabs((whole ? (double)stride : step) * (double)n));
  c->wide = true;
  c->call.attrs.arange.start = whole ? hy_int(first) : hy_float(start);
  c->call.attrs.arange.step = whole ? hy_int(stride) : hy_float(step);
  if (hy__mistake(c, 1, HY_SHAPE, "a matrix where a vector is needed")) {
    c->call.n_out = 0;
    hy__add_output(c, c->dtype, 2, (int64_t[]){2, 2});
  }
}

// Offsets on both sides of 2^32, where the second word of the counter begins to move.
static uint64_t draw_offset(hy__case* c) {
  uint64_t drawn = hy__draw(c);
  if (c->flavour == HY__FLAVOUR_PLAIN) return drawn >> 40;
  return drawn & 1 ? 0xffffffff - (drawn >> 60) : drawn >> (drawn >> 1 & 31);
}

static void add_random(hy__case* c, double a, double b) {
  add_created(c, 4);
  c->call.attrs.random.seed = hy__draw(c);
  c->call.attrs.random.offset = draw_offset(c);
  c->call.attrs.random.a = a;
  c->call.attrs.random.b = b;
}

void hy__cases_random(hy__case* c) {
  double a = hy__draw_real(c, -1, 1), b = hy__draw_real(c, 1, 3);
  bool standard = hy__draw_bool(c);
  add_random(c, standard ? 0 : a, standard ? 1 : b);
  c->scale = 8;  // no normal number is further out
  c->wide = true;
}

void hy__cases_randint(hy__case* c) {
  double low = (double)hy__draw_int(c, c->dtype == HY_U8 ? 0 : -20, 20);
  double high = low + (double)hy__draw_int(c, 1, 100);
  bool wide = c->flavour == HY__FLAVOUR_HUGE || hy__draw_bool(c);
  if (!hy_dtype_is_float(c->dtype) && hy_dtype_bits(c->dtype) >= 32 && wide) {
    low = (double)hy__draw_int(c, -2000000000, 0);
    high = (double)hy__draw_int(c, 1, 2000000000);
  }
  add_random(c, low, high);
}

void hy__cases_bernoulli(hy__case* c) {
  add_random(c, c->flavour == HY__FLAVOUR_OFFSET ? 1 : hy__draw_real(c, 0, 1),
             hy__draw_real(c, 0, 1));
  if (hy__mistake(c, 1, HY_INVALID_ARGUMENT, "a probability above 1")) c->call.attrs.random.a = 1.5;
}

void hy__cases_dropout(hy__case* c) {
  int64_t shape[HY_MAX_DIMS];
  int ndim = hy__draw_shape(c, 0, 4, shape);
  hy__add_input(c, c->dtype, ndim, shape);
  c->call.attrs.dropout.seed = hy__draw(c);
  c->call.attrs.dropout.offset = draw_offset(c);
  c->call.attrs.dropout.p = hy__draw_bool(c) ? 0.5 : hy__draw_real(c, 0, 1);
  if (hy__mistake(c, 1, HY_INVALID_ARGUMENT, "a negative probability"))
    c->call.attrs.dropout.p = -0.5;
}
