// Philox against its published answers, and what the random ops make of its words.
#include "ops/philox.h"
#include "reference_call.h"
#include "support/check.h"

static void philox_gives_the_published_answers(void** state) {
  (void)state;
  // Counter, key, answer: the known-answer vectors of Random123 for philox4x32 with 10 rounds.
  static const uint32_t known[3][10] = {
      {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
      {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
      {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
       0x94fdcceb, 0x5001e420, 0x24126ea1},
  };
  for (int i = 0; i < 3; i++) {
    const uint32_t* k = known[i];
    hy__philox_block block = hy__philox((hy__philox_block){{k[0], k[1], k[2], k[3]}}, k[4], k[5]);
    assert_memory_equal(block.word, k + 6, sizeof block.word);
  }
}

static hy_status draw(hy_op op, hy_tensor out, uint64_t offset, double a, double b) {
  hy_attrs attrs = ATTRS(.random = {0, offset, a, b});
  return reference(op, &out, NULL, 0, attrs);
}

static void elements_take_words_in_order(void** state) {
  (void)state;
  float u[6], later[2], columns[6];
  CHECK_OK(draw(HY_OP_uniform, tensor(u, HY_F32, 6), 0, 0, 1));
  assert_true(u[0] == (float)(0x6627e8d5 >> 8) / 0x1p24f);
  assert_true(u[3] == (float)(0x9b00dbd8 >> 8) / 0x1p24f);
  // The second block, drawn alone.
  CHECK_OK(draw(HY_OP_uniform, tensor(later, HY_F32, 2), 1, 0, 1));
  assert_memory_equal(later, u + 4, sizeof later);
  // Strides change where numbers go, not which they are.
  hy_tensor turned = tensor(columns, HY_F32, 3, 2);
  CHECK_OK(hy_transpose(&turned, &turned, 0, 1));
  CHECK_OK(draw(HY_OP_uniform, turned, 0, 0, 1));
  assert_true(columns[0] == u[0] && columns[2] == u[1] && columns[1] == u[3]);
}

static void uniform_keeps_its_upper_end_out(void** state) {
  (void)state;
  uint16_t half[256];
  CHECK_OK(draw(HY_OP_uniform, tensor(half, HY_BF16, 256), 0, 1, 2));
  for (int i = 0; i < 256; i++) assert_in_range(half[i], 0x3f80, 0x3fff);  // 1 .. below 2
}

static void normal_is_box_and_muller(void** state) {
  (void)state;
  float z[2];
  CHECK_OK(draw(HY_OP_normal, tensor(z, HY_F32, 2), 0, 10, 3));
  double u = ((0x6627e8d5 >> 8) + 1) / 0x1p24, v = (0xe169c58d >> 8) / 0x1p24;
  double radius = sqrt(-2 * log(u)), angle = 2 * 3.14159265358979323846 * v;
  assert_floats(z, (float)(10 + 3 * radius * cos(angle)), (float)(10 + 3 * radius * sin(angle)));
}

static void randint_spans_its_range(void** state) {
  (void)state;
  int64_t dice[1000], wide;
  int seen[6] = {0};
  CHECK_OK(draw(HY_OP_randint, tensor(dice, HY_I64, 1000), 0, 1, 7));
  for (int i = 0; i < 1000; i++) {
    assert_in_range(dice[i], 1, 6);
    seen[dice[i] - 1]++;
  }
  for (int i = 0; i < 6; i++) assert_in_range(seen[i], 120, 220);
  CHECK_OK(draw(HY_OP_randint, scalar(&wide, HY_I64), 0, -0x1p31, 0x1p31));
  assert_int_equal(wide, 0x6627e8d5 - INT64_C(0x80000000));
}

static void bernoulli_and_dropout_agree(void** state) {
  (void)state;
  bool heads[8], kept[8];
  float x[8] = {1, 1, 1, 1, 1, 1, 1, NAN}, out[8];
  CHECK_OK(draw(HY_OP_bernoulli, tensor(heads, HY_BOOL, 8), 0, 0.75, 0));
  hy_tensor t = tensor(x, HY_F32, 8), mask = tensor(kept, HY_BOOL, 8);
  CHECK_OK(
      run(HY_OP_dropout, ATTRS(.dropout = {0, 0, 0.25}), OUTPUTS(tensor(out, HY_F32, 8), mask), t));
  assert_memory_equal(heads, kept, sizeof kept);
  for (int i = 0; i < 7; i++) assert_floats(&out[i], kept[i] ? 4 / 3.f : 0);
  assert_true(isnan(out[7]));
  CHECK_OK(run(HY_OP_dropout, ATTRS(.dropout = {0, 0, 1}), OUTPUTS(t, mask), t));  // in place
  assert_floats(x, 0, 0, 0, 0, 0, 0, 0, NAN);
}

static void refuses_impossible_parameters(void** state) {
  (void)state;
  float f[2];
  int8_t i[2];
  CHECK_FAILS(HY_INVALID_ARGUMENT, "interval", draw(HY_OP_uniform, tensor(f, HY_F32, 2), 0, 1, 0));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "deviation", draw(HY_OP_normal, tensor(f, HY_F32, 2), 0, 0, -1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "a < b", draw(HY_OP_randint, tensor(f, HY_F32, 2), 0, 3, 3));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "i8", draw(HY_OP_randint, tensor(i, HY_I8, 2), 0, 0, 200));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "[0, 1]", draw(HY_OP_bernoulli, tensor(f, HY_F32, 2), 0, 2, 0));
  CHECK_FAILS(HY_DTYPE, "i8", draw(HY_OP_uniform, tensor(i, HY_I8, 2), 0, 0, 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(philox_gives_the_published_answers),
      cmocka_unit_test(elements_take_words_in_order),
      cmocka_unit_test(uniform_keeps_its_upper_end_out),
      cmocka_unit_test(normal_is_box_and_muller),
      cmocka_unit_test(randint_spans_its_range),
      cmocka_unit_test(bernoulli_and_dropout_agree),
      cmocka_unit_test(refuses_impossible_parameters),
  };
  return cmocka_run_group_tests_name("random", tests, NULL, NULL);
}
