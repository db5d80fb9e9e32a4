// Attention and rotary positions of the reference: values worked out by hand, masks, bad indices.
#include <math.h>
#include <string.h>

#include "reference_call.h"

// One head of size 1 with scale 1: the scores are q * k.
static const hy_attrs plain = {.attention = {.scale = 1}};

static void weighs_values_by_softmax(void** state) {
  (void)state;
  float q[1] = {1}, k[2] = {0, logf(3)}, v[2] = {4, 8}, out[1], lse[1];
  hy_tensor in[4] = {tensor(q, HY_F32, 1, 1, 1), tensor(k, HY_F32, 1, 2, 1),
                     tensor(v, HY_F32, 1, 2, 1), hy_tensor_absent()};
  hy_tensor result[2] = {tensor(out, HY_F32, 1, 1, 1), tensor(lse, HY_F32, 1, 1)};
  assert_int_equal(reference(HY_OP_sdpa, result, in, 4, plain), HY_OK);
  assert_floats(out, 7);  // 1/4 of 4, 3/4 of 8
  assert_floats(lse, logf(4));
}

static void groups_query_heads(void** state) {
  (void)state;
  float q[4] = {0, 0, 0, 0}, k[2] = {0, 0}, v[2] = {1, 2}, out[4];
  hy_tensor in[4] = {tensor(q, HY_F32, 4, 1, 1), tensor(k, HY_F32, 2, 1, 1),
                     tensor(v, HY_F32, 2, 1, 1), hy_tensor_absent()};
  hy_tensor result[2] = {tensor(out, HY_F32, 4, 1, 1), hy_tensor_absent()};
  assert_int_equal(reference(HY_OP_sdpa, result, in, 4, plain), HY_OK);
  assert_floats(out, 1, 1, 2, 2);
  in[0] = tensor(q, HY_F32, 3, 1, 1);
  result[0] = tensor(out, HY_F32, 3, 1, 1);
  assert_int_equal(reference(HY_OP_sdpa, result, in, 4, plain), HY_SHAPE);
  assert_non_null(strstr(hy_last_error(), "multiple"));
}

static void masks_by_corner_and_by_tensor(void** state) {
  (void)state;
  float q[2] = {0, 0}, k[3] = {0, 0, 0}, v[3] = {3, 6, 9}, out[2], lse[2];
  hy_tensor in[4] = {tensor(q, HY_F32, 1, 2, 1), tensor(k, HY_F32, 1, 3, 1),
                     tensor(v, HY_F32, 1, 3, 1), hy_tensor_absent()};
  hy_tensor result[2] = {tensor(out, HY_F32, 1, 2, 1), tensor(lse, HY_F32, 1, 2)};
  hy_attrs attrs = plain;
  attrs.attention.causal = HY_CAUSAL_TOP_LEFT;
  assert_int_equal(reference(HY_OP_sdpa, result, in, 4, attrs), HY_OK);
  assert_floats(out, 3, 4.5f);
  attrs.attention.causal = HY_CAUSAL_BOTTOM_RIGHT;
  assert_int_equal(reference(HY_OP_sdpa, result, in, 4, attrs), HY_OK);
  assert_floats(out, 4.5f, 6);
  // A row that sees nothing gives 0; what is masked has no influence, not even NaN.
  bool mask[6] = {false, false, false, true, false, true};
  v[1] = NAN;
  in[3] = tensor(mask, HY_BOOL, 2, 3);
  assert_int_equal(reference(HY_OP_sdpa, result, in, 4, plain), HY_OK);
  assert_floats(out, 0, 6);
  assert_true(lse[0] == -INFINITY);
  float bias[3] = {0, -INFINITY, logf(2)};
  in[3] = tensor(bias, HY_F32, 3);
  assert_int_equal(reference(HY_OP_sdpa, result, in, 4, plain), HY_OK);
  assert_floats(out, 7, 7);
}

