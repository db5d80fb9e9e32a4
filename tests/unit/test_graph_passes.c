// Passes over graphs: each alone on a graph made for it, then all of them on random graphs, whose
// results must have the bits of the calls made one after another.
#include <stdio.h>
#include <stdlib.h>

#include "halyard/halyard.h"
#include "support/check.h"

static hy_device* device;
static hy_stream* stream;

static int set_up(void** state) {
  (void)state;
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  return 0;
}

// ---- each alone ----

enum { ROWS = 5, COLUMNS = 24, SIZE = ROWS * COLUMNS };
static float input[SIZE], vector[COLUMNS], weight[COLUMNS * COLUMNS], result[SIZE], expected[SIZE];

// A graph of "x" [5, 24] and "v" [24] under construction.
typedef struct build {
  hy_graph* graph;
  hy_tensor x, v;
} build;

static build begin(void) {
  const int64_t shape[2] = {ROWS, COLUMNS};
  build b;
  for (int i = 0; i < SIZE; i++) input[i] = (float)(i % 17) * 0.25f - 2;
  for (int i = 0; i < COLUMNS; i++) vector[i] = (float)i * 0.5f - 3;
  CHECK_OK(hy_graph_create(device, &b.graph));
  CHECK_OK(hy_graph_input(b.graph, "x", HY_F32, 2, shape, &b.x));
  CHECK_OK(hy_graph_input(b.graph, "v", HY_F32, 1, shape + 1, &b.v));
  return b;
}

static hy_tensor call(build* b, hy_op op, int n, const hy_tensor* in, hy_attrs attrs) {
  hy_tensor out = {0};
  hy_call c = {.op = op, .n_in = n, .n_out = 1, .in = in, .out = &out, .attrs = attrs};
  CHECK_OK(hy_graph_add(b->graph, &c));
  return out;
}

static hy_tensor unary(build* b, hy_op op, hy_tensor x) {
  return call(b, op, 1, &x, (hy_attrs){0});
}

static hy_tensor add(build* b, hy_tensor x, hy_tensor y) {
  return call(b, HY_OP_add, 2, (hy_tensor[]){x, y}, (hy_attrs){.alpha = {hy_int(1)}});
}

static hy_tensor mul(build* b, hy_tensor x, hy_tensor y) {
  return call(b, HY_OP_mul, 2, (hy_tensor[]){x, y}, (hy_attrs){0});
}

static void launch(build* b, float* to) {
  memset(to, 0xff, sizeof result);
  CHECK_OK(hy_graph_set(b->graph, "x", input));
  CHECK_OK(hy_graph_set(b->graph, "v", vector));
  CHECK_OK(hy_graph_set(b->graph, "y", to));
  CHECK_OK(hy_graph_launch(b->graph, stream));
}

// Finishes with the output y, runs the passes, and compares; returns the nodes left.
static int nodes_after(build* b, const hy_tensor* y, uint32_t passes, hy_graph_report* report) {
  hy_graph_report own;
  CHECK_OK(hy_graph_output(b->graph, "y", y));
  CHECK_OK(hy_graph_finish(b->graph));
  launch(b, expected);
  CHECK_OK(hy_graph_run_passes(b->graph, passes, report ? report : &own));
  launch(b, result);
  assert_memory_equal(result, expected, hy_tensor_bytes(y));
  int n = hy_graph_node_count(b->graph);
  hy_graph_destroy(b->graph);
  return n;
}

static void test_dead(void** state) {
  (void)state;
  build b = begin();
  hy_tensor y = unary(&b, HY_OP_neg, b.x);
  unary(&b, HY_OP_exp, unary(&b, HY_OP_abs, b.x));
  assert_int_equal(nodes_after(&b, &y, HY_PASS_DEAD, NULL), 1);
}

static void test_common(void** state) {
  (void)state;
  build b = begin();
  hy_tensor a = unary(&b, HY_OP_exp, b.x), c = unary(&b, HY_OP_exp, b.x);
  hy_tensor y = mul(&b, add(&b, a, b.v), add(&b, c, b.v));
  assert_int_equal(nodes_after(&b, &y, HY_PASS_COMMON, NULL), 3);
}

