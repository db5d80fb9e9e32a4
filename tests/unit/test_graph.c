// Graphs: capture, launch, rebinding, memory and refusals, on the cpu and on the guarded device
// with and without graph functions of its own.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "halyard/halyard.h"
#include "support/check.h"

enum { N = 1000, BYTES = N * sizeof(float) };

static hy_device* device;
static hy_stream* stream;

// Where each test runs: how a graph is launched there.
typedef struct place {
  const char* selector;
  const char* lacks;
  bool native;
} place;
static const place on_cpu = {"cpu", "", false};
static const place by_backend = {"guarded", "", true};
static const place without_update = {"guarded", "update", true};
static const place by_calls = {"guarded", "capture", false};

static void open_stream(const place* p) {
  setenv("HALYARD_GUARDED_LACKS", p->lacks, 1);
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get(p->selector, &device));
  CHECK_OK(hy_stream_create(device, &stream));
}

static int tear_down(void** state) {
  (void)state;
  for (int i = 0; i < HY_FAULT_COUNT; i++) hy_inject_fault((hy_fault)i, 0);
  hy_shutdown();
  unsetenv("HALYARD_GUARDED_LACKS");
  unsetenv("HALYARD_GUARDED_OPS");
  unsetenv("HALYARD_GUARDED_FAIL");
  return 0;
}

static hy_tensor vector(hy_stream* s) {
  const int64_t n = N;
  hy_tensor t;
  void* address;
  CHECK_OK(hy_alloc(s, BYTES, &address));
  CHECK_OK(hy_tensor_init(&t, address, HY_F32, 1, &n));
  return t;
}

static void fill(hy_stream* s, const hy_tensor* t, float value) {
  static float values[N];
  for (int i = 0; i < N; i++) values[i] = value + (float)i;
  CHECK_OK(hy_memcpy(s, t->data, values, BYTES, HY_COPY_HOST_TO_DEVICE));
  CHECK_OK(hy_stream_sync(s));
}

static hy_tensor filled(float value) {
  hy_tensor t = vector(stream);
  fill(stream, &t, value);
  return t;
}

// Element i of the tensor is scale * i + value.
static void check(hy_stream* s, const hy_tensor* t, float scale, float value) {
  static float got[N];
  CHECK_OK(hy_memcpy(s, got, t->data, BYTES, HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(s));
  for (int i = 0; i < N; i++) {
    if (got[i] != scale * (float)i + value)
      fail_msg("element %d is %g, not %g", i, got[i], scale * (float)i + value);
  }
}

// y = 2 x + 1 by way of memory of the graph's own.
static hy_graph* capture_affine(hy_tensor* x, hy_tensor* y) {
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  assert_true(hy_stream_is_capturing(stream));
  hy_tensor twice = vector(stream);
  CHECK_OK(hy_add(stream, &twice, x, x, hy_int(1)));
  CHECK_OK(hy_add_scalar(stream, y, &twice, hy_float(1), hy_int(1)));
  CHECK_OK(hy_free(device, twice.data));
  CHECK_OK(hy_capture_end(stream, &graph));
  assert_false(hy_stream_is_capturing(stream));
  return graph;
}

static void test_captured_work_runs_at_launch(void** state) {
  const place* p = *state;
  open_stream(p);
  hy_tensor x = filled(0), y = filled(-5);
  hy_graph* graph = capture_affine(&x, &y);
  check(stream, &y, 1, -5);  // nothing has run
  assert_int_equal(hy_graph_node_count(graph), 2);
  assert_int_equal(hy_graph_is_native(graph), p->native);
  CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &y, 2, 1);
  fill(stream, &x, 10);
  for (int i = 0; i < 3; i++) CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &y, 2, 21);
  assert_int_equal(hy_fallback_count(), 0);
  hy_graph_destroy(graph);
  CHECK_OK(hy_add(stream, &y, &x, &x, hy_int(1)));  // the stream goes on as before
  check(stream, &y, 2, 20);
}

