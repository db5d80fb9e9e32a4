// Matrix products of the reference: values, strides, empty sizes, wrapping integers, errors.
#include <math.h>
#include <string.h>

#include "reference_call.h"

static void multiplies_matrices_of_any_strides(void** state) {
  (void)state;
  float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {7, 8, 9, 10, 11, 12}, out[4];
  hy_tensor in[2] = {tensor(a, HY_F32, 2, 3), tensor(b, HY_F32, 3, 2)};
  hy_tensor result = tensor(out, HY_F32, 2, 2), turned;
  assert_int_equal(reference(HY_OP_mm, &result, in, 2, (hy_attrs){0}), HY_OK);
  assert_floats(out, 58, 64, 139, 154);
  // (a b)^T through a transposed view of the output.
  assert_int_equal(hy_transpose(&turned, &result, 0, 1), HY_OK);
  assert_int_equal(reference(HY_OP_mm, &turned, in, 2, (hy_attrs){0}), HY_OK);
  assert_floats(out, 58, 139, 64, 154);
  // b^T a^T
  hy_tensor back[2];
  assert_int_equal(hy_transpose(&back[0], &in[1], 0, 1), HY_OK);
  assert_int_equal(hy_transpose(&back[1], &in[0], 0, 1), HY_OK);
  assert_int_equal(reference(HY_OP_mm, &result, back, 2, (hy_attrs){0}), HY_OK);
  assert_floats(out, 58, 139, 64, 154);
}

static void multiplies_each_batch(void** state) {
  (void)state;
  float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, out[2];
  hy_tensor in[2] = {tensor(a, HY_F32, 2, 1, 2), tensor(b, HY_F32, 2, 2, 1)};
  hy_tensor result = tensor(out, HY_F32, 2, 1, 1);
  assert_int_equal(reference(HY_OP_bmm, &result, in, 2, (hy_attrs){0}), HY_OK);
  assert_floats(out, 17, 53);
}

static void adds_to_the_product_in_place(void** state) {
  (void)state;
  float eye[4] = {1, 0, 0, 1}, b[4] = {1, 2, 3, 4}, x[4] = {10, 20, 30, 40};
  hy_tensor in[3] = {tensor(x, HY_F32, 2, 2), tensor(eye, HY_F32, 2, 2), tensor(b, HY_F32, 2, 2)};
  hy_attrs attrs = {.addmm = {.beta = hy_float(0.5), .alpha = hy_float(2)}};
  hy_tensor result = in[0];
  assert_int_equal(reference(HY_OP_addmm, &result, in, 3, attrs), HY_OK);
  assert_floats(x, 7, 14, 21, 28);
  // A row broadcasts; a beta of 0 does not read it.
  float row[2] = {NAN, NAN}, out[4];
  in[0] = tensor(row, HY_F32, 2);
  result = tensor(out, HY_F32, 2, 2);
  attrs.addmm.beta = hy_int(0);
  assert_int_equal(reference(HY_OP_addmm, &result, in, 3, attrs), HY_OK);
  assert_floats(out, 2, 4, 6, 8);
}

static void applies_a_layer_to_all_leading_dimensions(void** state) {
  (void)state;
  float x[6] = {1, 2, 3, 4, 5, 6}, weight[6] = {1, 0, 0, 1, 1, 1}, bias[3] = {0, 10, 100}, out[9];
  hy_tensor in[3] = {tensor(x, HY_F32, 1, 3, 2), tensor(weight, HY_F32, 3, 2),
                     tensor(bias, HY_F32, 3)};
  hy_tensor result = tensor(out, HY_F32, 1, 3, 3);
  assert_int_equal(reference(HY_OP_linear, &result, in, 3, (hy_attrs){0}), HY_OK);
  assert_floats(out, 1, 12, 103, 3, 14, 107, 5, 16, 111);
}

static void an_empty_inner_size_gives_zeros(void** state) {
  (void)state;
  float out[2] = {7, 7};
  hy_tensor in[2] = {tensor(NULL, HY_F32, 1, 0), tensor(NULL, HY_F32, 0, 2)};
  hy_tensor result = tensor(out, HY_F32, 1, 2);
  assert_int_equal(reference(HY_OP_mm, &result, in, 2, (hy_attrs){0}), HY_OK);
  assert_floats(out, 0, 0);
}

