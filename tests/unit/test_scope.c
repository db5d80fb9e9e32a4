// Scopes: who owns what is computed, the failure that sticks, marks, and functions for every row.
#include "halyard/scope.h"
#include "support/arrays.h"

static int tear_down(void** state) {
  (void)state;
  for (int i = 0; i < HY_FAULT_COUNT; i++) hy_inject_fault((hy_fault)i, 0);
  hy_shutdown();
  return 0;
}

static void test_results_belong_to_the_scope(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array* x = make_f64(&b, (double[]){1, -2, 3}, SHAPE(3));
  uint64_t before = bench_in_use(&b);
  hy_scope s;
  hy_scope_begin(&s, b.tape);
  hy_array* y = hy_s_add(&s, hy_s_relu(&s, x), hy_s_neg(&s, x), hy_int(2));
  hy_array* given = hy_scope_give(&s, y);
  CHECK_OK(hy_scope_end(&s));
  CHECK_VALUES(&b, given, -1, 4, -3);
  hy_array_release(given);
  assert_int_equal(bench_in_use(&b), before);
  hy_array_release(x);
  bench_close(&b);
}

// After the first failure nothing runs, nothing is given out, and its message is the one told.
static void test_failure_sticks(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array* x = make_f64(&b, (double[]){1, 2, 3}, SHAPE(3));
  hy_array* m = make_f64(&b, (double[]){1, 2, 3, 4}, SHAPE(2, 2));
  hy_scope s;
  hy_scope_begin(&s, b.tape);
  hy_array* wrong = hy_s_mm(&s, m, x);
  assert_null(wrong);
  assert_int_equal(s.status, HY_SHAPE);
  assert_null(hy_s_add(&s, wrong, x, hy_int(1)));
  assert_null(hy_s_view(&s, wrong, 1, (int64_t[]){3}));
  assert_null(hy_s_zeros(&s, HY_F32, 0, NULL));
  assert_null(hy_s_cat(&s, (hy_array*[]){x, wrong}, 2, 0));
  hy_array* scale = x;
  assert_null(hy_s_quantize(&s, &scale, x, HY_I8, 0));
  assert_null(scale);
  assert_int_equal(hy_s_size(&s, wrong, 0), 0);
  hy_s_add_into(&s, x, x);
  int ran = 0;
  HY_SCOPE_TRY(&s, (ran++, HY_OK));
  assert_int_equal(ran, 0);
  assert_null(hy_scope_give(&s, x));
  CHECK_FAILS(HY_SHAPE, "mm", hy_scope_end(&s));
  CHECK_VALUES(&b, x, 1, 2, 3);
  hy_array_release(x);
  hy_array_release(m);
  bench_close(&b);
}

// A loop that pops holds one result, however long it runs; what was made before the mark stays.
static void test_pop_keeps_the_result_alone(void** state) {
  (void)state;
  bench b = bench_open();
  enum { N = 1000 };
  hy_array* one = make_f64(&b, (double[N]){1}, SHAPE(N));
  uint64_t array = bench_in_use(&b);
  hy_scope s;
  hy_scope_begin(&s, b.tape);
  hy_array* first = hy_s_mul(&s, one, one);
  int mark = hy_scope_mark(&s);
  hy_array* x = first;
  for (int i = 0; i < 100; i++) {
    x = hy_scope_pop(&s, mark, hy_s_add(&s, hy_s_neg(&s, hy_s_neg(&s, x)), one, hy_int(1)));
    assert_true(bench_in_use(&b) <= 3 * array);
  }
  assert_int_equal(hy_scope_mark(&s), mark + 1);
  double value;
  CHECK_OK(hy_array_item(b.stream, hy_s_select(&s, x, 0, 0), &value));
  assert_true(value == 101);
  assert_ptr_equal(hy_scope_pop(&s, mark, first), first);
  assert_int_equal(hy_scope_mark(&s), mark);
  CHECK_OK(hy_array_item(b.stream, hy_s_select(&s, first, 0, 0), &value));
  assert_true(value == 1);
  CHECK_OK(hy_scope_end(&s));
  hy_array_release(one);
  bench_close(&b);
}

enum { SUMS = 126 };

// More arrays than fit beside the scope, and every allocation on the way failing once.
static hy_status add_many(bench* b, hy_array* x, hy_array** out) {
  hy_scope s;
  hy_scope_begin(&s, b->tape);
  hy_array* y = x;
  for (int i = 0; i < SUMS; i++) y = hy_s_add(&s, y, x, hy_int(1));
  hy_array* scale = NULL;
  hy_array* numbers = hy_s_quantize(&s, &scale, y, HY_I8, 0);
  y = hy_s_dequantize(&s, numbers, scale, HY_F64);
  *out = hy_scope_give(&s, hy_s_reshape(&s, hy_s_expand(&s, y, HY_SIZES(2, 1)), HY_SIZES(-1)));
  return hy_scope_end(&s);
}

static void test_out_of_memory_leaks_nothing(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = make_f64(&b, (double[]){1}, SHAPE(1)), *y = NULL;
  CHECK_OK(add_many(&b, x, &y));
  hy_array_release(y);
  uint64_t before = bench_in_use(&b);
  const hy_fault faults[] = {HY_FAULT_ALLOCATION, HY_FAULT_HOST_ALLOCATION, HY_FAULT_KERNEL};
  for (int f = 0; f < 3; f++) {
    int64_t nth = 1;
    for (;; nth++) {
      hy_inject_fault(faults[f], nth);
      hy_status status = add_many(&b, x, &y);
      int64_t events = hy_fault_events(faults[f]);
      hy_inject_fault(faults[f], 0);
      if (status == HY_OK) break;
      assert_true(events >= nth);
      assert_null(y);
      assert_int_equal(bench_in_use(&b), before);
    }
    assert_true(nth > SUMS);
    CHECK_VALUES(&b, y, 127, 127);
    hy_array_release(y);
  }
  hy_array_release(x);
  bench_close(&b);
}

// Ops that create write an array that exists; gradients pass through a scope.
static void test_creation_and_gradients(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array* x = leaf_f64(&b, (double[]){1, 2, 3, 4}, SHAPE(2, 2));
  hy_scope s;
  hy_scope_begin(&s, b.tape);
  hy_array* two = hy_s_fill(&s, hy_s_empty(&s, HY_F64, HY_SIZES(2)), hy_float(2));
  hy_array* row = hy_s_select(&s, hy_s_transpose(&s, x, 0, 1), 0, 1);
  hy_array* loss = hy_s_sum(&s, hy_s_mul(&s, hy_s_mul(&s, row, row), two), hy_all_dims(), false);
  HY_SCOPE_TRY(&s, hy_backward(b.tape, loss, NULL));
  CHECK_OK(hy_scope_end(&s));
  CHECK_VALUES(&b, hy_array_grad(x), 0, 8, 0, 16);
  hy_array_release(x);
  bench_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_results_belong_to_the_scope),
      cmocka_unit_test(test_failure_sticks),
      cmocka_unit_test(test_pop_keeps_the_result_alone),
      cmocka_unit_test(test_out_of_memory_leaks_nothing),
      cmocka_unit_test(test_creation_and_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, tear_down);
}