// Equal calls around a write to their input are not equal.
static void test_common_minds_writes(void** state) {
  (void)state;
  build b = begin();
  hy_tensor a = unary(&b, HY_OP_exp, b.x);
  hy_tensor once = unary(&b, HY_OP_neg, a);
  hy_call write = {.op = HY_OP_relu, .n_in = 1, .n_out = 1, .in = &b.x, .out = &a};
  CHECK_OK(hy_graph_add(b.graph, &write));
  hy_tensor y = add(&b, once, unary(&b, HY_OP_neg, a));
  assert_int_equal(nodes_after(&b, &y, HY_PASS_COMMON | HY_PASS_DEAD, NULL), 5);
}

static void test_fold(void** state) {
  (void)state;
  build b = begin();
  hy_tensor c, host, zero = b.x;
  CHECK_OK(hy_tensor_init(&host, vector, HY_F32, 1, (const int64_t[]){COLUMNS}));
  CHECK_OK(hy_graph_constant(b.graph, &host, &c));
  zero.data = NULL;
  hy_call fill = {.op = HY_OP_fill, .n_out = 1, .out = &zero, .attrs.value = {hy_float(3)}};
  CHECK_OK(hy_graph_add(b.graph, &fill));
  hy_tensor y = add(&b, add(&b, b.x, zero), unary(&b, HY_OP_exp, unary(&b, HY_OP_neg, c)));
  assert_int_equal(nodes_after(&b, &y, HY_PASS_FOLD, NULL), 2);
}

static void test_views(void** state) {
  (void)state;
  build b = begin();
  hy_tensor y = add(&b, unary(&b, HY_OP_clone, b.x), unary(&b, HY_OP_clone, b.x));
  assert_int_equal(nodes_after(&b, &y, HY_PASS_VIEWS | HY_PASS_DEAD, NULL), 1);
  b = begin();
  hy_tensor across;
  CHECK_OK(hy_transpose(&across, &b.x, 0, 1));  // a copy that is needed
  y = unary(&b, HY_OP_neg, unary(&b, HY_OP_clone, across));
  assert_int_equal(nodes_after(&b, &y, HY_PASS_VIEWS | HY_PASS_DEAD, NULL), 2);
}

static void test_epilogue(void** state) {
  (void)state;
  build b = begin();
  hy_tensor w, host;
  for (int i = 0; i < COLUMNS * COLUMNS; i++) weight[i] = (float)(i % 5) * 0.5f;
  CHECK_OK(hy_tensor_init(&host, weight, HY_F32, 2, (const int64_t[]){COLUMNS, COLUMNS}));
  CHECK_OK(hy_graph_constant(b.graph, &host, &w));
  hy_tensor layer =
      call(&b, HY_OP_linear, 3, (hy_tensor[]){b.x, w, hy_tensor_absent()}, (hy_attrs){0});
  hy_tensor y = add(&b, layer, b.v);
  // The numbers are short enough for sums to be exact in any order.
  assert_int_equal(nodes_after(&b, &y, HY_PASS_EPILOGUE, NULL), 1);
}

// A residual becomes what the product is added to, and then its memory. One that is read again
// behind the layer stays as it was.
static void test_epilogue_of_a_residual(void** state) {
  (void)state;
  for (int again = 0; again < 2; again++) {
    build b = begin();
    hy_tensor w, host, y;
    for (int i = 0; i < COLUMNS * COLUMNS; i++) weight[i] = (float)(i % 5) * 0.5f;
    CHECK_OK(hy_tensor_init(&host, weight, HY_F32, 2, (const int64_t[]){COLUMNS, COLUMNS}));
    CHECK_OK(hy_graph_constant(b.graph, &host, &w));
    hy_tensor residual = unary(&b, HY_OP_abs, b.x);
    hy_tensor layer =
        call(&b, HY_OP_linear, 3, (hy_tensor[]){b.x, w, hy_tensor_absent()}, (hy_attrs){0});
    y = unary(&b, HY_OP_neg, add(&b, residual, layer));
    if (again) y = mul(&b, y, residual);
    hy_graph_report report;
    int nodes = nodes_after(&b, &y, HY_PASS_EPILOGUE | HY_PASS_IN_PLACE, &report);
    assert_int_equal(nodes, 3 + again);
    assert_int_equal(report.changes[4], 1);
    assert_true(report.memory_after <= (1 + (uint64_t)again) * 2 * SIZE * sizeof(float));
  }
}