static void test_copies_and_sets_are_captured(void** state) {
  open_stream(*state);
  hy_tensor x = filled(3), y = filled(0), z = filled(0);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_memcpy(stream, y.data, x.data, BYTES, HY_COPY_DEVICE_TO_DEVICE));
  CHECK_OK(hy_memcpy(stream, z.data, y.data, BYTES, HY_COPY_DEFAULT));
  CHECK_OK(hy_memset(stream, x.data, 0, BYTES));
  CHECK_OK(hy_capture_end(stream, &graph));
  assert_int_equal(hy_graph_node_count(graph), 3);
  CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &z, 1, 3);
  check(stream, &x, 0, 0);
  hy_graph_destroy(graph);
}

// Tensors and attributes of a captured call may be gone at launch.
static void test_calls_are_copied(void** state) {
  open_stream(*state);
  hy_tensor x = filled(0);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  for (int i = 0; i < 200; i++) {
    hy_tensor *out = malloc(sizeof *out), *in = malloc(sizeof *in);
    *out = *in = x;
    CHECK_OK(hy_add_scalar(stream, out, in, hy_float(1), hy_int(1)));
    memset(out, 0xff, sizeof *out);
    memset(in, 0xff, sizeof *in);
    free(out);
    free(in);
  }
  CHECK_OK(hy_capture_end(stream, &graph));
  CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &x, 1, 200);
  hy_graph_destroy(graph);
}

static void test_bind(void** state) {
  open_stream(*state);
  hy_tensor x = filled(0), y = filled(0), other_x = filled(100), other_y = filled(0);
  hy_graph* graph = capture_affine(&x, &y);
  const hy_binding both[] = {{x.data, BYTES, other_x.data}, {y.data, BYTES, other_y.data}};
  CHECK_OK(hy_graph_bind(graph, both, 2));
  CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &other_y, 2, 201);
  check(stream, &y, 1, 0);
  // Named by the captured address again; the other range stays bound.
  CHECK_OK(hy_graph_bind(graph, &(hy_binding){x.data, BYTES, x.data}, 1));
  CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &other_y, 2, 1);
  hy_graph_node node;
  CHECK_OK(hy_graph_node_at(graph, 1, &node));
  assert_int_equal(node.kind, HY_NODE_CALL);
  assert_int_equal(node.call->op, HY_OP_add_scalar);
  assert_ptr_equal(node.call->out[0].data, other_y.data);
  hy_graph_destroy(graph);
}

// Each step of a chain swaps what is read and what is written.
static void test_binding_does_not_disturb_launches_under_way(void** state) {
  open_stream(*state);
  hy_tensor a = filled(0), b = filled(0);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_add_scalar(stream, &b, &a, hy_float(1), hy_int(1)));
  CHECK_OK(hy_capture_end(stream, &graph));
  for (int step = 0; step < 100; step++) {
    const hy_binding swap[] = {{a.data, BYTES, step % 2 ? b.data : a.data},
                               {b.data, BYTES, step % 2 ? a.data : b.data}};
    CHECK_OK(hy_graph_bind(graph, swap, 2));
    CHECK_OK(hy_graph_launch(graph, stream));
  }
  check(stream, &a, 1, 100);
  check(stream, &b, 1, 99);
  hy_graph_destroy(graph);
}

