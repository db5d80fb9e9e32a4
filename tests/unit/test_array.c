// Arrays: ownership, host transfers, views, in-place writes, errors.
#include <pthread.h>

#include "support/arrays.h"

static void makes_and_reads(void** state) {
  (void)state;
  bench b = bench_open();
  double values[6] = {1, 2, 3, 4, 5, 6}, item;
  hy_array* a = make_f64(&b, values, SHAPE(2, 3));
  assert_string_equal(hy_tensor_describe(hy_array_tensor(a), (char[64]){0}, 64), "f64[2, 3]");
  assert_ptr_equal(hy_array_device(a), b.device);
  CHECK_VALUES(&b, a, 1, 2, 3, 4, 5, 6);
  hy_array *zeros, *scalar, *whole;
  CHECK_OK(hy_array_zeros(b.stream, &zeros, HY_F64, SHAPE(2)));
  CHECK_VALUES(&b, zeros, 0, 0);
  CHECK_OK(hy_array_scalar(b.stream, &scalar, HY_BF16, -1.5));
  CHECK_OK(hy_array_item(b.stream, scalar, &item));
  assert_true(item == -1.5);
  CHECK_OK(hy_array_scalar(b.stream, &whole, HY_I64, 7));
  CHECK_OK(hy_array_item(b.stream, whole, &item));
  assert_true(item == 7);
  hy_array* again = hy_array_retain(a);
  hy_array_release(a);
  CHECK_VALUES(&b, again, 1, 2, 3, 4, 5, 6);
  hy_array_release(again);
  hy_array_release(zeros);
  hy_array_release(scalar);
  hy_array_release(whole);
  hy_array_release(NULL);
  bench_close(&b);
}

static void count_release(void* context) {
  ++*(int*)context;
}

static void wraps_memory_of_others(void** state) {
  (void)state;
  bench b = bench_open();
  double values[4] = {1, 2, 3, 4};
  int released = 0;
  hy_tensor t;
  hy_array *a, *row;
  CHECK_OK(hy_tensor_init(&t, values, HY_F64, 2, (int64_t[]){2, 2}));
  CHECK_OK(hy_array_wrap(b.stream, &a, &t, count_release, &released));
  CHECK_OK(hy_array_select(b.tape, &row, a, 0, 1));
  hy_array_release(a);
  assert_int_equal(released, 0);
  CHECK_VALUES(&b, row, 3, 4);
  hy_array_release(row);
  assert_int_equal(released, 1);
  bench_close(&b);
}

static void views_share_memory(void** state) {
  (void)state;
  bench b = bench_open();
  double values[6] = {1, 2, 3, 4, 5, 6};
  hy_array *a = make_f64(&b, values, SHAPE(2, 3)), *t, *column, *flat, *wide, *dense, *same;
  uint64_t before = bench_in_use(&b);
  CHECK_OK(hy_array_transpose(NULL, &t, a, 0, 1));
  CHECK_OK(hy_array_slice(b.tape, &column, a, 1, 1, 2, 1));
  CHECK_OK(hy_array_view(b.tape, &flat, a, SHAPE(-1)));
  CHECK_OK(hy_array_expand(b.tape, &wide, column, SHAPE(2, 2)));
  assert_int_equal(bench_in_use(&b), before);
  CHECK_VALUES(&b, t, 1, 4, 2, 5, 3, 6);
  CHECK_VALUES(&b, column, 2, 5);
  CHECK_VALUES(&b, wide, 2, 2, 5, 5);
  // A write through one view is seen through the others.
  hy_attrs ten = {.value = {hy_float(10)}};
  CHECK_OK(hy_array_apply_into(b.tape, HY_OP_mul_scalar, &column, 1, &ten, &column, 1));
  CHECK_VALUES(&b, flat, 1, 20, 3, 4, 50, 6);
  CHECK_OK(hy_array_contiguous(b.tape, &same, flat));
  assert_ptr_equal(same, flat);
  CHECK_OK(hy_array_contiguous(b.tape, &dense, t));
  assert_true(dense != t && hy_tensor_is_contiguous(hy_array_tensor(dense)));
  CHECK_VALUES(&b, dense, 1, 4, 20, 50, 3, 6);
  CHECK_FAILS(HY_LAYOUT, "strides", hy_array_view(b.tape, &same, t, SHAPE(6)));
  assert_null(same);
  hy_array* all[] = {a, t, column, flat, flat, wide, dense};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) hy_array_release(all[i]);
  bench_close(&b);
}

