// Searching among equivalent graphs: every rewrite on random graphs, the cache on disk, and what
// the search may not do: change values, touch the user's memory, choose what is slower.
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/search/search.h"
#include "halyard/halyard.h"
#include "support/check.h"

static hy_device* device;
static hy_stream* stream;
static char folder[] = "/tmp/halyard-search-XXXXXX";
static uint64_t random_state;

static int draw(int below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (int)((random_state >> 33) % (uint64_t)below);
}

static void empty_folder(void) {
  DIR* d = opendir(folder);
  for (struct dirent* e; d && (e = readdir(d));) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (e->d_name[0] != '.') unlink(path);
  }
  if (d) closedir(d);
}

static int set_up(void** state) {
  (void)state;
  setenv("HALYARD_CACHE_DIR", folder, 1);
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  empty_folder();
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  hy_set_deterministic(false);
  hy_stream_destroy(stream);
  hy_shutdown();
  return 0;
}

// ---- graphs that rules fit ----

enum { MOST = 1 << 16 };
static float memory[4][MOST];  // x, z, and what two launches wrote

typedef struct build {
  hy_graph* graph;
  int64_t rows, k, n;
  hy_tensor x, z;  // (rows, k) both
} build;

static build begin(int64_t least_rows, int64_t k) {
  build b = {.rows = least_rows + draw(5), .k = k, .n = 1 + draw(40)};
  const int64_t shape[2] = {b.rows, b.k};
  for (int i = 0; i < MOST; i++) {
    memory[0][i] = (float)draw(2001) / 1000 - 1;
    memory[1][i] = (float)draw(2001) / 1000 - 1;
  }
  CHECK_OK(hy_graph_create(device, &b.graph));
  CHECK_OK(hy_graph_input(b.graph, "x", HY_F32, 2, shape, &b.x));
  CHECK_OK(hy_graph_input(b.graph, "z", HY_F32, 2, shape, &b.z));
  return b;
}

static hy_tensor constant(const build* b, int ndim, int64_t rows, int64_t columns) {
  static float values[MOST];
  hy_tensor host, value;
  for (int i = 0; i < MOST; i++) values[i] = (float)draw(2001) / 1000 - 1;
  CHECK_OK(hy_tensor_init(&host, values, HY_F32, ndim, (const int64_t[]){rows, columns}));
  CHECK_OK(hy_graph_constant(b->graph, &host, &value));
  return value;
}

static hy_tensor call(const build* b, hy_op op, int n, const hy_tensor* in, hy_attrs attrs) {
  hy_tensor out = {0};
  hy_call c = {.op = op, .n_in = n, .n_out = 1, .in = in, .out = &out, .attrs = attrs};
  CHECK_OK(hy_graph_add(b->graph, &c));
  return out;
}

static hy_tensor linear(const build* b, hy_tensor x, int64_t n, bool bias) {
  hy_tensor w = constant(b, 2, n, x.shape[1]);
  hy_tensor shift = bias ? constant(b, 1, n, 0) : hy_tensor_absent();
  return call(b, HY_OP_linear, 3, (hy_tensor[]){x, w, shift}, (hy_attrs){0});
}

static hy_tensor add(const build* b, hy_tensor x, hy_tensor y) {
  return call(b, HY_OP_add, 2, (hy_tensor[]){x, y}, (hy_attrs){.alpha = {hy_int(1)}});
}

static hy_tensor unary(const build* b, hy_op op, hy_tensor x, hy_attrs attrs) {
  return call(b, op, 1, &x, attrs);
}

// Two or three layers of x, whose results meet again.
static hy_tensor joinable(const build* b) {
  bool bias = draw(2);
  hy_tensor y = unary(b, HY_OP_exp, linear(b, b->x, b->n, bias), (hy_attrs){0});
  y = add(b, y, linear(b, b->x, b->n, bias));
  return draw(2) ? y : add(b, y, unary(b, HY_OP_neg, linear(b, b->x, b->n, bias), (hy_attrs){0}));
}

static hy_tensor scalable(const build* b) {
  const hy_attrs half = {.value = {hy_float(0.5)}};
  if (draw(2)) return linear(b, unary(b, HY_OP_mul_scalar, b->x, half), b->n, draw(2));
  return unary(b, HY_OP_mul_scalar, linear(b, b->x, b->n, draw(2)), half);
}

static hy_tensor transposable(const build* b) {
  hy_tensor across;
  CHECK_OK(hy_transpose(&across, &b->z, 0, 1));
  hy_tensor copy = unary(b, HY_OP_clone, across, (hy_attrs){0});
  return call(b, HY_OP_mm, 2, (hy_tensor[]){b->x, copy}, (hy_attrs){0});
}

