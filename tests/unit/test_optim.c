// Optimizers: the fused rows against their definition, clipping, state, schedule, faults.
#include "halyard/optim.h"

#include <math.h>
#include <stdio.h>

#include "halyard/graph.h"
#include "support/arrays.h"

enum { N = 5, STEPS = 4 };

// Gradients that change from step to step.
static void set_gradient(bench* b, hy_array* parameter, int step) {
  double values[N];
  const hy_tensor* t = hy_array_tensor(parameter);
  for (int i = 0; i < N; i++) values[i] = sin(1.7 * step + i) * (i + 1);
  hy_array* grad = make_f64(b, values, t->ndim, t->shape);
  CHECK_OK(hy_array_set_grad(parameter, grad));
  hy_array_release(grad);
}

static hy_array* make_parameter(bench* b) {
  return leaf_f64(b, (double[N]){1, -2, 3, -4, 0.5}, SHAPE(N));
}

static void check_close(bench* b, hy_array* x, hy_array* y) {
  double xs[N], ys[N];
  read_f64(b, x, xs);
  read_f64(b, y, ys);
  for (int i = 0; i < N; i++) {
    if (!(fabs(xs[i] - ys[i]) <= 1e-12 * (1 + fabs(ys[i]))))
      fail_msg("element %d is %.17g, not %.17g", i, xs[i], ys[i]);
  }
}

// ---- AdamW ----

// x = op(x, ...) in place.
static void into(bench* b, hy_op op, hy_array* out, hy_attrs attrs, hy_array* x, hy_array* y,
                 hy_array* z) {
  hy_array* in[] = {x, y, z};
  CHECK_OK(hy_array_apply_into(b->tape, op, in, z ? 3 : y ? 2 : 1, &attrs, &out, 1));
}

// As PyTorch writes it without fusion: mul_, addcmul_, sqrt, addcdiv_.
static void adamw_by_hand(bench* b, hy_array* p, hy_array* m, hy_array* v, hy_array* scratch,
                          const hy_attrs_adamw* a, int step) {
  hy_array* g = hy_array_grad(p);
#define NUMBER(x)            \
  (hy_attrs) {               \
    .value = { hy_float(x) } \
  }
  into(b, HY_OP_mul_scalar, p, NUMBER(1 - a->lr * a->weight_decay), p, NULL, NULL);
  into(b, HY_OP_mul_scalar, m, NUMBER(a->beta1), m, NULL, NULL);
  into(b, HY_OP_add, m, (hy_attrs){.alpha = {hy_float(1 - a->beta1)}}, m, g, NULL);
  into(b, HY_OP_mul_scalar, v, NUMBER(a->beta2), v, NULL, NULL);
  into(b, HY_OP_addcmul, v, NUMBER(1 - a->beta2), v, g, g);
  into(b, HY_OP_sqrt, scratch, (hy_attrs){0}, v, NULL, NULL);
  into(b, HY_OP_mul_scalar, scratch, NUMBER(1 / sqrt(1 - pow(a->beta2, step))), scratch, NULL,
       NULL);
  into(b, HY_OP_add_scalar, scratch, (hy_attrs){.value_alpha = {hy_float(a->eps), hy_int(1)}},
       scratch, NULL, NULL);
  into(b, HY_OP_addcdiv, p, NUMBER(-a->lr / (1 - pow(a->beta1, step))), p, m, scratch);
#undef NUMBER
}

