// Cross entropy: reductions, weights, smoothing, ignored and wrong targets.
#include <math.h>

#include "reference_call.h"
#include "support/check.h"

// Two rows with probabilities (1/4, 1/4, 1/2) and (1/2, 1/4, 1/4).
static float log_2;
static float logits[6];
static int64_t target[2];

static int set_up(void** state) {
  (void)state;
  log_2 = logf(2);
  const float rows[6] = {0, 0, log_2, log_2, 0, 0};
  memcpy(logits, rows, sizeof logits);
  target[0] = 2;
  target[1] = 1;
  return 0;
}

static hy_status loss_of(float* loss, hy_attrs_cross_entropy attrs, hy_tensor weight) {
  hy_tensor out =
      attrs.reduction == HY_REDUCTION_NONE ? tensor(loss, HY_F32, 2) : scalar(loss, HY_F32);
  return run(HY_OP_cross_entropy, ATTRS(.cross_entropy = attrs), OUTPUTS(out),
             tensor(logits, HY_F32, 2, 3), tensor(target, HY_I64, 2), weight);
}

static hy_status slope_of(float* slope, hy_attrs_cross_entropy attrs, float* dloss) {
  return run(HY_OP_cross_entropy_backward, ATTRS(.cross_entropy = attrs),
             OUTPUTS(tensor(slope, HY_F32, 2, 3)), tensor(logits, HY_F32, 2, 3),
             tensor(target, HY_I64, 2), hy_tensor_absent(), scalar(dloss, HY_F32));
}

static void reduces_as_asked(void** state) {
  (void)state;
  float loss[2];
  hy_tensor none = hy_tensor_absent();
  CHECK_OK(loss_of(loss, (hy_attrs_cross_entropy){-100, HY_REDUCTION_NONE, 0, HY_NONE}, none));
  assert_floats(loss, log_2, 2 * log_2);
  CHECK_OK(loss_of(loss, (hy_attrs_cross_entropy){-100, HY_REDUCTION_SUM, 0, HY_NONE}, none));
  assert_floats(loss, 3 * log_2);
  CHECK_OK(loss_of(loss, (hy_attrs_cross_entropy){-100, HY_REDUCTION_MEAN, 0, HY_NONE}, none));
  assert_floats(loss, 1.5f * log_2);
}

static void the_mean_is_weighted(void** state) {
  (void)state;
  float loss[1], weight[3] = {1, 3, 1};
  CHECK_OK(loss_of(loss, (hy_attrs_cross_entropy){-100, HY_REDUCTION_MEAN, 0, HY_NONE},
                   tensor(weight, HY_F32, 3)));
  assert_floats(loss, (log_2 + 3 * 2 * log_2) / 4);
}

static void smoothing_mixes_all_classes(void** state) {
  (void)state;
  float loss[2];
  CHECK_OK(loss_of(loss, (hy_attrs_cross_entropy){-100, HY_REDUCTION_NONE, 0.3, HY_NONE},
                   hy_tensor_absent()));
  assert_floats(loss, (0.7f + 0.1f * 5) * log_2, (0.7f * 2 + 0.1f * 5) * log_2);
}

static void ignored_targets_count_for_nothing(void** state) {
  (void)state;
  float loss[1], slope[6], one = 1;
  target[0] = -100;
  hy_attrs_cross_entropy mean = {-100, HY_REDUCTION_MEAN, 0, HY_NONE};
  CHECK_OK(loss_of(loss, mean, hy_tensor_absent()));
  assert_floats(loss, 2 * log_2);
  CHECK_OK(slope_of(slope, mean, &one));
  assert_floats(slope, 0, 0, 0, 0.5f, 0.25f - 1, 0.25f);
  target[1] = -100;
  CHECK_OK(loss_of(loss, mean, hy_tensor_absent()));
  assert_true(isnan(loss[0]));
  CHECK_OK(slope_of(slope, mean, &one));
  assert_floats(slope, 0, 0, 0, 0, 0, 0);
}

