// Checkpoints, losses in parts, and faults anywhere in a forward and backward.
#include <math.h>

#include "support/arrays.h"

// ---- checkpoints ----

typedef struct block {
  hy_array* weight;
  int runs, releases;
} block;

// y = tanh(x weight)^2, and z = x where it is asked for
static hy_status run_block(hy_tape* tape, void* context, hy_array* const* in, int n_in,
                           hy_array** out, int n_out) {
  block* k = context;
  hy_array *h = NULL, *a = NULL;
  assert_int_equal(n_in, 1);
  k->runs++;
  hy_status status = hy_array_mm(tape, &h, in[0], k->weight);
  if (status == HY_OK) status = hy_array_tanh(tape, &a, h);
  if (status == HY_OK) status = hy_array_mul(tape, &out[0], a, a);
  if (status == HY_OK && n_out > 1) out[1] = hy_array_retain(in[0]);
  hy_array_release(h);
  hy_array_release(a);
  return status;
}

static void release_block(void* context) {
  ((block*)context)->releases++;
}

static void checkpoints_equal_plain_runs(void** state) {
  (void)state;
  bench b = bench_open();
  double xs[6] = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6}, ws[9], plain[15], again[15];
  for (int i = 0; i < 9; i++) ws[i] = 0.1 * (i - 4);
  for (int pass = 0; pass < 2; pass++) {
    hy_array *x = leaf_f64(&b, xs, SHAPE(2, 3)), *w = leaf_f64(&b, ws, SHAPE(3, 3));
    block k = {w, 0, 0};
    hy_array *h[2], *y[2], *s, *total;
    // Two blocks, one after the other, so that the first one's output is not a leaf.
    if (pass == 0) {
      CHECK_OK(run_block(b.tape, &k, &x, 1, h, 2));
      CHECK_OK(run_block(b.tape, &k, &h[0], 1, y, 2));
    } else {
      CHECK_OK(hy_checkpoint(b.tape, run_block, &k, release_block, &x, 1, h, 2));
      CHECK_OK(hy_checkpoint(b.tape, run_block, &k, release_block, &h[0], 1, y, 2));
      assert_int_equal(hy_tape_size(b.tape), 2);
    }
    CHECK_OK(hy_array_add(b.tape, &total, y[0], y[1], hy_int(1)));
    CHECK_OK(hy_array_sum(b.tape, &s, total, hy_all_dims(), false));
    CHECK_OK(hy_backward(b.tape, s, NULL));
    if (pass == 1) {
      assert_int_equal(k.runs, 4);
      assert_int_equal(k.releases, 2);
    }
    double* into = pass == 0 ? plain : again;
    read_f64(&b, hy_array_grad(x), into);
    read_f64(&b, hy_array_grad(w), into + 6);
    hy_array* all[] = {x, w, h[0], h[1], y[0], y[1], total, s};
    for (int i = 0; i < 8; i++) hy_array_release(all[i]);
  }
  assert_memory_equal(plain, again, sizeof plain);
  bench_close(&b);
}

static void checkpoints_see_weights_and_skip_what_needs_none(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = make_f64(&b, (double[]){1, 2}, SHAPE(1, 2)), *y, *seed;
  hy_array* w = make_f64(&b, (double[]){0.1, 0.2, 0.3, 0.4}, SHAPE(2, 2));
  block k = {w, 0, 0};
  CHECK_OK(hy_checkpoint(b.tape, run_block, &k, release_block, &x, 1, &y, 1));
  assert_false(hy_array_requires_grad(y));
  assert_int_equal(k.releases, 1);
  hy_array_release(y);
  // The weight is no input of the block and still gets its gradient.
  CHECK_OK(hy_array_set_requires_grad(w, true));
  CHECK_OK(hy_checkpoint(b.tape, run_block, &k, release_block, &x, 1, &y, 1));
  assert_true(hy_array_requires_grad(y));
  seed = make_f64(&b, (double[]){1, 1}, SHAPE(1, 2));
  CHECK_OK(hy_backward(b.tape, y, seed));
  assert_non_null(hy_array_grad(w));
  assert_int_equal(k.releases, 2);
  hy_array_release(y);
  // Never used: released with its last output.
  CHECK_OK(hy_checkpoint(b.tape, run_block, &k, release_block, &x, 1, &y, 1));
  hy_array_release(y);
  assert_int_equal(k.releases, 3);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "9 outputs",
              hy_checkpoint(b.tape, run_block, &k, release_block, &x, 1, &y, 9));
  assert_int_equal(k.releases, 4);
  // A result of the tape that is not among the inputs is caught, not silently dropped.
  hy_array* derived;
  CHECK_OK(hy_array_neg(b.tape, &derived, w));
  k.weight = derived;
  CHECK_OK(hy_checkpoint(b.tape, run_block, &k, NULL, &x, 1, &y, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "not among its inputs", hy_backward(b.tape, y, seed));
  hy_array* all[] = {x, w, y, seed, derived};
  for (int i = 0; i < 5; i++) hy_array_release(all[i]);
  bench_close(&b);
}

// ---- losses in parts ----