static void test_wrong_bindings(void** state) {
  open_stream(*state);
  hy_tensor x = filled(0), y = filled(0), z = filled(7);
  hy_graph* graph = capture_affine(&x, &y);
  const hy_binding good = {x.data, BYTES, z.data};
  CHECK_OK(hy_graph_bind(graph, &good, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "cut through a tensor",
              hy_graph_bind(graph, &(hy_binding){y.data, 100, z.data}, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "overlap another bound range",
              hy_graph_bind(graph, &(hy_binding){x.data, 100, z.data}, 1));
  CHECK_FAILS(HY_NOT_FOUND, "no node uses memory",
              hy_graph_bind(graph, &(hy_binding){z.data, BYTES, x.data}, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL",
              hy_graph_bind(graph, &(hy_binding){y.data, BYTES, NULL}, 1));
  // The output of the second node would be half of its input: all or nothing.
  hy_graph_node node;
  CHECK_OK(hy_graph_node_at(graph, 1, &node));
  char* temporary = node.call->in[0].data;
  const hy_binding bad[] = {{x.data, BYTES, y.data}, {y.data, BYTES, temporary + 64}};
  assert_int_equal(hy_graph_bind(graph, bad, 2), HY_OVERLAP);
  CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &y, 2, 15);  // still by `good`
  hy_graph_destroy(graph);
}

static void test_attributes_change(void** state) {
  open_stream(*state);
  hy_tensor x = filled(0), y = filled(0);
  hy_graph* graph = capture_affine(&x, &y);
  hy_graph_node node;
  CHECK_OK(hy_graph_node_at(graph, 1, &node));
  hy_attrs attrs = node.call->attrs;
  attrs.value_alpha.value = hy_float(9);
  CHECK_OK(hy_graph_set_attrs(graph, 1, &attrs));
  CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &y, 2, 9);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "the graph has 2", hy_graph_set_attrs(graph, 2, &attrs));
  hy_graph_destroy(graph);
}

typedef hy_status (*refused)(hy_tensor* x);
static hy_event* event;
static hy_graph* another;
static float on_host[N];
static hy_status to_host(hy_tensor* x) {
  return hy_memcpy(stream, on_host, x->data, BYTES, HY_COPY_DEVICE_TO_HOST);
}
static hy_status from_host(hy_tensor* x) {
  return hy_memcpy(stream, x->data, on_host, BYTES, HY_COPY_DEFAULT);
}
static hy_status sync_stream(hy_tensor* x) {
  (void)x;
  return hy_stream_sync(stream);
}
static hy_status query_stream(hy_tensor* x) {
  (void)x;
  return hy_stream_query(stream);
}
static hy_status record_event(hy_tensor* x) {
  (void)x;
  return hy_event_record(event, stream);
}
static hy_status wait_event(hy_tensor* x) {
  (void)x;
  return hy_stream_wait_event(stream, event);
}
static hy_status launch_another(hy_tensor* x) {
  (void)x;
  return hy_graph_launch(another, stream);
}
static hy_status copy_to_peer(hy_tensor* x) {
  return hy_memcpy_peer(stream, x->data, stream, x->data, BYTES);
}

static void test_refusals(void** state) {
  static const struct {
    refused call;
    const char* says;
  } cases[] = {{to_host, "a copy from "},           {from_host, "a copy from host to "},
               {sync_stream, "hy_stream_sync"},     {query_stream, "hy_stream_query"},
               {record_event, "hy_event_record"},   {wait_event, "hy_stream_wait_event"},
               {launch_another, "hy_graph_launch"}, {copy_to_peer, "hy_memcpy_peer"}};
  open_stream(*state);
  CHECK_OK(hy_event_create(device, &event));
  hy_tensor x = filled(1), y = filled(0);
  another = capture_affine(&x, &y);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hy_graph* graph;
    CHECK_OK(hy_capture_begin(stream));
    CHECK_OK(hy_neg(stream, &y, &x));
    CHECK_FAILS(HY_UNSUPPORTED, cases[i].says, cases[i].call(&x));
    CHECK_OK(hy_neg(stream, &y, &x));
    CHECK_FAILS(HY_UNSUPPORTED, cases[i].says, hy_capture_end(stream, &graph));
    assert_null(graph);
    CHECK_OK(hy_neg(stream, &y, &x));  // the stream is as before
    check(stream, &y, -1, -1);
  }
  CHECK_FAILS(HY_INVALID_ARGUMENT, "not capturing", hy_capture_end(stream, NULL));
  hy_graph_destroy(another);
  hy_event_destroy(event);
}

