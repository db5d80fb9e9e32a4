// Every differentiable op of the table against finite differences in f64: the scalar sum(w * y), w
// fixed and random, is differentiated by the tape and by moving each element of each input.
#include <math.h>

#include "ops/internal.h"
#include "support/arrays.h"

enum { MAX_INPUTS = 6, MAX_ELEMENTS = 512 };

// How an input is filled. DISTINCT values are far apart, so that no step changes their order.
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

// ---- ways to make the same case ----

typedef struct variant {
  const char* name;
  hy_dtype dtype;  // in place of f64
  bool strided;    // inputs are views with gaps, dimensions in reverse order in memory
  double near;     // how far gradients may be from those in f64, absolute and relative
} variant;

static const variant plain = {"f64", HY_F64, false, 0};

static double values[MAX_INPUTS][MAX_ELEMENTS], weight[MAX_ELEMENTS];

// A view that shows `dense` and is transposed in memory, every second element unused.
static hy_array* make_strided(bench* b, hy_array* dense) {
  const hy_tensor* t = hy_array_tensor(dense);
  int order[HY_MAX_DIMS];
  int64_t shape[HY_MAX_DIMS + 1];
  for (int d = 0; d < t->ndim; d++) {
    order[d] = t->ndim - 1 - d;
    shape[d] = t->shape[order[d]];
  }
  shape[t->ndim] = 2;
  hy_array *base, *column, *view;
  CHECK_OK(hy_array_zeros(b->stream, &base, t->dtype, t->ndim + 1, shape));
  CHECK_OK(hy_array_select(b->tape, &column, base, -1, 1));
  CHECK_OK(hy_array_permute(b->tape, &view, column, order));
  CHECK_OK(hy_array_apply_into(b->tape, HY_OP_copy, &dense, 1, NULL, &view, 1));
  hy_array_release(base);
  hy_array_release(column);
  hy_array_release(dense);
  return view;
}

static hy_array* make(bench* b, const argument* a, const variant* v, const double* from) {
  if (a->dtype == HY_NONE) return NULL;
  hy_array *wide = make_f64(b, from, a->ndim, a->shape), *array;
  CHECK_OK(hy_array_cast(b->tape, &array, wide, a->dtype == HY_F64 ? v->dtype : a->dtype));
  hy_array_release(wide);
  return v->strided ? make_strided(b, array) : array;
}

// The packed weights of quantised and sparse layers come from the op that packs: the case gives the
// dense weight in the place of the first of the two.
static void pack_weight(bench* b, const gradient_case* c, hy_array** in) {
  if (c->op != HY_OP_linear_quantized && c->op != HY_OP_linear_sparse_2_4) return;
  hy_array* dense = in[1];
  CHECK_OK(c->op == HY_OP_linear_quantized
               ? hy_array_quantize(b->tape, &in[1], &in[2], dense, HY_I8, 4)
               : hy_array_sparsify_2_4(b->tape, &in[1], &in[2], dense));
  hy_array_release(dense);
}

static void make_inputs(bench* b, const gradient_case* c, const variant* v, hy_array** in) {
  for (int i = 0; i < c->n_in; i++) in[i] = make(b, &c->in[i], v, values[i]);
  pack_weight(b, c, in);
}

static void draw_case(int number) {
  const gradient_case* c = &cases[number];
  random_state = 1 + (uint64_t)number;
  for (int i = 0; i < c->n_in; i++) fill(&c->in[i], values[i]);
  for (int i = 0; i < MAX_ELEMENTS; i++) weight[i] = draw(-1, 1);
}

// ---- the two derivatives ----

typedef double gradients[MAX_INPUTS][MAX_ELEMENTS];