static void the_slope_is_probability_less_target(void** state) {
  (void)state;
  float slope[6], two = 2;
  CHECK_OK(slope_of(slope, (hy_attrs_cross_entropy){-100, HY_REDUCTION_MEAN, 0, HY_NONE}, &two));
  assert_floats(slope, 0.25f, 0.25f, -0.5f, 0.5f, -0.75f, 0.25f);
}

static void classes_may_lie_in_the_middle(void** state) {
  (void)state;
  // The rows of the set-up as columns of [1, 3, 2], and one of them alone as [3].
  float columns[6], loss[2];
  for (int i = 0; i < 6; i++) columns[i % 3 * 2 + i / 3] = logits[i];
  hy_attrs attrs = ATTRS(.cross_entropy = {-100, HY_REDUCTION_NONE, 0, HY_NONE});
  hy_tensor none = hy_tensor_absent();
  CHECK_OK(run(HY_OP_cross_entropy, attrs, OUTPUTS(tensor(loss, HY_F32, 1, 2)),
               tensor(columns, HY_F32, 1, 3, 2), tensor(target, HY_I64, 1, 2), none));
  assert_floats(loss, log_2, 2 * log_2);
  CHECK_OK(run(HY_OP_cross_entropy, attrs, OUTPUTS(scalar(loss, HY_F32)), tensor(logits, HY_F32, 3),
               scalar(target, HY_I64), none));
  assert_floats(loss, log_2);
}

static void refuses_targets_outside_the_classes(void** state) {
  (void)state;
  float loss[2] = {7, 7};
  hy_attrs_cross_entropy attrs = {-100, HY_REDUCTION_NONE, 0, HY_NONE};
  target[1] = 3;
  CHECK_FAILS(HY_INDEX, "target 3 is none of the 3", loss_of(loss, attrs, hy_tensor_absent()));
  target[1] = -1;
  CHECK_FAILS(HY_INDEX, "target -1", loss_of(loss, attrs, hy_tensor_absent()));
  assert_floats(loss, 7, 7);
  attrs.label_smoothing = 2;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "label_smoothing", loss_of(loss, attrs, hy_tensor_absent()));
}

// bf16 would have rounded log(3) = 1.0986 to 1.1016.
static void a_loss_of_halves_may_be_f32(void** state) {
  (void)state;
  uint16_t zeros[3] = {0};
  int64_t first = 0;
  float loss = 0;
  hy_attrs attrs = ATTRS(.cross_entropy = {-100, HY_REDUCTION_SUM, 0, HY_F32});
  CHECK_OK(run(HY_OP_cross_entropy, attrs, OUTPUTS(scalar(&loss, HY_F32)),
               tensor(zeros, HY_BF16, 3), scalar(&first, HY_I64), hy_tensor_absent()));
  assert_true(fabsf(loss - 1.0986123f) < 1e-6f);
  attrs.cross_entropy.dtype = HY_F16;
  CHECK_FAILS(HY_DTYPE, "cannot be f16",
              run(HY_OP_cross_entropy, attrs, OUTPUTS(scalar(&loss, HY_F16)),
                  tensor(zeros, HY_BF16, 3), scalar(&first, HY_I64), hy_tensor_absent()));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(reduces_as_asked, set_up),
      cmocka_unit_test_setup(the_mean_is_weighted, set_up),
      cmocka_unit_test_setup(smoothing_mixes_all_classes, set_up),
      cmocka_unit_test_setup(ignored_targets_count_for_nothing, set_up),
      cmocka_unit_test_setup(the_slope_is_probability_less_target, set_up),
      cmocka_unit_test_setup(classes_may_lie_in_the_middle, set_up),
      cmocka_unit_test_setup(a_loss_of_halves_may_be_f32, set_up),
      cmocka_unit_test_setup(refuses_targets_outside_the_classes, set_up),
  };
  return cmocka_run_group_tests_name("cross entropy", tests, NULL, NULL);
}