static hy_tensor concatenated(const build* b) {
  hy_tensor both =
      call(b, HY_OP_cat, 2, (hy_tensor[]){b->x, b->z}, (hy_attrs){.dim = {draw(2) ? 1 : -1}});
  return linear(b, both, b->n, draw(2));
}

static hy_tensor long_product(const build* b) {
  return linear(b, b->x, b->n, draw(2));
}

static hy_tensor written_out_softmax(const build* b) {
  const hy_attrs rows = {.reduce = {{{draw(2) ? 1 : -1}, 1}, true}};
  hy_tensor x = linear(b, b->x, b->n, true);
  hy_tensor most = unary(b, HY_OP_max, x, rows);
  hy_tensor shifted =
      call(b, HY_OP_sub, 2, (hy_tensor[]){x, most}, (hy_attrs){.alpha = {hy_int(1)}});
  hy_tensor e = unary(b, HY_OP_exp, shifted, (hy_attrs){0});
  hy_tensor sum = unary(b, HY_OP_sum, e, rows);
  return call(b, HY_OP_div, 2, (hy_tensor[]){e, sum}, (hy_attrs){.rounding = {HY_ROUND_NONE}});
}

static const struct {
  const char* name;
  hy_tensor (*make)(const build* b);
  int64_t least_rows, k;
} families[HY__REWRITES] = {{"join", joinable, 1, 24},
                            {"scale", scalable, 1, 24},
                            {"transpose", transposable, 2, 24},
                            {"cat", concatenated, 1, 24},
                            {"split_k", long_product, 1, 1500}};

static void finish(const build* b, const hy_tensor* y) {
  CHECK_OK(hy_graph_output(b->graph, "y", y));
  CHECK_OK(hy_graph_finish(b->graph));
  CHECK_OK(hy_graph_set(b->graph, "x", memory[0]));
  CHECK_OK(hy_graph_set(b->graph, "z", memory[1]));
}

static void launch(const build* b, float* to) {
  CHECK_OK(hy_graph_set(b->graph, "y", to));
  CHECK_OK(hy_graph_launch(b->graph, stream));
}

static void assert_close(const float* a, const float* b, int64_t n) {
  double square = 0;
  for (int64_t i = 0; i < n; i++) square += (double)a[i] * a[i];
  double typical = sqrt(square / (double)n);
  for (int64_t i = 0; i < n; i++)
    assert_true(fabs((double)a[i] - b[i]) <= 1e-5 * (fabs(a[i]) + typical));
}

static void test_each_rewrite(void** state) {
  (void)state;
  for (int r = 0; r < HY__REWRITES; r++) {
    assert_string_equal(families[r].name, hy__rewrites[r].name);
    for (int seed = 0; seed < 100; seed++) {
      random_state = (uint64_t)(100 * r + seed + 1);
      build b = begin(families[r].least_rows, families[r].k);
      hy_tensor y = families[r].make(&b);
      if (draw(2)) y = unary(&b, HY_OP_abs, y, (hy_attrs){0});
      finish(&b, &y);
      launch(&b, memory[2]);
      int changes = 0;
      CHECK_OK(hy__graph_rewrite(b.graph, 1u << r, draw(2) ? HY_PASS_ALL : HY_PASS_DEAD, &changes,
                                 NULL));
      if (changes == 0) fail_msg("%s found nothing at seed %d", families[r].name, seed);
      launch(&b, memory[3]);
      assert_close(memory[2], memory[3], hy_tensor_numel(&y));
      hy_graph_destroy(b.graph);
    }
  }
}

// As q, k and v of a model: three layers, one of which puts its rows into a cache as they are.
static void test_join_with_a_cache(void** state) {
  (void)state;
  enum { SLOTS = 16 };
  random_state = 9;
  build b = begin(4, 24);
  int64_t index[9];
  hy_tensor host, slots, cache;
  for (int i = 0; i < b.rows; i++) index[i] = (5 * i + 3) % SLOTS;
  CHECK_OK(hy_tensor_init(&host, index, HY_I64, 1, &b.rows));
  CHECK_OK(hy_graph_constant(b.graph, &host, &slots));
  hy_tensor q = unary(&b, HY_OP_tanh, linear(&b, b.x, 32, true), (hy_attrs){0});
  q = add(&b, q, linear(&b, b.x, 32, true));
  cache = unary(&b, HY_OP_neg, constant(&b, 2, SLOTS, 32), (hy_attrs){0});
  hy_tensor v = linear(&b, b.x, 32, true);
  hy_tensor full = call(&b, HY_OP_index_put, 3, (hy_tensor[]){cache, v, slots},
                        (hy_attrs){.accumulate = {false}});
  hy_tensor y = call(&b, HY_OP_cat, 2, (hy_tensor[]){q, full}, (hy_attrs){.dim = {0}});
  finish(&b, &y);
  launch(&b, memory[2]);
  int changes = 0, layers = 0;
  CHECK_OK(hy__graph_rewrite(b.graph, 1, HY_PASS_DEAD, &changes, NULL));
  for (int i = 0; i < b.graph->count; i++) layers += b.graph->nodes[i]->call.op == HY_OP_linear;
  assert_int_equal(layers, 1);
  launch(&b, memory[3]);
  assert_close(memory[2], memory[3], hy_tensor_numel(&y));
  hy_graph_destroy(b.graph);
}

