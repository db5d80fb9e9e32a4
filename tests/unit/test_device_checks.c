// Conformance of optional functions: it passes the guarded device, makes no case of what a backend
// lacks, and finds each function that does the wrong thing.
#include <stdlib.h>

#include "support/check.h"
#include "verify/verify.h"

static hy_device* device;

static void start(const char* lacks, const char* wrong) {
  setenv("HALYARD_GUARDED_DEVICES", "2", 1);
  setenv("HALYARD_GUARDED_LACKS", lacks, 1);
  setenv("HALYARD_GUARDED_WRONG", wrong, 1);
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get("guarded:1", &device));
}

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  unsetenv("HALYARD_GUARDED_DEVICES");
  unsetenv("HALYARD_GUARDED_LACKS");
  unsetenv("HALYARD_GUARDED_WRONG");
  return 0;
}

static const struct {
  const char* family;  // of HALYARD_GUARDED_LACKS
  hy__verify_check check;
} checks[] = {{"capture", hy__verify_graphs},   {"native,priority", hy__verify_streams},
              {"pointer", hy__verify_pointers}, {"peer", hy__verify_peers},
              {"sharing", hy__verify_sharing},  {"compile", hy__verify_compilation}};
enum { N_CHECKS = sizeof checks / sizeof checks[0] };

static void test_what_is_right_passes(void** state) {
  (void)state;
  start("", "");
  for (int i = 0; i < N_CHECKS; i++) {
    hy__op_verdict v = {0};
    CHECK_OK(checks[i].check(device, &v));
    if (v.failed) fail_msg("%s: %s", checks[i].family, v.failure);
    assert_true(v.cases > 0);
    assert_int_equal(v.passed, v.cases);
  }
}

static void test_what_is_lacking_makes_no_case(void** state) {
  for (int i = 0; i < N_CHECKS; i++) {
    hy__op_verdict v = {0};
    start(checks[i].family, "");
    CHECK_OK(checks[i].check(device, &v));
    assert_int_equal(v.cases, 0);
    tear_down(state);
  }
}

static void test_what_is_wrong_fails(void** state) {
  static const struct {
    const char* wrong;  // of HALYARD_GUARDED_WRONG
    hy__verify_check check;
    const char* says;
  } cases[] = {
      {"launch", hy__verify_graphs, "the captured call gave other bits"},
      {"capture", hy__verify_graphs, "the captured call gave other bits"},
      {"update", hy__verify_graphs, "bound to other memory"},
      {"wrap", hy__verify_streams, "native handle"},
      {"priority", hy__verify_streams, "leave out 0"},
      {"pointer", hy__verify_pointers, "pointer_device says 0"},
      {"copy_less", hy__verify_peers, "other bytes"},
      {"copy_more", hy__verify_peers, "more than that"},
      {"export", hy__verify_sharing, "share one handle"},
      {"import", hy__verify_sharing, "no handle"},
      {"compile", hy__verify_compilation, "must be INVALID_ARGUMENT"},
      {"kernel", hy__verify_compilation, "wrong values"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hy__op_verdict v = {0};
    start("", cases[i].wrong);
    CHECK_OK(cases[i].check(device, &v));
    if (!v.failed || !strstr(v.failure, cases[i].says))
      fail_msg("%s: %d failed: \"%s\"", cases[i].wrong, v.failed, v.failure);
    tear_down(state);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
  const struct CMUnitTest tests[] = {TEST(test_what_is_right_passes),
                                     TEST(test_what_is_lacking_makes_no_case),
                                     TEST(test_what_is_wrong_fails)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