static void test_fuse(void** state) {
  (void)state;
  build b = begin();
  hy_tensor t = unary(&b, HY_OP_exp, add(&b, b.x, b.v));
  hy_tensor y = mul(&b, unary(&b, HY_OP_sigmoid, t), t);
  assert_int_equal(nodes_after(&b, &y, HY_PASS_FUSE, NULL), 1);
  b = begin();  // with a sum of rows behind it
  t = mul(&b, b.x, unary(&b, HY_OP_exp, b.x));
  y = call(&b, HY_OP_mean, 1, &t, (hy_attrs){.reduce = {hy_one_dim(1), false}});
  assert_int_equal(nodes_after(&b, &y, HY_PASS_FUSE, NULL), 1);
  b = begin();  // a softmax cannot join, and separates
  t = unary(&b, HY_OP_exp, unary(&b, HY_OP_neg, b.x));
  t = call(&b, HY_OP_softmax, 1, &t, (hy_attrs){.dim = {1}});
  y = unary(&b, HY_OP_log, unary(&b, HY_OP_neg, t));
  assert_int_equal(nodes_after(&b, &y, HY_PASS_FUSE, NULL), 3);
  b = begin();  // two that read the same, for a softmax each
  t = unary(&b, HY_OP_exp, b.x);
  y = unary(&b, HY_OP_neg, b.x);
  t = call(&b, HY_OP_softmax, 1, &t, (hy_attrs){.dim = {1}});
  y = call(&b, HY_OP_softmax, 1, &y, (hy_attrs){.dim = {1}});
  y = add(&b, t, y);
  assert_int_equal(nodes_after(&b, &y, HY_PASS_FUSE, NULL), 4);
}

// Chains of sizes around the blocks they run in, with every way of broadcasting, on all threads.
static void check_chain(hy_dtype dtype, int64_t rows, int64_t columns, bool reduces) {
  const int64_t shape[2] = {rows, columns}, column[2] = {rows, 1}, one = 1;
  size_t bytes = (size_t)(rows * columns) * hy_dtype_size(dtype);
  hy_array *memory[4], *out[2];
  build b;
  CHECK_OK(hy_graph_create(device, &b.graph));
  hy_tensor c, s;
  CHECK_OK(hy_graph_input(b.graph, "x", dtype, 2, shape, &b.x));
  CHECK_OK(hy_graph_input(b.graph, "v", dtype, 1, shape + 1, &b.v));
  CHECK_OK(hy_graph_input(b.graph, "c", dtype, 2, column, &c));
  CHECK_OK(hy_graph_input(b.graph, "s", dtype, 1, &one, &s));
  hy_tensor t = unary(&b, HY_OP_tanh, add(&b, b.x, b.v));
  hy_tensor y = mul(&b, add(&b, mul(&b, t, c), s), unary(&b, HY_OP_sigmoid, t));
  if (reduces) y = call(&b, HY_OP_mean, 1, &y, (hy_attrs){.reduce = {hy_one_dim(-1), true}});
  CHECK_OK(hy_graph_output(b.graph, "y", &y));
  CHECK_OK(hy_graph_finish(b.graph));
  const hy_tensor* tensors[4] = {&b.x, &b.v, &c, &s};
  static const char* const names[4] = {"x", "v", "c", "s"};
  for (int i = 0; i < 4; i++) {
    CHECK_OK(hy_array_empty(stream, &memory[i], dtype, tensors[i]->ndim, tensors[i]->shape));
    hy_tensor m = *hy_array_tensor(memory[i]);
    CHECK_OK(hy_normal(stream, &m, 7, (uint64_t)i << 32, 0, 1));
    CHECK_OK(hy_graph_set(b.graph, names[i], m.data));
  }
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hy_array_zeros(stream, &out[i], dtype, y.ndim, y.shape));
    if (i == 1) CHECK_OK(hy_graph_run_passes(b.graph, HY_PASS_FUSE, NULL));
    assert_int_equal(hy_graph_node_count(b.graph), i == 1 ? 1 : 6 + reduces);
    CHECK_OK(hy_graph_set(b.graph, "y", hy_array_tensor(out[i])->data));
    CHECK_OK(hy_graph_launch(b.graph, stream));
  }
  if (reduces) bytes /= (size_t)columns;
  assert_memory_equal(hy_array_tensor(out[0])->data, hy_array_tensor(out[1])->data, bytes);
  for (int i = 0; i < 4; i++) hy_array_release(memory[i]);
  for (int i = 0; i < 2; i++) hy_array_release(out[i]);
  hy_graph_destroy(b.graph);
}