static void adamw_equals_its_composition(void** state) {
  (void)state;
  bench b = bench_open();
  hy_attrs_adamw options = hy_adamw_defaults();
  options.lr = 0.1;
  options.weight_decay = 0.05;
  hy_array *p[2] = {make_parameter(&b), make_parameter(&b)}, *q = make_parameter(&b);
  hy_array *m, *v, *scratch;
  CHECK_OK(hy_array_zeros(b.stream, &m, HY_F64, SHAPE(N)));
  CHECK_OK(hy_array_zeros(b.stream, &v, HY_F64, SHAPE(N)));
  CHECK_OK(hy_array_zeros(b.stream, &scratch, HY_F64, SHAPE(N)));
  hy_optimizer* o;
  CHECK_OK(hy_adamw_create(b.stream, p, 2, &options, &o));
  hy_tape_set_recording(b.tape, false);
  for (int step = 1; step <= STEPS; step++) {
    set_gradient(&b, p[0], step);
    set_gradient(&b, q, step);
    CHECK_OK(hy_optimizer_step(o));
    adamw_by_hand(&b, q, m, v, scratch, &options, step);
    check_close(&b, p[0], q);
  }
  // Without a gradient nothing moves, and nothing decays.
  CHECK_VALUES(&b, p[1], 1, -2, 3, -4, 0.5);
  hy_optimizer_zero_grad(o);
  assert_null(hy_array_grad(p[0]));
  hy_optimizer_destroy(o);
  hy_array* all[] = {p[0], p[1], q, m, v, scratch};
  for (int i = 0; i < 6; i++) hy_array_release(all[i]);
  bench_close(&b);
}

// A parameter in 16 bits has its state in f32 and moves like one in f32, up to its own rounding.
static void half_parameters_have_a_wide_state(void** state) {
  (void)state;
  bench b = bench_open();
  hy_attrs_adamw options = hy_adamw_defaults();
  options.lr = 0.5;
  hy_array *wide = make_parameter(&b), *p[2], *grad;
  const hy_dtype dtypes[2] = {HY_F32, HY_BF16};
  hy_tape_set_recording(b.tape, false);
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hy_array_cast(b.tape, &p[i], wide, dtypes[i]));
    CHECK_OK(hy_array_set_requires_grad(p[i], true));
  }
  hy_optimizer* o;
  CHECK_OK(hy_adamw_create(b.stream, p, 2, &options, &o));
  for (int step = 0; step < 3; step++) {
    for (int i = 0; i < 2; i++) {
      CHECK_OK(hy_array_cast(b.tape, &grad, wide, dtypes[i]));
      CHECK_OK(hy_array_set_grad(p[i], grad));
      hy_array_release(grad);
    }
    CHECK_OK(hy_optimizer_step(o));
  }
  double xs[N], ys[N];
  read_f64(&b, p[0], xs);
  read_f64(&b, p[1], ys);
  for (int i = 0; i < N; i++) assert_true(fabs(xs[i] - ys[i]) < 0.03 * (1 + fabs(xs[i])));
  hy_optimizer_destroy(o);
  hy_array_release(wide);
  hy_array_release(p[0]);
  hy_array_release(p[1]);
  bench_close(&b);
}

// ---- SGD ----

static void check_sgd(bench* b, hy_attrs_sgd a) {
  hy_array* p = make_parameter(b);
  hy_optimizer* o;
  double x[N], velocity[N] = {0}, moved[N];
  read_f64(b, p, x);
  CHECK_OK(hy_sgd_create(b->stream, &p, 1, &a, &o));
  for (int step = 1; step <= STEPS; step++) {
    double g[N];
    set_gradient(b, p, step);
    read_f64(b, hy_array_grad(p), g);
    CHECK_OK(hy_optimizer_step(o));
    read_f64(b, p, moved);
    for (int i = 0; i < N; i++) {
      double d = (a.maximize ? -g[i] : g[i]) + a.weight_decay * x[i];
      if (a.momentum != 0) {
        velocity[i] = step == 1 ? d : a.momentum * velocity[i] + (1 - a.dampening) * d;
        d = a.nesterov ? d + a.momentum * velocity[i] : velocity[i];
      }
      x[i] -= a.lr * d;
      if (!(fabs(moved[i] - x[i]) <= 1e-12 * (1 + fabs(x[i]))))
        fail_msg("step %d: %.17g, not %.17g", step, moved[i], x[i]);
    }
  }
  hy_optimizer_destroy(o);
  hy_array_release(p);
}

