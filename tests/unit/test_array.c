// Arrays: ownership, host transfers, views, in-place writes, errors.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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

static void other_devices_are_refused_and_reached(void** state) {
  (void)state;
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  bench b = bench_open(), g = bench_open_on("guarded");
  double values[6] = {1, 2, 3, 4, 5, 6}, back[6], item;
  hy_array *there, *column, *here, *again, *wrapped, *grad;
  CHECK_OK(hy_array_from_host(g.stream, &there, HY_F64, SHAPE(2, 3), values));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "hy_array_to moves it",
              hy_array_to_host(b.stream, there, back, sizeof back));
  CHECK_OK(hy_array_select(g.tape, &column, there, 1, 2));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "is on guarded:0",
              hy_array_to_host(b.stream, column, back, 2 * sizeof *back));
  hy_array* one;
  CHECK_OK(hy_array_scalar(g.stream, &one, HY_F32, 2));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "is on guarded:0", hy_array_item(b.stream, one, &item));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "is on guarded:0",
              hy_array_wrap(b.stream, &wrapped, hy_array_tensor(there), NULL, NULL));
  assert_null(wrapped);
  hy_array* leaf = leaf_f64(&b, values, SHAPE(2, 3));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "is on guarded:0", hy_array_set_grad(leaf, there));

  CHECK_OK(hy_array_to(b.stream, &here, there));
  assert_ptr_equal(hy_array_device(here), b.device);
  CHECK_VALUES(&b, here, 1, 2, 3, 4, 5, 6);
  CHECK_OK(hy_array_to(b.stream, &grad, column));
  CHECK_VALUES(&b, grad, 3, 6);
  CHECK_OK(hy_array_to(g.stream, &again, here));
  CHECK_OK(hy_array_to_host(g.stream, again, back, sizeof back));
  assert_memory_equal(back, values, sizeof back);
  hy_array* shared;
  CHECK_OK(hy_array_to(b.stream, &shared, here));
  assert_ptr_equal(hy_array_tensor(shared)->data, hy_array_tensor(here)->data);
  hy_array* none;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_array_to(b.stream, &none, NULL));
  assert_null(none);
  hy_array* const all[] = {there, column, one, leaf, here, grad, again, shared};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) hy_array_release(all[i]);
  bench_close(&g);
  bench_close(&b);
}

static void makes_in_one_call(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *full, *range, *down, *rand, *same, *randn, *whole, *bad;
  double values[1000], mean = 0, square = 0;
  CHECK_OK(hy_array_full(b.stream, &full, HY_I32, SHAPE(2, 2), hy_int(7)));
  CHECK_VALUES(&b, full, 7, 7, 7, 7);
  CHECK_OK(hy_array_range(b.stream, &range, HY_I64, 4, hy_int(3), hy_int(2)));
  CHECK_VALUES(&b, range, 3, 5, 7, 9);
  CHECK_OK(hy_array_range(b.stream, &down, HY_F32, 3, hy_float(1), hy_float(-0.5)));
  CHECK_VALUES(&b, down, 1, 0.5, 0);
  CHECK_OK(hy_array_rand(b.stream, &rand, HY_F32, SHAPE(1000), 5, -1, 3));
  CHECK_OK(hy_array_rand(b.stream, &same, HY_F32, SHAPE(1000), 5, -1, 3));
  double other[1000];
  read_f64(&b, rand, values);
  read_f64(&b, same, other);
  assert_memory_equal(values, other, sizeof values);
  for (int i = 0; i < 1000; i++) {
    assert_true(values[i] >= -1 && values[i] < 3);
    mean += values[i] / 1000;
  }
  assert_true(mean > 0.8 && mean < 1.2);
  CHECK_OK(hy_array_rand(b.stream, &whole, HY_I32, SHAPE(1000), 5, 0, 3));
  read_f64(&b, whole, values);
  for (int i = 0; i < 1000; i++) assert_true(values[i] == 0 || values[i] == 1 || values[i] == 2);
  CHECK_OK(hy_array_randn(b.stream, &randn, HY_F64, SHAPE(1000), 1, 2, 3));
  read_f64(&b, randn, values);
  for (int i = 0; i < 1000; i++) square += (values[i] - 2) * (values[i] - 2) / 1000;
  assert_true(square > 7 && square < 11);
  CHECK_FAILS(HY_DTYPE, "", hy_array_randn(b.stream, &bad, HY_I32, SHAPE(2), 1, 0, 1));
  assert_null(bad);
  CHECK_FAILS(HY_SHAPE, "negative",
              hy_array_range(b.stream, &bad, HY_I32, -1, hy_int(0), hy_int(1)));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream",
              hy_array_full(NULL, &bad, HY_I32, SHAPE(1), hy_int(1)));
  hy_array* const all[] = {full, range, down, rand, same, randn, whole};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) hy_array_release(all[i]);
  bench_close(&b);
}