static void test_softmax_written_out(void** state) {
  (void)state;
  for (int seed = 1; seed <= 100; seed++) {
    random_state = (uint64_t)seed;
    build b = begin(1, 24);
    hy_tensor y = written_out_softmax(&b);
    finish(&b, &y);
    launch(&b, memory[2]);
    CHECK_OK(hy_graph_run_passes(b.graph, HY_PASS_EPILOGUE, NULL));
    assert_int_equal(hy_graph_node_count(b.graph), 2);
    launch(&b, memory[3]);
    assert_close(memory[2], memory[3], hy_tensor_numel(&y));
    hy_graph_destroy(b.graph);
  }
}

// ---- tiles ----

// Every variant of every node, of skinny and of large products and of chains: the same values, and
// nodes of the same work alike.
static void test_each_tile(void** state) {
  (void)state;
  int tried = 0, calls = 0;
  for (int seed = 1; seed <= 24; seed++) {
    for (int32_t variant = 1;; variant++) {
      random_state = (uint64_t)seed;
      build b = begin(seed % 2 ? 1 : 40, seed % 3 ? 24 : 1300);
      b.n = 1 + draw(seed % 3 ? 300 : 50);
      hy_tensor y = linear(&b, b.x, b.n, true);
      y = add(&b, unary(&b, HY_OP_tanh, y, (hy_attrs){0}), linear(&b, b.z, b.n, true));
      finish(&b, &y);
      hy_graph* graph = b.graph;
      CHECK_OK(hy_graph_run_passes(graph, HY_PASS_FUSE, NULL));
      launch(&b, memory[2]);
      int alike = 0, with_variant = 0;
      for (int i = 0; i < graph->count; i++) {
        bool is_call = graph->nodes[i]->as.kind == HY_NODE_CALL;
        alike += hy__node_like(graph, i) != i;
        if (variant >= hy__node_variants(graph, graph->nodes[i])) continue;
        CHECK_OK(hy__tiles_apply(graph, &(hy__tile){i, variant}, 1));
        with_variant++;
        calls += is_call;
      }
      assert_true(alike > 0);
      const hy__tile none[] = {{0, 1000}, {1000, 1}};
      for (int i = 0; i < 2; i++)
        assert_int_equal(hy__tiles_apply(graph, &none[i], 1), HY_UNSUPPORTED);
      memset(memory[3], 0, sizeof memory[3]);
      launch(&b, memory[3]);
      assert_close(memory[2], memory[3], hy_tensor_numel(&y));
      hy_graph_destroy(graph);
      tried += with_variant;
      if (with_variant == 0) break;
    }
  }
  assert_true(calls > 0 && tried > calls);  // products, and chains
}

static hy_provider with_a_wrong_variant;

static int32_t two_ways(void* handle, const hy_graph_node* node) {
  (void)handle;
  return node->kind == HY_NODE_CALL && node->call->op == HY_OP_linear ? 2 : 1;
}

static hy_status run_wrongly(void* handle, void* on, const hy_graph_node* node, int32_t variant) {
  assert_int_equal(variant, 1);
  hy_status status = with_a_wrong_variant.run(handle, on, node->call);
  ((float*)node->call->out[0].data)[0] += 1;
  return status;
}

// A variant with other values is found out before it is timed, however fast.
static void test_wrong_tile(void** state) {
  (void)state;
  random_state = 11;
  build b = begin(3, 24);
  hy_tensor y = linear(&b, b.x, b.n, true);
  finish(&b, &y);
  launch(&b, memory[2]);
  with_a_wrong_variant = *b.graph->nodes[0]->provider;
  with_a_wrong_variant.variants = two_ways;
  with_a_wrong_variant.run_variant = run_wrongly;
  b.graph->nodes[0]->provider = &with_a_wrong_variant;
  hy_optimize_report report;
  CHECK_OK(hy_graph_optimize(b.graph, 10, &report));
  assert_true(report.refused == 1 && report.timed == report.candidates - 1);
  assert_null(strstr(report.choices, "tile"));
  launch(&b, memory[3]);
  assert_close(memory[2], memory[3], hy_tensor_numel(&y));
  hy_graph_destroy(b.graph);
}

