// Runtime compilation, by the guarded device's language of postfix expressions.
#include <stdlib.h>

#include "halyard/halyard.h"
#include "support/check.h"

enum { N = 1000, BYTES = N * sizeof(float) };

static const char source[] =
    "axpy: x0 s0 * x1 +   # the third is out\n"
    "\n"
    "area: x0 x0 * pi * half * 2 *\n";

static hy_device* device;
static hy_stream* stream;
static void *x, *y, *z;

static void start(const char* lacks) {
  setenv("HALYARD_GUARDED_LACKS", lacks, 1);
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get("guarded:0", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  static float values[2][N];
  for (int i = 0; i < N; i++) {
    values[0][i] = (float)i;
    values[1][i] = 5;
  }
  CHECK_OK(hy_alloc(stream, BYTES, &x));
  CHECK_OK(hy_alloc(stream, BYTES, &y));
  CHECK_OK(hy_alloc(stream, BYTES, &z));
  CHECK_OK(hy_memcpy(stream, x, values[0], BYTES, HY_COPY_HOST_TO_DEVICE));
  CHECK_OK(hy_memcpy(stream, y, values[1], BYTES, HY_COPY_HOST_TO_DEVICE));
  CHECK_OK(hy_memset(stream, z, 0, BYTES));
  CHECK_OK(hy_stream_sync(stream));
}

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  unsetenv("HALYARD_GUARDED_LACKS");
  return 0;
}

// out = in0 * a + in1, for the first elements only where there are fewer threads.
static hy_status launch_axpy(hy_kernel* kernel, void* out, void* in0, void* in1, float a,
                             uint32_t blocks) {
  const uint64_t n = N;
  const hy_kernel_arg args[] = {{&out, sizeof out, 1},
                                {&in0, sizeof in0, 1},
                                {&in1, sizeof in1, 1},
                                {&a, sizeof a, 0},
                                {&n, sizeof n, 0}};
  return hy_kernel_launch(stream, kernel,
                          &(hy_launch){.size = sizeof(hy_launch),
                                       .grid = {blocks, 1, 1},
                                       .block = {100, 1, 1},
                                       .args = args,
                                       .n_args = 5});
}

static void check(const void* address, int count, float scale, float value) {
  static float got[N];
  CHECK_OK(hy_memcpy(stream, got, address, BYTES, HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(stream));
  for (int i = 0; i < N; i++) {
    float want = i < count ? scale * (float)i + value : 0;
    if (got[i] != want) fail_msg("element %d is %g, not %g", i, got[i], want);
  }
}

static void test_compile_and_launch(void** state) {
  (void)state;
  start("");
  char flags[100];
  CHECK_OK(hy_compile_flags(device, flags, sizeof flags));
  assert_string_equal(flags, "postfix -Dpi=3.14159274");
  hy_module* module;
  hy_kernel *axpy, *again, *area;
  CHECK_OK(hy_compile(device, source, "-Dhalf=0.5", &module));
  CHECK_OK(hy_module_kernel(module, "axpy", &axpy));
  CHECK_OK(hy_module_kernel(module, "axpy", &again));
  assert_ptr_equal(axpy, again);
  CHECK_OK(launch_axpy(axpy, z, x, y, 2, 7));
  check(z, 700, 2, 5);  // there were 700 threads
  CHECK_OK(launch_axpy(axpy, z, x, y, 3, 10));
  check(z, N, 3, 5);
  CHECK_OK(hy_module_kernel(module, "area", &area));
  CHECK_FAILS(HY_NOT_FOUND, "no kernel 'volume'", hy_module_kernel(module, "volume", &again));
  assert_null(again);
  hy_module_destroy(module);
}

static void test_sources_that_do_not_compile(void** state) {
  (void)state;
  start("");
  static const char* const bad[][3] = {{"f: x0 +", "", "line 1: too few values before '+'"},
                                       {"f: x0\ng: x0 cbrt", "", "line 2: no such word: 'cbrt'"},
                                       {"x0 x1 +", "", "begins with its name and a colon"},
                                       {"f: x0 x1", "", "not one value remains in 'f'"},
                                       {"f: x9", "", "no such word"},
                                       {"f: x0 half *", "", "no such word: 'half'"},
                                       {"f: x0", "-O3", "flag '-O3' is not -DNAME=NUMBER"},
                                       {"f: x0", "-Dhalf=one", "defines no number"}};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    hy_module* module;
    CHECK_FAILS(HY_INVALID_ARGUMENT, bad[i][2], hy_compile(device, bad[i][0], bad[i][1], &module));
    assert_null(module);
  }
}