static void test_chain_sizes(void** state) {
  (void)state;
  static const int64_t sizes[][2] = {{1, 2},    {3, 17},   {2, 1023}, {2, 1025},
                                     {7, 2048}, {5, 4096}, {50, 999}, {3000, 40}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    check_chain(HY_F32, sizes[i][0], sizes[i][1], false);
    check_chain(HY_F32, sizes[i][0], sizes[i][1], true);
    check_chain(HY_BF16, sizes[i][0], sizes[i][1], false);
  }
  check_chain(HY_F32, 600, 5000, false);  // stores past the caches
}

static void test_memory(void** state) {
  (void)state;
  build b = begin();
  hy_graph_report report;
  hy_tensor y = b.x;
  for (int i = 0; i < 10; i++) y = unary(&b, i % 2 ? HY_OP_neg : HY_OP_tanh, y);
  nodes_after(&b, &y, HY_PASS_IN_PLACE, &report);
  // Ten results, of which the last is the output: one piece of memory serves all.
  assert_int_equal(report.memory_after, 512);
  assert_int_equal(report.lower_bound, 512);
  b = begin();  // a wide graph whose order matters: each branch is summed up as it comes
  hy_tensor branches[6];
  for (int i = 0; i < 6; i++) {
    hy_tensor s = call(&b, HY_OP_mul_scalar, 1, &b.x, (hy_attrs){.value = {hy_float(i)}});
    branches[i] = s;
  }
  for (int i = 0; i < 6; i++)
    branches[i] =
        call(&b, HY_OP_sum, 1, &branches[i], (hy_attrs){.reduce = {hy_one_dim(1), false}});
  y = branches[0];
  for (int i = 1; i < 6; i++) y = add(&b, y, branches[i]);
  nodes_after(&b, &y, HY_PASS_ORDER, &report);
  assert_true(report.memory_after < 2 * 512);
}

// Results that wait for the end while many others come and go are made again there.
static void test_recompute(void** state) {
  (void)state;
  const int64_t shape[2] = {64, 256};
  hy_array *x, *y[2];
  hy_graph_report report;
  build b;
  CHECK_OK(hy_graph_create(device, &b.graph));
  CHECK_OK(hy_graph_input(b.graph, "x", HY_F32, 2, shape, &b.x));
  hy_tensor waiting[4], sum = unary(&b, HY_OP_sin, b.x);
  for (int i = 0; i < 4; i++) {
    waiting[i] = call(&b, HY_OP_mul_scalar, 1, &b.x, (hy_attrs){.value = {hy_float(i + 2)}});
    sum =
        call(&b, HY_OP_softmax, 1, (hy_tensor[]){add(&b, sum, waiting[i])}, (hy_attrs){.dim = {1}});
  }
  for (int i = 0; i < 4; i++) sum = add(&b, sum, waiting[3 - i]);
  CHECK_OK(hy_graph_output(b.graph, "y", &sum));
  CHECK_OK(hy_graph_finish(b.graph));
  CHECK_OK(hy_array_empty(stream, &x, HY_F32, 2, shape));
  CHECK_OK(hy_normal(stream, (hy_tensor*)hy_array_tensor(x), 3, 0, 0, 1));
  CHECK_OK(hy_graph_set(b.graph, "x", hy_array_tensor(x)->data));
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hy_array_zeros(stream, &y[i], HY_F32, 2, shape));
    CHECK_OK(hy_graph_set(b.graph, "y", hy_array_tensor(y[i])->data));
    if (i == 1) CHECK_OK(hy_graph_run_passes(b.graph, HY_PASS_RECOMPUTE, &report));
    CHECK_OK(hy_graph_launch(b.graph, stream));
  }
  assert_true(report.changes[5] > 0);
  assert_true(report.memory_after < report.allocated_before);
  assert_memory_equal(hy_array_tensor(y[0])->data, hy_array_tensor(y[1])->data, 64 * 256 * 4);
  hy_array_release(x);
  for (int i = 0; i < 2; i++) hy_array_release(y[i]);
  hy_graph_destroy(b.graph);
}

