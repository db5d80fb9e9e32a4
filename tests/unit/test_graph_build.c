// Graphs built node by node: arguments, constants, integers, files, pictures, and what is refused.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "halyard/halyard.h"
#include "support/check.h"

enum { N = 8 };
static const int64_t size = N;
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

// One call of up to two inputs; the output is made.
static hy_tensor add_call(hy_graph* graph, hy_op op, const hy_tensor* a, const hy_tensor* b,
                          hy_attrs attrs) {
  hy_tensor in[2] = {*a}, out = {0};
  if (b) in[1] = *b;
  hy_call call = {.op = op, .n_in = b ? 2 : 1, .n_out = 1, .in = in, .out = &out, .attrs = attrs};
  CHECK_OK(hy_graph_add(graph, &call));
  return out;
}

static const hy_attrs one = {.alpha = {{{.i = 1}, HY_I64, 0}}};

// y = (x + c) * (x + c), c = 0 .. 7
static hy_graph* square_of_sum(void) {
  hy_graph* graph;
  hy_tensor x, c, host;
  float numbers[N];
  for (int i = 0; i < N; i++) numbers[i] = (float)i;
  CHECK_OK(hy_tensor_init(&host, numbers, HY_F32, 1, &size));
  CHECK_OK(hy_graph_create(device, &graph));
  CHECK_OK(hy_graph_input(graph, "x", HY_F32, 1, &size, &x));
  CHECK_OK(hy_graph_constant(graph, &host, &c));
  hy_tensor sum = add_call(graph, HY_OP_add, &x, &c, one);
  hy_tensor y = add_call(graph, HY_OP_mul, &sum, &sum, (hy_attrs){0});
  CHECK_OK(hy_graph_output(graph, "y", &y));
  CHECK_OK(hy_graph_finish(graph));
  return graph;
}

static void check_square(hy_graph* graph) {
  float x[N], y[N] = {0};
  for (int i = 0; i < N; i++) x[i] = 10;
  CHECK_OK(hy_graph_set(graph, "x", x));
  CHECK_OK(hy_graph_set(graph, "y", y));
  CHECK_OK(hy_graph_launch(graph, stream));
  for (int i = 0; i < N; i++) assert_float_equal(y[i], (10 + i) * (10 + i), 0);
}

static void test_arguments(void** state) {
  (void)state;
  hy_graph* graph = square_of_sum();
  CHECK_FAILS(HY_INVALID_ARGUMENT, "\"x\" has no memory", hy_graph_launch(graph, stream));
  CHECK_FAILS(HY_NOT_FOUND, "no argument \"z\"", hy_graph_set(graph, "z", &graph));
  check_square(graph);
  check_square(graph);  // other memory, the same graph
  hy_graph_destroy(graph);
}

static void test_what_is_refused(void** state) {
  (void)state;
  hy_graph* graph;
  hy_tensor x, y, out = {0}, in[2];
  const int64_t other = N + 1;
  CHECK_OK(hy_graph_create(device, &graph));
  CHECK_OK(hy_graph_input(graph, "x", HY_F32, 1, &size, &x));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "named already",
              hy_graph_input(graph, "x", HY_F32, 1, &size, &y));
  CHECK_OK(hy_graph_input(graph, "y", HY_F32, 1, &other, &y));
  in[0] = x;
  in[1] = y;
  hy_call call = {.op = HY_OP_add, .n_in = 2, .n_out = 1, .in = in, .out = &out, .attrs = one};
  CHECK_FAILS(HY_SHAPE, "add", hy_graph_add(graph, &call));  // by the op table's rule
  float elsewhere[N];
  in[1] = x;
  in[1].data = elsewhere;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "no tensor of this graph", hy_graph_add(graph, &call));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "under construction", hy_graph_launch(graph, stream));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "nothing that hy_graph_add has made",
              hy_graph_output(graph, "o", &x));
  CHECK_OK(hy_graph_finish(graph));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "finished", hy_graph_finish(graph));
  hy_graph_destroy(graph);
}

