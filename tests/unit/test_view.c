// Views: shapes and strides over the same memory, and what they refuse.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "halyard/tensor.h"

static float memory[64];

static hy_tensor make(int ndim, const int64_t* shape) {
  hy_tensor t;
  assert_int_equal(hy_tensor_init(&t, memory, HY_F32, ndim, shape), HY_OK);
  return t;
}

static void assert_layout(const hy_tensor* t, int ndim, const int64_t* shape, const int64_t* stride,
                          int64_t offset) {
  assert_int_equal(t->ndim, ndim);
  for (int d = 0; d < ndim; d++) {
    assert_int_equal(t->shape[d], shape[d]);
    if (shape[d] > 1) assert_int_equal(t->stride[d], stride[d]);
  }
  assert_ptr_equal(t->data, memory + offset);
}

static void views_keep_memory(void** state) {
  (void)state;
  hy_tensor t = make(3, (int64_t[]){2, 3, 4}), v;
  assert_int_equal(hy_view(&v, &t, 2, (int64_t[]){6, -1}), HY_OK);
  assert_layout(&v, 2, (int64_t[]){6, 4}, (int64_t[]){4, 1}, 0);
  assert_int_equal(hy_transpose(&v, &t, 0, -1), HY_OK);
  assert_layout(&v, 3, (int64_t[]){4, 3, 2}, (int64_t[]){1, 4, 12}, 0);
  assert_int_equal(hy_permute(&v, &t, (int[]){2, 0, 1}), HY_OK);
  assert_layout(&v, 3, (int64_t[]){4, 2, 3}, (int64_t[]){1, 12, 4}, 0);
  assert_int_equal(hy_select(&v, &t, 1, -1), HY_OK);
  assert_layout(&v, 2, (int64_t[]){2, 4}, (int64_t[]){12, 1}, 8);
  assert_int_equal(hy_slice(&v, &t, 2, 1, INT64_MAX, 2), HY_OK);
  assert_layout(&v, 3, (int64_t[]){2, 3, 2}, (int64_t[]){12, 4, 2}, 1);
  assert_int_equal(hy_unsqueeze(&v, &t, 1), HY_OK);
  assert_int_equal(hy_expand(&v, &v, 4, (int64_t[]){-1, 5, -1, -1}), HY_OK);
  assert_layout(&v, 4, (int64_t[]){2, 5, 3, 4}, (int64_t[]){12, 0, 4, 1}, 0);
}

static void view_merges_what_strides_allow(void** state) {
  (void)state;
  hy_tensor t = make(3, (int64_t[]){4, 3, 4}), rows, v;
  assert_int_equal(hy_slice(&rows, &t, 0, 0, 4, 2), HY_OK);
  assert_int_equal(hy_view(&v, &rows, 2, (int64_t[]){2, 12}), HY_OK);
  assert_layout(&v, 2, (int64_t[]){2, 12}, (int64_t[]){24, 1}, 0);
  assert_int_equal(hy_view(&v, &rows, 1, (int64_t[]){24}), HY_LAYOUT);
  assert_non_null(strstr(hy_last_error(), "clone"));
  assert_int_equal(hy_transpose(&rows, &t, 0, 1), HY_OK);
  assert_int_equal(hy_view(&v, &rows, 2, (int64_t[]){12, 4}), HY_LAYOUT);
  assert_int_equal(hy_view(&v, &rows, 4, (int64_t[]){3, 2, 2, 4}), HY_OK);
  assert_layout(&v, 4, (int64_t[]){3, 2, 2, 4}, (int64_t[]){4, 24, 12, 1}, 0);
}

static void refuses_what_is_impossible(void** state) {
  (void)state;
  hy_tensor t = make(2, (int64_t[]){2, 3}), v;
  assert_int_equal(hy_view(&v, &t, 1, (int64_t[]){7}), HY_SHAPE);
  assert_int_equal(hy_view(&v, &t, 2, (int64_t[]){-1, -1}), HY_SHAPE);
  assert_int_equal(hy_transpose(&v, &t, 0, 2), HY_SHAPE);
  assert_int_equal(hy_permute(&v, &t, (int[]){0, 0}), HY_SHAPE);
  assert_int_equal(hy_select(&v, &t, 0, 2), HY_INDEX);
  assert_int_equal(hy_expand(&v, &t, 2, (int64_t[]){4, 3}), HY_SHAPE);
  assert_int_equal(hy_slice(&v, &t, 0, 0, 1, 0), HY_INVALID_ARGUMENT);
  assert_int_equal(hy_as_strided(&v, &t, 1, (int64_t[]){4}, (int64_t[]){2}, 0), HY_INDEX);
  assert_int_equal(hy_as_strided(&v, &t, 1, (int64_t[]){3}, (int64_t[]){2}, 1), HY_OK);
  assert_int_equal(hy_tensor_init(&v, memory, HY_F32, 2, (int64_t[]){INT64_MAX, 2}), HY_SHAPE);
  assert_int_equal(hy_tensor_init(&v, memory, HY_F32, 9, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}),
                   HY_SHAPE);
  assert_int_equal(hy_tensor_init(&v, memory, HY_I4, 1, (int64_t[]){3}), HY_LAYOUT);
  assert_int_equal(hy_tensor_init(&v, memory, (hy_dtype)77, 0, NULL), HY_DTYPE);
}