// ---- random graphs ----

static uint64_t random_state;
static uint32_t draw(uint32_t n) {
  random_state += 0x9e3779b97f4a7c15ull;
  uint64_t z = random_state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (uint32_t)((z ^ z >> 31) >> 33) % n;
}

// A program over arrays, drawn from a seed: run eagerly and captured it makes the same calls.
enum { LEAVES = 3, MOST_ARRAYS = 64 };
typedef struct program {
  uint64_t seed;
  hy_array* leaves[LEAVES];
  bool backward;
} program;

static void push(hy_array** list, int* n, hy_scope* s, hy_array* a) {
  if (s->status == HY_OK && *n < MOST_ARRAYS) list[(*n)++] = a;
}

static hy_array* random_op(hy_scope* s, hy_array* a, hy_array* b) {
  switch (draw(20)) {
    case 0: return hy_s_add(s, a, b, hy_int(1));
    case 1: return hy_s_mul(s, a, b);
    case 2: return hy_s_sub(s, a, b, hy_float(0.5));
    case 3: return hy_s_maximum(s, a, b);
    case 4: return hy_s_sigmoid(s, a);
    case 5: return hy_s_tanh(s, a);
    case 6: return hy_s_silu(s, a);
    case 7: return hy_s_relu(s, a);
    case 8: return hy_s_gelu(s, a, draw(2));
    case 9: return hy_s_mul_scalar(s, a, hy_float(0.75));
    case 10: return hy_s_add_scalar(s, a, hy_float(0.25), hy_int(1));
    case 11: return hy_s_clamp(s, a, hy_float(-2), hy_float(2));
    case 12: return hy_s_clone(s, a);
    case 13: return hy_s_softmax(s, a, -1);
    case 14: return hy_s_neg(s, a);
    case 15: return hy_s_mul(s, a, hy_s_mean(s, b, hy_one_dim(-1), true));
    case 16: return hy_s_add(s, a, hy_s_sum(s, b, hy_one_dim(-1), true), hy_float(0.1));
    case 17: return hy_s_sin(s, a);
    case 18: return hy_s_rms_norm(s, a, NULL, 1, 1e-5);
    default: return hy_s_contiguous(s, hy_s_transpose(s, hy_s_transpose(s, a, 0, 1), 0, 1));
  }
}

// The outputs are new arrays; with a backward, the gradients of the leaves too.
static hy_status run_program(const program* p, hy_tape* tape, hy_array** outputs, int* n_outputs) {
  hy_scope s;
  hy_array* list[MOST_ARRAYS];
  int n = 0, steps;
  random_state = p->seed;
  hy_scope_begin(&s, tape);
  for (int i = 0; i < LEAVES; i++) list[n++] = p->leaves[i];
  steps = 3 + (int)draw(24);
  for (int i = 0; i < steps; i++)
    push(list, &n, &s, random_op(&s, list[draw((uint32_t)n)], list[draw((uint32_t)n)]));
  hy_array* last = s.status == HY_OK ? list[n - 1] : NULL;
  hy_array* loss = hy_s_sum(&s, last, hy_all_dims(), false);
  *n_outputs = 0;
  if (s.status == HY_OK) {
    outputs[(*n_outputs)++] = hy_scope_give(&s, last);
    outputs[(*n_outputs)++] = hy_scope_give(&s, loss);
  }
  if (p->backward) {
    HY_SCOPE_TRY(&s, hy_backward(tape, loss, NULL));
    for (int i = 0; i < LEAVES && s.status == HY_OK; i++) {
      hy_array* grad = hy_array_grad(p->leaves[i]);
      if (grad) outputs[(*n_outputs)++] = hy_array_retain(grad);
    }
  }
  return hy_scope_end(&s);
}

