// Reductions, scans, sorts and softmax.
#include "reference_call.h"
#include "support/check.h"

static void sums_over_chosen_dims(void** state) {
  (void)state;
  float x[6] = {1, 2, 3, 4, 5, 6}, out[3];
  hy_tensor in = tensor(x, HY_F32, 2, 3);
  CHECK_OK(
      run(HY_OP_sum, ATTRS(.reduce = {hy_one_dim(0), false}), OUTPUTS(tensor(out, HY_F32, 3)), in));
  assert_floats(out, 5, 7, 9);
  CHECK_OK(run(HY_OP_mean, ATTRS(.reduce = {hy_one_dim(-1), true}),
               OUTPUTS(tensor(out, HY_F32, 2, 1)), in));
  assert_floats(out, 2, 5);
  CHECK_OK(
      run(HY_OP_prod, ATTRS(.reduce = {hy_all_dims(), false}), OUTPUTS(scalar(out, HY_F32)), in));
  assert_floats(out, 720);
  // The same through a transposed view.
  hy_tensor turned;
  CHECK_OK(hy_transpose(&turned, &in, 0, 1));
  CHECK_OK(run(HY_OP_sum, ATTRS(.reduce = {hy_one_dim(1), false}), OUTPUTS(tensor(out, HY_F32, 3)),
               turned));
  assert_floats(out, 5, 7, 9);
}

static void integers_accumulate_in_64_bits(void** state) {
  (void)state;
  int8_t x[3] = {127, 127, 2};
  bool flags[3] = {true, false, true};
  uint8_t bytes[2] = {0, 7}, any;
  int64_t out;
  hy_attrs all = ATTRS(.reduce = {hy_all_dims(), false});
  CHECK_OK(run(HY_OP_sum, all, OUTPUTS(scalar(&out, HY_I64)), tensor(x, HY_I8, 3)));
  assert_int_equal(out, 256);
  CHECK_OK(run(HY_OP_sum, all, OUTPUTS(scalar(&out, HY_I64)), tensor(flags, HY_BOOL, 3)));
  assert_int_equal(out, 2);
  CHECK_OK(run(HY_OP_any, all, OUTPUTS(scalar(&any, HY_U8)), tensor(bytes, HY_U8, 2)));
  assert_int_equal(any, 1);
}

static void nothing_sums_to_nothing(void** state) {
  (void)state;
  float out[3] = {9, 9, 9};
  hy_tensor empty = tensor(NULL, HY_F32, 0, 3);
  hy_attrs first = ATTRS(.reduce = {hy_one_dim(0), false});
  hy_tensor three = tensor(out, HY_F32, 3);
  CHECK_OK(run(HY_OP_sum, first, OUTPUTS(three), empty));
  assert_floats(out, 0, 0, 0);
  CHECK_OK(run(HY_OP_prod, first, OUTPUTS(three), empty));
  assert_floats(out, 1, 1, 1);
  CHECK_OK(run(HY_OP_mean, first, OUTPUTS(three), empty));
  assert_floats(out, NAN, NAN, NAN);
  CHECK_FAILS(HY_SHAPE, "no elements", run(HY_OP_max, first, OUTPUTS(three), empty));
  CHECK_OK(run(HY_OP_max, ATTRS(.reduce = {hy_one_dim(1), false}), OUTPUTS(tensor(NULL, HY_F32, 0)),
               empty));
}

static void variance_corrects_its_divisor(void** state) {
  (void)state;
  float x[4] = {1, 2, 3, 6}, out;
  hy_tensor in = tensor(x, HY_F32, 4);
#define VAR(correction)                                                                           \
  run(HY_OP_var, ATTRS(.var = {hy_all_dims(), false, correction}), OUTPUTS(scalar(&out, HY_F32)), \
      in)
  CHECK_OK(VAR(0));
  assert_floats(&out, 3.5f);
  CHECK_OK(VAR(1));
  assert_floats_near(&out, 1e-6, 14 / 3.f);
  CHECK_OK(VAR(4));
  assert_true(isinf(out));
#undef VAR
}

static void extremes_propagate_nan_and_take_the_first(void** state) {
  (void)state;
  float x[8] = {1, 5, 5, 0, 2, NAN, 9, NAN}, out[2];
  int64_t index[2];
  hy_tensor in = tensor(x, HY_F32, 2, 4), where = tensor(index, HY_I64, 2);
  hy_attrs rows = ATTRS(.reduce = {hy_one_dim(1), false});
  CHECK_OK(run(HY_OP_max_dim, rows, OUTPUTS(tensor(out, HY_F32, 2), where), in));
  assert_floats(out, 5, NAN);
  assert_indices(index, 1, 1);
  CHECK_OK(run(HY_OP_argmin, rows, OUTPUTS(where), in));
  assert_indices(index, 3, 1);
  CHECK_OK(run(HY_OP_argmax, ATTRS(.reduce = {hy_all_dims(), false}),
               OUTPUTS(scalar(index, HY_I64)), in));
  assert_int_equal(index[0], 5);
  CHECK_OK(run(HY_OP_min, rows, OUTPUTS(tensor(out, HY_F32, 2)), in));
  assert_floats(out, 0, NAN);
}