static void chunked_loss_equals_the_plain_one(void** state) {
  (void)state;
  bench b = bench_open();
  enum { ROWS = 7, SIZE = 3, CLASSES = 5 };
  double xs[ROWS * SIZE], ws[CLASSES * SIZE];
  const int64_t targets[ROWS] = {0, 4, -1, 2, 1, -1, 3};
  for (int i = 0; i < ROWS * SIZE; i++) xs[i] = sin(i + 1);
  for (int i = 0; i < CLASSES * SIZE; i++) ws[i] = cos(2 * i);
  for (int mean = 0; mean < 2; mean++) {
    double loss[2], dx[2][ROWS * SIZE], dw[2][CLASSES * SIZE];
    for (int chunked = 0; chunked < 2; chunked++) {
      hy_array *x = leaf_f64(&b, xs, SHAPE(ROWS, SIZE)),
               *w = leaf_f64(&b, ws, SHAPE(CLASSES, SIZE));
      hy_array *target, *logits = NULL, *l, *twice;
      hy_reduction reduction = mean ? HY_REDUCTION_MEAN : HY_REDUCTION_SUM;
      CHECK_OK(hy_array_from_host(b.stream, &target, HY_I64, SHAPE(ROWS), targets));
      if (chunked) {
        CHECK_OK(hy_array_linear_cross_entropy(b.tape, &l, x, w, target, -1, reduction, 3));
      } else {
        CHECK_OK(hy_array_linear(b.tape, &logits, x, w, NULL));
        CHECK_OK(
            hy_array_cross_entropy(b.tape, &l, logits, target, NULL, -1, reduction, 0, HY_NONE));
      }
      CHECK_OK(hy_array_mul_scalar(b.tape, &twice, l, hy_float(2)));
      CHECK_OK(hy_backward(b.tape, twice, NULL));
      CHECK_OK(hy_array_item(b.stream, l, &loss[chunked]));
      read_f64(&b, hy_array_grad(x), dx[chunked]);
      read_f64(&b, hy_array_grad(w), dw[chunked]);
      hy_array* all[] = {x, w, target, logits, l, twice};
      for (int i = 0; i < 6; i++) hy_array_release(all[i]);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-12);
    for (int i = 0; i < ROWS * SIZE; i++) assert_true(fabs(dx[0][i] - dx[1][i]) < 1e-12);
    for (int i = 0; i < CLASSES * SIZE; i++) assert_true(fabs(dw[0][i] - dw[1][i]) < 1e-12);
  }
  bench_close(&b);
}

// ---- failures ----

// A small network with views, a reduction, broadcasting and a checkpoint; everything it makes it
// releases.
static hy_status network(bench* b, hy_array* x, hy_array* w, block* k) {
  hy_array *h = NULL, *c = NULL, *v = NULL, *y = NULL, *s = NULL;
  hy_status status = hy_array_mm(b->tape, &h, x, w);
  if (status == HY_OK) status = hy_checkpoint(b->tape, run_block, k, release_block, &h, 1, &c, 1);
  if (status == HY_OK) status = hy_array_slice(b->tape, &v, c, 1, 0, 1, 1);
  if (status == HY_OK) status = hy_array_mul(b->tape, &y, v, h);
  if (status == HY_OK) status = hy_array_mean(b->tape, &s, y, hy_all_dims(), false);
  if (status == HY_OK) status = hy_backward(b->tape, s, NULL);
  hy_array_release(h);
  hy_array_release(c);
  hy_array_release(v);
  hy_array_release(y);
  hy_array_release(s);
  return status;
}

static void failures_leave_nothing_behind(void** state) {
  (void)state;
  bench b = bench_open();
  double xs[6] = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6}, ws[9] = {1, 0, 0.5, 0, 1, 0, 0, 0.25, 1};
  hy_array *x = leaf_f64(&b, xs, SHAPE(2, 3)), *w = leaf_f64(&b, ws, SHAPE(3, 3));
  block k = {w, 0, 0};
  const hy_fault faults[] = {HY_FAULT_ALLOCATION, HY_FAULT_COPY, HY_FAULT_KERNEL,
                             HY_FAULT_HOST_ALLOCATION};
  uint64_t before = bench_in_use(&b);
  for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
    hy_inject_fault(faults[f], INT64_MAX);
    CHECK_OK(network(&b, x, w, &k));
    int64_t events = hy_fault_events(faults[f]);
    hy_inject_fault(faults[f], 0);
    hy_array_zero_grad(x);
    hy_array_zero_grad(w);
    for (int64_t n = 1; n <= events; n++) {
      k.runs = k.releases = 0;
      hy_inject_fault(faults[f], n);
      hy_status status = network(&b, x, w, &k);
      hy_inject_fault(faults[f], 0);
      if (status == HY_OK) fail_msg("fault %d of kind %d was not seen", (int)n, (int)faults[f]);
      assert_true(hy_last_error()[0] != 0);
      hy_array_zero_grad(x);
      hy_array_zero_grad(w);
      assert_int_equal(hy_tape_size(b.tape), 0);
      assert_int_equal(bench_in_use(&b), before);
      assert_int_equal(k.releases, k.runs > 0);
    }
  }
  // And the tape still works.
  CHECK_OK(network(&b, x, w, &k));
  hy_array_release(x);
  hy_array_release(w);
  bench_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(checkpoints_equal_plain_runs),
      cmocka_unit_test(checkpoints_see_weights_and_skip_what_needs_none),
      cmocka_unit_test(chunked_loss_equals_the_plain_one),
      cmocka_unit_test(failures_leave_nothing_behind),
  };
  int failed = cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
  hy_shutdown();
  return failed;
}
