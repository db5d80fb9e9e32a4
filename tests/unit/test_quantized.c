// Quantised, sparse and mixture-of-experts layers of the reference.
#include <math.h>
#include <string.h>

#include "reference_call.h"

static void quantizes_rows_to_i8(void** state) {
  (void)state;
  float x[4] = {-254, 1, 3, 200}, scale[1], back[4];
  int8_t q[4];
  hy_tensor in = tensor(x, HY_F32, 1, 4);
  hy_tensor out[2] = {tensor(q, HY_I8, 1, 4), tensor(scale, HY_F32, 1, 1)};
  hy_attrs attrs = {.quantize = {.dtype = HY_I8}};
  assert_int_equal(reference(HY_OP_quantize, out, &in, 1, attrs), HY_OK);
  assert_floats(scale, 2);
  const int8_t expected[4] = {-127, 0, 2, 100};  // ties go to the even number
  assert_memory_equal(q, expected, sizeof q);
  hy_tensor result = tensor(back, HY_F32, 1, 4);
  assert_int_equal(reference(HY_OP_dequantize, &result, out, 2, (hy_attrs){.cast = {HY_F32}}),
                   HY_OK);
  assert_floats(back, -254, 0, 4, 200);
}

static void packs_i4_in_groups(void** state) {
  (void)state;
  float x[4] = {7, -3, 0, -14}, scale[2];
  uint8_t q[2];
  hy_tensor in = tensor(x, HY_F32, 1, 4);
  hy_tensor out[2] = {tensor(q, HY_I4, 1, 4), tensor(scale, HY_F32, 1, 2)};
  hy_attrs attrs = {.quantize = {.dtype = HY_I4, .group = 2}};
  assert_int_equal(reference(HY_OP_quantize, out, &in, 1, attrs), HY_OK);
  assert_floats(scale, 1, 2);
  assert_int_equal(q[0], 0xd7);  // 7 in the low nibble, -3 above it
  assert_int_equal(q[1], 0x90);
  // x is the identity's first rows, so the layer reads the weight back, plus a bias.
  float eye[8] = {1, 0, 0, 0, 0, 0, 0, 1}, bias[1] = {0.5f}, y[2];
  hy_tensor layer[4] = {tensor(eye, HY_F32, 2, 4), out[0], out[1], tensor(bias, HY_F32, 1)};
  hy_tensor result = tensor(y, HY_F32, 2, 1);
  assert_int_equal(reference(HY_OP_linear_quantized, &result, layer, 4, (hy_attrs){0}), HY_OK);
  assert_floats(y, 7.5f, -13.5f);
}

static void multiplies_integers_by_group(void** state) {
  (void)state;
  int8_t x[8] = {127, -128, 1, 2, 3, 4, -5, 0}, w[4] = {-128, -128, 2, 1};
  float x_scale[2] = {0.5f, 2}, w_scale[2] = {1, 0.25f}, bias[1] = {1}, y[2];
  hy_tensor in[5] = {tensor(x, HY_I8, 2, 4), tensor(x_scale, HY_F32, 2, 1), tensor(w, HY_I8, 1, 4),
                     tensor(w_scale, HY_F32, 1, 2), tensor(bias, HY_F32, 1)};
  hy_tensor out = tensor(y, HY_F32, 2, 1);
  hy_attrs attrs = {.cast = {HY_F32}};
  assert_int_equal(reference(HY_OP_linear_int8, &out, in, 5, attrs), HY_OK);
  assert_floats(y, 0.5f * 128 + 0.5f * 0.25f * 4 + 1, 2 * -128 * 7.0f + 2 * 0.25f * -10 + 1);
  // Nibbles: -8 and 7, then 1 and -1.
  uint8_t nibbles[2] = {0x78, 0xf1};
  in[2] = tensor(nibbles, HY_I4, 1, 4);
  in[4] = hy_tensor_absent();
  assert_int_equal(reference(HY_OP_linear_int8, &out, in, 5, attrs), HY_OK);
  assert_floats(y, 0.5f * (127 * -8 - 128 * 7) + 0.5f * 0.25f * -1,
                2.0f * (3 * -8 + 4 * 7) + 2 * 0.25f * -5);
  attrs.cast.dtype = HY_F64;
  assert_int_equal(reference(HY_OP_linear_int8, &out, in, 5, attrs), HY_DTYPE);
  attrs.cast.dtype = HY_F32;
  in[1] = tensor(x_scale, HY_F32, 1, 2);
  assert_int_equal(reference(HY_OP_linear_int8, &out, in, 5, attrs), HY_SHAPE);
}

static void hides_no_nan(void** state) {
  (void)state;
  float x[4] = {1, NAN, 0, 0}, scale[2], back[4];
  uint8_t q[4];
  hy_tensor in = tensor(x, HY_F32, 4);
  hy_tensor out[2] = {tensor(q, HY_F8E4M3, 4), tensor(scale, HY_F32, 2)};
  hy_attrs attrs = {.quantize = {.dtype = HY_F8E4M3, .group = 2}};
  assert_int_equal(reference(HY_OP_quantize, out, &in, 1, attrs), HY_OK);
  hy_tensor result = tensor(back, HY_F32, 4);
  assert_int_equal(reference(HY_OP_dequantize, &result, out, 2, (hy_attrs){.cast = {HY_F32}}),
                   HY_OK);
  assert_true(isnan(back[0]) && isnan(back[1]));
  assert_true(back[2] == 0 && back[3] == 0);
}

