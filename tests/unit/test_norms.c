// Layer, rms and batch norm, forward and backward.
#include "reference_call.h"
#include "support/check.h"

static void layer_norm_centres_and_scales(void** state) {
  (void)state;
  float x[4] = {1, 3, 10, 30}, w[2] = {2, 1}, b[2] = {0, 5}, out[4], mean[2], rstd[2];
  CHECK_OK(run(
      HY_OP_layer_norm, ATTRS(.norm = {1, 0}),
      OUTPUTS(tensor(out, HY_F32, 2, 2), tensor(mean, HY_F32, 2, 1), tensor(rstd, HY_F32, 2, 1)),
      tensor(x, HY_F32, 2, 2), tensor(w, HY_F32, 2), tensor(b, HY_F32, 2)));
  assert_floats(out, -2, 6, -2, 6);
  assert_floats(mean, 2, 20);
  assert_floats(rstd, 1, 0.1f);
}

static void layer_norm_backward_is_orthogonal(void** state) {
  (void)state;
  // h = (-1, 0, 1) sqrt(3/2); what is left of dy is what neither the mean nor h can explain.
  float x[3] = {1, 2, 3}, dy[3] = {0, 3, 0}, mean[1] = {2}, rstd[1] = {sqrtf(1.5f)};
  float dx[3], dw[3], db[3];
  hy_tensor in[5] = {tensor(dy, HY_F32, 1, 3), tensor(x, HY_F32, 1, 3), tensor(mean, HY_F32, 1, 1),
                     tensor(rstd, HY_F32, 1, 1), hy_tensor_absent()};
  CHECK_OK(run(HY_OP_layer_norm_backward, ATTRS(.norm = {1, 0}),
               OUTPUTS(tensor(dx, HY_F32, 1, 3), tensor(dw, HY_F32, 3), tensor(db, HY_F32, 3)),
               in[0], in[1], in[2], in[3], in[4]));
  assert_floats(dx, -rstd[0], 2 * rstd[0], -rstd[0]);
  assert_floats(dw, 0, 0, 0);
  assert_floats(db, 0, 3, 0);
  // Outputs that nobody wants are not computed.
  CHECK_OK(run(HY_OP_layer_norm_backward, ATTRS(.norm = {1, 0}),
               OUTPUTS(hy_tensor_absent(), hy_tensor_absent(), tensor(db, HY_F32, 3)), in[0], in[1],
               in[2], in[3], in[4]));
}

static void rms_norm_keeps_the_mean(void** state) {
  (void)state;
  float x[2] = {3, 4}, w[2] = {1, 10}, out[2], rstd[1], dy[2] = {1, 0}, dx[2], dw[2];
  hy_attrs attrs = ATTRS(.norm = {1, 0});
  hy_tensor in = tensor(x, HY_F32, 2), weight = tensor(w, HY_F32, 2);
  CHECK_OK(run(HY_OP_rms_norm, attrs, OUTPUTS(tensor(out, HY_F32, 2), tensor(rstd, HY_F32, 1)), in,
               weight));
  float scale = 1 / sqrtf(12.5f);
  assert_floats(rstd, scale);
  assert_floats(out, 3 * scale, 40 * scale);
  // dx = r (g - h mean(g h)) with h = x r.
  CHECK_OK(run(HY_OP_rms_norm_backward, attrs,
               OUTPUTS(tensor(dx, HY_F32, 2), tensor(dw, HY_F32, 2)), tensor(dy, HY_F32, 2), in,
               tensor(rstd, HY_F32, 1), weight));
  assert_floats(dx, scale * (1 - 9 / 25.f), -scale * 12 / 25.f);
  assert_floats(dw, 3 * scale, 0);
}