static void flips_with_gradients(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *x = leaf_f64(&b, (double[]){1, 2, 3, 4, 5, 6}, SHAPE(2, 3)), *f, *dense, *y;
  hy_array* seed = make_f64(&b, (double[]){1, 2, 3, 4, 5, 6}, SHAPE(2, 3));
  CHECK_OK(hy_array_flip(b.tape, &f, x, 1));
  CHECK_VALUES(&b, f, 3, 2, 1, 6, 5, 4);
  CHECK_OK(hy_array_contiguous(b.tape, &dense, f));
  CHECK_OK(hy_array_mul_scalar(b.tape, &y, dense, hy_float(10)));
  CHECK_OK(hy_backward(b.tape, y, seed));
  CHECK_VALUES(&b, hy_array_grad(x), 30, 20, 10, 60, 50, 40);
  hy_array* const all[] = {x, f, dense, y, seed};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) hy_array_release(all[i]);
  bench_close(&b);
}

// More than a call holds, with gradients, by arrays and by tensors.
static void joins_any_number(void** state) {
  (void)state;
  enum { N = 200 };
  bench b = bench_open();
  hy_array *list[N], *joined, *stacked, *seed;
  double values[3 * N], expected[3 * N];
  for (int i = 0; i < N; i++) {
    list[i] = leaf_f64(&b, (double[]){i, i + 0.25, i + 0.5}, SHAPE(3));
    for (int k = 0; k < 3; k++) expected[3 * i + k] = i + 0.25 * k;
  }
  CHECK_OK(hy_array_cat(b.tape, &joined, list, N, 0));
  read_f64(&b, joined, values);
  assert_memory_equal(values, expected, sizeof values);
  seed = make_f64(&b, expected, SHAPE(3 * N));
  CHECK_OK(hy_backward(b.tape, joined, seed));
  CHECK_VALUES(&b, hy_array_grad(list[N - 1]), N - 1, N - 0.75, N - 0.5);
  CHECK_VALUES(&b, hy_array_grad(list[77]), 77, 77.25, 77.5);
  hy_tape_set_recording(b.tape, false);
  CHECK_OK(hy_array_stack(b.tape, &stacked, list, N, -1));
  assert_true(hy_array_tensor(stacked)->shape[0] == 3 && hy_array_tensor(stacked)->shape[1] == N);
  read_f64(&b, stacked, values);
  for (int i = 0; i < N; i++)
    for (int k = 0; k < 3; k++) assert_true(values[k * N + i] == expected[3 * i + k]);

  // By tensors; one of them has another type, and one is [0].
  hy_tensor in[N], out;
  float f32[3] = {1, 2, 3};
  for (int i = 0; i < N; i++) in[i] = *hy_array_tensor(list[i]);
  CHECK_OK(hy_tensor_init(&out, values, HY_F64, SHAPE(3 * N)));
  CHECK_OK(hy_cat(b.stream, &out, in, N, 0));
  assert_memory_equal(values, expected, sizeof values);
  CHECK_OK(hy_tensor_init(&in[150], f32, HY_F32, SHAPE(3)));
  CHECK_OK(hy_cat(b.stream, &out, in, N, 0));
  assert_true(values[450] == 1 && values[452] == 3 && values[453] == 151 && values[449] == 149.5);
  CHECK_OK(hy_tensor_init(&out, values, HY_F64, SHAPE(N, 3)));
  CHECK_OK(hy_stack(b.stream, &out, in, N, 0));
  assert_true(values[450] == 1 && values[452] == 3 && values[453] == 151 && values[449] == 149.5);
  CHECK_OK(hy_tensor_init(&in[0], NULL, HY_F64, SHAPE(0)));
  CHECK_OK(hy_tensor_init(&out, values, HY_F64, SHAPE(3 * N - 3)));
  CHECK_OK(hy_cat(b.stream, &out, in, N, 0));
  assert_true(values[0] == 1 && values[3 * N - 4] == N - 0.5);
  hy_placement placement;
  hy_call call = {.op = HY_OP_cat, .n_in = N, .n_out = 1, .in = in, .out = &out};
  CHECK_OK(hy_place(b.device, &call, &placement));
  assert_non_null(placement.provider);
  // An output that one of the later inputs shares memory with.
  in[N - 1].data = values;
  CHECK_FAILS(HY_OVERLAP, "overlaps", hy_cat(b.stream, &out, in, N, 0));
  hy_tensor wrong = out;
  wrong.shape[0]--;
  in[N - 1] = *hy_array_tensor(list[N - 1]);
  CHECK_FAILS(HY_SHAPE, "must be", hy_cat(b.stream, &wrong, in, N, 0));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_cat(b.stream, &out, NULL, 3, 0));
  hy_tape_set_recording(b.tape, true);
  for (int i = 0; i < N; i++) hy_array_release(list[i]);
  hy_array_release(joined);
  hy_array_release(stacked);
  hy_array_release(seed);
  bench_close(&b);
}

