// The elementwise reference through its checked entry: promotion, broadcasting, strides, errors.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/internal.h"

static hy_tensor vector(void* data, hy_dtype dtype, int64_t n) {
  hy_tensor t;
  assert_int_equal(hy_tensor_init(&t, data, dtype, 1, &n), HY_OK);
  return t;
}

static hy_status run(hy_op op, hy_tensor* out, const hy_tensor* in, int n_in, hy_attrs attrs) {
  hy_call call = {.op = op, .n_in = n_in, .n_out = 1, .in = in, .out = out, .attrs = attrs};
  return hy__reference(&call);
}

static void adds_with_alpha_and_broadcast(void** state) {
  (void)state;
  float a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {10, 20, 30}, out[6];
  hy_tensor in[2], result;
  hy_tensor_init(&in[0], a, HY_F32, 2, (int64_t[]){2, 3});
  in[1] = vector(b, HY_F32, 3);
  hy_tensor_init(&result, out, HY_F32, 2, (int64_t[]){2, 3});
  assert_int_equal(run(HY_OP_add, &result, in, 2, (hy_attrs){.alpha = {hy_float(0.5)}}), HY_OK);
  const float expected[6] = {6, 12, 18, 9, 15, 21};
  assert_memory_equal(out, expected, sizeof out);
}

static void promotes_like_pytorch(void** state) {
  (void)state;
  int32_t i[2] = {7, -7};
  float f[2] = {2, 2}, q[2];
  hy_tensor in[2] = {vector(i, HY_I32, 2), vector(f, HY_F32, 2)}, result = vector(q, HY_F32, 2);
  assert_int_equal(run(HY_OP_div, &result, in, 2, (hy_attrs){.rounding = {HY_ROUND_FLOOR}}), HY_OK);
  assert_true(q[0] == 3 && q[1] == -4);
  // A 0-dimensional f64 beside an f32 vector does not widen it.
  double d = 0.5;
  hy_tensor_init(&in[0], &d, HY_F64, 0, NULL);
  assert_int_equal(run(HY_OP_mul, &result, in, 2, (hy_attrs){0}), HY_OK);
  assert_true(q[0] == 1 && q[1] == 1);
}

static void works_in_place_and_refuses_partial_overlap(void** state) {
  (void)state;
  float x[5] = {1, 2, 3, 4, 5};
  hy_tensor in = vector(x, HY_F32, 4), same = in, shifted = vector(x + 1, HY_F32, 4);
  assert_int_equal(run(HY_OP_neg, &same, &in, 1, (hy_attrs){0}), HY_OK);
  assert_true(x[0] == -1 && x[3] == -4 && x[4] == 5);
  assert_int_equal(run(HY_OP_neg, &shifted, &in, 1, (hy_attrs){0}), HY_OVERLAP);
  // Columns of one matrix interleave without meeting.
  hy_tensor even, odd, all = vector(x, HY_F32, 4);
  assert_int_equal(hy_slice(&even, &all, 0, 0, 4, 2), HY_OK);
  assert_int_equal(hy_slice(&odd, &all, 0, 1, 4, 2), HY_OK);
  assert_int_equal(run(HY_OP_neg, &even, &odd, 1, (hy_attrs){0}), HY_OK);
}

static void rounds_small_floats_to_nearest_even(void** state) {
  (void)state;
  float x[6] = {1.00048828125f, 65520, 6e-8f, 1e-8f, NAN, -INFINITY};
  uint16_t half[6];
  hy_tensor in = vector(x, HY_F32, 6), out = vector(half, HY_F16, 6);
  assert_int_equal(run(HY_OP_cast, &out, &in, 1, (hy_attrs){.cast = {HY_F16}}), HY_OK);
  assert_int_equal(half[0], 0x3c00);  // a tie between 1 and the next half
  assert_int_equal(half[1], 0x7c00);  // rounds up out of range
  assert_int_equal(half[2], 0x0001);
  assert_int_equal(half[3], 0x0000);
  assert_true((half[4] & 0x7fff) > 0x7c00);
  assert_int_equal(half[5], 0xfc00);
}

static void names_what_was_wrong(void** state) {
  (void)state;
  float a[6] = {0}, out[6];
  hy_tensor in[2] = {vector(a, HY_F32, 3), vector(a, HY_F32, 2)}, result = vector(out, HY_F32, 3);
  assert_int_equal(run(HY_OP_mul, &result, in, 2, (hy_attrs){0}), HY_SHAPE);
  assert_non_null(strstr(hy_last_error(), "mul"));
  assert_non_null(strstr(hy_last_error(), "3 and 2"));
  in[1] = in[0];
  in[1].data = NULL;
  assert_int_equal(run(HY_OP_mul, &result, in, 2, (hy_attrs){0}), HY_INVALID_ARGUMENT);
  assert_int_equal(run(HY_OP_mul, &result, in, 1, (hy_attrs){0}), HY_INVALID_ARGUMENT);
  in[1] = in[0];
  result = vector(out, HY_I32, 3);
  assert_int_equal(run(HY_OP_mul, &result, in, 2, (hy_attrs){0}), HY_DTYPE);
}

