// silu(gate) * up as one step of the tape: the same sums and gradients as silu and mul, to the bit.
#include <math.h>

#include "support/arrays.h"

enum { N = 24 };

static void compare(hy_dtype dtype, bool gate_learns, bool up_learns) {
  bench b = bench_open();
  double outs[2][N], gradients[2][2][N];
  for (int joint = 0; joint < 2; joint++) {
    hy_array *leaves[2], *xs[2], *out, *silu = NULL, *square, *sum;
    const bool learns[2] = {gate_learns, up_learns};
    for (int i = 0; i < 2; i++) {
      double values[N];
      for (int k = 0; k < N; k++) values[k] = 3 * sin(1.7 * k + i);
      leaves[i] = leaf_f64(&b, values, SHAPE(4, 6));
      CHECK_OK(hy_array_set_requires_grad(leaves[i], learns[i]));
      CHECK_OK(hy_array_cast(b.tape, &xs[i], leaves[i], dtype));
    }
    if (joint) {
      CHECK_OK(hy_array_silu_mul(b.tape, &out, xs[0], xs[1]));
    } else {
      CHECK_OK(hy_array_silu(b.tape, &silu, xs[0]));
      CHECK_OK(hy_array_mul(b.tape, &out, silu, xs[1]));
    }
    CHECK_OK(hy_array_mul(b.tape, &square, out, out));
    CHECK_OK(hy_array_sum(b.tape, &sum, square, hy_all_dims(), false));
    CHECK_OK(hy_backward(b.tape, sum, NULL));
    read_f64(&b, out, outs[joint]);
    for (int i = 0; i < 2; i++) {
      for (int k = 0; k < N; k++) gradients[joint][i][k] = 0;
      assert_int_equal(hy_array_grad(leaves[i]) != NULL, learns[i]);
      if (learns[i]) read_f64(&b, hy_array_grad(leaves[i]), gradients[joint][i]);
      hy_array_release(leaves[i]);
      hy_array_release(xs[i]);
    }
    hy_array_release(out);
    hy_array_release(silu);
    hy_array_release(square);
    hy_array_release(sum);
  }
  assert_memory_equal(outs[0], outs[1], sizeof outs[0]);
  assert_memory_equal(gradients[0], gradients[1], sizeof gradients[0]);
  bench_close(&b);
}

static void equals_silu_and_mul(void** state) {
  (void)state;
  const hy_dtype dtypes[] = {HY_F64, HY_F32, HY_BF16, HY_F16};
  for (int i = 0; i < 4; i++) compare(dtypes[i], true, true);
}

static void either_may_be_frozen(void** state) {
  (void)state;
  compare(HY_F32, true, false);
  compare(HY_F32, false, true);
}

static void bad_arguments_are_refused(void** state) {
  (void)state;
  bench b = bench_open();
  double values[N] = {0};
  hy_array *x = leaf_f64(&b, values, SHAPE(4, 6)), *out = NULL;
  assert_int_equal(hy_array_silu_mul(b.tape, &out, x, NULL), HY_INVALID_ARGUMENT);
  assert_int_equal(hy_array_silu_mul(b.tape, NULL, x, x), HY_INVALID_ARGUMENT);
  assert_null(out);
  hy_array_release(x);
  bench_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equals_silu_and_mul),
      cmocka_unit_test(either_may_be_frozen),
      cmocka_unit_test(bad_arguments_are_refused),
  };
  int failed = cmocka_run_group_tests_name("silu_mul", tests, NULL, NULL);
  hy_shutdown();
  return failed;
}
