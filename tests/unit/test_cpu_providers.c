// The cpu's named providers: each runs what it declares, or says why it cannot be had and leaves
// everything else working.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/cpu/runtime/isa.h"
#include "halyard/halyard.h"

static const char* const names[] = {"xeon", "native", "openmp", "openblas", "mkl", "mkldnn"};

// The planner has no kernels: it can be named, and an einsum that it takes apart says so.
static void the_planner_of_einsum_can_be_named(void** state) {
  (void)state;
  hy_device* device;
  hy_placement placement;
  assert_int_equal(hy_device_get("opt_einsum", &device), HY_OK);
  assert_string_equal(hy_device_selector(device), "cpu:0");
  assert_true(hy_backend_is_available("opt_einsum"));
  hy_provider_report report;
  bool listed = false;
  for (int i = 0; hy_backend_provider_at("cpu", i, &report) == HY_OK; i++)
    listed |= strcmp(report.name, "opt_einsum") == 0 && report.available && report.version;
  assert_true(listed);
  assert_int_equal(hy_place_op(device, HY_OP_einsum, HY_F32, &placement), HY_OK);
  assert_string_equal(placement.provider, "opt_einsum");
  assert_int_equal(hy_place_op(device, HY_OP_mm, HY_F32, &placement), HY_OK);
  assert_string_not_equal(placement.provider, "opt_einsum");
}

// [2, 3] x [3, 2] through whatever the device prefers.
static void multiply(hy_device* device, float out[4]) {
  float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 2, 2};
  hy_tensor ta, tb, tout;
  hy_stream* stream;
  assert_int_equal(hy_tensor_init(&ta, a, HY_F32, 2, (int64_t[]){2, 3}), HY_OK);
  assert_int_equal(hy_tensor_init(&tb, b, HY_F32, 2, (int64_t[]){3, 2}), HY_OK);
  assert_int_equal(hy_tensor_init(&tout, out, HY_F32, 2, (int64_t[]){2, 2}), HY_OK);
  assert_int_equal(hy_stream_default(device, &stream), HY_OK);
  assert_int_equal(hy_mm(stream, &tout, &ta, &tb), HY_OK);
}

// Large enough for several threads.
static void multiply_large(hy_device* device) {
  enum { N = 256 };
  static float a[N * N], b[N * N], out[N * N];
  for (int i = 0; i < N * N; i++) a[i] = (float)(i % 3), b[i] = (float)(i % 2);
  hy_tensor ta, tb, tout;
  hy_stream* stream;
  assert_int_equal(hy_tensor_init(&ta, a, HY_F32, 2, (int64_t[]){N, N}), HY_OK);
  assert_int_equal(hy_tensor_init(&tb, b, HY_F32, 2, (int64_t[]){N, N}), HY_OK);
  assert_int_equal(hy_tensor_init(&tout, out, HY_F32, 2, (int64_t[]){N, N}), HY_OK);
  assert_int_equal(hy_stream_default(device, &stream), HY_OK);
  assert_int_equal(hy_mm(stream, &tout, &ta, &tb), HY_OK);
  float want = 0;
  for (int k = 0; k < N; k++) want += a[N + k] * b[k * N + 3];
  assert_true(out[N + 3] == want);
}

static void each_runs_or_says_why_not(void** state) {
  (void)state;
  hy_device* device;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    hy_status status = hy_device_get(names[i], &device);
    if (status != HY_OK) {
      print_message("%s: %s\n", names[i], hy_last_error());
      assert_int_equal(status, HY_UNAVAILABLE);
      assert_non_null(strstr(hy_last_error(), names[i]));
      continue;
    }
    hy_placement placement;
    assert_int_equal(hy_place_op(device, HY_OP_mm, HY_F32, &placement), HY_OK);
    assert_string_equal(placement.provider, names[i]);
    float out[4] = {0};
    multiply(device, out);
    assert_true(out[0] == 7 && out[1] == 8 && out[2] == 16 && out[3] == 17);
  }
}

// How a library adds depends on how many threads it has.
static void libraries_rest_in_deterministic_mode(void** state) {
  (void)state;
  static const char* const libraries[] = {"openblas", "mkl", "mkldnn"};
  hy_device* device;
  hy_placement placement;
  for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
    if (hy_device_get(libraries[i], &device) != HY_OK) continue;
    hy_set_deterministic(true);
    hy_status status = hy_place_op(device, HY_OP_mm, HY_F32, &placement);
    multiply_large(device);
    hy_set_deterministic(false);
    assert_int_equal(status, HY_OK);
    assert_string_not_equal(placement.provider, libraries[i]);
    assert_string_not_equal(placement.provider, "reference");
  }
}

// A child has none of its parent's threads, and OpenMP's are not made again.
static void each_works_after_fork(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  print_message("skipped: ThreadSanitizer does not allow threads after a fork\n");
  skip();
#endif
  hy_device* device;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (hy_device_get(names[i], &device) != HY_OK) continue;
    multiply_large(device);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      alarm(60);
      multiply_large(device);
      _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) fail_msg("%s: the child ends with status %d", names[i], status);
  }
}

// A library is loaded when it is asked for by name, and not before.
static void libraries_wait_to_be_named(void** state) {
  (void)state;
  hy_device* device;
  hy_placement placement;
  assert_int_equal(hy_device_get("cpu", &device), HY_OK);
  assert_int_equal(hy_place_op(device, HY_OP_mm, HY_F32, &placement), HY_OK);
  const char* own = hy__cpu_isa() & HY__ISA_AVX512 ? "avx512" : "native";
  assert_string_equal(placement.provider, own);
}

static void every_provider_is_reported(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    hy_provider_report report;
    bool found = false;
    for (int n = 0; !found && hy_backend_provider_at("cpu", n, &report) == HY_OK; n++)
      found = strcmp(report.name, names[i]) == 0;
    assert_true(found);
    if (report.available) continue;
    assert_true(report.probe.reason[0]);
    assert_true(report.probe.remedy[0]);
    assert_true(report.probe.stage < HY_STAGE_READY);
  }
}

static int stop(void** state) {
  (void)state;
  hy_shutdown();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(libraries_wait_to_be_named),
      cmocka_unit_test(the_planner_of_einsum_can_be_named),
      cmocka_unit_test(each_runs_or_says_why_not),
      cmocka_unit_test(libraries_rest_in_deterministic_mode),
      cmocka_unit_test(each_works_after_fork),
      cmocka_unit_test(every_provider_is_reported),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