// z = exp(w) x: what is computed of w alone is folded once w is said to stay.
static void test_memory_that_stays(void** state) {
  (void)state;
  hy_graph* graph;
  hy_tensor x, w;
  float in[N], weight[N], out[N];
  for (int i = 0; i < N; i++) in[i] = (float)i, weight[i] = 0;
  CHECK_OK(hy_graph_create(device, &graph));
  CHECK_OK(hy_graph_input(graph, "x", HY_F32, 1, &size, &x));
  CHECK_OK(hy_graph_input(graph, "w", HY_F32, 1, &size, &w));
  hy_tensor e = add_call(graph, HY_OP_exp, &w, NULL, (hy_attrs){0});
  hy_tensor z = add_call(graph, HY_OP_mul, &e, &x, (hy_attrs){0});
  CHECK_OK(hy_graph_output(graph, "z", &z));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "under construction",
              hy_graph_mark_constant(graph, w.data, sizeof weight));
  CHECK_OK(hy_graph_finish(graph));
  CHECK_OK(hy_graph_set(graph, "x", in));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "no memory yet",
              hy_graph_mark_constant(graph, w.data, sizeof weight));
  CHECK_OK(hy_graph_set(graph, "w", weight));
  CHECK_OK(hy_graph_set(graph, "z", out));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "graph is NULL", hy_graph_mark_constant(NULL, w.data, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "range is empty", hy_graph_mark_constant(graph, w.data, 0));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "neither \"w\" nor apart",
              hy_graph_mark_constant(graph, w.data, sizeof weight / 2));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "node 1 writes there",
              hy_graph_mark_constant(graph, z.data, sizeof out));
  CHECK_OK(hy_graph_mark_constant(graph, w.data, sizeof weight));
  CHECK_OK(hy_graph_mark_constant(graph, w.data, sizeof weight / 2));  // is said already
  CHECK_FAILS(HY_INVALID_ARGUMENT, "constant", hy_graph_set(graph, "w", in));
  hy_graph_report report;
  CHECK_OK(hy_graph_run_passes(graph, HY_PASS_FOLD, &report));
  assert_int_equal(report.nodes_after, 1);
  CHECK_OK(hy_graph_launch(graph, stream));
  for (int i = 0; i < N; i++) assert_float_equal(out[i], in[i], 0);
  hy_graph_destroy(graph);
}

static void test_integers(void** state) {
  (void)state;
  hy_graph* graph;
  hy_tensor x;
  const int64_t square[2] = {3, 3};
  float from[9], to[9];
  for (int i = 0; i < 9; i++) from[i] = 1;
  CHECK_OK(hy_graph_create(device, &graph));
  CHECK_OK(hy_graph_input(graph, "x", HY_F32, 2, square, &x));
  hy_tensor y = add_call(graph, HY_OP_tril, &x, NULL, (hy_attrs){0});
  CHECK_OK(hy_graph_output(graph, "y", &y));
  CHECK_FAILS(HY_NOT_FOUND, "no integer attribute",
              hy_graph_name_integer(graph, "where", 0, "alpha"));
  CHECK_OK(hy_graph_name_integer(graph, "where", 0, "diagonal"));
  CHECK_OK(hy_graph_finish(graph));
  CHECK_OK(hy_graph_set(graph, "x", from));
  CHECK_OK(hy_graph_set(graph, "y", to));
  for (int64_t diagonal = -1; diagonal < 2; diagonal++) {
    CHECK_OK(hy_graph_set_integer(graph, "where", diagonal));
    CHECK_OK(hy_graph_launch(graph, stream));
    for (int i = 0; i < 9; i++) assert_true(to[i] == (i % 3 - i / 3 <= diagonal));
  }
  CHECK_FAILS(HY_NOT_FOUND, "no integer", hy_graph_set_integer(graph, "nowhere", 1));
  hy_graph_destroy(graph);
}

// ---- files ----

static const char* scratch(const char* name) {
  static char path[4096];
  const char* folder = getenv("TMPDIR");
  snprintf(path, sizeof path, "%s/halyard_%d_%s", folder ? folder : "/tmp", (int)getpid(), name);
  return path;
}

static void test_saved_graphs_compute_the_same(void** state) {
  (void)state;
  hy_graph *graph = square_of_sum(), *loaded;
  const char* path = scratch("graph.json");
  CHECK_OK(hy_graph_save(graph, path));
  CHECK_OK(hy_graph_load(device, path, &loaded));
  assert_int_equal(hy_graph_node_count(loaded), hy_graph_node_count(graph));
  check_square(loaded);
  CHECK_OK(hy_graph_save(loaded, path));  // and once more, from what was read
  hy_graph_destroy(loaded);
  CHECK_OK(hy_graph_load(device, path, &loaded));
  check_square(loaded);
  unlink(path);
  hy_graph_destroy(loaded);
  hy_graph_destroy(graph);
}

