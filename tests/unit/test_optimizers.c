// One step of AdamW and of SGD, against numbers worked out by hand.
#include "reference_call.h"
#include "support/check.h"

static void adamw_corrects_its_moments(void** state) {
  (void)state;
  // At step 1 the corrected moments are g and g^2, so that the step is lr times the sign of g.
  float param[2] = {1, 1}, m[2] = {0, 0}, v[2] = {0, 0}, grad[2] = {4, -0.5f};
  hy_tensor p = tensor(param, HY_F32, 2), first = tensor(m, HY_F32, 2),
            second = tensor(v, HY_F32, 2);
  hy_attrs_adamw attrs = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .step = 1};
  CHECK_OK(run(HY_OP_adamw, ATTRS(.adamw = attrs), OUTPUTS(p, first, second), p, first, second,
               tensor(grad, HY_F32, 2)));
  assert_floats(param, 0.9f, 1.1f);
  assert_floats(m, 0.4f, -0.05f);
  assert_floats(v, 0.16f, 0.0025f);
  // The second step in one formula, with decay and eps, uphill.
  attrs.step = 2;
  attrs.weight_decay = 0.5;
  attrs.eps = 1;
  attrs.maximize = true;
  CHECK_OK(run(HY_OP_adamw, ATTRS(.adamw = attrs), OUTPUTS(p, first, second), p, first, second,
               tensor(grad, HY_F32, 2)));
  double mean = 0.9 * 0.4 - 0.1 * 4, square = 0.99 * 0.16 + 0.01 * 16;
  double step = 0.1 * (mean / (1 - 0.81)) / (sqrt(square / (1 - 0.9801)) + 1);
  assert_floats(param, (float)(0.9 * 0.95 - step));
}

static void moments_may_be_wider_than_the_parameter(void** state) {
  (void)state;
  uint16_t param[1] = {0x3f80}, grad[1] = {0x3f80};  // bf16 1
  float m[1] = {0}, v[1] = {0};
  hy_tensor p = tensor(param, HY_BF16, 1), first = tensor(m, HY_F32, 1),
            second = tensor(v, HY_F32, 1);
  hy_attrs attrs = ATTRS(.adamw = {.lr = 0.5, .beta1 = 0.9, .beta2 = 0.999, .step = 1});
  CHECK_OK(run(HY_OP_adamw, attrs, OUTPUTS(p, first, second), p, first, second,
               tensor(grad, HY_BF16, 1)));
  assert_int_equal(param[0], 0x3f00);
  assert_floats(v, 0.001f);
  attrs.adamw.step = 0;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "step 0",
              run(HY_OP_adamw, attrs, OUTPUTS(p, first, second), p, first, second,
                  tensor(grad, HY_BF16, 1)));
}

static void sgd_gathers_velocity(void** state) {
  (void)state;
  float param[1] = {1}, velocity[1] = {100}, grad[1] = {2};
  hy_tensor p = tensor(param, HY_F32, 1), v = tensor(velocity, HY_F32, 1);
  hy_attrs_sgd attrs = {.lr = 0.1, .momentum = 0.5, .dampening = 0.25, .first = true};
#define STEP() run(HY_OP_sgd, ATTRS(.sgd = attrs), OUTPUTS(p, v), p, v, tensor(grad, HY_F32, 1))
  CHECK_OK(STEP());  // the first step takes the gradient whole, whatever was in the velocity
  assert_floats(velocity, 2);
  assert_floats(param, 0.8f);
  attrs.first = false;
  CHECK_OK(STEP());  // 0.5 * 2 + 0.75 * 2
  assert_floats(velocity, 2.5f);
  assert_floats(param, 0.55f);
  attrs.dampening = 0;
  attrs.nesterov = true;
  CHECK_OK(STEP());  // velocity 0.5 * 2.5 + 2, step 2 + 0.5 * 3.25
  assert_floats(velocity, 3.25f);
  assert_floats(param, 0.55f - 0.3625f);
  attrs.momentum = 0;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "nesterov", STEP());
#undef STEP
}

static void sgd_without_momentum_needs_no_velocity(void** state) {
  (void)state;
  float param[2] = {1, 2}, grad[2] = {1, -1};
  hy_tensor p = tensor(param, HY_F32, 2), none = hy_tensor_absent();
  hy_attrs_sgd attrs = {.lr = 0.5, .weight_decay = 1, .maximize = true};
  CHECK_OK(run(HY_OP_sgd, ATTRS(.sgd = attrs), OUTPUTS(p, none), p, none, tensor(grad, HY_F32, 2)));
  assert_floats(param, 1, 0.5f);
  attrs.momentum = 0.9;
  CHECK_FAILS(
      HY_INVALID_ARGUMENT, "velocity",
      run(HY_OP_sgd, ATTRS(.sgd = attrs), OUTPUTS(p, none), p, none, tensor(grad, HY_F32, 2)));
  CHECK_FAILS(
      HY_SHAPE, "grad must be [2]",
      run(HY_OP_sgd, ATTRS(.sgd = {.lr = 1}), OUTPUTS(p, none), p, none, tensor(grad, HY_F32, 1)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adamw_corrects_its_moments),
      cmocka_unit_test(moments_may_be_wider_than_the_parameter),
      cmocka_unit_test(sgd_gathers_velocity),
      cmocka_unit_test(sgd_without_momentum_needs_no_velocity),
  };
  return cmocka_run_group_tests_name("optimizers", tests, NULL, NULL);
}
