// Convolution and pooling of the reference: values worked out by hand, gradients, bad windows.
#include <math.h>
#include <string.h>

#include "reference_call.h"

static const hy_attrs_conv unit = {{1, 1}, {0, 0}, {1, 1}, 1};

static void convolves_with_padding_and_bias(void** state) {
  (void)state;
  float x[4] = {1, 2, 3, 4}, weight[4] = {1, 10, 100, 1000}, bias[1] = {0.5f}, out[9];
  hy_tensor in[3] = {tensor(x, HY_F32, 1, 2, 2), tensor(weight, HY_F32, 1, 1, 2, 2),
                     tensor(bias, HY_F32, 1)};
  hy_attrs attrs = {.conv = unit};
  hy_tensor result = tensor(out, HY_F32, 1, 1, 1);
  assert_int_equal(reference(HY_OP_conv2d, &result, in, 3, attrs), HY_OK);
  assert_floats(out, 4321.5f);
  attrs.conv.padding = (hy_pair){1, 1};
  result = tensor(out, HY_F32, 1, 3, 3);
  assert_int_equal(reference(HY_OP_conv2d, &result, in, 3, attrs), HY_OK);
  assert_floats(out, 1000.5f, 2100.5f, 200.5f, 3010.5f, 4321.5f, 402.5f, 30.5f, 43.5f, 4.5f);
  attrs.conv.stride = (hy_pair){2, 2};
  result = tensor(out, HY_F32, 1, 2, 2);
  assert_int_equal(reference(HY_OP_conv2d, &result, in, 3, attrs), HY_OK);
  assert_floats(out, 1000.5f, 200.5f, 30.5f, 4.5f);
}

static void groups_keep_to_their_channels(void** state) {
  (void)state;
  float x[2] = {1, 2}, weight[2] = {10, 100}, out[2];
  hy_tensor in[3] = {tensor(x, HY_F32, 1, 2, 1, 1), tensor(weight, HY_F32, 2, 1, 1, 1),
                     hy_tensor_absent()};
  hy_tensor result = tensor(out, HY_F32, 1, 2, 1, 1);
  hy_attrs attrs = {.conv = unit};
  attrs.conv.groups = 2;
  assert_int_equal(reference(HY_OP_conv2d, &result, in, 3, attrs), HY_OK);
  assert_floats(out, 10, 200);
  attrs.conv.groups = 3;
  assert_int_equal(reference(HY_OP_conv2d, &result, in, 3, attrs), HY_SHAPE);
}

static void differentiates_convolution(void** state) {
  (void)state;
  float dy[2] = {1, 2}, x[3] = {3, 4, 5}, weight[2] = {6, 7}, dx[3], dweight[2], dbias[1];
  hy_tensor in[3] = {tensor(dy, HY_F32, 1, 1, 2), tensor(x, HY_F32, 1, 1, 3),
                     tensor(weight, HY_F32, 1, 1, 1, 2)};
  hy_tensor result[3] = {tensor(dx, HY_F32, 1, 1, 3), tensor(dweight, HY_F32, 1, 1, 1, 2),
                         tensor(dbias, HY_F32, 1)};
  assert_int_equal(reference(HY_OP_conv2d_backward, result, in, 3, (hy_attrs){.conv = unit}),
                   HY_OK);
  assert_floats(dx, 6, 19, 14);
  assert_floats(dweight, 11, 14);
  assert_floats(dbias, 3);
}