// All at once, on graphs of several families, by the search itself.
static hy_graph* mixed(uint64_t seed, build* out, hy_tensor* y) {
  random_state = seed;
  build b = begin(1, 24);
  hy_tensor sum = families[0].make(&b);
  for (int i = 0; i < 2; i++) {
    int f = draw(2) ? 1 : 3;
    sum = add(&b, sum, families[f].make(&b));
  }
  *y = sum;
  finish(&b, y);
  *out = b;
  return b.graph;
}

static void test_search_keeps_values(void** state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 12; seed++) {
    build b;
    hy_tensor y;
    hy_graph* graph = mixed(seed, &b, &y);
    hy_optimize_report report;
    float before[2][64];
    launch(&b, memory[2]);
    memset(memory[3], 0x55, 64 * sizeof(float));
    CHECK_OK(hy_graph_set(graph, "y", memory[3]));
    memcpy(before[0], memory[0], sizeof before[0]);
    memcpy(before[1], memory[3], sizeof before[1]);
    CHECK_OK(hy_graph_optimize(graph, 0.2, &report));
    // Nothing of the user's was read into or written.
    assert_memory_equal(before[0], memory[0], sizeof before[0]);
    assert_memory_equal(before[1], memory[3], sizeof before[1]);
    assert_true(report.candidates > 0 && report.timed > 0 && report.refused == 0);
    assert_true(report.seconds_after <= report.seconds_before);
    launch(&b, memory[3]);
    assert_close(memory[2], memory[3], hy_tensor_numel(&y));
    hy_graph_destroy(graph);
  }
}

// Of memory that a capture found, not named: the same values afterwards.
static void test_captured(void** state) {
  (void)state;
  enum { N = 32 };
  random_state = 5;
  hy_tensor x, w, t, y;
  const int64_t shape[2] = {N, N};
  for (int i = 0; i < N * N; i++) {
    memory[0][i] = (float)draw(200) / 100 - 1;
    memory[1][i] = (float)draw(200) / 100 - 1;
  }
  CHECK_OK(hy_tensor_init(&x, memory[0], HY_F32, 2, shape));
  CHECK_OK(hy_tensor_init(&w, memory[1], HY_F32, 2, shape));
  CHECK_OK(hy_tensor_init(&y, memory[2], HY_F32, 2, shape));
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  t = x;
  CHECK_OK(hy_alloc(stream, hy_tensor_bytes(&x), &t.data));
  CHECK_OK(hy_linear(stream, &t, &x, &w, NULL));
  CHECK_OK(hy_relu(stream, &t, &t));
  CHECK_OK(hy_add(stream, &y, &t, &x, hy_int(1)));
  CHECK_OK(hy_free(device, t.data));
  CHECK_OK(hy_capture_end(stream, &graph));
  CHECK_OK(hy_graph_launch(graph, stream));
  memcpy(memory[3], memory[2], sizeof(float) * N * N);
  CHECK_OK(hy_graph_optimize(graph, 0.1, NULL));
  memset(memory[2], 0, sizeof(float) * N * N);
  CHECK_OK(hy_graph_launch(graph, stream));
  assert_close(memory[3], memory[2], N * N);
  hy_graph_destroy(graph);
}

// ---- the cache ----