static void test_fallback_is_refused(void** state) {
  setenv("HALYARD_GUARDED_OPS", "add", 1);
  open_stream(*state);
  hy_tensor x = filled(1), y = filled(0);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_add(stream, &y, &x, &x, hy_int(1)));
  CHECK_FAILS(HY_UNSUPPORTED, "mul(f32[1000], f32[1000]) -> f32[1000] cannot be captured",
              hy_mul(stream, &y, &x, &x));
  assert_non_null(strstr(hy_last_error(), "the op has no kernel"));
  CHECK_FAILS(HY_UNSUPPORTED, "falls back to the cpu", hy_capture_end(stream, &graph));
  CHECK_OK(hy_mul(stream, &y, &x, &x));
}

// einsum is recorded as the products it is made of.
static void test_compositions_are_captured(void** state) {
  open_stream(*state);
  enum { SIDE = 32 };
  const int64_t shape[2] = {SIDE, SIDE};
  static float ones[SIDE * SIDE], got[SIDE * SIDE];
  for (int i = 0; i < SIDE * SIDE; i++) ones[i] = 1;
  hy_tensor in[3], out;
  for (int i = 0; i < 4; i++) {
    hy_tensor* t = i < 3 ? &in[i] : &out;
    void* address;
    CHECK_OK(hy_alloc(stream, sizeof ones, &address));
    CHECK_OK(hy_tensor_init(t, address, HY_F32, 2, shape));
    CHECK_OK(hy_memcpy(stream, address, ones, sizeof ones, HY_COPY_HOST_TO_DEVICE));
  }
  hy_call call = {.op = HY_OP_einsum, .n_in = 3, .n_out = 1, .in = in, .out = &out};
  snprintf(call.attrs.equation.equation.text, HY_MAX_EQUATION, "ij,jk,kl->il");
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_run(stream, &call));
  CHECK_OK(hy_capture_end(stream, &graph));
  CHECK_OK(hy_graph_launch(graph, stream));
  CHECK_OK(hy_memcpy(stream, got, out.data, sizeof got, HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(stream));
  for (int i = 0; i < SIDE * SIDE; i++) assert_true(got[i] == SIDE * SIDE);
  hy_graph_destroy(graph);
}

static void test_memory_stays_with_the_graph(void** state) {
  open_stream(*state);
  hy_tensor x = filled(0), y = filled(0);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  hy_tensor a = vector(stream);
  CHECK_OK(hy_neg(stream, &a, &x));
  CHECK_OK(hy_free(device, a.data));
  hy_tensor b = vector(stream);
  assert_ptr_equal(a.data, b.data);  // within the capture memory is used again
  CHECK_OK(hy_neg(stream, &b, &x));
  CHECK_OK(hy_neg(stream, &y, &b));
  CHECK_OK(hy_free(device, b.data));
  CHECK_OK(hy_capture_end(stream, &graph));
  assert_true(hy_graph_memory(graph) >= BYTES);
  // Nobody else gets it, and it does not go back to the backend.
  CHECK_OK(hy_empty_cache(device));
  void* taken[64];
  for (int i = 0; i < 64; i++) {
    CHECK_OK(hy_alloc(stream, BYTES, &taken[i]));
    assert_ptr_not_equal(taken[i], b.data);
    CHECK_OK(hy_memset(stream, taken[i], 0xff, BYTES));
  }
  CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &y, 1, 0);
  hy_graph_destroy(graph);
  for (int i = 0; i < 64; i++) CHECK_OK(hy_free(device, taken[i]));
  CHECK_OK(hy_free(device, x.data));
  CHECK_OK(hy_free(device, y.data));
  CHECK_OK(hy_empty_cache(device));
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(device, &stats));
  assert_int_equal(stats.reserved, 0);
}

