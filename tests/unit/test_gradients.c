// Every differentiable op of the table against finite differences in f64: the scalar sum(w * y), w
// fixed and random, is differentiated by the tape and by moving each element of each input.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/arrays.h"

enum { MAX_INPUTS = 6, MAX_ELEMENTS = 512 };

// How an input is filled. DISTINCT values lie far apart, so that no step changes their order.
typedef enum filling { UNIFORM, DISTINCT, INDEX, MASK, TIES } filling;

typedef struct argument {
  hy_dtype dtype;  // HY_NONE: absent
  filling how;
  bool differentiated;
  double low, high;
  int ndim;
  int64_t shape[5];
} argument;

typedef struct gradient_case {
  hy_op op;
  hy_attrs attrs;
  argument in[MAX_INPUTS];
  int n_in;
} gradient_case;

#define DIMS(...)                                              \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), { \
    __VA_ARGS__                                                \
  }
#define X(...) \
  { HY_F64, UNIFORM, true, -2, 2, DIMS(__VA_ARGS__) }
#define SCALAR                         \
  {                                    \
    HY_F64, UNIFORM, true, -2, 2, 0, { \
      0                                \
    }                                  \
  }
#define POSITIVE(...) \
  { HY_F64, UNIFORM, true, 0.5, 2, DIMS(__VA_ARGS__) }
#define SPREAD(...) \
  { HY_F64, DISTINCT, true, -2, 2, DIMS(__VA_ARGS__) }
#define CONSTANT(...) \
  { HY_F64, UNIFORM, false, -2, 2, DIMS(__VA_ARGS__) }
#define WEIGHTS(...) \
  { HY_F64, UNIFORM, false, 0.5, 2, DIMS(__VA_ARGS__) }
#define TIED(...) \
  { HY_F64, TIES, true, 0, 0, DIMS(__VA_ARGS__) }
#define IDS(n, ...) \
  { HY_I64, INDEX, false, 0, n, DIMS(__VA_ARGS__) }
#define UNIQUE(n, ...) \
  { HY_I64, DISTINCT, false, 0, n, DIMS(__VA_ARGS__) }
#define BOOLS(...) \
  { HY_BOOL, MASK, false, 0, 2, DIMS(__VA_ARGS__) }
#define ABSENT                          \
  {                                     \
    HY_NONE, UNIFORM, false, 0, 0, 0, { \
      0                                 \
    }                                   \
  }
#define INPUTS(...) {__VA_ARGS__}, (int)(sizeof((argument[]){__VA_ARGS__}) / sizeof(argument))
#define CASE(op, inputs, ...) {HY_OP_##op, {__VA_ARGS__}, INPUTS inputs},
#define NONE .none = {0}
#define REDUCE(keep, ...) \
  .reduce = {{{__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))}, keep}
#define REDUCE_ALL(keep) .reduce = {{{0}, 0}, keep}
#define F(v) \
  { {.f = v}, HY_F64, 0 }
#define I(v) \
  { {.i = v}, HY_I64, 0 }
#define NO \
  { {.i = 0}, HY_NONE, 0 }
#define EQUATION(text) .equation = {{text}}

static const gradient_case cases[] = {
#include "support/gradient_cases.inc"
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

// ---- values ----

static uint64_t random_state;

static double draw(double low, double high) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return low + (high - low) * (double)(random_state >> 11) / 9007199254740992.0;
}

static int64_t count(const argument* a) {
  int64_t n = 1;
  for (int d = 0; d < a->ndim; d++) n *= a->shape[d];
  return n;
}

static void fill(const argument* a, double* values) {
  int64_t n = count(a);
  assert_true(n <= MAX_ELEMENTS);
  for (int64_t i = 0; i < n; i++) {
    switch (a->how) {
      case UNIFORM: values[i] = draw(a->low, a->high); break;
      case INDEX:
      case MASK: values[i] = floor(draw(a->low, a->high)); break;
      case TIES: values[i] = (double)(i % 2); break;
      case DISTINCT:
        values[i] = a->dtype == HY_I64
                        ? (double)i
                        : a->low + (a->high - a->low) * ((double)i + 0.3) / (double)n;
        break;
    }
  }
  if (a->how != DISTINCT) return;
  // Shuffled; along the last dimension alone where the values are indices.
  int64_t row = a->dtype == HY_I64 ? a->shape[a->ndim - 1] : n;
  for (int64_t start = 0; start < n; start += row) {
    for (int64_t i = row - 1; i > 0; i--) {
      int64_t j = (int64_t)draw(0, (double)i + 1);
      double t = values[start + i];
      values[start + i] = values[start + j];
      values[start + j] = t;
    }
    for (int64_t i = 0; a->dtype == HY_I64 && i < row; i++)
      values[start + i] = fmod(values[start + i], a->high);
  }
}

static hy_array* make(bench* b, const argument* a, const double* values) {
  if (a->dtype == HY_NONE) return NULL;
  hy_array *wide = make_f64(b, values, a->ndim, a->shape), *array;
  CHECK_OK(hy_array_cast(b->tape, &array, wide, a->dtype));
  hy_array_release(wide);
  return array;
}

static double values[MAX_INPUTS][MAX_ELEMENTS], weight[MAX_ELEMENTS];