static void differentiates_attention(void** state) {
  (void)state;
  // Two keys with equal scores: p = 1/2 each, dv = p dout, ds = p (dout v - dout out).
  double q[1] = {2}, k[2] = {1, 1}, v[2] = {4, 8}, out[1] = {6}, lse[1] = {2 + log(2)};
  double dout[1] = {1}, dq[1], dk[2], dv[2];
  hy_tensor in[7] = {tensor(dout, HY_F64, 1, 1, 1),
                     tensor(q, HY_F64, 1, 1, 1),
                     tensor(k, HY_F64, 1, 2, 1),
                     tensor(v, HY_F64, 1, 2, 1),
                     tensor(out, HY_F64, 1, 1, 1),
                     tensor(lse, HY_F64, 1, 1),
                     hy_tensor_absent()};
  hy_tensor result[3] = {tensor(dq, HY_F64, 1, 1, 1), tensor(dk, HY_F64, 1, 2, 1),
                         tensor(dv, HY_F64, 1, 2, 1)};
  assert_int_equal(reference(HY_OP_sdpa_backward, result, in, 7, plain), HY_OK);
  assert_floats((float[]){(float)dq[0]}, 0);
  assert_floats(((float[]){(float)dk[0], (float)dk[1]}), -2, 2);
  assert_floats(((float[]){(float)dv[0], (float)dv[1]}), 0.5f, 0.5f);
}

static void follows_the_block_table(void** state) {
  (void)state;
  // Blocks of one key. Sequence 0: 1 new token over blocks 2, 0. Sequence 1: 2 new tokens, blocks
  // 1, 2.
  float q[3] = {0, 0, 0}, k[3] = {0, 0, 0}, v[3] = {1, 2, 4}, out[3];
  int32_t table[4] = {2, 0, 1, 2}, start[3] = {0, 1, 3}, length[2] = {2, 2};
  hy_tensor in[6] = {tensor(q, HY_F32, 3, 1, 1),    tensor(k, HY_F32, 3, 1, 1, 1),
                     tensor(v, HY_F32, 3, 1, 1, 1), tensor(table, HY_I32, 2, 2),
                     tensor(start, HY_I32, 3),      tensor(length, HY_I32, 2)};
  hy_tensor result = tensor(out, HY_F32, 3, 1, 1);
  assert_int_equal(reference(HY_OP_paged_attention, &result, in, 6, (hy_attrs){0}), HY_OK);
  assert_floats(out, 2.5f, 2, 3);
  table[1] = 3;
  assert_int_equal(reference(HY_OP_paged_attention, &result, in, 6, (hy_attrs){0}), HY_INDEX);
  assert_non_null(strstr(hy_last_error(), "block_table[0, 1] is 3"));
  table[1] = 0;
  length[1] = 1;
  assert_int_equal(reference(HY_OP_paged_attention, &result, in, 6, (hy_attrs){0}), HY_INDEX);
  length[1] = 2;
  start[1] = 4;
  assert_int_equal(reference(HY_OP_paged_attention, &result, in, 6, (hy_attrs){0}), HY_INDEX);
}

static void rotates_pairs_and_back(void** state) {
  (void)state;
  float x[4] = {1, 2, 3, 4}, cosine[2] = {0, 1}, sine[2] = {1, 0}, out[4];
  hy_tensor in[3] = {tensor(x, HY_F32, 4), tensor(cosine, HY_F32, 2), tensor(sine, HY_F32, 2)};
  hy_tensor result = tensor(out, HY_F32, 4);
  assert_int_equal(reference(HY_OP_rope, &result, in, 3, (hy_attrs){0}), HY_OK);
  assert_floats(out, -3, 2, 1, 4);
  hy_attrs attrs = {.rope = {.interleaved = true}};
  assert_int_equal(reference(HY_OP_rope, &result, in, 3, attrs), HY_OK);
  assert_floats(out, -2, 1, 3, 4);
  attrs.rope.inverse = true;
  in[0] = result;  // in place
  assert_int_equal(reference(HY_OP_rope, &result, in, 3, attrs), HY_OK);
  assert_floats(out, 1, 2, 3, 4);
  in[0] = tensor(x, HY_F32, 3);
  result = tensor(out, HY_F32, 3);
  assert_int_equal(reference(HY_OP_rope, &result, in, 3, attrs), HY_SHAPE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weighs_values_by_softmax),      cmocka_unit_test(groups_query_heads),
      cmocka_unit_test(masks_by_corner_and_by_tensor), cmocka_unit_test(differentiates_attention),
      cmocka_unit_test(follows_the_block_table),       cmocka_unit_test(rotates_pairs_and_back),
  };
  return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
