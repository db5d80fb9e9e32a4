// Native handles, foreign streams, priorities, device of a pointer, and copies between peers.
#include <stdlib.h>

#include "halyard/halyard.h"
#include "support/check.h"

enum { N = 1000, BYTES = N * sizeof(float) };

static hy_device *device, *second;
static hy_stream* stream;

static void start(const char* lacks) {
  setenv("HALYARD_GUARDED_LACKS", lacks, 1);
  setenv("HALYARD_GUARDED_DEVICES", "2", 1);
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get("guarded:0", &device));
  CHECK_OK(hy_device_get("guarded:1", &second));
  CHECK_OK(hy_stream_create(device, &stream));
}

static int tear_down(void** state) {
  (void)state;
  for (int i = 0; i < HY_FAULT_COUNT; i++) hy_inject_fault((hy_fault)i, 0);
  hy_shutdown();
  unsetenv("HALYARD_GUARDED_LACKS");
  unsetenv("HALYARD_GUARDED_DEVICES");
  return 0;
}

static hy_tensor vector(hy_stream* s, float value) {
  const int64_t n = N;
  static float values[N];
  hy_tensor t;
  void* address;
  for (int i = 0; i < N; i++) values[i] = value;
  CHECK_OK(hy_alloc(s, BYTES, &address));
  CHECK_OK(hy_tensor_init(&t, address, HY_F32, 1, &n));
  CHECK_OK(hy_memcpy(s, address, values, BYTES, HY_COPY_HOST_TO_DEVICE));
  CHECK_OK(hy_stream_sync(s));
  return t;
}

static void check(hy_stream* s, const hy_tensor* t, float value) {
  static float got[N];
  CHECK_OK(hy_memcpy(s, got, t->data, BYTES, HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(s));
  for (int i = 0; i < N; i++) {
    if (got[i] != value) fail_msg("element %d is %g, not %g", i, got[i], value);
  }
}

// Work on a stream and on another over its native handle runs in the order it was given.
static void test_a_foreign_stream_is_in_order(void** state) {
  (void)state;
  start("");
  void* native;
  hy_stream* foreign;
  CHECK_OK(hy_stream_native(stream, &native));
  assert_non_null(native);
  CHECK_OK(hy_stream_wrap(device, native, &foreign));
  hy_tensor x = vector(stream, 0);
  for (int i = 0; i < 200; i++) {
    CHECK_OK(hy_add_scalar(i % 2 ? foreign : stream, &x, &x, hy_float(1), hy_int(1)));
    CHECK_OK(hy_mul_scalar(i % 2 ? stream : foreign, &x, &x, hy_float(0.5)));
  }
  void* seen;
  CHECK_OK(hy_stream_native(foreign, &seen));
  assert_ptr_equal(seen, native);
  check(foreign, &x, 1);
  // Destroyed, it leaves the native stream as it is.
  hy_stream_destroy(foreign);
  CHECK_OK(hy_add_scalar(stream, &x, &x, hy_float(1), hy_int(1)));
  check(stream, &x, 2);
}

static void test_a_foreign_stream_survives_a_reset(void** state) {
  (void)state;
  start("");
  void *native, *seen;
  hy_stream* foreign;
  CHECK_OK(hy_stream_native(stream, &native));
  CHECK_OK(hy_stream_wrap(device, native, &foreign));
  CHECK_OK(hy_stream_reset(foreign));
  CHECK_OK(hy_stream_native(foreign, &seen));
  assert_ptr_equal(seen, native);
  hy_stream_destroy(foreign);
  CHECK_OK(hy_stream_sync(stream));
}

static void test_strange_handles_are_refused(void** state) {
  (void)state;
  start("");
  hy_stream* foreign;
  int nothing;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "no stream of this device",
              hy_stream_wrap(device, &nothing, &foreign));
  assert_null(foreign);
  void* native;
  CHECK_OK(hy_stream_native(stream, &native));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "no stream of this device",
              hy_stream_wrap(second, native, &foreign));
}

static void test_priorities(void** state) {
  (void)state;
  start("");
  int least, greatest;
  CHECK_OK(hy_stream_priority_range(device, &least, &greatest));
  assert_int_equal(least, 0);
  assert_int_equal(greatest, -1);
  hy_stream* s;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "go from -1, which runs first, to 0",
              hy_stream_create_priority(device, 1, &s));
  for (int priority = greatest; priority <= least; priority++) {
    CHECK_OK(hy_stream_create_priority(device, priority, &s));
    hy_tensor x = vector(s, 1);
    CHECK_OK(hy_neg(s, &x, &x));
    check(s, &x, -1);
    CHECK_OK(hy_stream_reset(s));
    check(s, &x, -1);
    hy_stream_destroy(s);
  }
}