static void sgd_equals_its_definition(void** state) {
  (void)state;
  bench b = bench_open();
  check_sgd(&b, (hy_attrs_sgd){.lr = 0.1});
  check_sgd(&b, (hy_attrs_sgd){.lr = 0.1, .weight_decay = 0.01, .maximize = true});
  check_sgd(&b, (hy_attrs_sgd){.lr = 0.1, .momentum = 0.9, .dampening = 0.2});
  check_sgd(&b, (hy_attrs_sgd){.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
  bench_close(&b);
}

// ---- state ----

typedef struct snapshot {
  bench* b;
  int n;
  char names[8][32];
  hy_array* arrays[8];
} snapshot;

static hy_status keep_copy(void* context, const char* name, hy_array* array) {
  snapshot* s = context;
  snprintf(s->names[s->n], sizeof s->names[0], "%s", name);
  return hy_array_clone(s->b->tape, &s->arrays[s->n++], array);
}

static void resumes_bit_for_bit(void** state) {
  (void)state;
  bench b = bench_open();
  hy_attrs_adamw options = hy_adamw_defaults();
  hy_array *p = make_parameter(&b), *copy;
  hy_optimizer *o, *resumed;
  snapshot s = {.b = &b};
  CHECK_OK(hy_adamw_create(b.stream, &p, 1, &options, &o));
  for (int step = 1; step <= 3; step++) {
    set_gradient(&b, p, step);
    CHECK_OK(hy_optimizer_step(o));
  }
  CHECK_OK(hy_optimizer_export(o, keep_copy, &s));
  assert_int_equal(s.n, 3);
  assert_string_equal(s.names[0], "steps");
  assert_string_equal(s.names[1], "0.m");
  assert_string_equal(s.names[2], "0.v");
  bool was = hy_tape_set_recording(b.tape, false);
  CHECK_OK(hy_array_clone(b.tape, &copy, p));
  hy_tape_set_recording(b.tape, was);
  CHECK_OK(hy_array_set_requires_grad(copy, true));
  CHECK_OK(hy_adamw_create(b.stream, &copy, 1, &options, &resumed));
  for (int i = 0; i < s.n; i++) CHECK_OK(hy_optimizer_import(resumed, s.names[i], s.arrays[i]));
  set_gradient(&b, p, 4);
  set_gradient(&b, copy, 4);
  CHECK_OK(hy_optimizer_step(o));
  CHECK_OK(hy_optimizer_step(resumed));
  double xs[N], ys[N];
  read_f64(&b, p, xs);
  read_f64(&b, copy, ys);
  assert_memory_equal(xs, ys, sizeof xs);
  CHECK_FAILS(HY_NOT_FOUND, "\"1.m\"", hy_optimizer_import(o, "1.m", s.arrays[1]));
  CHECK_FAILS(HY_NOT_FOUND, "\"0.velocity\"", hy_optimizer_import(o, "0.velocity", s.arrays[1]));
  CHECK_FAILS(HY_SHAPE, "i64[1]", hy_optimizer_import(o, "steps", s.arrays[1]));
  CHECK_FAILS(HY_DTYPE, "f64, not i64", hy_optimizer_import(o, "0.m", s.arrays[0]));
  for (int i = 0; i < s.n; i++) hy_array_release(s.arrays[i]);
  hy_optimizer_destroy(o);
  hy_optimizer_destroy(resumed);
  hy_array_release(p);
  hy_array_release(copy);
  bench_close(&b);
}

static void a_step_counts_as_a_change(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array *p = make_parameter(&b), *y, *s;
  hy_optimizer* o;
  CHECK_OK(hy_sgd_create(b.stream, &p, 1, &(hy_attrs_sgd){.lr = 0.1}, &o));
  CHECK_OK(hy_array_mul(b.tape, &y, p, p));
  CHECK_OK(hy_array_sum(b.tape, &s, y, hy_all_dims(), false));
  set_gradient(&b, p, 1);
  CHECK_OK(hy_optimizer_step(o));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "changed in place", hy_backward(b.tape, s, NULL));
  hy_optimizer_destroy(o);
  hy_array_release(p);
  hy_array_release(y);
  hy_array_release(s);
  bench_close(&b);
}

// ---- parameters that are consecutive ----

// Leaves of 2, 2 and 1 elements, as parts of one array or each by itself, and their gradients.
typedef struct trio {
  hy_array *all, *grads, *p[3];
} trio;

static hy_array* part(hy_array* all, int64_t from, int64_t to) {
  hy_array* piece;
  CHECK_OK(hy_array_slice(NULL, &piece, all, 0, from, to, 1));
  return piece;
}

static trio make_trio(bench* b, bool together) {
  trio t = {.all = make_parameter(b)};
  hy_tape_set_recording(b->tape, false);
  CHECK_OK(hy_array_set_requires_grad(t.all, false));
  t.grads = make_f64(b, (double[N]){3, -1, 0.25, 4, -2}, SHAPE(N));
  for (int i = 0; i < 3; i++) {
    int64_t from = 2 * i, to = i < 2 ? from + 2 : N;
    hy_array *p = part(t.all, from, to), *g = part(t.grads, from, to);
    if (!together) {
      hy_array *own_p, *own_g;
      CHECK_OK(hy_array_clone(b->tape, &own_p, p));
      CHECK_OK(hy_array_clone(b->tape, &own_g, g));
      hy_array_release(p);
      hy_array_release(g);
      p = own_p;
      g = own_g;
    }
    CHECK_OK(hy_array_set_requires_grad(p, true));
    CHECK_OK(hy_array_set_grad(p, g));
    hy_array_release(g);
    t.p[i] = p;
  }
  return t;
}

static void check_same(bench* b, const trio* x, const trio* y) {
  for (int i = 0; i < 3; i++) {
    double xs[2] = {0}, ys[2] = {0};
    read_f64(b, x->p[i], xs);
    read_f64(b, y->p[i], ys);
    assert_memory_equal(xs, ys, sizeof xs);
  }
}

static int steps_captured(bench* b, hy_optimizer* o) {
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(b->stream));
  CHECK_OK(hy_optimizer_step(o));
  CHECK_OK(hy_capture_end(b->stream, &graph));
  int nodes = hy_graph_node_count(graph);
  CHECK_OK(hy_graph_launch(graph, b->stream));
  CHECK_OK(hy_stream_sync(b->stream));
  hy_graph_destroy(graph);
  return nodes;
}

