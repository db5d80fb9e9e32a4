// The tape: accumulation, shared parts, views, kinks, memory, errors.
#include <math.h>

#include "support/arrays.h"

// ---- accumulation and history ----

static void gathers_over_shared_parts_and_calls(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = leaf_f64(&b, (double[]){2, 3}, SHAPE(2)), *y, *z, *s;
  for (int pass = 1; pass <= 2; pass++) {
    // s = sum(x x + x): x is used three times.
    CHECK_OK(hy_array_mul(b.tape, &y, x, x));
    CHECK_OK(hy_array_add(b.tape, &z, y, x, hy_int(1)));
    CHECK_OK(hy_array_sum(b.tape, &s, z, hy_all_dims(), false));
    hy_array_release(y);
    hy_array_release(z);
    assert_int_equal(hy_tape_size(b.tape), 3);
    CHECK_OK(hy_backward(b.tape, s, NULL));
    hy_array_release(s);
    CHECK_VALUES(&b, hy_array_grad(x), 5.0 * pass, 7.0 * pass);
  }
  hy_array_zero_grad(x);
  assert_null(hy_array_grad(x));
  hy_array_release(x);
  bench_close(&b);
}

static void leaves_never_share_a_gradient(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array* x = leaf_f64(&b, (double[]){1, 2}, SHAPE(2));
  hy_array *y = leaf_f64(&b, (double[]){3, 4}, SHAPE(2)), *z, *seed;
  seed = make_f64(&b, (double[]){10, 20}, SHAPE(2));
  CHECK_OK(hy_array_add(b.tape, &z, x, y, hy_int(1)));
  CHECK_OK(hy_backward(b.tape, z, seed));
  hy_attrs twice = {.value = {hy_float(2)}};
  hy_array* dx = hy_array_grad(x);
  CHECK_OK(hy_array_apply_into(b.tape, HY_OP_mul_scalar, &dx, 1, &twice, &dx, 1));
  CHECK_VALUES(&b, dx, 20, 40);
  CHECK_VALUES(&b, hy_array_grad(y), 10, 20);
  CHECK_VALUES(&b, seed, 10, 20);
  hy_array_release(x);
  hy_array_release(y);
  hy_array_release(z);
  hy_array_release(seed);
  bench_close(&b);
}

static void keeps_gradients_of_results_on_request(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = leaf_f64(&b, (double[]){1, 2}, SHAPE(2)), *y, *s;
  CHECK_OK(hy_array_mul_scalar(b.tape, &y, x, hy_float(3)));
  CHECK_OK(hy_array_retain_grad(y));
  CHECK_OK(hy_array_sum(b.tape, &s, y, hy_all_dims(), false));
  CHECK_OK(hy_backward(b.tape, s, NULL));
  CHECK_VALUES(&b, hy_array_grad(y), 1, 1);
  CHECK_VALUES(&b, hy_array_grad(x), 3, 3);
  assert_null(hy_array_grad(s));
  hy_array_release(x);
  hy_array_release(y);
  hy_array_release(s);
  bench_close(&b);
}

static void records_only_what_needs_it(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = leaf_f64(&b, (double[]){1, 2}, SHAPE(2)), *c, *y, *z, *cut;
  c = make_f64(&b, (double[]){1, 2}, SHAPE(2));
  CHECK_OK(hy_array_neg(b.tape, &y, c));
  assert_false(hy_array_requires_grad(y));
  hy_array_release(y);
  CHECK_OK(hy_array_gt(b.tape, &y, x, c));
  assert_false(hy_array_requires_grad(y));
  hy_array_release(y);
  assert_true(hy_tape_set_recording(b.tape, false));
  CHECK_OK(hy_array_neg(b.tape, &y, x));
  assert_false(hy_array_requires_grad(y));
  hy_array_release(y);
  hy_tape_set_recording(b.tape, true);
  CHECK_OK(hy_array_neg(b.tape, &y, x));
  CHECK_OK(hy_array_detach(&cut, y));
  CHECK_OK(hy_array_neg(b.tape, &z, cut));
  assert_false(hy_array_requires_grad(z));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "depends on nothing", hy_backward(b.tape, z, NULL));
  assert_int_equal(hy_tape_size(b.tape), 1);
  hy_array_release(y);
  assert_int_equal(hy_tape_size(b.tape), 0);
  hy_array_release(x);
  hy_array_release(c);
  hy_array_release(z);
  hy_array_release(cut);
  bench_close(&b);
}