// PyTorch takes a 0-dimensional operand as the type of the other: -1 is 255 beside u8.
static void numbers_without_dimensions_wrap(void** state) {
  (void)state;
  uint8_t u[3] = {0, 200, 255}, result[3];
  int8_t minus = -1;
  int16_t large = 300;  // 44 in u8
  hy_tensor in[2] = {vector(u, HY_U8, 3)}, out = vector(result, HY_BOOL, 3);
  hy_tensor_init(&in[1], &minus, HY_I8, 0, NULL);
  assert_int_equal(run(HY_OP_lt, &out, in, 2, (hy_attrs){0}), HY_OK);
  assert_true(result[0] == 1 && result[1] == 1 && result[2] == 0);
  assert_int_equal(run(HY_OP_eq, &out, in, 2, (hy_attrs){0}), HY_OK);
  assert_true(result[0] == 0 && result[1] == 0 && result[2] == 1);
  out = vector(result, HY_U8, 3);
  assert_int_equal(run(HY_OP_maximum, &out, in, 2, (hy_attrs){0}), HY_OK);
  assert_true(result[0] == 255 && result[1] == 255 && result[2] == 255);
  hy_tensor_init(&in[1], &large, HY_I16, 0, NULL);
  assert_int_equal(run(HY_OP_minimum, &out, in, 2, (hy_attrs){0}), HY_OK);
  assert_true(result[0] == 0 && result[1] == 44 && result[2] == 44);
  assert_int_equal(run(HY_OP_div, &out, in, 2, (hy_attrs){.rounding = {HY_ROUND_FLOOR}}), HY_OK);
  assert_true(result[0] == 0 && result[1] == 4 && result[2] == 5);
  // Floats alike: 1 + 2^-30 is 1 beside f32.
  float f[3] = {0.5, 1, 1.5};
  double near = 1 + 0x1p-30;
  in[0] = vector(f, HY_F32, 3);
  hy_tensor_init(&in[1], &near, HY_F64, 0, NULL);
  out = vector(result, HY_BOOL, 3);
  assert_int_equal(run(HY_OP_ge, &out, in, 2, (hy_attrs){0}), HY_OK);
  assert_true(result[0] == 0 && result[1] == 1 && result[2] == 1);
  // And the factor of a sum of bools is a bool.
  uint8_t b[2] = {1, 0};
  in[0] = in[1] = vector(b, HY_BOOL, 2);
  out = vector(result, HY_BOOL, 2);
  assert_int_equal(run(HY_OP_add, &out, in, 2, (hy_attrs){.alpha = {hy_int(-1)}}), HY_OK);
  assert_true(result[0] == 1 && result[1] == 0);
}

static void attributes_must_mean_something(void** state) {
  (void)state;
  float a[2] = {1, 2}, b[2] = {3, 4}, result[2] = {7, 7};
  hy_tensor in[2] = {vector(a, HY_F32, 2), vector(b, HY_F32, 2)}, out = vector(result, HY_F32, 2);
  hy_scalar odd = {.as = {.f = 1}, .kind = HY_F32};
  assert_int_equal(run(HY_OP_add, &out, in, 2, (hy_attrs){.alpha = {odd}}), HY_INVALID_ARGUMENT);
  assert_non_null(strstr(hy_last_error(), "alpha is of the kind f32"));
  assert_int_equal(run(HY_OP_add, &out, in, 2, (hy_attrs){.alpha = {hy_no_scalar()}}),
                   HY_INVALID_ARGUMENT);
  assert_non_null(strstr(hy_last_error(), "alpha is absent"));
  assert_int_equal(run(HY_OP_mul_scalar, &out, in, 1, (hy_attrs){.value = {hy_no_scalar()}}),
                   HY_INVALID_ARGUMENT);
  assert_int_equal(run(HY_OP_div, &out, in, 2, (hy_attrs){.rounding = {(hy_rounding)77}}),
                   HY_INVALID_ARGUMENT);
  assert_non_null(strstr(hy_last_error(), "rounding is 77"));
  assert_int_equal(run(HY_OP_div, &out, in, 2, (hy_attrs){.rounding = {(hy_rounding)-1}}),
                   HY_INVALID_ARGUMENT);
  assert_true(result[0] == 7 && result[1] == 7);
  // A clamp may lack a bound.
  hy_attrs clamp = {.clamp = {hy_no_scalar(), hy_float(1.5)}};
  assert_int_equal(run(HY_OP_clamp, &out, in, 1, clamp), HY_OK);
  assert_true(result[0] == 1 && result[1] == 1.5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adds_with_alpha_and_broadcast),
      cmocka_unit_test(promotes_like_pytorch),
      cmocka_unit_test(works_in_place_and_refuses_partial_overlap),
      cmocka_unit_test(rounds_small_floats_to_nearest_even),
      cmocka_unit_test(names_what_was_wrong),
      cmocka_unit_test(numbers_without_dimensions_wrap),
      cmocka_unit_test(attributes_must_mean_something),
  };
  return cmocka_run_group_tests_name("elementwise", tests, NULL, NULL);
}