static void neighbours_are_stepped_together(void** state) {
  (void)state;
  bench b = bench_open();
  hy_attrs_adamw options = hy_adamw_defaults();
  trio one = make_trio(&b, true), apart = make_trio(&b, false);
  hy_optimizer *o, *q;
  double norm, norm_apart;
  CHECK_OK(hy_adamw_create(b.stream, one.p, 3, &options, &o));
  CHECK_OK(hy_adamw_create(b.stream, apart.p, 3, &options, &q));
  assert_int_equal(steps_captured(&b, o), 1);
  assert_int_equal(steps_captured(&b, q), 3);
  check_same(&b, &one, &apart);
  CHECK_OK(hy_clip_grad_norm(b.stream, one.p, 3, 2, &norm));
  CHECK_OK(hy_clip_grad_norm(b.stream, apart.p, 3, 2, &norm_apart));
  assert_true(fabs(norm - norm_apart) < 1e-12);
  // One without a gradient stands still, and falls behind the others.
  hy_array_zero_grad(one.p[1]);
  hy_array_zero_grad(apart.p[1]);
  assert_int_equal(steps_captured(&b, o), 2);
  CHECK_OK(hy_optimizer_step(q));
  hy_array *back = part(one.grads, 2, 4), *own;
  CHECK_OK(hy_array_clone(b.tape, &own, back));
  CHECK_OK(hy_array_set_grad(one.p[1], back));
  CHECK_OK(hy_array_set_grad(apart.p[1], own));
  assert_int_equal(steps_captured(&b, o), 3);
  CHECK_OK(hy_optimizer_step(q));
  check_same(&b, &one, &apart);
  snapshot s = {.b = &b};
  CHECK_OK(hy_optimizer_export(o, keep_copy, &s));
  assert_int_equal(s.n, 7);
  assert_string_equal(s.names[3], "1.m");
  assert_int_equal(hy_array_tensor(s.arrays[3])->shape[0], 2);
  for (int i = 0; i < s.n; i++) hy_array_release(s.arrays[i]);
  hy_optimizer_destroy(o);
  hy_optimizer_destroy(q);
  hy_array* rest[] = {one.all, one.grads, apart.all, apart.grads, back, own};
  for (int i = 0; i < 6; i++) hy_array_release(rest[i]);
  for (int i = 0; i < 3; i++) {
    hy_array_release(one.p[i]);
    hy_array_release(apart.p[i]);
  }
  bench_close(&b);
}