// A frozen weight does not make the tape keep the activation, as LoRA needs.
static void saves_only_what_the_wanted_gradients_need(void** state) {
  (void)state;
  bench b = bench_open();
  enum { N = 64 };
  static double zeros[N * N];
  hy_array *x = leaf_f64(&b, zeros, SHAPE(N, N)), *w = make_f64(&b, zeros, SHAPE(N, N)), *h, *y;
  uint64_t before = bench_in_use(&b);
  CHECK_OK(hy_array_neg(b.tape, &h, x));
  CHECK_OK(hy_array_linear(b.tape, &y, h, w, NULL));
  hy_array_release(h);
  assert_int_equal(bench_in_use(&b) - before, sizeof zeros);
  hy_array_release(y);
  CHECK_OK(hy_array_set_requires_grad(w, true));
  CHECK_OK(hy_array_neg(b.tape, &h, x));
  CHECK_OK(hy_array_linear(b.tape, &y, h, w, NULL));
  hy_array_release(h);
  assert_int_equal(bench_in_use(&b) - before, 2 * sizeof zeros);
  hy_array_release(y);
  hy_array_release(x);
  hy_array_release(w);
  bench_close(&b);
}

static void frees_along_the_way(void** state) {
  (void)state;
  bench b = bench_open();
  enum { N = 1000, STEPS = 40 };
  static double values[N];
  hy_array *x = leaf_f64(&b, values, SHAPE(N)), *y = hy_array_retain(x), *next;
  for (int i = 0; i < STEPS; i++) {
    CHECK_OK(hy_array_exp(b.tape, &next, y));
    hy_array_release(y);
    y = next;
  }
  CHECK_OK(hy_array_sum(b.tape, &next, y, hy_all_dims(), false));
  hy_array_release(y);
  uint64_t held = bench_in_use(&b);
  assert_true(held > STEPS * sizeof values);
  CHECK_OK(hy_memory_reset_peak(b.device));
  CHECK_OK(hy_backward(b.tape, next, NULL));
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(b.device, &stats));
  // On the way back a few gradients live beside what was held, never one per step.
  assert_true(stats.allocated_peak - b.allocated < held + 6 * sizeof values);
  assert_true(bench_in_use(&b) < 3 * sizeof values);
  hy_array_release(next);
  hy_array_release(x);
  bench_close(&b);
}

static void long_histories_go_away_without_recursion(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = leaf_f64(&b, (double[]){1}, SHAPE(1)), *y = hy_array_retain(x), *next;
  for (int i = 0; i < 100000; i++) {
    CHECK_OK(hy_array_view(b.tape, &next, y, SHAPE(1)));
    hy_array_release(y);
    y = next;
  }
  assert_int_equal(hy_tape_size(b.tape), 100000);
  hy_array_release(y);
  assert_int_equal(hy_tape_size(b.tape), 0);
  hy_array_release(x);
  bench_close(&b);
}

static void several_losses_share_a_tape(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = leaf_f64(&b, (double[]){2}, SHAPE(1)), *y, *z;
  CHECK_OK(hy_array_mul(b.tape, &y, x, x));
  CHECK_OK(hy_array_mul_scalar(b.tape, &z, x, hy_float(10)));
  CHECK_OK(hy_backward(b.tape, y, NULL));
  CHECK_OK(hy_backward(b.tape, z, NULL));
  CHECK_VALUES(&b, hy_array_grad(x), 14);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "already", hy_backward(b.tape, y, NULL));
  hy_array_release(x);
  hy_array_release(y);
  hy_array_release(z);
  bench_close(&b);
}