// By the tape.
static void by_tape(bench* b, int number, const variant* v, gradients into) {
  const gradient_case* c = &cases[number];
  hy_array *in[MAX_INPUTS], *y = NULL, *seed = NULL, **outputs[HY_MAX_OUTPUTS] = {&y};
  make_inputs(b, c, v, in);
  for (int i = 0; i < c->n_in; i++) {
    if (c->in[i].differentiated) CHECK_OK(hy_array_set_requires_grad(in[i], true));
  }
  int n_out = hy_op_describe(c->op)->n_outputs;
  hy_status status = hy_array_apply(b->tape, c->op, in, c->n_in, &c->attrs, outputs, n_out);
  if (status == HY_OK) {
    const hy_tensor* t = hy_array_tensor(y);
    argument like = {HY_F64, UNIFORM, false, 0, 0, t->ndim, {0}};
    for (int d = 0; d < t->ndim; d++) like.shape[d] = t->shape[d];
    assert_true(hy_tensor_numel(t) <= MAX_ELEMENTS);
    variant same = *v;
    same.dtype = t->dtype;
    seed = make(b, &like, &same, weight);
    status = hy_backward(b->tape, y, seed);
  }
  hy_array_release(seed);
  hy_array_release(y);
  for (int i = 0; i < c->n_in && status == HY_OK; i++) {
    if (!c->in[i].differentiated) continue;
    hy_array* grad = hy_array_grad(in[i]);
    if (!grad)
      fail_msg("%s (case %d, %s): input %d has no gradient", hy_op_name(c->op), number, v->name, i);
    assert_int_equal(hy_array_tensor(grad)->dtype, v->dtype);
    read_f64(b, grad, into[i]);
  }
  for (int i = 0; i < c->n_in; i++) hy_array_release(in[i]);
  if (status != HY_OK)
    fail_msg("%s (case %d, %s): %s", hy_op_name(c->op), number, v->name, hy_last_error());
}

// sum(w * y) without a gradient.
static double evaluate(bench* b, const gradient_case* c) {
  hy_array *in[MAX_INPUTS], *y = NULL, **outputs[HY_MAX_OUTPUTS] = {&y};
  double result[MAX_ELEMENTS], sum = 0;
  make_inputs(b, c, &plain, in);
  int n_out = hy_op_describe(c->op)->n_outputs;
  CHECK_OK(hy_array_apply(b->tape, c->op, in, c->n_in, &c->attrs, outputs, n_out));
  read_f64(b, y, result);
  for (int64_t i = 0; i < hy_tensor_numel(hy_array_tensor(y)); i++) sum += weight[i] * result[i];
  for (int i = 0; i < c->n_in; i++) hy_array_release(in[i]);
  hy_array_release(y);
  return sum;
}

static void by_differences(bench* b, int number, gradients into) {
  const gradient_case* c = &cases[number];
  const double step = 1e-5;
  for (int i = 0; i < c->n_in; i++) {
    for (int64_t k = 0; c->in[i].differentiated && k < count(&c->in[i]); k++) {
      double was = values[i][k];
      values[i][k] = was + step;
      double high = evaluate(b, c);
      values[i][k] = was - step;
      into[i][k] = (high - evaluate(b, c)) / (2 * step);
      values[i][k] = was;
    }
  }
}

static void compare(int number, const char* what, gradients got, gradients expected, double near) {
  const gradient_case* c = &cases[number];
  for (int i = 0; i < c->n_in; i++) {
    for (int64_t k = 0; c->in[i].differentiated && k < count(&c->in[i]); k++) {
      if (!(fabs(got[i][k] - expected[i][k]) <= near * (1 + fabs(expected[i][k]))))
        fail_msg("%s (case %d), %s: input %d, element %lld: %.10g, not %.10g", hy_op_name(c->op),
                 number, what, i, (long long)k, got[i][k], expected[i][k]);
    }
  }
}

static gradients expected, got;

static void agrees_with_finite_differences(void** state) {
  (void)state;
  bench b = bench_open();
  for (int i = 0; i < N_CASES; i++) {
    draw_case(i);
    by_tape(&b, i, &plain, got);
    by_differences(&b, i, expected);
    compare(i, "differences", got, expected, 1e-6);
  }
  bench_close(&b);
}

// The same gradients, up to rounding, in every float type and from strided inputs.
static void agrees_among_types_and_layouts(void** state) {
  (void)state;
  const variant variants[] = {
      {"f64 strided", HY_F64, true, 1e-12},
      {"f32", HY_F32, false, 1e-4},
      {"f16", HY_F16, false, 0.03},
      {"bf16", HY_BF16, false, 0.2},
  };
  bench b = bench_open();
  for (int i = 0; i < N_CASES; i++) {
    draw_case(i);
    by_tape(&b, i, &plain, expected);
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
      by_tape(&b, i, &variants[v], got);
      compare(i, variants[v].name, got, expected, variants[v].near);
    }
  }
  bench_close(&b);
}