static void batch_norm_uses_the_batch_or_the_past(void** state) {
  (void)state;
  float x[4] = {1, 10, 3, 30}, out[4], mean[2], rstd[2], past_mean[2] = {0, 10};
  float past_var[2] = {1, 4};
  hy_tensor none = hy_tensor_absent(), in = tensor(x, HY_F32, 2, 2);
  hy_tensor result = tensor(out, HY_F32, 2, 2);
  CHECK_OK(run(HY_OP_batch_norm, ATTRS(.batch_norm = {true, 0.5, 0}),
               OUTPUTS(result, tensor(mean, HY_F32, 2), tensor(rstd, HY_F32, 2)), in, none, none,
               none, none));
  assert_floats(out, -1, -1, 1, 1);
  assert_floats(mean, 2, 20);
  assert_floats(rstd, 1, 0.1f);
  hy_tensor running[2] = {tensor(past_mean, HY_F32, 2), tensor(past_var, HY_F32, 2)};
  CHECK_OK(run(HY_OP_batch_norm, ATTRS(.batch_norm = {false, 0.5, 0}), OUTPUTS(result, none, none),
               in, none, none, running[0], running[1]));
  assert_floats(out, 1, 0, 3, 10);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "running_mean",
              run(HY_OP_batch_norm, ATTRS(.batch_norm = {false, 0.5, 0}),
                  OUTPUTS(result, none, none), in, none, none, none, none));
  // In place; the variance that is kept divides by n - 1.
  CHECK_OK(run(HY_OP_batch_norm_update, ATTRS(.batch_norm = {true, 0.5, 0}),
               OUTPUTS(running[0], running[1]), running[0], running[1], in));
  assert_floats(past_mean, 1, 15);
  assert_floats(past_var, 1.5f, 102);
}

static void batch_norm_backward_knows_constants(void** state) {
  (void)state;
  float x[2] = {1, 3}, dy[2] = {1, 2}, mean[1] = {2}, rstd[1] = {1}, w[1] = {2};
  float dx[2], dw[1], db[1];
#define BACKWARD(training)                                                             \
  run(HY_OP_batch_norm_backward, ATTRS(.batch_norm = {training, 0, 0}),                \
      OUTPUTS(tensor(dx, HY_F32, 2, 1), tensor(dw, HY_F32, 1), tensor(db, HY_F32, 1)), \
      tensor(dy, HY_F32, 2, 1), tensor(x, HY_F32, 2, 1), tensor(mean, HY_F32, 1),      \
      tensor(rstd, HY_F32, 1), tensor(w, HY_F32, 1))
  CHECK_OK(BACKWARD(false));
  assert_floats(dx, 2, 4);
  assert_floats(dw, 1);
  assert_floats(db, 3);
  CHECK_OK(BACKWARD(true));  // two values normalise to -1 and 1, whatever they are
  assert_floats(dx, 0, 0);
#undef BACKWARD
}

static void norms_refuse_what_does_not_fit(void** state) {
  (void)state;
  float x[6] = {0}, out[6];
  uint16_t half[3] = {0};
  hy_tensor in = tensor(x, HY_F32, 2, 3), to = tensor(out, HY_F32, 2, 3), none = hy_tensor_absent();
  CHECK_FAILS(HY_SHAPE, "norm_dims is 3",
              run(HY_OP_rms_norm, ATTRS(.norm = {3, 0}), OUTPUTS(to, none), in, none));
  CHECK_FAILS(
      HY_SHAPE, "weight must be [3]",
      run(HY_OP_rms_norm, ATTRS(.norm = {1, 0}), OUTPUTS(to, none), in, tensor(x, HY_F32, 2)));
  CHECK_FAILS(
      HY_DTYPE, "bf16",
      run(HY_OP_rms_norm, ATTRS(.norm = {1, 0}), OUTPUTS(to, none), in, tensor(half, HY_BF16, 3)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layer_norm_centres_and_scales),
      cmocka_unit_test(layer_norm_backward_is_orthogonal),
      cmocka_unit_test(rms_norm_keeps_the_mean),
      cmocka_unit_test(batch_norm_uses_the_batch_or_the_past),
      cmocka_unit_test(batch_norm_backward_knows_constants),
      cmocka_unit_test(norms_refuse_what_does_not_fit),
  };
  return cmocka_run_group_tests_name("norms", tests, NULL, NULL);
}