static void only_file(char* path, size_t size) {
  DIR* d = opendir(folder);
  int files = 0;
  for (struct dirent* e; d && (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    files++;
    snprintf(path, size, "%s/%s", folder, e->d_name);
  }
  if (d) closedir(d);
  assert_int_equal(files, 1);
}

static void optimize(uint64_t seed, double seconds, hy_optimize_report* report) {
  build b;
  hy_tensor y;
  hy_graph* graph = mixed(seed, &b, &y);
  launch(&b, memory[2]);
  CHECK_OK(hy_graph_optimize(graph, seconds, report));
  launch(&b, memory[3]);
  assert_close(memory[2], memory[3], hy_tensor_numel(&y));
  hy_graph_destroy(graph);
}

static void test_cache(void** state) {
  (void)state;
  hy_optimize_report first, second, third;
  char path[400];
  optimize(3, 0.2, &first);
  assert_false(first.cached);
  only_file(path, sizeof path);
  optimize(3, 0.2, &second);
  assert_true(second.cached && second.candidates == 0);
  assert_string_equal(first.choices, second.choices);
  // Also without seconds to search.
  optimize(3, 0, &third);
  assert_true(third.cached);
  // Another graph is not this one.
  optimize(4, 0, &third);
  assert_false(third.cached);
}

static void test_corrupt_cache(void** state) {
  (void)state;
  static const char* const corrupt[] = {
      "", "{", "[]", "{\"halyard_graph_search\": 2}",
      "{\"halyard_graph_search\": 2, \"key\": \"0\", \"rules\": [], \"passes\": 511}"};
  hy_optimize_report report;
  char path[400];
  optimize(3, 0.1, &report);
  only_file(path, sizeof path);
  for (int i = 0; i < 5; i++) {
    FILE* file = fopen(path, "w");
    assert_non_null(file);
    fputs(corrupt[i], file);
    fclose(file);
    optimize(3, 0.1, &report);
    assert_false(report.cached);
    only_file(path, sizeof path);
    optimize(3, 0.1, &report);  // it has been replaced
    assert_true(report.cached);
  }
}

static void test_what_a_decision_may_say(void** state) {
  (void)state;
  hy__decision d;
#define DECISION_WITH(rules, passes, tiles)                                        \
  "{\"halyard_graph_search\": 2, \"key\": \"00000000000000ff\", \"rules\": " rules \
  ", \"passes\": " passes ", \"tiles\": " tiles ", \"before\": 2, \"after\": 1}"
#define DECISION(rules, passes) DECISION_WITH(rules, passes, "[]")
#define TILES(tiles) DECISION_WITH("[]", "3", tiles)
#define TILE "{\"node\": 7, \"variant\": 2}"
  static const char good[] = DECISION_WITH("[\"join\", \"cat\"]", "3", "[" TILE "]");
  CHECK_OK(hy__decision_parse(good, strlen(good), 255, &d));
  assert_true(d.rules == 9 && d.passes == 3 && d.before == 2 && d.after == 1);
  assert_true(d.n_tiles == 1 && d.tiles[0].node == 7 && d.tiles[0].variant == 2);
  assert_int_equal(hy__decision_parse(good, strlen(good), 254, &d), HY_FORMAT);
#define FOUR TILE "," TILE "," TILE "," TILE ","
  static const char* const bad[] = {DECISION("[\"jump\"]", "3"),
                                    DECISION("[1]", "3"),
                                    DECISION("{}", "3"),
                                    DECISION("[]", "512"),
                                    DECISION("[]", "-1"),
                                    DECISION("[]", "\"3\""),
                                    TILES("{}"),
                                    TILES("[1]"),
                                    TILES("[{\"node\": -1, \"variant\": 1}]"),
                                    TILES("[{\"node\": 1, \"variant\": 0}]"),
                                    TILES("[{\"node\": 1, \"variant\": 4294967297}]"),
                                    TILES("[" FOUR FOUR FOUR FOUR TILE "]")};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
    assert_int_equal(hy__decision_parse(bad[i], strlen(bad[i]), 255, &d), HY_FORMAT);
}

// ---- what is not searched ----

static void test_no_search(void** state) {
  (void)state;
  hy_optimize_report report;
  optimize(3, 0, &report);
  assert_true(report.candidates == 0 && report.passes.nodes_after > 0 && !report.choices[0]);
  hy_set_deterministic(true);
  optimize(3, 1, &report);
  assert_true(report.candidates == 0 && !report.cached && !report.choices[0]);
  hy_set_deterministic(false);
  hy_graph* graph;
  CHECK_OK(hy_graph_create(device, &graph));
  assert_int_equal(hy_graph_optimize(graph, 1, NULL), HY_INVALID_ARGUMENT);  // not finished
  assert_int_equal(hy_graph_optimize(graph, -1, NULL), HY_INVALID_ARGUMENT);
  assert_int_equal(hy_graph_optimize(NULL, 1, NULL), HY_INVALID_ARGUMENT);
  hy_graph_destroy(graph);
}

int main(void) {
  if (!mkdtemp(folder)) return 1;
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_each_rewrite),
      TEST(test_join_with_a_cache),
      TEST(test_softmax_written_out),
      TEST(test_each_tile),
      TEST(test_wrong_tile),
      TEST(test_search_keeps_values),
      TEST(test_captured),
      TEST(test_cache),
      TEST(test_corrupt_cache),
      TEST(test_what_a_decision_may_say),
      TEST(test_no_search),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  empty_folder();
  rmdir(folder);
  return failed;
}
