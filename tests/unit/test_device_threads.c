// How many threads the cpu's kernels use: what the program says, what the environment says, and
// what is no number of threads.
#include <stdatomic.h>
#include <stdlib.h>

#include "backends/cpu/host_info.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "halyard/halyard.h"
#include "support/check.h"
#include "support/stub.h"
#include "verify/verify.h"

static int tear_down(void** state) {
  (void)state;
  unsetenv("HALYARD_THREADS");
  hy_shutdown();
  return 0;
}

static void count(void* context, int64_t i) {
  (void)i;
  atomic_fetch_add((atomic_int*)context, 1);
}

static void the_program_sets_the_number(void** state) {
  (void)state;
  hy_device *cpu, *provider;
  int n;
  CHECK_OK(hy_device_get("cpu", &cpu));
  CHECK_OK(hy_device_threads(cpu, &n));
  assert_int_equal(n, hy__cpu_usable_cores(""));
  for (int wanted = 3; wanted >= 1; wanted--) {
    CHECK_OK(hy_device_set_threads(cpu, wanted));
    CHECK_OK(hy_device_threads(cpu, &n));
    assert_int_equal(n, wanted);
    assert_int_equal(hy__pool_threads(), wanted);
    atomic_int tasks = 0;
    hy__pool_run(count, &tasks, 100);
    assert_int_equal(tasks, 100);
  }
  CHECK_OK(hy_device_set_threads(cpu, 2));
  static const int wrong[] = {0, -1, HY__MAX_THREADS + 1};
  for (int i = 0; i < 3; i++)
    CHECK_FAILS(HY_INVALID_ARGUMENT, "from 1 to 256", hy_device_set_threads(cpu, wrong[i]));
  CHECK_OK(hy_device_threads(cpu, &n));
  assert_int_equal(n, 2);
  // They are the device's, by whatever name it was opened.
  CHECK_OK(hy_device_get("native", &provider));
  CHECK_OK(hy_device_threads(provider, &n));
  assert_int_equal(n, 2);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "device is NULL", hy_device_set_threads(NULL, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "n is NULL", hy_device_threads(cpu, NULL));
}

static void the_environment_sets_the_number(void** state) {
  (void)state;
  hy_device* cpu;
  int n;
  setenv("HALYARD_THREADS", "5", 1);
  CHECK_OK(hy_device_get("cpu", &cpu));
  CHECK_OK(hy_device_threads(cpu, &n));
  assert_int_equal(n, 5);
  CHECK_OK(hy_device_set_threads(cpu, 1));
  hy_shutdown();
  CHECK_OK(hy_device_get("cpu", &cpu));  // begins again
  CHECK_OK(hy_device_threads(cpu, &n));
  assert_int_equal(n, 5);
  hy_shutdown();
  setenv("HALYARD_THREADS", "", 1);  // as if it were not set
  CHECK_OK(hy_device_get("cpu", &cpu));
  CHECK_OK(hy_device_threads(cpu, &n));
  assert_int_equal(n, hy__cpu_usable_cores(""));
}

static void what_is_no_number_is_an_error(void** state) {
  (void)state;
  static const char* const wrong[] = {"abc", "0", "-1", "257", "4x", "99999999999999999999"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    hy_device* device;
    setenv("HALYARD_THREADS", wrong[i], 1);
    CHECK_FAILS(HY_INVALID_ARGUMENT, "give a number from 1 to 256", hy_device_get("cpu", &device));
    assert_non_null(strstr(hy_last_error(), wrong[i]));
    CHECK_FAILS(HY_INVALID_ARGUMENT, "HALYARD_THREADS", hy_device_get(NULL, &device));
    unsetenv("HALYARD_THREADS");
    CHECK_OK(hy_device_get("cpu", &device));  // nothing is left behind
    hy_shutdown();
  }
}

static void other_devices_have_none(void** state) {
  (void)state;
  hy_device* device;
  int n;
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get("guarded", &device));
  CHECK_FAILS(HY_UNSUPPORTED, "guarded:0", hy_device_set_threads(device, 1));
  CHECK_FAILS(HY_UNSUPPORTED, "guarded:0", hy_device_threads(device, &n));
}

// ---- conformance ----

static int32_t kept;
static bool takes_anything, forgets;

static hy_status stub_set_threads(void* device, int32_t n) {
  (void)device;
  if (n < 1 && !takes_anything) return hy_fail(HY_INVALID_ARGUMENT, "%d", n);
  if (!forgets) kept = n;
  return HY_OK;
}

static hy_status stub_threads(void* device, int32_t* n) {
  (void)device;
  *n = kept;
  return HY_OK;
}

static void conformance_tells_right_from_wrong(void** state) {
  (void)state;
  hy_device* device;
  hy__op_verdict verdict = {0};
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy__verify_threads(device, &verdict));
  if (verdict.failed) fail_msg("%s", verdict.failure);
  assert_true(verdict.passed > 5);

  hy_backend backend = stub_backend("threaded");
  backend.set_threads = stub_set_threads;
  CHECK_FAILS(HY_FORMAT, "go together", hy_register_backend(&backend));
  backend.threads = stub_threads;
  stub_reset();
  CHECK_OK(hy_register_backend(&backend));
  CHECK_OK(hy_device_get("threaded", &device));
  for (int fault = 0; fault < 3; fault++) {
    kept = 4;
    takes_anything = fault == 1;
    forgets = fault == 2;
    memset(&verdict, 0, sizeof verdict);
    CHECK_OK(hy__verify_threads(device, &verdict));
    assert_int_equal(verdict.failed > 0, fault > 0);
    assert_int_equal(kept, 4);
  }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, tear_down, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(the_program_sets_the_number),        TEST(the_environment_sets_the_number),
      TEST(what_is_no_number_is_an_error),      TEST(other_devices_have_none),
      TEST(conformance_tells_right_from_wrong),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
