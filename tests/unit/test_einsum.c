// Einsum: what equations mean, what is refused, and that taking one apart changes nothing.
#include <math.h>
#include <string.h>

#include "reference_call.h"

static hy_status einsum(const char* equation, hy_tensor* out, const hy_tensor* in, int n) {
  hy_attrs attrs = {.equation = {hy_einsum_equation(equation)}};
  return reference(HY_OP_einsum, out, in, n, attrs);
}

static void multiplies_and_sums(void** state) {
  (void)state;
  float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {7, 8, 9, 10, 11, 12}, out[6];
  hy_tensor in[2] = {tensor(a, HY_F32, 2, 3), tensor(b, HY_F32, 3, 2)};
  hy_tensor square = tensor(out, HY_F32, 2, 2), turned = tensor(out, HY_F32, 3, 2), number;
  assert_int_equal(einsum("ij,jk->ik", &square, in, 2), HY_OK);
  assert_floats(out, 58, 64, 139, 154);
  assert_int_equal(einsum("ij,jk", &square, in, 2), HY_OK);
  assert_floats(out, 58, 64, 139, 154);
  assert_int_equal(einsum(" i j , j k -> k i ", &square, in, 2), HY_OK);
  assert_floats(out, 58, 139, 64, 154);
  assert_int_equal(einsum("ij->ji", &turned, in, 1), HY_OK);
  assert_floats(out, 1, 4, 2, 5, 3, 6);
  assert_int_equal(hy_tensor_init(&number, out, HY_F32, 0, NULL), HY_OK);
  assert_int_equal(einsum("ij->", &number, in, 1), HY_OK);
  assert_floats(out, 21);
}

static void repeated_letters_are_diagonals(void** state) {
  (void)state;
  int32_t x[4] = {1, 2, 3, 4}, out[2];
  hy_tensor in = tensor(x, HY_I32, 2, 2), diagonal = tensor(out, HY_I32, 2), trace;
  assert_int_equal(einsum("ii->i", &diagonal, &in, 1), HY_OK);
  assert_true(out[0] == 1 && out[1] == 4);
  assert_int_equal(hy_tensor_init(&trace, out, HY_I32, 0, NULL), HY_OK);
  assert_int_equal(einsum("ii", &trace, &in, 1), HY_OK);
  assert_int_equal(out[0], 5);
}

static void ellipses_broadcast(void** state) {
  (void)state;
  float a[4] = {1, 2, 3, 4}, b[2] = {10, 100}, out[4];
  hy_tensor in[2] = {tensor(a, HY_F32, 2, 2, 1), tensor(b, HY_F32, 1, 2)};
  hy_tensor result = tensor(out, HY_F32, 2, 2);
  assert_int_equal(einsum("...i,...j->...j", &result, in, 2), HY_SHAPE);  // [2, 2, 2] it is
  in[0] = tensor(a, HY_F32, 2, 2);
  assert_int_equal(einsum("...i,...i->...i", &result, in, 2), HY_OK);
  assert_floats(out, 10, 200, 30, 400);
}

static void an_empty_sum_is_zero(void** state) {
  (void)state;
  float out[2] = {7, 7};
  hy_tensor in = tensor(NULL, HY_F32, 2, 0), result = tensor(out, HY_F32, 2);
  assert_int_equal(einsum("ij->i", &result, &in, 1), HY_OK);
  assert_floats(out, 0, 0);
}

static void says_what_is_wrong(void** state) {
  (void)state;
  float x[6] = {0}, out[6];
  hy_tensor in[2] = {tensor(x, HY_F32, 2, 3), tensor(x, HY_F32, 2, 3)};
  hy_tensor result = tensor(out, HY_F32, 2, 3);
  const struct {
    const char *equation, *words;
    hy_status status;
    int n;
  } cases[] = {
      {"ij,jk->ik", "'j' stands for the sizes 3 and 2", HY_SHAPE, 2},
      {"ii->i", "the sizes 2 and 3 under 'i'", HY_SHAPE, 1},
      {"ijk->i", "has 2 dimensions, its subscripts name 3", HY_SHAPE, 1},
      {"ij->iz", "output's 'z'", HY_INVALID_ARGUMENT, 1},
      {"ij->ii", "'i' twice", HY_INVALID_ARGUMENT, 1},
      {"ij,ij->ij", "more than 1 operands", HY_INVALID_ARGUMENT, 1},
      {"ij->ij", "has 1 operands, the call 2", HY_INVALID_ARGUMENT, 2},
      {"i!j", "letters", HY_INVALID_ARGUMENT, 1},
      {"ij-ij", "letters", HY_INVALID_ARGUMENT, 1},
      {"ij->i->j", "behind", HY_INVALID_ARGUMENT, 1},
      {"i...j...", "letters", HY_INVALID_ARGUMENT, 1},
      {"", "empty", HY_INVALID_ARGUMENT, 1},
      {"ij", "no operands", HY_INVALID_ARGUMENT, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(einsum(cases[i].equation, &result, in, cases[i].n), cases[i].status);
    assert_non_null(strstr(hy_last_error(), cases[i].words));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(multiplies_and_sums),
      cmocka_unit_test(repeated_letters_are_diagonals),
      cmocka_unit_test(ellipses_broadcast),
      cmocka_unit_test(an_empty_sum_is_zero),
      cmocka_unit_test(says_what_is_wrong),
  };
  return cmocka_run_group_tests_name("einsum", tests, NULL, NULL);
}