static void refuses_values_changed_in_place(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = leaf_f64(&b, (double[]){1, 2}, SHAPE(2)), *w, *row, *y, *seed;
  w = make_f64(&b, (double[]){3, 4, 5, 6}, SHAPE(2, 2));
  seed = make_f64(&b, (double[]){1, 1}, SHAPE(2));
  CHECK_OK(hy_array_select(b.tape, &row, w, 0, 0));
  CHECK_OK(hy_array_mul(b.tape, &y, x, row));
  // Through another view of the same memory.
  CHECK_OK(hy_array_apply_into(b.tape, HY_OP_neg, &w, 1, NULL, &w, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "input 1 of mul", hy_backward(b.tape, y, seed));
  assert_null(hy_array_grad(x));
  hy_array_release(y);
  CHECK_OK(hy_array_mul(b.tape, &y, x, row));
  hy_array_touch(row);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "changed in place", hy_backward(b.tape, y, seed));
  hy_array* all[] = {x, w, row, y, seed};
  for (int i = 0; i < 5; i++) hy_array_release(all[i]);
  bench_close(&b);
}

// ---- types, shapes, kinks ----

static void casts_gradients_to_the_input(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x, *w, *y, *s;
  CHECK_OK(hy_array_scalar(b.stream, &w, HY_F32, 3));
  CHECK_OK(hy_array_zeros(b.stream, &x, HY_BF16, SHAPE(4)));
  CHECK_OK(hy_array_set_requires_grad(x, true));
  CHECK_OK(hy_array_set_requires_grad(w, true));
  hy_array* wide;
  CHECK_OK(hy_array_cast(b.tape, &wide, x, HY_F32));
  CHECK_OK(hy_array_mul(b.tape, &y, wide, w));
  CHECK_OK(hy_array_sum(b.tape, &s, y, hy_all_dims(), false));
  CHECK_OK(hy_backward(b.tape, s, NULL));
  assert_int_equal(hy_array_tensor(hy_array_grad(x))->dtype, HY_BF16);
  assert_int_equal(hy_array_tensor(hy_array_grad(w))->dtype, HY_F32);
  assert_int_equal(hy_array_tensor(hy_array_grad(w))->ndim, 0);
  CHECK_VALUES(&b, hy_array_grad(x), 3, 3, 3, 3);
  hy_array* all[] = {x, w, wide, y, s};
  for (int i = 0; i < 5; i++) hy_array_release(all[i]);
  bench_close(&b);
}

typedef hy_status (*unary)(bench* b, hy_array** out, hy_array* x);

static void check_kink(bench* b, unary function, const double* x, const double* dx, int64_t n) {
  hy_array *in = leaf_f64(b, x, 1, &n), *y, *s;
  double values[8];
  CHECK_OK(function(b, &y, in));
  CHECK_OK(hy_array_sum(b->tape, &s, y, hy_all_dims(), false));
  CHECK_OK(hy_backward(b->tape, s, NULL));
  read_f64(b, hy_array_grad(in), values);
  for (int64_t i = 0; i < n; i++) assert_true(values[i] == dx[i]);
  hy_array_release(in);
  hy_array_release(y);
  hy_array_release(s);
}

static hy_status relu(bench* b, hy_array** out, hy_array* x) {
  return hy_array_relu(b->tape, out, x);
}
static hy_status absolute(bench* b, hy_array** out, hy_array* x) {
  return hy_array_abs(b->tape, out, x);
}
static hy_status clamp(bench* b, hy_array** out, hy_array* x) {
  return hy_array_clamp(b->tape, out, x, hy_float(-1), hy_float(1));
}
static hy_status largest(bench* b, hy_array** out, hy_array* x) {
  return hy_array_max(b->tape, out, x, hy_all_dims(), false);
}
static hy_status at_least_one(bench* b, hy_array** out, hy_array* x) {
  hy_array* one;
  CHECK_OK(hy_array_scalar(b->stream, &one, HY_F64, 1));
  hy_status status = hy_array_maximum(b->tape, out, x, one);
  hy_array_release(one);
  return status;
}
static hy_status product(bench* b, hy_array** out, hy_array* x) {
  return hy_array_prod(b->tape, out, x, hy_all_dims(), false);
}

static void follows_conventions_at_kinks(void** state) {
  (void)state;
  bench b = bench_open();
  check_kink(&b, relu, (double[]){-1, 0, 1}, (double[]){0, 0, 1}, 3);
  check_kink(&b, absolute, (double[]){-1, 0, 1}, (double[]){-1, 0, 1}, 3);
  check_kink(&b, clamp, (double[]){-2, -1, 0, 1, 2}, (double[]){0, 1, 1, 1, 0}, 5);
  check_kink(&b, largest, (double[]){3, 1, 3, 2}, (double[]){0.5, 0, 0.5, 0}, 4);
  check_kink(&b, at_least_one, (double[]){0, 1, 2}, (double[]){0, 0.5, 1}, 3);
  check_kink(&b, product, (double[]){2, 0, 4}, (double[]){0, 8, 0}, 3);
  check_kink(&b, product, (double[]){2, 0, 0}, (double[]){0, 0, 0}, 3);
  bench_close(&b);
}