static void keeps_two_of_four(void** state) {
  (void)state;
  float weight[8] = {1, -5, 2, 3, 4, 4, 4, 4}, values[4];
  uint8_t codes[1];
  hy_tensor in = tensor(weight, HY_F32, 1, 8);
  hy_tensor out[2] = {tensor(values, HY_F32, 1, 4), tensor(codes, HY_U8, 1, 1)};
  out[1].layout = HY_LAYOUT_SPARSE_2_4;
  assert_int_equal(reference(HY_OP_sparsify_2_4, out, &in, 1, (hy_attrs){0}), HY_OK);
  assert_floats(values, -5, 3, 4, 4);
  assert_int_equal(codes[0], 0x4d);  // places 1 and 3, then 0 and 1
  float x[8] = {1, 10, 100, 1000, 1, 10, 100, 1000}, y[1];
  hy_tensor layer[4] = {tensor(x, HY_F32, 8), out[0], out[1], hy_tensor_absent()};
  hy_tensor result = tensor(y, HY_F32, 1);
  assert_int_equal(reference(HY_OP_linear_sparse_2_4, &result, layer, 4, (hy_attrs){0}), HY_OK);
  assert_floats(y, 2994);
  // Codes are no numbers.
  hy_tensor sum[2] = {out[1], out[1]}, total = tensor(codes, HY_U8, 1, 1);
  assert_int_equal(reference(HY_OP_bitwise_or, &total, sum, 2, (hy_attrs){0}), HY_LAYOUT);
}

static void mixes_experts(void** state) {
  (void)state;
  // One feature; expert 0 doubles the hidden value, expert 1 triples it; silu(0) = 0.
  float x[2] = {1, 0}, gate_up[4] = {1, 1, 1, 2}, down[2] = {2, 3};
  float weight[4] = {0.5f, 0.25f, 1, 1}, out[2], silu = 1 / (1 + expf(-1));
  int32_t id[4] = {0, 1, 1, 1};
  hy_tensor in[5] = {tensor(x, HY_F32, 2, 1), tensor(gate_up, HY_F32, 2, 2, 1),
                     tensor(down, HY_F32, 2, 1, 1), tensor(weight, HY_F32, 2, 2),
                     tensor(id, HY_I32, 2, 2)};
  hy_tensor result = tensor(out, HY_F32, 2, 1);
  assert_int_equal(reference(HY_OP_fused_moe, &result, in, 5, (hy_attrs){0}), HY_OK);
  assert_floats(out, 0.5f * 2 * silu + 0.25f * 3 * silu * 2, 0);
  id[3] = 2;
  assert_int_equal(reference(HY_OP_fused_moe, &result, in, 5, (hy_attrs){0}), HY_INDEX);
  for (int nth = 1; nth <= 4; nth++) {
    id[3] = 1;
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, nth);
    assert_int_equal(reference(HY_OP_fused_moe, &result, in, 5, (hy_attrs){0}), HY_OUT_OF_MEMORY);
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
  }
}

static void refuses_what_does_not_fit(void** state) {
  (void)state;
  float x[6] = {0}, scale[6];
  int8_t q[6];
  hy_tensor in = tensor(x, HY_F32, 1, 6);
  hy_tensor out[2] = {tensor(q, HY_I8, 1, 6), tensor(scale, HY_F32, 1, 1)};
  hy_attrs attrs = {.quantize = {.dtype = HY_I8, .group = 4}};
  assert_int_equal(reference(HY_OP_quantize, out, &in, 1, attrs), HY_SHAPE);
  assert_non_null(strstr(hy_last_error(), "groups of 4"));
  attrs.quantize = (hy_attrs_quantize){.dtype = HY_I32};
  assert_int_equal(reference(HY_OP_quantize, out, &in, 1, attrs), HY_DTYPE);
  assert_int_equal(reference(HY_OP_sparsify_2_4, out, &in, 1, (hy_attrs){0}), HY_SHAPE);
  hy_tensor uneven[2] = {tensor(q, HY_I8, 1, 6), tensor(scale, HY_F32, 1, 4)};
  hy_tensor result = tensor(x, HY_F32, 1, 6);
  assert_int_equal(reference(HY_OP_dequantize, &result, uneven, 2, (hy_attrs){.cast = {HY_F32}}),
                   HY_SHAPE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quantizes_rows_to_i8),
      cmocka_unit_test(packs_i4_in_groups),
      cmocka_unit_test(multiplies_integers_by_group),
      cmocka_unit_test(hides_no_nan),
      cmocka_unit_test(keeps_two_of_four),
      cmocka_unit_test(mixes_experts),
      cmocka_unit_test(refuses_what_does_not_fit),
  };
  return cmocka_run_group_tests_name("quantized", tests, NULL, NULL);
}
