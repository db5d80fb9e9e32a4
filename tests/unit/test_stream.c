// Streams and events, on a device that the test drives.
#include "support/check.h"
#include "support/fake.h"

static fake_device fake;
static hy_device* const device = &fake.device;

static int set_up(void** state) {
  (void)state;
  return fake_open(&fake, "fake:0", 0, false, (size_t)1 << 30);
}

static int tear_down(void** state) {
  (void)state;
  fake_close(&fake);
  return fake.live_streams + fake.live_events + fake.live_memory;
}

static hy_stream* new_stream(void) {
  hy_stream* stream;
  CHECK_OK(hy_stream_create(device, &stream));
  return stream;
}

static void test_default_stream(void** state) {
  (void)state;
  hy_stream *first, *second;
  CHECK_OK(hy_stream_default(device, &first));
  CHECK_OK(hy_stream_default(device, &second));
  assert_ptr_equal(first, second);
  assert_ptr_equal(hy_stream_device(first), device);
  hy_stream_destroy(first);
  CHECK_OK(hy_stream_default(device, &second));
  assert_int_equal(fake.live_streams, 1);
  hy_stream_destroy(NULL);
}

static void test_closing_ends_forgotten_streams(void** state) {
  (void)state;
  hy_stream *a = new_stream(), *b = new_stream(), *c = new_stream();
  hy_stream_destroy(b);
  fake_submit(a);
  fake_submit(c);
  assert_int_equal(fake.live_streams, 2);
}

static void test_query_and_sync(void** state) {
  (void)state;
  hy_stream* s = new_stream();
  CHECK_OK(hy_stream_query(s));
  fake_submit(s);
  assert_int_equal(hy_stream_query(s), HY_NOT_READY);
  CHECK_OK(hy_stream_sync(s));
  CHECK_OK(hy_stream_query(s));
}

static void test_errors_stick_and_name_their_op(void** state) {
  (void)state;
  hy_stream* s = new_stream();
  hy_stream* other = new_stream();
  hy_event* event;
  CHECK_OK(hy_event_create(device, &event));
  void *before, *address;
  CHECK_OK(hy_alloc(s, 100, &before));
  fake_break(s, HY_INDEX, HY_OP_add, "the 3rd engine is out of oil");
  const char* said = "add on fake:0 failed: the 3rd engine is out of oil";
  char byte = 0;
  CHECK_FAILS(HY_INDEX, said, hy_stream_sync(s));
  CHECK_FAILS(HY_INDEX, said, hy_stream_query(s));
  CHECK_FAILS(HY_INDEX, said, hy_alloc(s, 100, &address));
  CHECK_FAILS(HY_INDEX, said, hy_memcpy(s, before, &byte, 1, HY_COPY_DEFAULT));
  CHECK_FAILS(HY_INDEX, said, hy_memset(s, before, 0, 1));
  CHECK_FAILS(HY_INDEX, said, hy_event_record(event, s));
  CHECK_FAILS(HY_INDEX, said, hy_stream_wait_event(s, event));
  CHECK_FAILS(HY_INDEX, said, hy_record_stream(s, before));
  // Others go on, and so does freeing.
  CHECK_OK(hy_stream_sync(other));
  CHECK_OK(hy_record_stream(other, before));
  CHECK_OK(hy_free(device, before));

  CHECK_OK(hy_stream_reset(s));
  CHECK_OK(hy_stream_sync(s));
  CHECK_OK(hy_alloc(s, 100, &address));
  CHECK_OK(hy_free(device, address));
  hy_event_destroy(event);
}

static void test_a_failed_copy_is_called_so(void** state) {
  (void)state;
  hy_stream* s = new_stream();
  fake_break(s, HY_DEVICE_FAILED, HY_OP_NONE, "no way");
  CHECK_FAILS(HY_DEVICE_FAILED, "work on fake:0 failed: no way", hy_stream_sync(s));
}

// Memory that waits for a stream is not lost when the stream is reset.
static void test_reset_keeps_memory(void** state) {
  (void)state;
  hy_stream *a = new_stream(), *b = new_stream();
  void* address;
  CHECK_OK(hy_alloc(a, 100, &address));
  CHECK_OK(hy_record_stream(b, address));
  fake_submit(b);
  CHECK_OK(hy_free(device, address));
  CHECK_OK(hy_stream_reset(b));
  CHECK_OK(hy_empty_cache(device));
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(device, &stats));
  assert_int_equal(stats.reserved, 0);
}