// ---- clipping and schedule ----

static void clips_by_the_norm_of_all(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array* p[3] = {leaf_f64(&b, (double[]){0, 0}, SHAPE(2)), leaf_f64(&b, (double[]){0}, SHAPE(1)),
                    leaf_f64(&b, (double[]){0}, SHAPE(1))};
  hy_array *g0 = make_f64(&b, (double[]){3, 0}, SHAPE(2)), *g1, *bad;
  g1 = make_f64(&b, (double[]){-4}, SHAPE(1));
  bad = make_f64(&b, (double[]){NAN}, SHAPE(1));
  CHECK_OK(hy_array_set_grad(p[0], g0));
  CHECK_OK(hy_array_set_grad(p[1], g1));
  double norm;
  CHECK_OK(hy_clip_grad_norm(b.stream, p, 3, 10, &norm));
  assert_true(norm == 5);
  CHECK_VALUES(&b, g0, 3, 0);
  CHECK_OK(hy_clip_grad_norm(b.stream, p, 3, 1, &norm));
  assert_true(norm == 5);
  CHECK_VALUES(&b, g0, 3 / (5 + 1e-6), 0);
  CHECK_VALUES(&b, g1, -4 / (5 + 1e-6));
  CHECK_OK(hy_array_set_grad(p[2], bad));
  CHECK_OK(hy_clip_grad_norm(b.stream, p, 3, 0.1, &norm));
  assert_false(isfinite(norm));
  CHECK_VALUES(&b, g1, -4 / (5 + 1e-6));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "at least 0", hy_clip_grad_norm(b.stream, p, 3, NAN, &norm));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "parameter 0 is no leaf",
              hy_clip_grad_norm(b.stream, &g0, 1, 1, &norm));
  hy_array* all[] = {p[0], p[1], p[2], g0, g1, bad};
  for (int i = 0; i < 6; i++) hy_array_release(all[i]);
  bench_close(&b);
}

static void schedules_a_warm_cosine(void** state) {
  (void)state;
  assert_true(hy_schedule_cosine(0, 10, 110, 1, 0.1) == 0);
  assert_true(hy_schedule_cosine(5, 10, 110, 1, 0.1) == 0.5);
  assert_true(hy_schedule_cosine(10, 10, 110, 1, 0.1) == 1);
  assert_true(fabs(hy_schedule_cosine(60, 10, 110, 1, 0.1) - 0.55) < 1e-15);
  assert_true(hy_schedule_cosine(110, 10, 110, 1, 0.1) == 0.1);
  assert_true(hy_schedule_cosine(500, 10, 110, 1, 0.1) == 0.1);
  assert_true(hy_schedule_cosine(0, 0, 0, 1, 0.1) == 0.1);
}

// ---- together ----