// ---- views ----

// sum(view(x) * w), with w = 1, 2, 3 ... in the order of the view: the gradient says which elements
// of x the view shows.
#define CHECK_VIEW(b, x, call, ...)                        \
  do {                                                     \
    hy_array *v_ = NULL, *seed_;                           \
    CHECK_OK(call);                                        \
    double weights_[64];                                   \
    for (int i_ = 0; i_ < 64; i_++) weights_[i_] = i_ + 1; \
    const hy_tensor* t_ = hy_array_tensor(v_);             \
    seed_ = make_f64(b, weights_, t_->ndim, t_->shape);    \
    CHECK_OK(hy_backward((b)->tape, v_, seed_));           \
    CHECK_VALUES(b, hy_array_grad(x), __VA_ARGS__);        \
    hy_array_zero_grad(x);                                 \
    hy_array_release(v_);                                  \
    hy_array_release(seed_);                               \
  } while (0)

static void gradients_find_their_way_through_views(void** state) {
  (void)state;
  bench b = bench_open();
  hy_tape* t = b.tape;
  hy_array *x = leaf_f64(&b, (double[]){0, 0, 0, 0, 0, 0}, SHAPE(2, 3)), *y;
  CHECK_VIEW(&b, x, hy_array_view(t, &v_, x, SHAPE(3, -1)), 1, 2, 3, 4, 5, 6);
  CHECK_VIEW(&b, x, hy_array_transpose(t, &v_, x, 0, -1), 1, 3, 5, 2, 4, 6);
  CHECK_VIEW(&b, x, hy_array_permute(t, &v_, x, (int[]){1, 0}), 1, 3, 5, 2, 4, 6);
  CHECK_VIEW(&b, x, hy_array_unsqueeze(t, &v_, x, 1), 1, 2, 3, 4, 5, 6);
  CHECK_VIEW(&b, x, hy_array_slice(t, &v_, x, 1, 0, 3, 2), 1, 0, 2, 3, 0, 4);
  CHECK_VIEW(&b, x, hy_array_slice(t, &v_, x, -1, -2, 3, 1), 0, 1, 2, 0, 3, 4);
  CHECK_VIEW(&b, x, hy_array_select(t, &v_, x, 0, -1), 0, 0, 0, 1, 2, 3);
  CHECK_VIEW(&b, x, hy_array_expand(t, &v_, x, SHAPE(2, 2, 3)), 8, 10, 12, 14, 16, 18);
  // Views of views, and a copy between: transpose, copy, flatten.
  hy_array *turned, *dense;
  CHECK_OK(hy_array_transpose(t, &turned, x, 0, 1));
  CHECK_OK(hy_array_contiguous(t, &dense, turned));
  CHECK_VIEW(&b, x, hy_array_view(t, &v_, dense, SHAPE(6)), 1, 3, 5, 2, 4, 6);
  hy_array_release(turned);
  hy_array_release(dense);
  CHECK_OK(hy_array_select(t, &y, x, 0, 1));
  CHECK_VIEW(&b, x, hy_array_squeeze(t, &v_, y, 0), 0, 0, 0, 1, 2, 3);
  hy_array_release(y);
  hy_array_release(x);
  bench_close(&b);
}