// Memory from before a capture becomes arguments: by name, or numbered.
static void test_saving_a_capture(void** state) {
  (void)state;
  hy_graph *graph, *loaded;
  float x[N], y[N], z[N] = {0};
  hy_tensor tx, ty, between;
  void* address;
  for (int i = 0; i < N; i++) x[i] = (float)i;
  CHECK_OK(hy_tensor_init(&tx, x, HY_F32, 1, &size));
  CHECK_OK(hy_tensor_init(&ty, y, HY_F32, 1, &size));
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_alloc(stream, sizeof x, &address));
  CHECK_OK(hy_tensor_init(&between, address, HY_F32, 1, &size));
  CHECK_OK(hy_add(stream, &between, &tx, &tx, hy_int(1)));
  CHECK_OK(hy_add_scalar(stream, &ty, &between, hy_float(1), hy_int(1)));
  CHECK_OK(hy_free(device, address));
  CHECK_OK(hy_capture_end(stream, &graph));
  CHECK_OK(hy_graph_name(graph, "y", y, sizeof y));
  const char* path = scratch("capture.json");
  CHECK_OK(hy_graph_save(graph, path));
  CHECK_OK(hy_graph_load(device, path, &loaded));
  unlink(path);
  CHECK_OK(hy_graph_set(loaded, "memory_0", x));
  CHECK_OK(hy_graph_set(loaded, "y", z));
  CHECK_OK(hy_graph_launch(loaded, stream));
  for (int i = 0; i < N; i++) assert_float_equal(z[i], 2 * i + 1, 0);
  hy_graph_destroy(loaded);
  hy_graph_destroy(graph);
}

static void load_text(const char* text, hy_status status, const char* part) {
  const char* path = scratch("bad.json");
  FILE* file = fopen(path, "w");
  hy_graph* graph;
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
  CHECK_FAILS(status, part, hy_graph_load(device, path, &graph));
  unlink(path);
}

static void test_bad_files(void** state) {
  (void)state;
  load_text("{}", HY_FORMAT, "version");
  load_text("{\"halyard_graph\":2}", HY_FORMAT, "version is 2");
  load_text("{\"halyard_graph\":1,\"memory\":[],\"nodes\":[{\"op\":\"nothing\"}]}", HY_FORMAT,
            "no op");
  load_text(
      "{\"halyard_graph\":1,\"memory\":[{\"kind\":\"argument\",\"name\":\"x\",\"bytes\":4}],"
      "\"nodes\":[{\"op\":\"neg\",\"in\":[{\"memory\":0,\"at\":0,\"dtype\":\"f32\",\"shape\":[2],"
      "\"stride\":[1]}],\"out\":[{\"memory\":0,\"at\":0,\"dtype\":\"f32\",\"shape\":[2],"
      "\"stride\":[1]}],\"attrs\":{}}]}",
      HY_INVALID_ARGUMENT, "end of an argument");
  load_text(
      "{\"halyard_graph\":1,\"memory\":[{\"kind\":\"constant\",\"bytes\":2,\"data\":\"0g11\"}]}",
      HY_FORMAT, "hexadecimal");
}

// ---- pictures ----

static size_t count(const char* path, const char* what) {
  static char text[1 << 16];
  FILE* file = fopen(path, "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  unlink(path);
  size_t n = 0;
  for (const char* at = strstr(text, what); at; at = strstr(at + 1, what)) n++;
  return n;
}

static void test_pictures(void** state) {
  (void)state;
  hy_graph* graph = square_of_sum();
  const char* path = scratch("graph.dot");
  CHECK_OK(hy_graph_write_dot(graph, path));
  assert_int_equal(count(path, " -> "), 1);
  path = scratch("graph.svg");
  CHECK_OK(hy_graph_write_svg(graph, path));
  assert_int_equal(count(path, "<rect"), 2);
  CHECK_FAILS(HY_IO, "/nowhere", hy_graph_write_svg(graph, "/nowhere/at/all.svg"));
  hy_graph_destroy(graph);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_arguments),        TEST(test_what_is_refused),
      TEST(test_integers),         TEST(test_saved_graphs_compute_the_same),
      TEST(test_saving_a_capture), TEST(test_bad_files),
      TEST(test_pictures),         TEST(test_memory_that_stays),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