// A device never holds what a capture took beside the arena that planning has in its place.
static void test_planning_leaves_the_captures_memory_first(void** state) {
  enum { LARGE = 8 << 20, STEPS = 4 };
  const int64_t n = LARGE;
  open_stream(*state);
  hy_tensor t[STEPS + 1];
  hy_graph* graph;
  hy_memory_stats captured, planned;
  for (int i = 0; i <= STEPS; i++) CHECK_OK(hy_tensor_init(&t[i], NULL, HY_F32, 1, &n));
  CHECK_OK(hy_alloc(stream, LARGE * sizeof(float), &t[0].data));
  CHECK_OK(hy_alloc(stream, LARGE * sizeof(float), &t[STEPS].data));
  CHECK_OK(hy_capture_begin(stream));
  for (int i = 1; i <= STEPS; i++) {
    if (i < STEPS) CHECK_OK(hy_alloc(stream, LARGE * sizeof(float), &t[i].data));
    CHECK_OK(hy_neg(stream, &t[i], &t[i - 1]));
  }
  for (int i = 1; i < STEPS; i++) CHECK_OK(hy_free(device, t[i].data));
  CHECK_OK(hy_capture_end(stream, &graph));
  CHECK_OK(hy_memory_get_stats(device, &captured));
  CHECK_OK(hy_memory_reset_peak(device));
  CHECK_OK(hy_graph_run_passes(graph, 0, NULL));
  CHECK_OK(hy_memory_get_stats(device, &planned));
  assert_true(planned.reserved < captured.reserved);
  assert_true(planned.reserved_peak <= captured.reserved);
  CHECK_OK(hy_memset(stream, t[0].data, 0, LARGE * sizeof(float)));
  CHECK_OK(hy_graph_launch(graph, stream));
  CHECK_OK(hy_stream_sync(stream));
  hy_graph_destroy(graph);
  CHECK_OK(hy_free(device, t[0].data));
  CHECK_OK(hy_free(device, t[STEPS].data));
}

// What was allocated during the capture and not freed stays the caller's after the graph.
static void test_results_outlive_the_graph(void** state) {
  open_stream(*state);
  hy_tensor x = filled(1);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  hy_tensor y = vector(stream);
  CHECK_OK(hy_neg(stream, &y, &x));
  CHECK_OK(hy_capture_end(stream, &graph));
  CHECK_OK(hy_graph_launch(graph, stream));
  hy_graph_destroy(graph);
  void* other;
  CHECK_OK(hy_alloc(stream, BYTES, &other));
  CHECK_OK(hy_memset(stream, other, 0xff, BYTES));
  check(stream, &y, -1, -1);
  CHECK_OK(hy_free(device, y.data));
}

// Memory of the graph is shared by its launches: on two streams they run one after another.
static void test_launches_are_ordered(void** state) {
  open_stream(*state);
  hy_stream* other;
  CHECK_OK(hy_stream_create(device, &other));
  hy_tensor x = filled(0);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  for (int i = 0; i < 20; i++) CHECK_OK(hy_add_scalar(stream, &x, &x, hy_float(1), hy_int(1)));
  CHECK_OK(hy_capture_end(stream, &graph));
  for (int i = 0; i < 20; i++) CHECK_OK(hy_graph_launch(graph, i % 2 ? other : stream));
  CHECK_OK(hy_stream_sync(stream));
  CHECK_OK(hy_stream_sync(other));
  check(stream, &x, 1, 400);
  hy_graph_destroy(graph);
  hy_stream_destroy(other);
}

static void test_launch_on_another_device_is_an_error(void** state) {
  open_stream(*state);
  hy_tensor x = filled(0), y = filled(0);
  hy_graph* graph = capture_affine(&x, &y);
  hy_device* elsewhere;
  hy_stream* s;
  CHECK_OK(hy_device_get(hy_device_is_host(device) ? "guarded" : "cpu", &elsewhere));
  CHECK_OK(hy_stream_create(elsewhere, &s));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "the graph is of", hy_graph_launch(graph, s));
  hy_graph_destroy(graph);
}