static void creation_ops_write_what_exists(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *a = NULL, *none = NULL;
  CHECK_OK(hy_array_empty(b.stream, &a, HY_F64, SHAPE(3)));
  CHECK_OK(hy_array_fill(b.tape, &a, hy_float(2)));
  CHECK_VALUES(&b, a, 2, 2, 2);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "hy_array_empty", hy_array_fill(b.tape, &none, hy_float(2)));
  hy_array_release(a);
  bench_close(&b);
}

static void names_what_was_wrong(void** state) {
  (void)state;
  bench b = bench_open();
  double values[6] = {0}, item;
  hy_array *a = make_f64(&b, values, SHAPE(2, 3)), *ids, *out;
  CHECK_OK(hy_array_zeros(b.stream, &ids, HY_I64, SHAPE(2)));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream", hy_array_zeros(NULL, &out, HY_F32, 0, NULL));
  CHECK_FAILS(HY_SHAPE, "negative", hy_array_zeros(b.stream, &out, HY_F32, SHAPE(-1)));
  CHECK_FAILS(HY_DTYPE, "i64", hy_array_set_requires_grad(ids, true));
  CHECK_FAILS(HY_SHAPE, "6 elements", hy_array_item(b.stream, a, &item));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "48 bytes, not 40", hy_array_to_host(b.stream, a, values, 40));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "tape is NULL", hy_array_neg(NULL, &out, a));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "absent", hy_array_neg(b.tape, &out, NULL));
  assert_null(out);
  CHECK_FAILS(HY_SHAPE, "mul", hy_array_mul(b.tape, &out, a, ids));
  CHECK_FAILS(HY_NOT_FOUND, "no op", hy_array_apply(b.tape, 9999, &a, 1, NULL, NULL, 0));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "does not require", hy_array_set_grad(a, a));
  CHECK_OK(hy_array_set_requires_grad(a, true));
  CHECK_FAILS(HY_SHAPE, "cannot be the gradient", hy_array_set_grad(a, ids));
  // In place on a leaf would make its gradient wrong.
  CHECK_FAILS(HY_INVALID_ARGUMENT, "not recorded",
              hy_array_apply_into(b.tape, HY_OP_neg, &a, 1, NULL, &a, 1));
  hy_tape_set_recording(b.tape, false);
  CHECK_OK(hy_array_apply_into(b.tape, HY_OP_neg, &a, 1, NULL, &a, 1));
  hy_array_release(a);
  hy_array_release(ids);
  bench_close(&b);
}

// ---- threads ----

static void* use_array(void* context) {
  hy_array* array = context;
  for (int i = 0; i < 1000; i++) {
    hy_array* view = NULL;
    hy_array_retain(array);
    if (hy_array_transpose(NULL, &view, array, 0, 1) != HY_OK) return array;
    hy_array_release(array);
    hy_array_release(view);
  }
  hy_array_release(array);
  return NULL;
}

static void references_are_counted_from_any_thread(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array* a = make_f64(&b, (double[]){1, 2, 3, 4}, SHAPE(2, 2));
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, use_array, hy_array_retain(a)), 0);
  hy_array_release(a);
  for (int i = 0; i < 4; i++) {
    void* failed;
    pthread_join(threads[i], &failed);
    assert_null(failed);
  }
  bench_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(makes_and_reads),
      cmocka_unit_test(wraps_memory_of_others),
      cmocka_unit_test(views_share_memory),
      cmocka_unit_test(creation_ops_write_what_exists),
      cmocka_unit_test(names_what_was_wrong),
      cmocka_unit_test(references_are_counted_from_any_thread),
  };
  int failed = cmocka_run_group_tests_name("array", tests, NULL, NULL);
  hy_shutdown();
  return failed;
}