typedef struct found {
  hy_array* arrays[4];
  char names[4][16];
  int n;
} found;

static hy_status keep_array(void* context, const char* name, hy_array* array) {
  found* f = context;
  if (f->n == 3) return hy_fail(HY_UNSUPPORTED, "that is enough");
  snprintf(f->names[f->n], sizeof f->names[0], "%s", name);
  f->arrays[f->n++] = hy_array_retain(array);
  return HY_OK;
}

static void saves_and_loads(void** state) {
  (void)state;
  char path[] = "/tmp/halyard-arrays-XXXXXX";
  assert_true(close(mkstemp(path)) == 0);
  bench b = bench_open(), g = bench_open_on("guarded");
  hy_array *x = make_f64(&b, (double[]){1, 2, 3, 4}, SHAPE(2, 2)), *t, *n, *packed;
  CHECK_OK(hy_array_transpose(b.tape, &t, x, 0, 1));
  CHECK_OK(hy_array_full(b.stream, &n, HY_BF16, SHAPE(0, 3), hy_float(1)));
  const char* const names[] = {"x", "a.\"t\"", "n"};
  hy_array* const arrays[] = {x, t, n};
  CHECK_OK(hy_arrays_save(b.stream, path, names, arrays, 3));
  found f = {.n = 0};
  CHECK_OK(hy_arrays_load(g.stream, path, keep_array, &f));
  assert_int_equal(f.n, 3);
  assert_string_equal(f.names[0], "a.\"t\"");
  assert_ptr_equal(hy_array_device(f.arrays[0]), g.device);
  CHECK_VALUES(&g, f.arrays[0], 1, 3, 2, 4);
  assert_string_equal(hy_tensor_describe(hy_array_tensor(f.arrays[1]), (char[64]){0}, 64),
                      "bf16[0, 3]");
  CHECK_VALUES(&g, f.arrays[2], 1, 2, 3, 4);
  const char* const twice[] = {"x", "x"};
  CHECK_FAILS(HY_INVALID_ARGUMENT, "two arrays", hy_arrays_save(b.stream, path, twice, arrays, 2));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_arrays_save(b.stream, path, NULL, arrays, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "is on", hy_arrays_save(g.stream, path, names, arrays, 1));
  CHECK_FAILS(HY_IO, "nowhere", hy_arrays_save(b.stream, "/tmp/nowhere/at/all", names, arrays, 1));
  CHECK_OK(hy_array_empty(b.stream, &packed, HY_I4, SHAPE(2, 2)));
  CHECK_FAILS(HY_LAYOUT, "packed_i4", hy_arrays_save(b.stream, path, names, &packed, 1));
  // What failed left the file as it was.
  CHECK_FAILS(HY_UNSUPPORTED, "enough", hy_arrays_load(g.stream, path, keep_array, &f));
  hy_array* const all[] = {x, t, n, packed, f.arrays[0], f.arrays[1], f.arrays[2]};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) hy_array_release(all[i]);
  unlink(path);
  bench_close(&g);
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
      cmocka_unit_test(other_devices_are_refused_and_reached),
      cmocka_unit_test(makes_in_one_call),
      cmocka_unit_test(flips_with_gradients),
      cmocka_unit_test(joins_any_number),
      cmocka_unit_test(saves_and_loads),
  };
  int failed = cmocka_run_group_tests_name("array", tests, NULL, NULL);
  hy_shutdown();
  return failed;
}