static void take(hy_array** outputs, int n, float values[][SIZE]) {
  for (int i = 0; i < n; i++) {
    memset(values[i], 0, sizeof values[i]);
    const hy_tensor* t = hy_array_tensor(outputs[i]);
    CHECK_OK(hy_array_to_host(stream, outputs[i], values[i], hy_tensor_bytes(t)));
  }
}

static void forget(const program* p, hy_array** outputs, int n) {
  for (int i = 0; i < n; i++) hy_array_release(outputs[i]);
  for (int i = 0; i < LEAVES; i++) hy_array_zero_grad(p->leaves[i]);
}

static int total_changes[HY_GRAPH_PASSES];  // by each pass, over all programs

static void check_program(uint64_t seed) {
  static float eager[2 + LEAVES][SIZE], graph_values[2 + LEAVES][SIZE];
  program p = {.seed = seed};
  hy_tape* tape;
  hy_array* outputs[2 + LEAVES];
  hy_graph* graph;
  int n, again;
  random_state = seed ^ 0x5555;
  p.backward = draw(2);
  const int64_t shapes[LEAVES][2] = {{ROWS, COLUMNS}, {ROWS, COLUMNS}, {1, COLUMNS}};
  for (int i = 0; i < LEAVES; i++) {
    for (int k = 0; k < SIZE; k++) input[k] = (float)draw(2000) / 500 - 2;
    CHECK_OK(hy_array_from_host(stream, &p.leaves[i], HY_F32, 2, shapes[i], input));
    if (p.backward) CHECK_OK(hy_array_set_requires_grad(p.leaves[i], true));
  }
  CHECK_OK(hy_tape_create(stream, &tape));
  CHECK_OK(run_program(&p, tape, outputs, &n));
  take(outputs, n, eager);
  forget(&p, outputs, n);
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(run_program(&p, tape, outputs, &again));
  CHECK_OK(hy_capture_end(stream, &graph));
  assert_int_equal(n, again);
  hy_graph_report report;
  CHECK_OK(hy_graph_run_passes(graph, HY_PASS_ALL, &report));
  assert_true(report.memory_after <= report.values_total);
  for (int i = 0; i < HY_GRAPH_PASSES; i++) total_changes[i] += report.changes[i];
  for (int launch_number = 0; launch_number < 2; launch_number++) {
    CHECK_OK(hy_graph_launch(graph, stream));
    take(outputs, n, graph_values);
    for (int i = 0; i < n; i++) {
      if (memcmp(eager[i], graph_values[i], sizeof eager[i]) == 0) continue;
      char text[8192];
      hy_graph_describe(graph, text, sizeof text);
      fail_msg("seed %llu: output %d differs\n%s", (unsigned long long)seed, i, text);
    }
  }
  forget(&p, outputs, n);
  hy_graph_destroy(graph);
  hy_tape_destroy(tape);
  for (int i = 0; i < LEAVES; i++) hy_array_release(p.leaves[i]);
}

static void test_random_graphs(void** state) {
  (void)state;
  // HALYARD_RANDOM_GRAPHS: how many, for long runs.
  const char* text = getenv("HALYARD_RANDOM_GRAPHS");
  int n = text ? atoi(text) : 10000;
  for (int seed = 1; seed <= n; seed++) check_program((uint64_t)seed);
  // Every pass had work to do, but for two: the programs have no linear layers, and only arrays too
  // small to be made again.
  for (int i = 0; i < HY_GRAPH_PASSES; i++) {
    if (1 << i != HY_PASS_EPILOGUE && 1 << i != HY_PASS_RECOMPUTE)
      assert_true(total_changes[i] > 0);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_dead),
      TEST(test_common),
      TEST(test_common_minds_writes),
      TEST(test_fold),
      TEST(test_views),
      TEST(test_epilogue),
      TEST(test_epilogue_of_a_residual),
      TEST(test_fuse),
      TEST(test_chain_sizes),
      TEST(test_memory),
      TEST(test_recompute),
      TEST(test_random_graphs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
