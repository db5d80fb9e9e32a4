// Low-rank updates of several layers: the same sums and gradients as layer by layer.
#include <math.h>

#include "support/arrays.h"

enum { ROWS = 5, IN = 4, LAYERS = 2 };
static const int64_t outputs[LAYERS] = {6, 3}, ranks[LAYERS] = {2, 3};
static const double scaling = 1.5;

static hy_array* leaf(bench* b, double seed, int64_t rows, int64_t columns) {
  double values[64];
  for (int i = 0; i < rows * columns; i++) values[i] = sin(seed + i);
  return leaf_f64(b, values, SHAPE(rows, columns));
}

// The sum of squares of what the layers give, of the last of them or of all.
static void sum_squares(bench* b, hy_array* const* ys, int first, hy_array** sum) {
  *sum = NULL;
  for (int i = first; i < LAYERS; i++) {
    hy_array *square, *part, *both;
    CHECK_OK(hy_array_mul(b->tape, &square, ys[i], ys[i]));
    CHECK_OK(hy_array_sum(b->tape, &part, square, hy_all_dims(), false));
    hy_array_release(square);
    if (*sum) {
      CHECK_OK(hy_array_add(b->tape, &both, *sum, part, hy_int(1)));
      hy_array_release(*sum);
      hy_array_release(part);
      part = both;
    }
    *sum = part;
  }
}

// One layer after the other, by rows of a.
static void add_apart(bench* b, hy_array* x, hy_array* a, hy_array* const* ys, hy_array* const* bs,
                      hy_array** out) {
  int64_t at = 0;
  for (int i = 0; i < LAYERS; i++) {
    hy_array *own, *low, *turned;
    CHECK_OK(hy_array_slice(b->tape, &own, a, 0, at, at + ranks[i], 1));
    CHECK_OK(hy_array_linear(b->tape, &low, x, own, NULL));
    CHECK_OK(hy_array_transpose(b->tape, &turned, bs[i], 0, 1));
    CHECK_OK(hy_array_addmm(b->tape, &out[i], ys[i], low, turned, hy_int(1), hy_float(scaling)));
    hy_array_release(own);
    hy_array_release(low);
    hy_array_release(turned);
    at += ranks[i];
  }
}

// Gradients of x, a, the ys and the bs, one behind the other; how many there are.
static int read_gradients(bench* b, hy_array* const* leaves, int n, double* to) {
  int count = 0;
  for (int i = 0; i < n; i++) {
    hy_array* grad = hy_array_grad(leaves[i]);
    int64_t size = hy_tensor_numel(hy_array_tensor(leaves[i]));
    for (int k = 0; k < size; k++) to[count + k] = 0;
    if (grad) read_f64(b, grad, to + count);
    count += (int)size;
  }
  return count;
}

// `first`: layers before it have no gradient.
static void compare(int first) {
  bench b = bench_open();
  double sums[2], gradients[2][256];
  int n = 0;
  for (int joint = 0; joint < 2; joint++) {
    hy_array* leaves[2 + 2 * LAYERS] = {leaf(&b, 1, ROWS, IN),
                                        leaf(&b, 2, ranks[0] + ranks[1], IN)};
    hy_array **ys = leaves + 2, **bs = ys + LAYERS, *out[LAYERS], *low = NULL, *sum;
    for (int i = 0; i < LAYERS; i++) {
      ys[i] = leaf(&b, 3 + i, ROWS, outputs[i]);
      bs[i] = leaf(&b, 5 + i, outputs[i], ranks[i]);
    }
    if (joint) {
      CHECK_OK(hy_array_linear(b.tape, &low, leaves[0], leaves[1], NULL));
      CHECK_OK(hy_array_add_low_rank(b.tape, out, ys, LAYERS, low, bs, scaling));
    } else {
      add_apart(&b, leaves[0], leaves[1], ys, bs, out);
    }
    sum_squares(&b, out, first, &sum);
    CHECK_OK(hy_backward(b.tape, sum, NULL));
    CHECK_OK(hy_array_item(b.stream, sum, &sums[joint]));
    n = read_gradients(&b, leaves, 2 + 2 * LAYERS, gradients[joint]);
    for (int i = 0; i < LAYERS; i++) hy_array_release(out[i]);
    for (int i = 0; i < 2 + 2 * LAYERS; i++) hy_array_release(leaves[i]);
    hy_array_release(low);
    hy_array_release(sum);
  }
  assert_true(fabs(sums[0] - sums[1]) < 1e-12 * fabs(sums[0]));
  for (int i = 0; i < n; i++) assert_true(fabs(gradients[0][i] - gradients[1][i]) < 1e-11);
  bench_close(&b);
}

static void layers_together_equal_layers_apart(void** state) {
  (void)state;
  compare(0);
}

static void a_layer_that_nobody_reads_has_no_share(void** state) {
  (void)state;
  compare(1);
}

static void ranks_must_add_up(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *low = leaf(&b, 1, ROWS, 4), *y = leaf(&b, 2, ROWS, 3), *w = leaf(&b, 3, 3, 2), *out;
  assert_int_equal(hy_array_add_low_rank(b.tape, &out, &y, 1, low, &w, 1), HY_SHAPE);
  assert_int_equal(hy_array_add_low_rank(b.tape, &out, &y, 0, low, &w, 1), HY_INVALID_ARGUMENT);
  hy_array_release(low);
  hy_array_release(y);
  hy_array_release(w);
  bench_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(layers_together_equal_layers_apart),
      cmocka_unit_test(a_layer_that_nobody_reads_has_no_share),
      cmocka_unit_test(ranks_must_add_up),
  };
  int failed = cmocka_run_group_tests_name("low_rank", tests, NULL, NULL);
  hy_shutdown();
  return failed;
}