static void test_what_is_lacking_is_said(void** state) {
  (void)state;
  start("native,priority,pointer");
  void* native;
  hy_stream* s;
  CHECK_FAILS(HY_UNSUPPORTED, "no handle for others", hy_stream_native(stream, &native));
  CHECK_FAILS(HY_UNSUPPORTED, "streams of others", hy_stream_wrap(device, stream, &s));
  int least = 7, greatest = 7;
  CHECK_OK(hy_stream_priority_range(device, &least, &greatest));
  assert_int_equal(least, 0);
  assert_int_equal(greatest, 0);
  CHECK_OK(hy_stream_create_priority(device, 0, &s));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "go from 0", hy_stream_create_priority(device, -1, &s));
  hy_device* cpu;
  CHECK_OK(hy_device_get("cpu", &cpu));
  CHECK_FAILS(HY_UNSUPPORTED, "cpu:0", hy_stream_wrap(cpu, stream, &s));
}

static void test_device_of_a_pointer(void** state) {
  (void)state;
  start("");
  hy_stream *other, *host;
  hy_device *cpu, *found;
  CHECK_OK(hy_device_get("cpu", &cpu));
  CHECK_OK(hy_stream_create(second, &other));
  CHECK_OK(hy_stream_create(cpu, &host));
  void *a, *b, *c, *raw;
  CHECK_OK(hy_alloc(stream, BYTES, &a));
  CHECK_OK(hy_alloc(other, BYTES, &b));
  CHECK_OK(hy_alloc(host, BYTES, &c));
  CHECK_OK(hy_alloc_raw(second, BYTES, &raw));
  CHECK_OK(hy_device_of_pointer((char*)a + 100, &found));
  assert_ptr_equal(found, device);
  CHECK_OK(hy_device_of_pointer(b, &found));
  assert_ptr_equal(found, second);
  CHECK_OK(hy_device_of_pointer(c, &found));
  assert_ptr_equal(found, cpu);
  CHECK_OK(hy_device_of_pointer(raw, &found));
  assert_ptr_equal(found, second);
  CHECK_OK(hy_device_of_pointer(&found, &found));
  assert_null(found);
  CHECK_OK(hy_device_of_pointer(NULL, &found));
  assert_null(found);
  // Memory that no allocator of ours gave, and the backend knows: behind a freed raw allocation.
  hy_free_raw(second, raw);
  CHECK_OK(hy_device_of_pointer(raw, &found));
  assert_ptr_equal(found, second);
}

// Directly and through the host.
static void copy_between(const char* lacks, bool direct) {
  start(lacks);
  hy_stream* other;
  CHECK_OK(hy_stream_create(second, &other));
  bool possible;
  CHECK_OK(hy_device_peer_access(second, device, &possible));
  assert_int_equal(possible, direct);
  CHECK_OK(hy_device_peer_access(device, device, &possible));
  assert_true(possible);
  hy_tensor x = vector(stream, 1), y = vector(other, 0);
  CHECK_OK(hy_neg(stream, &x, &x));
  hy_inject_fault(HY_FAULT_COPY, INT64_MAX);
  CHECK_OK(hy_memcpy_peer(other, y.data, stream, x.data, BYTES));
  assert_int_equal(hy_fault_events(HY_FAULT_COPY), direct ? 1 : 2);
  hy_inject_fault(HY_FAULT_COPY, 0);
  check(other, &y, -1);
  CHECK_OK(hy_memcpy_peer(other, y.data, stream, x.data, 0));
  hy_inject_fault(HY_FAULT_COPY, 1);
  CHECK_FAILS(HY_DEVICE_FAILED, "injected fault",
              hy_memcpy_peer(other, y.data, stream, x.data, BYTES));
}

static void test_peers_copy_directly(void** state) {
  (void)state;
  copy_between("", true);
}

static void test_peers_copy_through_the_host(void** state) {
  (void)state;
  copy_between("peer", false);
}

static void test_peers_of_other_backends(void** state) {
  (void)state;
  start("");
  hy_device* cpu;
  bool possible;
  CHECK_OK(hy_device_get("cpu", &cpu));
  CHECK_OK(hy_device_peer_access(device, cpu, &possible));
  assert_false(possible);
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_a_foreign_stream_is_in_order), TEST(test_a_foreign_stream_survives_a_reset),
      TEST(test_strange_handles_are_refused),  TEST(test_priorities),
      TEST(test_what_is_lacking_is_said),      TEST(test_device_of_a_pointer),
      TEST(test_peers_copy_directly),          TEST(test_peers_copy_through_the_host),
      TEST(test_peers_of_other_backends),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