static void test_events(void** state) {
  (void)state;
  hy_stream *a = new_stream(), *b = new_stream();
  hy_event *start, *stop;
  double milliseconds;
  CHECK_OK(hy_event_create(device, &start));
  CHECK_OK(hy_event_create(device, &stop));
  // Never recorded: nothing to wait for.
  CHECK_OK(hy_event_query(start));
  CHECK_OK(hy_event_sync(start));
  CHECK_OK(hy_stream_wait_event(b, start));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "start event was never recorded",
              hy_event_elapsed(start, stop, &milliseconds));
  CHECK_OK(hy_event_record(start, a));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stop event was never recorded",
              hy_event_elapsed(start, stop, &milliseconds));
  for (int i = 0; i < 3; i++) fake_submit(a);
  CHECK_OK(hy_event_record(stop, a));
  CHECK_OK(hy_event_query(start));
  assert_int_equal(hy_event_query(stop), HY_NOT_READY);
  CHECK_OK(hy_event_sync(stop));
  CHECK_OK(hy_event_query(stop));
  CHECK_OK(hy_event_elapsed(start, stop, &milliseconds));
  assert_true(milliseconds == 3);
  CHECK_OK(hy_stream_wait_event(b, stop));
  assert_int_equal(hy_stream_query(b), HY_NOT_READY);
  hy_event_destroy(start);
  hy_event_destroy(stop);
  hy_event_destroy(NULL);
}

static void test_two_devices(void** state) {
  (void)state;
  static fake_device second;
  CHECK_OK(fake_open(&second, "fake:1", 0, false, (size_t)1 << 20));
  hy_stream *here = new_stream(), *there;
  CHECK_OK(hy_stream_create(&second.device, &there));
  hy_event *event, *other;
  CHECK_OK(hy_event_create(device, &event));
  CHECK_OK(hy_event_create(&second.device, &other));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "event is of fake:0, the stream of fake:1",
              hy_event_record(event, there));
  double milliseconds;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "fake:1", hy_event_elapsed(event, other, &milliseconds));
  // A stream waits for another device by the host.
  fake_submit(here);
  CHECK_OK(hy_event_record(event, here));
  CHECK_OK(hy_stream_wait_event(there, event));
  CHECK_OK(hy_event_query(event));
  hy_event_destroy(event);
  hy_event_destroy(other);
  fake_close(&second);
}

static void test_null_arguments(void** state) {
  (void)state;
  hy_stream* s = new_stream();
  hy_event* e;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "device is NULL", hy_stream_create(NULL, &s));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream is NULL", hy_stream_create(device, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "device is NULL", hy_stream_default(NULL, &s));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream is NULL", hy_stream_sync(NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream is NULL", hy_stream_query(NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream is NULL", hy_stream_reset(NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "device is NULL", hy_event_create(NULL, &e));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "event is NULL", hy_event_record(NULL, s));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "event is NULL", hy_event_query(NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "event is NULL", hy_event_sync(NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "event is NULL", hy_stream_wait_event(s, NULL));
  assert_null(hy_stream_device(NULL));
}

static void test_host_memory_failures(void** state) {
  (void)state;
  hy_stream* s;
  hy_event* e;
  for (int nth = 1; nth <= 2; nth++) {
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, nth);
    CHECK_FAILS(HY_OUT_OF_MEMORY, "host memory", hy_stream_create(device, &s));
    assert_null(s);
  }
  hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 1);
  CHECK_FAILS(HY_OUT_OF_MEMORY, "host memory", hy_event_create(device, &e));
  assert_null(e);
  hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_default_stream),
      TEST(test_closing_ends_forgotten_streams),
      TEST(test_query_and_sync),
      TEST(test_errors_stick_and_name_their_op),
      TEST(test_a_failed_copy_is_called_so),
      TEST(test_reset_keeps_memory),
      TEST(test_events),
      TEST(test_two_devices),
      TEST(test_null_arguments),
      TEST(test_host_memory_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