static void empty_and_scalar_tensors(void** state) {
  (void)state;
  hy_tensor t = make(2, (int64_t[]){0, 3}), v;
  assert_int_equal(hy_view(&v, &t, 2, (int64_t[]){3, 0}), HY_OK);
  assert_int_equal(hy_view(&v, &t, 2, (int64_t[]){-1, 0}), HY_SHAPE);
  int64_t first, last;
  hy_tensor_extent(&t, &first, &last);
  assert_true(first == 0 && last == 0);
  t = make(0, NULL);
  assert_int_equal(hy_tensor_numel(&t), 1);
  assert_int_equal(hy_view(&v, &t, 2, (int64_t[]){1, 1}), HY_OK);
  assert_int_equal(hy_unsqueeze(&v, &t, 0), HY_OK);
  assert_layout(&v, 1, (int64_t[]){1}, (int64_t[]){1}, 0);
}

static void describes_itself(void** state) {
  (void)state;
  char text[64];
  hy_tensor t = make(2, (int64_t[]){2, 3}), v;
  assert_string_equal(hy_tensor_describe(&t, text, sizeof text), "f32[2, 3]");
  hy_transpose(&v, &t, 0, 1);
  assert_string_equal(hy_tensor_describe(&v, text, sizeof text), "f32[3, 2] strides (1, 3)");
  assert_string_equal(hy_tensor_describe(&t, text, 6), "f32[2");
}

static void strides_without_an_opposite_are_refused(void** state) {
  (void)state;
  float x[4] = {0};
  hy_tensor t;
  assert_int_equal(hy_tensor_init(&t, x, HY_F32, 2, (int64_t[]){1, 4}), HY_OK);
  t.stride[0] = INT64_MIN;  // of one element, which never steps
  assert_int_equal(hy_tensor_check(&t), HY_SHAPE);
  t.shape[0] = 2;
  assert_int_equal(hy_tensor_check(&t), HY_SHAPE);
  t.stride[0] = INT64_MIN + 1;
  assert_int_equal(hy_tensor_check(&t), HY_SHAPE);
  assert_int_equal(hy_tensor_check(NULL), HY_INVALID_ARGUMENT);
}

static void flips(void** state) {
  (void)state;
  int32_t x[6] = {0, 1, 2, 3, 4, 5};
  hy_tensor t, f;
  assert_int_equal(hy_tensor_init(&t, x, HY_I32, 2, (int64_t[]){2, 3}), HY_OK);
  assert_int_equal(hy_flip(&f, &t, -1), HY_OK);
  assert_ptr_equal(f.data, x + 2);
  assert_true(f.stride[1] == -1 && f.stride[0] == 3);
  assert_int_equal(hy_flip(&f, &f, 0), HY_OK);
  assert_ptr_equal(f.data, x + 5);
  assert_int_equal(hy_flip(&f, &f, 0), HY_OK);
  assert_int_equal(hy_flip(&f, &f, 1), HY_OK);
  assert_memory_equal(&f, &t, sizeof t);
  assert_int_equal(hy_flip(&f, &t, 2), HY_SHAPE);
  assert_int_equal(hy_tensor_init(&t, NULL, HY_I32, 2, (int64_t[]){0, 3}), HY_OK);
  assert_int_equal(hy_flip(&f, &t, 0), HY_OK);
  assert_null(f.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(views_keep_memory),
      cmocka_unit_test(view_merges_what_strides_allow),
      cmocka_unit_test(refuses_what_is_impossible),
      cmocka_unit_test(empty_and_scalar_tensors),
      cmocka_unit_test(describes_itself),
      cmocka_unit_test(strides_without_an_opposite_are_refused),
      cmocka_unit_test(flips),
  };
  return cmocka_run_group_tests_name("view", tests, NULL, NULL);
}