// A kernel that fails inside a graph is named, sticks to the stream, and leaves others alone.
static void test_failures_name_the_op(void** state) {
  setenv("HALYARD_GUARDED_FAIL", "mul", 1);
  open_stream(*state);
  hy_tensor x = filled(1), y = filled(0);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_add(stream, &y, &x, &x, hy_int(1)));
  CHECK_OK(hy_mul(stream, &y, &x, &x));
  CHECK_OK(hy_neg(stream, &y, &y));
  CHECK_OK(hy_capture_end(stream, &graph));
  hy_status status = hy_graph_launch(graph, stream);
  if (status == HY_OK) status = hy_stream_sync(stream);
  assert_int_equal(status, HY_DEVICE_FAILED);
  assert_non_null(strstr(hy_last_error(), "mul on guarded:0 failed"));
  CHECK_OK(hy_stream_reset(stream));
  check(stream, &y, 2, 2);  // what came before it has run, what came after has not
  hy_graph_destroy(graph);
}

static void test_captures_are_dropped(void** state) {
  open_stream(*state);
  hy_tensor x = filled(1), y = filled(0);
  CHECK_OK(hy_capture_begin(stream));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "capturing already", hy_capture_begin(stream));
  CHECK_OK(hy_neg(stream, &y, &x));
  CHECK_OK(hy_capture_end(stream, NULL));
  check(stream, &y, 1, 0);
  CHECK_OK(hy_capture_begin(stream));
  vector(stream);
  CHECK_OK(hy_neg(stream, &y, &x));
  CHECK_OK(hy_stream_reset(stream));
  check(stream, &y, 1, 0);
  hy_stream* other;
  CHECK_OK(hy_stream_create(device, &other));
  CHECK_OK(hy_capture_begin(other));
  CHECK_OK(hy_neg(other, &y, &x));
  hy_stream_destroy(other);
  check(stream, &y, 1, 0);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_capture_end(stream, &graph));
  CHECK_OK(hy_graph_launch(graph, stream));  // of no nodes
  hy_graph_destroy(graph);
}

static void test_description(void** state) {
  const place* p = *state;
  open_stream(p);
  hy_tensor x = filled(0), y = filled(0);
  hy_graph* graph = capture_affine(&x, &y);
  char text[1000], cut[20];
  size_t length = hy_graph_describe(graph, text, sizeof text);
  assert_int_equal(length, strlen(text));
  assert_non_null(
      strstr(text, p->native ? "2 nodes, launched by the backend" : "2 nodes, launched by calls"));
  assert_non_null(strstr(text, "0: %2 f32[1000] = add(%0 f32[1000], %0 f32[1000]) by "));
  assert_non_null(strstr(text, "1: %4 f32[1000] = add_scalar(%2 f32[1000]) by "));
  assert_int_equal(hy_graph_describe(graph, cut, sizeof cut), length);
  assert_memory_equal(cut, text, sizeof cut - 1);
  hy_graph_destroy(graph);
}

// However little host memory there is: an error, and everything goes on.
static void test_no_host_memory(void** state) {
  open_stream(*state);
  hy_tensor x = filled(0), y = filled(0), z = filled(5);
  bool done = false;
  for (int64_t nth = 1; !done; nth++) {
    hy_graph* graph = NULL;
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, nth);
    hy_status status = hy_capture_begin(stream);
    if (status == HY_OK) {
      hy_status recorded = hy_add(stream, &y, &x, &x, hy_int(1));
      status = hy_capture_end(stream, &graph);
      if (recorded != HY_OK) assert_int_not_equal(status, HY_OK);
    }
    if (status == HY_OK) {
      status = hy_graph_bind(graph, &(hy_binding){x.data, BYTES, z.data}, 1);
    }
    if (status == HY_OK) status = hy_graph_launch(graph, stream);
    done = hy_fault_events(HY_FAULT_HOST_ALLOCATION) < nth;
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
    if (!done) {
      assert_int_equal(status, HY_OUT_OF_MEMORY);
    } else {
      CHECK_OK(status);
      check(stream, &y, 2, 10);
    }
    assert_false(hy_stream_is_capturing(stream));
    hy_graph_destroy(graph);
    CHECK_OK(hy_neg(stream, &y, &x));
    check(stream, &y, -1, 0);
  }
}