// Nothing in a rule looks at device memory or counts on calls being done.
static void agrees_on_a_device_of_its_own(void** state) {
  (void)state;
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  bench cpu = bench_open(), guarded = bench_open_on("guarded:0");
  for (int i = 0; i < N_CASES; i++) {
    draw_case(i);
    by_tape(&cpu, i, &plain, expected);
    by_tape(&guarded, i, &plain, got);
    compare(i, "guarded", got, expected, 0);
  }
  bench_close(&cpu);
  bench_close(&guarded);
}

// One forward and backward over leaves that exist, for faults to fall into.
static hy_status run_case(bench* b, const gradient_case* c, hy_array** in, hy_array* seed) {
  hy_array *y = NULL, **outputs[HY_MAX_OUTPUTS] = {&y};
  int n_out = hy_op_describe(c->op)->n_outputs;
  hy_status status = hy_array_apply(b->tape, c->op, in, c->n_in, &c->attrs, outputs, n_out);
  if (status == HY_OK) status = hy_backward(b->tape, y, seed);
  hy_array_release(y);
  for (int i = 0; i < c->n_in; i++) hy_array_zero_grad(in[i]);
  return status;
}

static void sweep_faults(bench* b, int number, hy_fault fault) {
  const gradient_case* c = &cases[number];
  hy_array *in[MAX_INPUTS], *y = NULL, *seed, **outputs[HY_MAX_OUTPUTS] = {&y};
  make_inputs(b, c, &plain, in);
  CHECK_OK(hy_array_apply(b->tape, c->op, in, c->n_in, &c->attrs, outputs,
                          hy_op_describe(c->op)->n_outputs));
  const hy_tensor* t = hy_array_tensor(y);
  CHECK_OK(hy_array_zeros(b->stream, &seed, HY_F64, t->ndim, t->shape));
  hy_array_release(y);
  for (int i = 0; i < c->n_in; i++) {
    if (c->in[i].differentiated) CHECK_OK(hy_array_set_requires_grad(in[i], true));
  }
  uint64_t before = bench_in_use(b);
  hy_inject_fault(fault, INT64_MAX);
  CHECK_OK(run_case(b, c, in, seed));
  int64_t events = hy_fault_events(fault);
  for (int64_t n = 1; n <= events; n++) {
    hy_inject_fault(fault, n);
    hy_status status = run_case(b, c, in, seed);
    hy_inject_fault(fault, 0);
    if (status == HY_OK || hy_tape_size(b->tape) != 0 || bench_in_use(b) != before)
      fail_msg("%s (case %d): fault %d of kind %d: %s, %d nodes and %lld bytes left",
               hy_op_name(c->op), number, (int)n, (int)fault, hy_status_name(status),
               (int)hy_tape_size(b->tape), (long long)(bench_in_use(b) - before));
  }
  hy_inject_fault(fault, 0);
  hy_array_release(seed);
  for (int i = 0; i < c->n_in; i++) hy_array_release(in[i]);
}

static void failures_leave_nothing_behind(void** state) {
  (void)state;
  bench b = bench_open();
  for (int i = 0; i < N_CASES; i++) {
    draw_case(i);
    sweep_faults(&b, i, HY_FAULT_ALLOCATION);
    sweep_faults(&b, i, HY_FAULT_HOST_ALLOCATION);
    sweep_faults(&b, i, HY_FAULT_KERNEL);
  }
  bench_close(&b);
}

// Differentiable is what has a rule, whatever the rule is called.
static void differentiable_means_a_rule(void** state) {
  (void)state;
  for (int i = 0; i < hy_op_count(); i++) {
    const hy__row* row = hy__op_row(hy_op_at(i)->op);
    if (row->info.differentiable != (row->grad != &hy__grad_none))
      fail_msg("%s: differentiable is not as its rule says", row->info.name);
  }
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
      cmocka_unit_test(differentiable_means_a_rule),
      cmocka_unit_test(every_differentiable_op_has_a_case),
      cmocka_unit_test(agrees_with_finite_differences),
      cmocka_unit_test(agrees_among_types_and_layouts),
      cmocka_unit_test(agrees_on_a_device_of_its_own),
      cmocka_unit_test(failures_leave_nothing_behind),
  };
  int failed = cmocka_run_group_tests_name("gradients", tests, NULL, NULL);
  hy_shutdown();
  return failed;
}