// The packed weights of quantised and sparse layers come from the op that packs: the case gives the
// dense weight in the place of the first of the two.
static hy_status pack_weight(bench* b, const gradient_case* c, hy_array** in) {
  if (c->op != HY_OP_linear_quantized && c->op != HY_OP_linear_sparse_2_4) return HY_OK;
  hy_array* dense = in[1];
  hy_status status = c->op == HY_OP_linear_quantized
                         ? hy_array_quantize(b->tape, &in[1], &in[2], dense, HY_I8, 4)
                         : hy_array_sparsify_2_4(b->tape, &in[1], &in[2], dense);
  hy_array_release(dense);
  return status;
}

static hy_status make_inputs(bench* b, const gradient_case* c, hy_array** in, bool leaves) {
  for (int i = 0; i < c->n_in; i++) {
    in[i] = make(b, &c->in[i], values[i]);
    if (leaves && c->in[i].differentiated) CHECK_OK(hy_array_set_requires_grad(in[i], true));
  }
  return pack_weight(b, c, in);
}

// ---- the two derivatives ----

// sum(w * y) without a tape.
static double evaluate(bench* b, const gradient_case* c) {
  hy_array *in[MAX_INPUTS], *y = NULL, **outputs[HY_MAX_OUTPUTS] = {&y};
  double result[MAX_ELEMENTS], sum = 0;
  CHECK_OK(make_inputs(b, c, in, false));
  int n_out = hy_op_describe(c->op)->n_outputs;
  CHECK_OK(hy_array_apply(b->tape, c->op, in, c->n_in, &c->attrs, outputs, n_out));
  read_f64(b, y, result);
  for (int64_t i = 0; i < hy_tensor_numel(hy_array_tensor(y)); i++) sum += weight[i] * result[i];
  for (int i = 0; i < c->n_in; i++) hy_array_release(in[i]);
  hy_array_release(y);
  return sum;
}

static void check_case(bench* b, int number) {
  const gradient_case* c = &cases[number];
  const char* name = hy_op_name(c->op);
  random_state = 1 + (uint64_t)number;
  for (int i = 0; i < c->n_in; i++) fill(&c->in[i], values[i]);
  for (int i = 0; i < MAX_ELEMENTS; i++) weight[i] = draw(-1, 1);
  // By the tape.
  hy_array *in[MAX_INPUTS], *y = NULL, *seed = NULL, **outputs[HY_MAX_OUTPUTS] = {&y};
  int n_out = hy_op_describe(c->op)->n_outputs;
  hy_status status = make_inputs(b, c, in, true);
  if (status == HY_OK)
    status = hy_array_apply(b->tape, c->op, in, c->n_in, &c->attrs, outputs, n_out);
  if (status == HY_OK) {
    const hy_tensor* shape = hy_array_tensor(y);
    assert_true(hy_tensor_numel(shape) <= MAX_ELEMENTS);
    seed = make_f64(b, weight, shape->ndim, shape->shape);
    status = hy_backward(b->tape, y, seed);
  }
  hy_array_release(seed);
  hy_array_release(y);
  if (status == HY_UNSUPPORTED) {
    printf("  %s: %s\n", name, hy_last_error());
    for (int i = 0; i < c->n_in; i++) hy_array_release(in[i]);
    return;
  }
  if (status != HY_OK) fail_msg("%s (case %d): %s", name, number, hy_last_error());
  // By differences.
  const double step = 1e-5;
  for (int i = 0; i < c->n_in; i++) {
    if (!c->in[i].differentiated) continue;
    double gradient[MAX_ELEMENTS];
    if (!hy_array_grad(in[i])) fail_msg("%s (case %d): input %d has no gradient", name, number, i);
    read_f64(b, hy_array_grad(in[i]), gradient);
    for (int64_t k = 0; k < count(&c->in[i]); k++) {
      double was = values[i][k];
      values[i][k] = was + step;
      double high = evaluate(b, c);
      values[i][k] = was - step;
      double difference = (high - evaluate(b, c)) / (2 * step);
      values[i][k] = was;
      if (!(fabs(gradient[k] - difference) <= 1e-7 + 1e-6 * fabs(difference)))
        fail_msg("%s (case %d): input %d, element %lld: the tape says %.10g, differences %.10g",
                 name, number, i, (long long)k, gradient[k], difference);
    }
  }
  for (int i = 0; i < c->n_in; i++) hy_array_release(in[i]);
}

static void agrees_with_finite_differences(void** state) {
  (void)state;
  bench b = bench_open();
  for (int i = 0; i < N_CASES; i++) check_case(&b, i);
  bench_close(&b);
}

// A new differentiable row needs a case here.
static void every_differentiable_op_has_a_case(void** state) {
  (void)state;
  for (int i = 0; i < hy_op_count(); i++) {
    const hy_op_info* info = hy_op_at(i);
    bool found = !info->differentiable;
    for (int k = 0; k < N_CASES && !found; k++) found = cases[k].op == info->op;
    if (!found) fail_msg("%s has a gradient and no case in gradient_cases.inc", info->name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_differentiable_op_has_a_case),
      cmocka_unit_test(agrees_with_finite_differences),
  };
  int failed = cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
  hy_shutdown();
  return failed;
}
