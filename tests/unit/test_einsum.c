// Einsum: what equations mean, what is refused, and that taking one apart changes nothing.
#include <math.h>
#include <string.h>

#include "halyard/halyard.h"
#include "ops/compose.h"
#include "ops/einsum_plan.h"
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

// ---- contraction order ----

static void make_plan(const char* equation, const hy_tensor* in, int n, hy__einsum_plan* plan) {
  hy_tensor out;
  hy_call call = {.op = HY_OP_einsum, .n_in = n, .n_out = 1, .in = in, .out = &out};
  call.attrs.equation.equation = hy_einsum_equation(equation);
  assert_int_equal(hy_infer(&call, &out), HY_OK);
  hy__einsum e;
  assert_int_equal(hy__einsum_parse(&call, &e), HY_OK);
  hy__einsum_plan_make(&call, &e, plan);
}

static void finds_the_cheapest_order(void** state) {
  (void)state;
  // (a b) c takes 10 * 100 * 5 + 10 * 5 * 50 multiplications, a (b c) ten times as many.
  hy_tensor in[3] = {tensor(NULL, HY_F32, 10, 100), tensor(NULL, HY_F32, 100, 5),
                     tensor(NULL, HY_F32, 5, 50)};
  hy__einsum_plan plan;
  make_plan("ij,jk,kl->il", in, 3, &plan);
  assert_true(plan.cost == 7500);
  assert_int_equal(plan.n_steps, 2);
  assert_true(plan.step[0].a + plan.step[0].b == 1);
  make_plan("jk,ij,kl->il", (hy_tensor[]){in[1], in[0], in[2]}, 3, &plan);
  assert_true(plan.cost == 7500);
  // Sizes turned round: the other order.
  hy_tensor turned[3] = {tensor(NULL, HY_F32, 50, 5), tensor(NULL, HY_F32, 5, 100),
                         tensor(NULL, HY_F32, 100, 10)};
  make_plan("ij,jk,kl->il", turned, 3, &plan);
  assert_true(plan.cost == 7500);
  assert_true(plan.step[0].a + plan.step[0].b == 3);
}

// Five matrices in a row whose sizes lead astray who takes them from the left, or the smallest pair
// first: the least of all fourteen orders, by the textbook's recurrence, and the same numbers.
static void five_operands_in_the_cheapest_order(void** state) {
  (void)state;
  enum { N = 5 };
  static const int64_t size[N + 1] = {30, 35, 15, 5, 10, 20};
  static float data[N][35 * 35], result[30 * 20];
  hy_tensor in[N], out = tensor(result, HY_F32, 30, 20);
  double least[N][N] = {{0}};
  for (int length = 1; length < N; length++) {
    for (int i = 0; i + length < N; i++) {
      least[i][i + length] = INFINITY;
      for (int k = i; k < i + length; k++) {
        double cost = least[i][k] + least[k + 1][i + length] +
                      (double)(size[i] * size[k + 1] * size[i + length + 1]);
        least[i][i + length] = fmin(least[i][i + length], cost);
      }
    }
  }
  for (int k = 0; k < N; k++) {
    in[k] = tensor(data[k], HY_F32, size[k], size[k + 1]);
    for (int64_t i = 0; i < size[k] * size[k + 1]; i++) data[k][i] = (float)((i * 7 + k) % 3) - 1;
  }
  hy__einsum_plan plan;
  make_plan("ab,bc,cd,de,ef->af", in, N, &plan);
  double from_the_left = 30 * 35 * 15 + 30 * 15 * 5 + 30 * 5 * 10 + 30 * 10 * 20;
  assert_true(plan.cost == least[0][N - 1]);
  assert_true(plan.cost < 0.6 * from_the_left);
  assert_int_equal(plan.n_steps, N - 1);
  // From left to right by plain products of two.
  static float partial[30 * 35], next[30 * 35];
  memcpy(partial, data[0], sizeof partial);
  for (int k = 1; k < N; k++) {
    for (int64_t r = 0; r < 30; r++) {
      for (int64_t c = 0; c < size[k + 1]; c++) {
        float sum = 0;
        for (int64_t i = 0; i < size[k]; i++)
          sum += partial[r * size[k] + i] * data[k][i * size[k + 1] + c];
        next[r * size[k + 1] + c] = sum;
      }
    }
    memcpy(partial, next, sizeof partial);
  }
  hy_device* device;
  hy_stream* stream;
  assert_int_equal(hy_device_get("cpu", &device), HY_OK);
  assert_int_equal(hy_stream_default(device, &stream), HY_OK);
  hy_equation equation = hy_einsum_equation("ab,bc,cd,de,ef->af");
  assert_int_equal(hy_einsum(stream, &out, in, N, equation), HY_OK);
  for (int i = 0; i < 30 * 20; i++) {
    if (result[i] != partial[i]) fail_msg("element %d is %g, not %g", i, result[i], partial[i]);
  }
  hy_shutdown();
}

static void many_operands_are_taken_greedily(void** state) {
  (void)state;
  hy_tensor in[12];
  for (int i = 0; i < 12; i++) in[i] = tensor(NULL, HY_F32, 4, 4);
  hy__einsum_plan plan;
  make_plan("ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am", in, 12, &plan);
  assert_int_equal(plan.n_steps, 11);
  assert_true(plan.cost == 11 * 64);
}