static void finds_maxima_and_sends_gradients_back(void** state) {
  (void)state;
  float x[6] = {1, 5, 2, 4, 3, NAN}, out[2], dy[2] = {10, 20}, dx[6];
  int64_t index[2];
  hy_tensor in = tensor(x, HY_F32, 1, 2, 3);
  hy_tensor result[2] = {tensor(out, HY_F32, 1, 1, 2), tensor(index, HY_I64, 1, 1, 2)};
  hy_attrs attrs = {.max_pool = {.kernel = {2, 2}, .stride = {1, 1}, .dilation = {1, 1}}};
  assert_int_equal(reference(HY_OP_max_pool2d, result, &in, 1, attrs), HY_OK);
  assert_true(out[0] == 5 && isnan(out[1]));
  assert_true(index[0] == 1 && index[1] == 5);
  hy_tensor back[3] = {tensor(dy, HY_F32, 1, 1, 2), result[1], in};
  hy_tensor gradient = tensor(dx, HY_F32, 1, 2, 3);
  index[1] = 1;
  assert_int_equal(reference(HY_OP_max_pool2d_backward, &gradient, back, 3, attrs), HY_OK);
  assert_floats(dx, 0, 30, 0, 0, 0, 0);
  index[1] = 6;
  assert_int_equal(reference(HY_OP_max_pool2d_backward, &gradient, back, 3, attrs), HY_INDEX);
}

static void averages_with_each_divisor(void** state) {
  (void)state;
  float x[3] = {3, 6, 9}, out[3], dx[3];
  hy_tensor in = tensor(x, HY_F32, 1, 1, 3), result = tensor(out, HY_F32, 1, 1, 2);
  hy_attrs attrs = {.avg_pool = {.kernel = {1, 2}, .stride = {1, 2}, .padding = {0, 1}}};
  assert_int_equal(reference(HY_OP_avg_pool2d, &result, &in, 1, attrs), HY_OK);
  assert_floats(out, 3, 7.5f);
  attrs.avg_pool.count_padding = true;
  assert_int_equal(reference(HY_OP_avg_pool2d, &result, &in, 1, attrs), HY_OK);
  assert_floats(out, 1.5f, 7.5f);
  attrs.avg_pool.divisor = 3;
  assert_int_equal(reference(HY_OP_avg_pool2d, &result, &in, 1, attrs), HY_OK);
  assert_floats(out, 1, 5);
  hy_tensor back[2] = {result, in}, gradient = tensor(dx, HY_F32, 1, 1, 3);
  assert_int_equal(reference(HY_OP_avg_pool2d_backward, &gradient, back, 2, attrs), HY_OK);
  assert_floats(dx, 1 / 3.0f, 5 / 3.0f, 5 / 3.0f);
}

static void refuses_impossible_windows(void** state) {
  (void)state;
  float x[4] = {0}, out[4];
  hy_tensor in[3] = {tensor(x, HY_F32, 1, 2, 2), tensor(x, HY_F32, 1, 1, 1, 3), hy_tensor_absent()};
  hy_tensor result[2] = {tensor(out, HY_F32, 1, 1, 1), hy_tensor_absent()};
  hy_attrs attrs = {.conv = unit};
  assert_int_equal(reference(HY_OP_conv2d, result, in, 3, attrs), HY_SHAPE);
  assert_non_null(strstr(hy_last_error(), "(1, 3)"));
  attrs.conv.stride.h = 0;
  assert_int_equal(reference(HY_OP_conv2d, result, in, 3, attrs), HY_INVALID_ARGUMENT);
  attrs = (hy_attrs){.max_pool = {{2, 2}, {1, 1}, {2, 0}, {1, 1}, false}};
  assert_int_equal(reference(HY_OP_max_pool2d, result, in, 1, attrs), HY_INVALID_ARGUMENT);
  assert_non_null(strstr(hy_last_error(), "half"));
  attrs.max_pool.padding = (hy_pair){INT64_MAX, 0};
  assert_int_equal(reference(HY_OP_max_pool2d, result, in, 1, attrs), HY_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(convolves_with_padding_and_bias),
      cmocka_unit_test(groups_keep_to_their_channels),
      cmocka_unit_test(differentiates_convolution),
      cmocka_unit_test(finds_maxima_and_sends_gradients_back),
      cmocka_unit_test(averages_with_each_divisor),
      cmocka_unit_test(refuses_impossible_windows),
  };
  return cmocka_run_group_tests_name("conv_pool", tests, NULL, NULL);
}