static void parts_of_an_array_share_one_gradient(void** state) {
  (void)state;
  bench b = bench_open();
  enum { N = 1024, PARTS = 8 };
  static double values[N];
  double gradient[N];
  hy_array *x = leaf_f64(&b, values, SHAPE(N)), *h, *parts[PARTS], *joined, *s;
  CHECK_OK(hy_array_mul_scalar(b.tape, &h, x, hy_float(2)));
  for (int i = 0; i < PARTS; i++) {
    hy_array* part;
    CHECK_OK(hy_array_slice(b.tape, &part, h, 0, i * N / PARTS, (i + 1) * N / PARTS, 1));
    CHECK_OK(hy_array_mul_scalar(b.tape, &parts[i], part, hy_float(i)));
    hy_array_release(part);
  }
  joined = hy_array_retain(parts[0]);
  for (int i = 1; i < PARTS; i++) {
    CHECK_OK(hy_array_add(b.tape, &s, joined, parts[i], hy_int(1)));
    hy_array_release(joined);
    joined = s;
  }
  CHECK_OK(hy_array_sum(b.tape, &s, joined, hy_all_dims(), false));
  CHECK_OK(hy_memory_reset_peak(b.device));
  uint64_t before = bench_in_use(&b);
  CHECK_OK(hy_backward(b.tape, s, NULL));
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(b.device, &stats));
  // The shared field, the gradient of x, and small change.
  assert_true(stats.allocated_peak - b.allocated - before < 3 * sizeof values);
  read_f64(&b, hy_array_grad(x), gradient);
  for (int i = 0; i < N; i++) assert_true(gradient[i] == 2.0 * (i / (N / PARTS)));
  for (int i = 0; i < PARTS; i++) hy_array_release(parts[i]);
  hy_array* all[] = {x, h, joined, s};
  for (int i = 0; i < 4; i++) hy_array_release(all[i]);
  bench_close(&b);
}

// ---- errors ----

static void arrays_outlive_their_tape(void** state) {
  (void)state;
  bench b = bench_open();
  hy_tape* other;
  hy_array *x = leaf_f64(&b, (double[]){2}, SHAPE(1)), *y, *z;
  CHECK_OK(hy_tape_create(b.stream, &other));
  CHECK_OK(hy_array_exp(other, &y, x));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "another tape", hy_backward(b.tape, y, NULL));
  CHECK_OK(hy_array_exp(b.tape, &z, y));
  hy_tape_destroy(other);
  CHECK_VALUES(&b, y, exp(2));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "destroyed", hy_backward(b.tape, z, NULL));
  hy_array_release(x);
  hy_array_release(y);
  hy_array_release(z);
  bench_close(&b);
}

static void names_what_was_wrong(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = leaf_f64(&b, (double[]){1, 2}, SHAPE(2)), *y, *seed, *none;
  CHECK_OK(hy_array_neg(b.tape, &y, x));
  seed = make_f64(&b, (double[]){1}, SHAPE(1));
  CHECK_FAILS(HY_SHAPE, "more than one element", hy_backward(b.tape, y, NULL));
  CHECK_FAILS(HY_SHAPE, "f64[1] cannot be the gradient of f64[2]", hy_backward(b.tape, y, seed));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_backward(b.tape, NULL, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_backward(NULL, y, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "detach", hy_array_set_requires_grad(y, false));
  hy_array* positions = leaf_f64(&b, (double[]){1}, SHAPE(1));
  CHECK_FAILS(HY_UNSUPPORTED, "rope has no gradient for its input cos",
              hy_array_rope(b.tape, &none, x, positions, positions, false, false));
  assert_null(none);
  hy_array_release(positions);
  hy_array_release(seed);
  hy_array_release(x);
  hy_array_release(y);
  bench_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gathers_over_shared_parts_and_calls),
      cmocka_unit_test(leaves_never_share_a_gradient),
      cmocka_unit_test(keeps_gradients_of_results_on_request),
      cmocka_unit_test(records_only_what_needs_it),
      cmocka_unit_test(saves_only_what_the_wanted_gradients_need),
      cmocka_unit_test(frees_along_the_way),
      cmocka_unit_test(long_histories_go_away_without_recursion),
      cmocka_unit_test(several_losses_share_a_tape),
      cmocka_unit_test(refuses_values_changed_in_place),
      cmocka_unit_test(casts_gradients_to_the_input),
      cmocka_unit_test(follows_conventions_at_kinks),
      cmocka_unit_test(gradients_find_their_way_through_views),
      cmocka_unit_test(parts_of_an_array_share_one_gradient),
      cmocka_unit_test(arrays_outlive_their_tape),
      cmocka_unit_test(names_what_was_wrong),
  };
  int failed = cmocka_run_group_tests_name("autograd", tests, NULL, NULL);
  hy_shutdown();
  return failed;
}