// ---- taking apart ----

typedef struct random_tensor {
  float data[8192];
  hy_tensor t;
} random_tensor;

// Small whole numbers, so that no order of sums makes a difference.
static void fill(random_tensor* r, uint32_t seed) {
  for (int i = 0; i < 8192; i++) {
    seed = seed * 1664525u + 1013904223u;
    r->data[i] = (float)((seed >> 30) + 1);
  }
}

static void taken_apart_it_says_the_same(void** state) {
  (void)state;
  static const struct {
    const char* equation;
    int n;
    int64_t shape[4][4];  // ends at 0
  } cases[] = {
      {"ij,jk->ki", 2, {{20, 12}, {12, 30}}},
      {"bij,bkj->bik", 2, {{3, 10, 8}, {3, 9, 8}}},
      {"abij,cbkj->bcaik", 2, {{4, 3, 4, 5}, {3, 3, 4, 5}}},
      {"ij,jk,kl,lm->im", 4, {{4, 9}, {9, 5}, {5, 7}, {7, 3}}},
      {"iij,jk,m->ik", 3, {{6, 6, 8}, {8, 9}, {4}}},
      {"i,j,k->kji", 3, {{11}, {13}, {17}}},
      {"ijk,ijk->kji", 2, {{12, 12, 15}, {12, 12, 15}}},
      {"ijkl->lj", 1, {{7, 9, 11, 7}}},
      {"...ij,...jk->...ik", 2, {{2, 1, 6, 9}, {3, 9, 8}}},
      {"ij,kj->ik", 2, {{1, 50}, {64, 50}}},
  };
  hy_device* device;
  hy_stream* stream;
  assert_int_equal(hy_device_get("cpu", &device), HY_OK);
  assert_int_equal(hy_stream_default(device, &stream), HY_OK);
  static random_tensor x[4];
  static float expected[8192], result[8192];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hy_tensor in[4], out;
    for (int k = 0; k < cases[i].n; k++) {
      int ndim = 0;
      while (ndim < 4 && cases[i].shape[k][ndim] > 0) ndim++;
      fill(&x[k], (uint32_t)(i * 4 + (size_t)k));
      in[k] = tensor_of(x[k].data, HY_F32, ndim, cases[i].shape[k]);
    }
    hy_call call = {.op = HY_OP_einsum, .n_in = cases[i].n, .n_out = 1, .in = in, .out = &out};
    call.attrs.equation.equation = hy_einsum_equation(cases[i].equation);
    assert_int_equal(hy_infer(&call, &out), HY_OK);
    size_t bytes = hy_tensor_bytes(&out);
    assert_true(bytes <= sizeof result);
    out.data = expected;
    assert_int_equal(hy__reference(&call), HY_OK);
    out.data = result;
    memset(result, 0xff, bytes);
    bool composed = false;
    assert_int_equal(hy__compose(stream, &call, &composed), HY_OK);
    hy_placement placement;
    assert_int_equal(hy_place(device, &call, &placement), HY_OK);
    assert_string_equal(placement.provider, composed ? "opt_einsum" : "reference");
    if (!composed) fail_msg("%s was too small to be taken apart", cases[i].equation);
    assert_memory_equal(result, expected, bytes);
  }
  hy_shutdown();
}

static void gives_its_memory_back_after_failures(void** state) {
  (void)state;
  hy_device* device;
  hy_stream* stream;
  assert_int_equal(hy_device_get("cpu", &device), HY_OK);
  assert_int_equal(hy_stream_default(device, &stream), HY_OK);
  static random_tensor x[3];
  static float result[8192];
  hy_tensor in[3] = {tensor(x[0].data, HY_F32, 8, 9, 10), tensor(x[1].data, HY_F32, 10, 8, 5),
                     tensor(x[2].data, HY_F32, 5, 20)};
  hy_tensor out = tensor(result, HY_F32, 20, 9);
  hy_equation equation = hy_einsum_equation("aij,jak,kl->li");
  bool failed = true;
  for (int nth = 1; nth < 100 && failed; nth++) {
    hy_inject_fault(HY_FAULT_ALLOCATION, nth);
    hy_status status = hy_einsum(stream, &out, in, 3, equation);
    hy_inject_fault(HY_FAULT_ALLOCATION, 0);
    failed = status != HY_OK;
    if (failed) assert_int_equal(status, HY_OUT_OF_MEMORY);
    hy_memory_stats stats;
    assert_int_equal(hy_memory_get_stats(device, &stats), HY_OK);
    assert_int_equal(stats.allocated, 0);
    assert_true(failed || nth > 2);  // at least a copy and a term between the steps
  }
  assert_false(failed);
  hy_shutdown();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(multiplies_and_sums),
      cmocka_unit_test(repeated_letters_are_diagonals),
      cmocka_unit_test(ellipses_broadcast),
      cmocka_unit_test(an_empty_sum_is_zero),
      cmocka_unit_test(says_what_is_wrong),
      cmocka_unit_test(finds_the_cheapest_order),
      cmocka_unit_test(five_operands_in_the_cheapest_order),
      cmocka_unit_test(many_operands_are_taken_greedily),
      cmocka_unit_test(taken_apart_it_says_the_same),
      cmocka_unit_test(gives_its_memory_back_after_failures),
  };
  return cmocka_run_group_tests_name("einsum", tests, NULL, NULL);
}