static void test_wrong_launches(void** state) {
  (void)state;
  start("");
  hy_module* module;
  hy_kernel* axpy;
  CHECK_OK(hy_compile(device, "axpy: x0 s0 * x1 +", NULL, &module));
  CHECK_OK(hy_module_kernel(module, "axpy", &axpy));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "grid or block is 0", launch_axpy(axpy, z, x, y, 1, 0));
  hy_launch launch = {
      .size = sizeof launch, .grid = {1, 1, 1}, .block = {1, 1, 1}, .n_args = 1, .args = NULL};
  CHECK_FAILS(HY_INVALID_ARGUMENT, "args must hold", hy_kernel_launch(stream, axpy, &launch));
  const hy_kernel_arg small = {&z, 4, 1};
  launch.args = &small;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "argument 0", hy_kernel_launch(stream, axpy, &launch));
  const hy_kernel_arg one = {&z, sizeof z, 1};
  launch.args = &one;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "axpy takes", hy_kernel_launch(stream, axpy, &launch));
  // Memory that is none of the device's.
  static float host[N];
  CHECK_FAILS(HY_INVALID_ARGUMENT, "are not in one allocation",
              launch_axpy(axpy, z, host, y, 1, 10));
  hy_device* cpu;
  hy_stream* elsewhere;
  CHECK_OK(hy_device_get("cpu", &cpu));
  CHECK_OK(hy_stream_create(cpu, &elsewhere));
  launch.n_args = 0;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "a kernel of guarded:0",
              hy_kernel_launch(elsewhere, axpy, &launch));
  hy_module_destroy(module);
}

static void test_backends_without_a_compiler(void** state) {
  (void)state;
  start("compile");
  hy_module* module;
  char flags[10];
  CHECK_FAILS(HY_UNSUPPORTED, "guarded:0 has no compiler",
              hy_compile(device, "f: x0", "", &module));
  CHECK_FAILS(HY_UNSUPPORTED, "no compiler", hy_compile_flags(device, flags, sizeof flags));
}

// Launches in a graph: replayed, and rebound by their addresses.
static void graph_of_launches(const char* lacks) {
  start(lacks);
  hy_module* module;
  hy_kernel* axpy;
  hy_graph* graph;
  CHECK_OK(hy_compile(device, "axpy: x0 s0 * x1 +", NULL, &module));
  CHECK_OK(hy_module_kernel(module, "axpy", &axpy));
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(launch_axpy(axpy, z, x, y, 2, 10));
  CHECK_OK(launch_axpy(axpy, z, z, y, 10, 10));
  CHECK_OK(hy_capture_end(stream, &graph));
  check(z, 0, 0, 0);
  CHECK_OK(hy_graph_launch(graph, stream));
  check(z, N, 20, 55);
  CHECK_OK(hy_graph_bind(graph, &(hy_binding){y, BYTES, x}, 1));
  CHECK_OK(hy_graph_launch(graph, stream));
  check(z, N, 31, 0);
  char text[400];
  hy_graph_describe(graph, text, sizeof text);
  assert_non_null(strstr(text, "launch of 10 x 1 x 1 blocks with 5 arguments"));
  hy_graph_destroy(graph);
  hy_module_destroy(module);
}

static void test_launches_are_captured(void** state) {
  (void)state;
  graph_of_launches("");
}

static void test_launches_are_replayed_by_calls(void** state) {
  (void)state;
  graph_of_launches("capture");
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_compile_and_launch),    TEST(test_sources_that_do_not_compile),
      TEST(test_wrong_launches),        TEST(test_backends_without_a_compiler),
      TEST(test_launches_are_captured), TEST(test_launches_are_replayed_by_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