static void integers_wrap_or_widen(void** state) {
  (void)state;
  int8_t a[2] = {100, 100}, b[2] = {2, 1}, narrow[1];
  int32_t wide[1];
  hy_tensor in[2] = {tensor(a, HY_I8, 1, 2), tensor(b, HY_I8, 2, 1)};
  hy_tensor result = tensor(narrow, HY_I8, 1, 1);
  assert_int_equal(reference(HY_OP_mm, &result, in, 2, (hy_attrs){0}), HY_OK);
  assert_int_equal(narrow[0], 44);
  result = tensor(wide, HY_I32, 1, 1);
  assert_int_equal(reference(HY_OP_int_mm, &result, in, 2, (hy_attrs){0}), HY_OK);
  assert_int_equal(wide[0], 300);
}

static void refuses_what_does_not_fit(void** state) {
  (void)state;
  float a[6] = {0}, out[4];
  double d[6] = {0};
  hy_tensor in[3] = {tensor(a, HY_F32, 2, 3), tensor(a, HY_F32, 2, 3), hy_tensor_absent()};
  hy_tensor result = tensor(out, HY_F32, 2, 2);
  assert_int_equal(reference(HY_OP_mm, &result, in, 2, (hy_attrs){0}), HY_SHAPE);
  assert_non_null(strstr(hy_last_error(), "3 and 2"));
  assert_int_equal(reference(HY_OP_bmm, &result, in, 2, (hy_attrs){0}), HY_SHAPE);
  in[2] = tensor(a, HY_F32, 3);
  assert_int_equal(reference(HY_OP_linear, &result, in, 3, (hy_attrs){0}), HY_SHAPE);
  assert_non_null(strstr(hy_last_error(), "bias"));
  in[1] = tensor(d, HY_F64, 3, 2);
  assert_int_equal(reference(HY_OP_mm, &result, in, 2, (hy_attrs){0}), HY_DTYPE);
  // The output may not be an operand.
  hy_tensor square[2] = {tensor(a, HY_F32, 2, 2), tensor(a, HY_F32, 2, 2)};
  assert_int_equal(reference(HY_OP_mm, &square[0], square, 2, (hy_attrs){0}), HY_OVERLAP);
  // Integers take no fractions.
  int32_t i[4] = {0}, j[4];
  hy_tensor ints[3] = {tensor(i, HY_I32, 2, 2), tensor(i, HY_I32, 2, 2), tensor(i, HY_I32, 2, 2)};
  result = tensor(j, HY_I32, 2, 2);
  hy_attrs attrs = {.addmm = {.beta = hy_float(0.5), .alpha = hy_int(1)}};
  assert_int_equal(reference(HY_OP_addmm, &result, ints, 3, attrs), HY_DTYPE);
}

static void reports_missing_memory(void** state) {
  (void)state;
  float a[1] = {2}, out[1];
  hy_tensor in[2] = {tensor(a, HY_F32, 1, 1), tensor(a, HY_F32, 1, 1)};
  hy_tensor result = tensor(out, HY_F32, 1, 1);
  for (int nth = 1; nth <= 2; nth++) {
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, nth);
    assert_int_equal(reference(HY_OP_mm, &result, in, 2, (hy_attrs){0}), HY_OUT_OF_MEMORY);
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
  }
  assert_int_equal(reference(HY_OP_mm, &result, in, 2, (hy_attrs){0}), HY_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(multiplies_matrices_of_any_strides),
      cmocka_unit_test(multiplies_each_batch),
      cmocka_unit_test(adds_to_the_product_in_place),
      cmocka_unit_test(applies_a_layer_to_all_leading_dimensions),
      cmocka_unit_test(an_empty_inner_size_gives_zeros),
      cmocka_unit_test(integers_wrap_or_widen),
      cmocka_unit_test(refuses_what_does_not_fit),
      cmocka_unit_test(reports_missing_memory),
  };
  return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}