// One step of fitting a line with two rounds of accumulation; the loss goes out.
static hy_status train_step(bench* b, hy_optimizer* o, hy_array* w, hy_array* x, hy_array* target,
                            double* loss) {
  hy_optimizer_zero_grad(o);
  for (int round = 0; round < 2; round++) {
    hy_array *y = NULL, *error = NULL, *square = NULL, *mean = NULL;
    hy_status status = hy_array_mm(b->tape, &y, x, w);
    if (status == HY_OK) status = hy_array_sub(b->tape, &error, y, target, hy_int(1));
    if (status == HY_OK) status = hy_array_mul(b->tape, &square, error, error);
    if (status == HY_OK) status = hy_array_mean(b->tape, &mean, square, hy_all_dims(), false);
    if (status == HY_OK) status = hy_backward(b->tape, mean, NULL);
    if (status == HY_OK) status = hy_array_item(b->stream, mean, loss);
    hy_array* all[] = {y, error, square, mean};
    for (int i = 0; i < 4; i++) hy_array_release(all[i]);
    if (status != HY_OK) return status;
  }
  double norm;
  HY_TRY(hy_clip_grad_norm(b->stream, &w, 1, 5, &norm));
  return hy_optimizer_step(o);
}

static void trains_and_survives_faults(void** state) {
  (void)state;
  bench b = bench_open();
  hy_array* x = make_f64(&b, (double[]){1, 0, 0, 1, 1, 1, 2, -1}, SHAPE(4, 2));
  hy_array* target = make_f64(&b, (double[]){2, -3, -1, 7}, SHAPE(4, 1));
  hy_array* w = leaf_f64(&b, (double[]){0, 0}, SHAPE(2, 1));
  hy_attrs_adamw options = hy_adamw_defaults();
  options.weight_decay = 0;
  hy_optimizer* o;
  double loss = INFINITY;
  CHECK_OK(hy_adamw_create(b.stream, &w, 1, &options, &o));
  for (int step = 0; step < 300; step++) {
    hy_optimizer_set_lr(o, hy_schedule_cosine(step, 10, 300, 0.2, 0));
    CHECK_OK(train_step(&b, o, w, x, target, &loss));
  }
  if (!(loss < 1e-6)) fail_msg("the loss is %g after 300 steps", loss);
  hy_optimizer_zero_grad(o);
  uint64_t before = bench_in_use(&b);
  const hy_fault faults[] = {HY_FAULT_ALLOCATION, HY_FAULT_COPY, HY_FAULT_KERNEL,
                             HY_FAULT_HOST_ALLOCATION};
  for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
    hy_inject_fault(faults[f], INT64_MAX);
    CHECK_OK(train_step(&b, o, w, x, target, &loss));
    int64_t events = hy_fault_events(faults[f]);
    for (int64_t n = 1; n <= events; n++) {
      hy_inject_fault(faults[f], n);
      assert_true(train_step(&b, o, w, x, target, &loss) != HY_OK);
      hy_inject_fault(faults[f], 0);
      hy_optimizer_zero_grad(o);
      assert_int_equal(bench_in_use(&b), before);
    }
    hy_inject_fault(HY_FAULT_ALLOCATION, 1);
    hy_optimizer* none;
    assert_int_equal(hy_adamw_create(b.stream, &w, 1, &options, &none), HY_OUT_OF_MEMORY);
    assert_null(none);
    hy_inject_fault(HY_FAULT_ALLOCATION, 0);
  }
  hy_optimizer_destroy(o);
  hy_array_release(w);
  hy_array_release(x);
  hy_array_release(target);
  bench_close(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adamw_equals_its_composition),
      cmocka_unit_test(half_parameters_have_a_wide_state),
      cmocka_unit_test(sgd_equals_its_definition),
      cmocka_unit_test(resumes_bit_for_bit),
      cmocka_unit_test(a_step_counts_as_a_change),
      cmocka_unit_test(neighbours_are_stepped_together),
      cmocka_unit_test(clips_by_the_norm_of_all),
      cmocka_unit_test(schedules_a_warm_cosine),
      cmocka_unit_test(trains_and_survives_faults),
  };
  int failed = cmocka_run_group_tests_name("optim", tests, NULL, NULL);
  hy_shutdown();
  return failed;
}
