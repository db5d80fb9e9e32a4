// Cases of sampling: every setting on and off, ties, and rows that differ in theirs.
#include "ops/reference/element.h"
#include "ops/reference/walk.h"
#include "verify/case.h"

static void set(hy_tensor* t, int64_t i, double value) {
  hy__store_f(HY_F32, hy__element(t, i), value);
}

static double either(hy__case* c, double off, double low, double high) {
  return hy__draw_bool(c) ? off : hy__draw_real(c, low, high);
}

void hy__cases_sample(hy__case* c) {
  hy__has_sizes_to(c, 2);
  int64_t shape[2] = {hy__draw_sized(c, 1, 20011), hy__draw_size_from_1(c)};
  if (hy__is_model(c, 0)) shape[0] += 3;
  if (hy__is_model(c, 0)) shape[1] = hy__draw_sized(c, 0, 33013);
  hy_tensor* logits = hy__add_input(c, c->dtype, 2, shape);
  if (c->flavour != HY__FLAVOUR_SPECIAL) hy__fill_uniform(c, logits, -4, 4);
  if (c->wrong == 0 && hy__draw_int(c, 0, 4) == 0) {
    for (int i = 0; i < 3; i++) hy__add_absent(c);
    return;
  }
  // Every row has its own.
  hy_tensor* settings = hy__add_unrepeated(c, HY_F32, 2, (int64_t[]){shape[0], 5});
  for (int64_t row = 0; row < shape[0]; row++) {
    bool penal = c->flavour == HY__FLAVOUR_GAPS;  // or what is seen does not count
    set(settings, 5 * row, penal ? 0.3 : either(c, 1, 0.5, 2));
    set(settings, 5 * row + 1, either(c, hy__draw_int(c, 0, 1), 0.3, 2));
    set(settings, 5 * row + 2, (double)(hy__draw_bool(c) ? 0 : hy__draw_int(c, 1, shape[1] + 1)));
    set(settings, 5 * row + 3, either(c, 1, 0.1, 0.99));
    set(settings, 5 * row + 4, either(c, 0, 0.01, 0.5));
  }
  hy_tensor* draw = hy__add_unrepeated(c, HY_F32, 1, shape);
  for (int64_t row = 0; row < shape[0]; row++) set(draw, row, hy__draw_real(c, 0, 0.9999));
  hy_tensor* seen = hy__add_optional(c, HY_BOOL, 2, shape);
  if (seen) hy__fill_ints(c, seen, 0, 1);
  if (hy__mistake(c, 1, HY_SHAPE, "four settings")) {
    c->call.n_in = 1;
    hy__add_contiguous(c, HY_F32, 2, (int64_t[]){shape[0], 4});
    hy__add_contiguous(c, HY_F32, 1, shape);
    hy__add_absent(c);
  }
  if (hy__mistake(c, 2, HY_SHAPE, "a draw too many")) {
    c->call.n_in = 2;
    hy__add_contiguous(c, HY_F32, 1, (int64_t[]){shape[0] + 1});
    hy__add_absent(c);
  }
  if (hy__mistake(c, 3, HY_DTYPE, "tokens seen as numbers")) {
    c->call.n_in = 3;
    hy__add_input(c, HY_I64, 2, shape);
  }
}
