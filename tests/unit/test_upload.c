// Uploads: done with the host's memory at once, without waiting, and without overwriting what is
// still under way.
#include <stdlib.h>

#include "halyard/halyard.h"
#include "support/check.h"
#include "support/fake.h"

enum { SLOTS = 8 };  // of the ring

static int tear_down(void** state) {
  (void)state;
  for (int i = 0; i < HY_FAULT_COUNT; i++) hy_inject_fault((hy_fault)i, 0);
  hy_shutdown();
  return 0;
}

// Whoever waits for a stream or event of the fake makes it advance, which shows here.
static void test_waits_only_when_the_ring_is_full(void** state) {
  (void)state;
  fake_device fake;
  CHECK_OK(fake_open(&fake, "fake:0", 0, true, 1 << 24));
  hy_stream* stream;
  CHECK_OK(hy_stream_create(&fake.device, &stream));
  void* memory;
  CHECK_OK(hy_alloc(stream, 4096, &memory));
  int64_t value = 7;
  for (int i = 0; i < SLOTS; i++) {
    CHECK_OK(hy_upload(stream, memory, &value, sizeof value));
    assert_int_equal(hy_stream_query(stream), HY_NOT_READY);
  }
  assert_int_equal(fake.live_pinned, SLOTS);
  // The ninth waits for the first and for no other.
  uint64_t queued = fake.streams[0]->submitted;
  CHECK_OK(hy_upload(stream, memory, &value, sizeof value));
  assert_true(fake.streams[0]->done > 0 && fake.streams[0]->done < queued);
  fake_finish(stream);
  // More than the ring takes waits for all.
  char* large = calloc(1, HY_UPLOAD_RING_BYTES + 1);
  void* room;
  CHECK_OK(hy_alloc(stream, HY_UPLOAD_RING_BYTES + 1, &room));
  CHECK_OK(hy_upload(stream, room, large, HY_UPLOAD_RING_BYTES));
  assert_int_equal(hy_stream_query(stream), HY_NOT_READY);
  CHECK_OK(hy_upload(stream, room, large, HY_UPLOAD_RING_BYTES + 1));
  assert_int_equal(hy_stream_query(stream), HY_OK);
  free(large);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "src", hy_upload(stream, room, NULL, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream", hy_upload(NULL, room, &value, 1));
  CHECK_OK(hy_free(&fake.device, memory));
  CHECK_OK(hy_free(&fake.device, room));
  hy_stream_destroy(stream);
  assert_int_equal(fake.live_pinned, 0);
  assert_int_equal(fake.live_events, 0);
  fake_close(&fake);
}

// A device that copies late, on a thread of its own, gets every value though the source changes.
static void test_the_source_is_free_at_once(void** state) {
  (void)state;
  enum { N = 200, MOST = 3000 };
  hy_device* device;
  hy_stream* stream;
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get("guarded:0", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  hy_array* arrays[N];
  int32_t source[MOST], back[MOST];
  for (int i = 0; i < N; i++) {
    int64_t n = 1 + i * 37 % MOST;
    for (int64_t k = 0; k < n; k++) source[k] = (int32_t)(i * 10000 + k);
    CHECK_OK(hy_array_from_host(stream, &arrays[i], HY_I32, 1, &n, source));
    memset(source, -1, sizeof source);
  }
  for (int i = 0; i < N; i++) {
    int64_t n = 1 + i * 37 % MOST;
    CHECK_OK(hy_array_to_host(stream, arrays[i], back, (size_t)n * sizeof *back));
    for (int64_t k = 0; k < n; k++) assert_int_equal(back[k], i * 10000 + k);
    hy_array_release(arrays[i]);
  }
  hy_stream_destroy(stream);
}

static void test_failures_leave_nothing_behind(void** state) {
  (void)state;
  fake_device fake;
  CHECK_OK(fake_open(&fake, "fake:0", 0, true, 1 << 24));
  const hy_fault faults[] = {HY_FAULT_ALLOCATION, HY_FAULT_COPY, HY_FAULT_HOST_ALLOCATION};
  for (int f = 0; f < 3; f++) {
    for (int64_t nth = 1;; nth++) {
      hy_stream* stream;
      void* memory;
      int64_t value = 7;
      CHECK_OK(hy_stream_create(&fake.device, &stream));
      CHECK_OK(hy_alloc(stream, 4096, &memory));
      hy_inject_fault(faults[f], nth);
      hy_status status = hy_upload(stream, memory, &value, sizeof value);
      hy_inject_fault(faults[f], 0);
      CHECK_OK(hy_upload(stream, memory, &value, sizeof value));
      CHECK_OK(hy_free(&fake.device, memory));
      hy_stream_destroy(stream);
      assert_int_equal(fake.live_pinned, 0);
      assert_int_equal(fake.live_events, 0);
      if (status == HY_OK) {
        assert_true(nth > 1);
        break;
      }
    }
  }
  fake_close(&fake);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_waits_only_when_the_ring_is_full),
      cmocka_unit_test(test_the_source_is_free_at_once),
      cmocka_unit_test(test_failures_leave_nothing_behind),
  };
  return cmocka_run_group_tests(tests, NULL, tear_down);
}