static void test_injected_faults_fail_launches(void** state) {
  open_stream(*state);
  hy_tensor x = filled(0), y = filled(0);
  hy_graph* graph = capture_affine(&x, &y);
  hy_inject_fault(HY_FAULT_KERNEL, 1);
  CHECK_FAILS(HY_DEVICE_FAILED, "injected fault", hy_graph_launch(graph, stream));
  CHECK_OK(hy_graph_launch(graph, stream));
  check(stream, &y, 2, 1);
  hy_graph_destroy(graph);
}

// ---- threads ----

static void* capture_many(void* argument) {
  (void)argument;
  hy_stream* s;
  if (hy_stream_create(device, &s) != HY_OK) return "no stream";
  const char* wrong = NULL;
  for (int round = 0; round < 30 && !wrong; round++) {
    const int64_t n = 16;
    float values[16] = {0}, got[16];
    hy_tensor x, y;
    void* address;
    hy_graph* graph = NULL;
    if (hy_alloc(s, sizeof values, &address) != HY_OK) return "no memory";
    hy_tensor_init(&x, address, HY_F32, 1, &n);
    hy_memcpy(s, address, values, sizeof values, HY_COPY_HOST_TO_DEVICE);
    if (hy_capture_begin(s) != HY_OK) return "no capture";
    hy_alloc(s, sizeof values, &address);
    hy_tensor_init(&y, address, HY_F32, 1, &n);
    hy_add_scalar(s, &y, &x, hy_float(1), hy_int(1));
    hy_add(s, &x, &y, &y, hy_int(1));
    hy_free(device, y.data);
    if (hy_capture_end(s, &graph) != HY_OK) return "no graph";
    if (hy_graph_launch(graph, s) != HY_OK) wrong = "no launch";
    hy_memcpy(s, got, x.data, sizeof got, HY_COPY_DEVICE_TO_HOST);
    if (hy_stream_sync(s) != HY_OK || got[7] != 2) wrong = "a wrong value";
    hy_graph_destroy(graph);
    hy_free(device, x.data);
    if (round % 10 == 0) hy_empty_cache(device);
  }
  hy_stream_destroy(s);
  return (void*)wrong;
}

static void test_threads_capture_at_once(void** state) {
  open_stream(*state);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, capture_many, NULL), 0);
  for (int i = 0; i < 4; i++) {
    void* wrong;
    pthread_join(threads[i], &wrong);
    if (wrong) fail_msg("%s", (const char*)wrong);
  }
}

int main(void) {
#define ON(test, where) \
  { #test " on " #where, test, NULL, tear_down, (void*)&where }
#define EVERYWHERE(test) \
  ON(test, on_cpu), ON(test, by_backend), ON(test, without_update), ON(test, by_calls)
#define ON_GUARDED(test) ON(test, by_backend), ON(test, by_calls)
  const struct CMUnitTest tests[] = {
      EVERYWHERE(test_captured_work_runs_at_launch),
      EVERYWHERE(test_copies_and_sets_are_captured),
      EVERYWHERE(test_calls_are_copied),
      EVERYWHERE(test_bind),
      EVERYWHERE(test_binding_does_not_disturb_launches_under_way),
      EVERYWHERE(test_wrong_bindings),
      EVERYWHERE(test_attributes_change),
      EVERYWHERE(test_refusals),
      ON_GUARDED(test_fallback_is_refused),
      EVERYWHERE(test_compositions_are_captured),
      EVERYWHERE(test_memory_stays_with_the_graph),
      EVERYWHERE(test_results_outlive_the_graph),
      ON_GUARDED(test_planning_leaves_the_captures_memory_first),
      EVERYWHERE(test_launches_are_ordered),
      EVERYWHERE(test_launch_on_another_device_is_an_error),
      ON_GUARDED(test_failures_name_the_op),
      EVERYWHERE(test_captures_are_dropped),
      EVERYWHERE(test_description),
      EVERYWHERE(test_no_host_memory),
      EVERYWHERE(test_injected_faults_fail_launches),
      EVERYWHERE(test_threads_capture_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
