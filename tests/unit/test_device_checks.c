// Conformance of devices: it passes the guarded device, makes no case of what a backend lacks, and
// finds each function that does the wrong thing, one lie at a time.
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

static void test_every_device_has_these(void** state) {
  static const hy__verify_check all[] = {hy__verify_copies, hy__verify_order, hy__verify_memory,
                                         hy__verify_concurrency};
  for (int i = 0; i < 4; i++) {
    hy__op_verdict v = {0};
    start("", "");
    CHECK_OK(all[i](device, &v));
    if (v.failed) fail_msg("check %d: %s", i, v.failure);
    assert_true(v.cases > 0);
    hy_device* cpu;
    CHECK_OK(hy_device_get("cpu", &cpu));
    CHECK_OK(all[i](cpu, &v));
    if (v.failed) fail_msg("check %d on the cpu: %s", i, v.failure);
    tear_down(state);
  }
}

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

typedef struct lie {
  const char* wrong;  // of HALYARD_GUARDED_WRONG
  hy__verify_check check;
  const char* says;
} lie;

// What does not wait is seen only where the host comes back while the device is busy: a host that
// was held up meanwhile asks again.
static void must_fail(void** state, const lie* cases, size_t n) {
  enum { TRIES = 20 };
  for (size_t i = 0; i < n; i++) {
    hy__op_verdict v;
    bool found = false;
    for (int t = 0; t < TRIES && !found; t++) {
      v = (hy__op_verdict){0};
      start("", cases[i].wrong);
      CHECK_OK(cases[i].check(device, &v));
      tear_down(state);
      found = v.failed && strstr(v.failure, cases[i].says);
    }
    if (!found) fail_msg("%s: %d failed: \"%s\"", cases[i].wrong, v.failed, v.failure);
  }
}

static void test_wrong_copies_fail(void** state) {
  static const lie cases[] = {
      {"copy_device_nothing", hy__verify_copies, "device to device of 1 bytes"},
      {"copy_host_nothing", hy__verify_copies, "host to host"},
      {"copy_words", hy__verify_copies, "gave other bytes"},
      {"copy_beyond", hy__verify_copies, "wrote behind its destination"},
      {"copy_aligned", hy__verify_copies, "a copy host to device of 1 bytes"},
      {"copy_from_start", hy__verify_copies, "of one allocation"},
      {"copy_24_bits", hy__verify_copies, "gave other bytes"},
      {"set_zero", hy__verify_copies, "set to 0x01"},
      {"set_words", hy__verify_copies, "of 5 bytes"},
      {"set_beyond", hy__verify_copies, "set to 0x00 of 65537 bytes"},
      {"set_7_bits", hy__verify_copies, "set to 0x80"},
  };
  must_fail(state, cases, sizeof cases / sizeof cases[0]);
}

static void test_wrong_order_fails(void** state) {
  static const lie cases[] = {
      {"download_early", hy__verify_order, "before it was"},
      {"upload_early", hy__verify_order, "an upload overtook"},
      {"set_early", hy__verify_order, "a set overtook"},
      {"wait_event", hy__verify_order, "stream_wait_event did not hold the stream"},
      {"record", hy__verify_order, "event_sync said"},
      {"event_query", hy__verify_order, "event_query said"},
      {"event_sync", hy__verify_order, "event_sync said"},
      {"stream_query", hy__verify_order, "stream_query said"},
      {"stream_sync", hy__verify_order, "stream_sync said"},
      {"device_sync", hy__verify_order, "device_sync said"},
      {"device_sync_first", hy__verify_order, "every stream"},
      {"elapsed_constant", hy__verify_order, "back to the first"},
      {"elapsed_zero", hy__verify_order, "event_elapsed says 0"},
      {"elapsed_seconds", hy__verify_order, "event_elapsed says 0.0"},
      {"elapsed_us", hy__verify_order, "milliseconds where the host"},
      {"elapsed_back", hy__verify_order, "event_elapsed says -"},
      {"elapsed_nan", hy__verify_order, "nan"},
  };
  must_fail(state, cases, sizeof cases / sizeof cases[0]);
}

static void test_wrong_memory_fails(void** state) {
  static const lie cases[] = {
      {"alloc_same", hy__verify_memory, "lost its contents"},
      {"alloc_odd", hy__verify_memory, "aligned to 64"},
      {"copy_folded", hy__verify_memory, "does not keep"},
      {"info_more", hy__verify_memory, "has not even"},
      {"full_is_failure", hy__verify_memory, "must be OUT_OF_MEMORY"},
      {"full_is_small", hy__verify_memory, "must be OUT_OF_MEMORY"},
      {"free_nothing", hy__verify_memory, "did not give"},
      {"copy_staged", hy__verify_concurrency, "threads at once"},
  };
  must_fail(state, cases, sizeof cases / sizeof cases[0]);
}

static void test_wrong_optional_functions_fail(void** state) {
  static const lie cases[] = {
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
  must_fail(state, cases, sizeof cases / sizeof cases[0]);
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
  const struct CMUnitTest tests[] = {TEST(test_every_device_has_these),
                                     TEST(test_what_is_right_passes),
                                     TEST(test_what_is_lacking_makes_no_case),
                                     TEST(test_wrong_copies_fail),
                                     TEST(test_wrong_order_fails),
                                     TEST(test_wrong_memory_fails),
                                     TEST(test_wrong_optional_functions_fail)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
