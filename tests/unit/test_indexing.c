// Indexing and joining: values, negative and wrong indices, in place, nothing half-written.
#include "reference_call.h"
#include "support/check.h"

static void embedding_copies_rows(void** state) {
  (void)state;
  float weight[6] = {1, 2, 3, 4, 5, 6}, out[4];
  int32_t ids[2] = {2, 0};
  hy_tensor table = tensor(weight, HY_F32, 3, 2), to = tensor(out, HY_F32, 2, 2);
  CHECK_OK(
      run(HY_OP_embedding, ATTRS(.padding = {-1}), OUTPUTS(to), table, tensor(ids, HY_I32, 2)));
  assert_floats(out, 5, 6, 1, 2);
  ids[1] = 3;
  memset(out, 0, sizeof out);
  CHECK_FAILS(
      HY_INDEX, "index 3 is outside dimension 0, which has size 3",
      run(HY_OP_embedding, ATTRS(.padding = {-1}), OUTPUTS(to), table, tensor(ids, HY_I32, 2)));
  assert_floats(out, 0, 0, 0, 0);
}

static void embedding_backward_sums_repeats(void** state) {
  (void)state;
  float dy[6] = {1, 2, 10, 20, 100, 200}, out[6];
  int64_t ids[3] = {1, 2, 1};
  CHECK_OK(run(HY_OP_embedding_backward, ATTRS(.rows = {3, -1}), OUTPUTS(tensor(out, HY_F32, 3, 2)),
               tensor(dy, HY_F32, 3, 2), tensor(ids, HY_I64, 3)));
  assert_floats(out, 0, 0, 101, 202, 10, 20);
  CHECK_OK(run(HY_OP_embedding_backward, ATTRS(.rows = {3, 1}), OUTPUTS(tensor(out, HY_F32, 3, 2)),
               tensor(dy, HY_F32, 3, 2), tensor(ids, HY_I64, 3)));
  assert_floats(out, 0, 0, 0, 0, 10, 20);
}

static void gather_and_scatter_undo_each_other(void** state) {
  (void)state;
  float x[6] = {1, 2, 3, 4, 5, 6}, picked[4], back[6] = {0};
  int64_t where[4] = {2, 0, 1, 1};
  hy_tensor index = tensor(where, HY_I64, 2, 2), to = tensor(picked, HY_F32, 2, 2);
  CHECK_OK(run(HY_OP_gather, ATTRS(.dim = {1}), OUTPUTS(to), tensor(x, HY_F32, 2, 3), index));
  assert_floats(picked, 3, 1, 5, 5);
  hy_tensor target = tensor(back, HY_F32, 2, 3);
  CHECK_OK(run(HY_OP_scatter, ATTRS(.scatter = {1, HY_SCATTER_SET}), OUTPUTS(target), target, index,
               to));
  assert_floats(back, 1, 0, 3, 0, 5, 0);
  CHECK_OK(run(HY_OP_scatter, ATTRS(.scatter = {1, HY_SCATTER_ADD}), OUTPUTS(target), target, index,
               to));
  assert_floats(back, 2, 0, 6, 0, 15, 0);
}

static void a_bad_index_changes_nothing(void** state) {
  (void)state;
  float x[3] = {1, 2, 3}, src[2] = {8, 9};
  int64_t where[2] = {0, -1};
  hy_tensor t = tensor(x, HY_F32, 3), index = tensor(where, HY_I64, 2), s = tensor(src, HY_F32, 2);
  CHECK_FAILS(HY_INDEX, "index -1",
              run(HY_OP_scatter, ATTRS(.scatter = {0, HY_SCATTER_SET}), OUTPUTS(t), t, index, s));
  CHECK_FAILS(HY_INDEX, "index -1",
              run(HY_OP_index_add, ATTRS(.dim = {0}), OUTPUTS(t), t, index, s));
  where[1] = 3;
  CHECK_FAILS(HY_INDEX, "index 3",
              run(HY_OP_index_put, ATTRS(.accumulate = {false}), OUTPUTS(t), t, s, index));
  assert_floats(x, 1, 2, 3);
}

static void sums_of_halves_round_once(void** state) {
  (void)state;
  // 1 + 2^-8 + 2^-8 is a bf16; each addend alone would be lost in a tie.
  uint16_t x[1] = {0x3f80}, src[2] = {0x3b80, 0x3b80};
  int64_t where[2] = {0, 0};
  hy_tensor t = tensor(x, HY_BF16, 1);
  CHECK_OK(run(HY_OP_index_add, ATTRS(.dim = {0}), OUTPUTS(t), t, tensor(where, HY_I64, 2),
               tensor(src, HY_BF16, 2)));
  assert_int_equal(x[0], 0x3f81);
}