static void refuses_bad_dims(void** state) {
  (void)state;
  float x[6] = {0}, out[6];
  hy_tensor in = tensor(x, HY_F32, 2, 3), to = scalar(out, HY_F32);
  CHECK_FAILS(HY_SHAPE, "dimension 2",
              run(HY_OP_sum, ATTRS(.reduce = {hy_one_dim(2), false}), OUTPUTS(to), in));
  CHECK_FAILS(HY_SHAPE, "twice",
              run(HY_OP_sum, ATTRS(.reduce = {{{0, -2}, 2}, false}), OUTPUTS(to), in));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "one dimension",
              run(HY_OP_argmax, ATTRS(.reduce = {{{0, 1}, 2}, false}), OUTPUTS(to), in));
  int32_t whole[2] = {1, 2};
  CHECK_FAILS(HY_DTYPE, "i32",
              run(HY_OP_mean, ATTRS(.reduce = {hy_all_dims(), false}), OUTPUTS(to),
                  tensor(whole, HY_I32, 2)));
}

static void cumsum_runs_both_ways(void** state) {
  (void)state;
  float x[4] = {1, 2, 3, 4}, out[4];
  hy_tensor in = tensor(x, HY_F32, 2, 2), to = tensor(out, HY_F32, 2, 2);
  CHECK_OK(run(HY_OP_cumsum, ATTRS(.scan = {0, false}), OUTPUTS(to), in));
  assert_floats(out, 1, 2, 4, 6);
  CHECK_OK(run(HY_OP_cumsum, ATTRS(.scan = {1, true}), OUTPUTS(to), in));
  assert_floats(out, 3, 2, 7, 4);
}

static void sort_is_stable_with_nan_above_all(void** state) {
  (void)state;
  float x[5] = {2, NAN, 1, 2, -INFINITY}, out[5];
  int64_t index[5];
  hy_tensor in = tensor(x, HY_F32, 5), to = tensor(out, HY_F32, 5);
  hy_tensor where = tensor(index, HY_I64, 5);
  CHECK_OK(run(HY_OP_sort, ATTRS(.sort = {0, false}), OUTPUTS(to, where), in));
  assert_floats(out, -INFINITY, 1, 2, 2, NAN);
  assert_indices(index, 4, 2, 0, 3, 1);
  CHECK_OK(run(HY_OP_sort, ATTRS(.sort = {0, true}), OUTPUTS(to, where), in));
  assert_indices(index, 1, 0, 3, 2, 4);
  CHECK_OK(run(HY_OP_topk, ATTRS(.topk = {2, 0, false, true}),
               OUTPUTS(tensor(out, HY_F32, 2), tensor(index, HY_I64, 2)), in));
  assert_floats(out, -INFINITY, 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "k is 6",
              run(HY_OP_topk, ATTRS(.topk = {6, 0, true, true}), OUTPUTS(to, where), in));
}

static void softmax_survives_large_logits(void** state) {
  (void)state;
  float x[4] = {1000, 1000, -INFINITY, 1000 + logf(2)}, out[4];
  hy_tensor in = tensor(x, HY_F32, 4), to = tensor(out, HY_F32, 4);
  CHECK_OK(run(HY_OP_softmax, ATTRS(.dim = {0}), OUTPUTS(to), in));
  assert_floats_near(out, 1e-5, 0.25f, 0.25f, 0, 0.5f);
  CHECK_OK(run(HY_OP_log_softmax, ATTRS(.dim = {-1}), OUTPUTS(to), in));
  assert_floats_near(out, 1e-4, -logf(4), -logf(4), -INFINITY, -logf(2));
}

static void softmax_backward_sums_to_zero(void** state) {
  (void)state;
  float dy[2] = {1, 0}, y[2] = {0.25f, 0.75f}, dx[2];
  CHECK_OK(run(HY_OP_softmax_backward, ATTRS(.dim = {0}), OUTPUTS(tensor(dx, HY_F32, 2)),
               tensor(dy, HY_F32, 2), tensor(y, HY_F32, 2)));
  assert_floats_near(dx, 1e-6, 0.1875f, -0.1875f);
  float log_y[2] = {logf(0.25f), logf(0.75f)};
  CHECK_OK(run(HY_OP_log_softmax_backward, ATTRS(.dim = {0}), OUTPUTS(tensor(dx, HY_F32, 2)),
               tensor(dy, HY_F32, 2), tensor(log_y, HY_F32, 2)));
  assert_floats_near(dx, 1e-6, 0.75f, -0.75f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_over_chosen_dims),
      cmocka_unit_test(integers_accumulate_in_64_bits),
      cmocka_unit_test(nothing_sums_to_nothing),
      cmocka_unit_test(variance_corrects_its_divisor),
      cmocka_unit_test(extremes_propagate_nan_and_take_the_first),
      cmocka_unit_test(refuses_bad_dims),
      cmocka_unit_test(cumsum_runs_both_ways),
      cmocka_unit_test(sort_is_stable_with_nan_above_all),
      cmocka_unit_test(softmax_survives_large_logits),
      cmocka_unit_test(softmax_backward_sums_to_zero),
  };
  return cmocka_run_group_tests_name("reductions", tests, NULL, NULL);
}