static void index_select_takes_slices(void** state) {
  (void)state;
  float x[6] = {1, 2, 3, 4, 5, 6}, out[6];
  int32_t where[3] = {1, 1, 0};
  CHECK_OK(run(HY_OP_index_select, ATTRS(.dim = {0}), OUTPUTS(tensor(out, HY_F32, 3, 2)),
               tensor(x, HY_F32, 3, 2), tensor(where, HY_I32, 3)));
  assert_floats(out, 3, 4, 3, 4, 1, 2);
  CHECK_FAILS(HY_SHAPE, "2 dimensions; 1 is needed",
              run(HY_OP_index_select, ATTRS(.dim = {0}), OUTPUTS(tensor(out, HY_F32, 3, 2)),
                  tensor(x, HY_F32, 3, 2), tensor(where, HY_I32, 3, 1)));
}

static void index_places_its_dimensions_as_pytorch(void** state) {
  (void)state;
  float x[24], out[24];
  for (int i = 0; i < 24; i++) x[i] = (float)i;
  int64_t a[2] = {1, -1}, b[2] = {0, 3};
  hy_tensor in = tensor(x, HY_F32, 2, 3, 4), none = hy_tensor_absent();
  hy_tensor first = tensor(a, HY_I64, 2), last = tensor(b, HY_I64, 2), shape[HY_MAX_OUTPUTS];
  // x[a, :, b]: the indices are apart, so their dimension comes first.
  CHECK_OK(run(HY_OP_index, ATTRS(0), OUTPUTS(tensor(out, HY_F32, 2, 3)), in, first, none, last));
  assert_floats(out, 12, 16, 20, 15, 19, 23);
  // x[:, :, b]: it stays where the index stood.
  hy_tensor inputs[4] = {in, none, none, last};
  hy_call call = {.op = HY_OP_index, .n_in = 4, .n_out = 1, .in = inputs};
  CHECK_OK(hy_infer(&call, shape));
  assert_true(shape[0].ndim == 3 && shape[0].shape[0] == 2 && shape[0].shape[2] == 2);
  CHECK_FAILS(HY_DTYPE, "bool",
              run(HY_OP_index, ATTRS(0), OUTPUTS(tensor(out, HY_F32, 2, 3)), in,
                  tensor((bool[2]){0}, HY_BOOL, 2)));
}

static void index_put_sets_or_adds(void** state) {
  (void)state;
  float x[4] = {1, 2, 3, 4}, ten = 10;
  int64_t where[3] = {0, -1, 0};
  hy_tensor t = tensor(x, HY_F32, 2, 2), index = tensor(where, HY_I64, 3), v = scalar(&ten, HY_F32);
  CHECK_OK(run(HY_OP_index_put, ATTRS(.accumulate = {true}), OUTPUTS(t), t, v, index));
  assert_floats(x, 21, 22, 13, 14);
  CHECK_OK(run(HY_OP_index_put, ATTRS(.accumulate = {false}), OUTPUTS(t), t, v, hy_tensor_absent(),
               index));
  assert_floats(x, 10, 10, 10, 10);
}

static void cat_promotes_and_passes_over_nothing(void** state) {
  (void)state;
  int32_t a[2] = {1, 2};
  float b[4] = {3, 4, 5, 6}, out[6];
  hy_tensor to = tensor(out, HY_F32, 2, 3);
  CHECK_OK(run(HY_OP_cat, ATTRS(.dim = {-1}), OUTPUTS(to), tensor(a, HY_I32, 2, 1),
               tensor(NULL, HY_F32, 0), tensor(b, HY_F32, 2, 2)));
  assert_floats(out, 1, 3, 4, 2, 5, 6);
  CHECK_FAILS(HY_SHAPE, "tensor 1 differs",
              run(HY_OP_cat, ATTRS(.dim = {1}), OUTPUTS(to), tensor(a, HY_I32, 2, 1),
                  tensor(b, HY_F32, 1, 4)));
}

static void stack_adds_a_dimension(void** state) {
  (void)state;
  float a[2] = {1, 2}, b[2] = {3, 4}, out[4];
  CHECK_OK(run(HY_OP_stack, ATTRS(.dim = {1}), OUTPUTS(tensor(out, HY_F32, 2, 2)),
               tensor(a, HY_F32, 2), tensor(b, HY_F32, 2)));
  assert_floats(out, 1, 3, 2, 4);
  CHECK_FAILS(HY_SHAPE, "tensor 1 has not",
              run(HY_OP_stack, ATTRS(.dim = {1}), OUTPUTS(tensor(out, HY_F32, 2, 2)),
                  tensor(a, HY_F32, 2), tensor(b, HY_F32, 1)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(embedding_copies_rows),
      cmocka_unit_test(embedding_backward_sums_repeats),
      cmocka_unit_test(gather_and_scatter_undo_each_other),
      cmocka_unit_test(a_bad_index_changes_nothing),
      cmocka_unit_test(sums_of_halves_round_once),
      cmocka_unit_test(index_select_takes_slices),
      cmocka_unit_test(index_places_its_dimensions_as_pytorch),
      cmocka_unit_test(index_put_sets_or_adds),
      cmocka_unit_test(cat_promotes_and_passes_over_nothing),
      cmocka_unit_test(stack_adds_a_dimension),
  };
  return cmocka_run_group_tests_name("indexing", tests, NULL, NULL);
}
