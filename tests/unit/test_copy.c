// Copies in every direction, and pinned memory.
#include <stdlib.h>

#include "support/check.h"
#include "support/fake.h"

enum { BYTES = 1000 };

// Two devices with memory of their own and one that shares the host's.
static fake_device first, second, shared;
static hy_stream *on_first, *on_second, *on_shared;

static int set_up(void** state) {
  (void)state;
  const size_t capacity = (size_t)1 << 30;
  if (fake_open(&first, "fake:0", 0, true, capacity)) return -1;
  if (fake_open(&second, "fake:1", 0, false, capacity)) return -1;
  if (fake_open(&shared, "near:0", HY_BACKEND_HOST_MEMORY, false, capacity)) return -1;
  if (hy_stream_create(&first.device, &on_first)) return -1;
  if (hy_stream_create(&second.device, &on_second)) return -1;
  return hy_stream_create(&shared.device, &on_shared);
}

static int tear_down(void** state) {
  (void)state;
  hy_inject_fault(HY_FAULT_COPY, 0);
  fake_close(&first);
  fake_close(&second);
  fake_close(&shared);
  return first.live_memory + first.live_pinned + second.live_memory + shared.live_memory;
}

static unsigned char* take(hy_stream* stream, size_t bytes) {
  void* address;
  CHECK_OK(hy_alloc(stream, bytes, &address));
  return address;
}

static void fill(unsigned char* p, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; i++) p[i] = (unsigned char)(i * 31 + seed);
}

static void test_default_finds_the_kind(void** state) {
  (void)state;
  unsigned char host_a[BYTES], host_b[BYTES];
  unsigned char *a = take(on_first, BYTES), *b = take(on_first, BYTES);
  void* raw;
  CHECK_OK(hy_alloc_raw(&first.device, BYTES, &raw));
  unsigned char* near = take(on_shared, BYTES);
  const struct {
    void* dst;
    const void* src;
    hy_copy_kind kind;
  } cases[] = {{a, host_a, HY_COPY_HOST_TO_DEVICE},   {host_b, a, HY_COPY_DEVICE_TO_HOST},
               {b, a, HY_COPY_DEVICE_TO_DEVICE},      {host_b, host_a, HY_COPY_HOST_TO_HOST},
               {raw, host_a, HY_COPY_HOST_TO_DEVICE}, {a, raw, HY_COPY_DEVICE_TO_DEVICE},
               {near, a, HY_COPY_DEVICE_TO_HOST},     {b, near, HY_COPY_HOST_TO_DEVICE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fill(host_a, BYTES, (unsigned)i);
    CHECK_OK(hy_memcpy(on_first, cases[i].dst, cases[i].src, BYTES, HY_COPY_DEFAULT));
    assert_int_equal(first.last_kind, cases[i].kind);
    assert_memory_equal(cases[i].dst, cases[i].src, BYTES);
  }
  // The middle and the last byte of an allocation are its device's too.
  CHECK_OK(hy_memcpy(on_first, a + BYTES - 1, host_a, 1, HY_COPY_DEFAULT));
  assert_int_equal(first.last_kind, HY_COPY_HOST_TO_DEVICE);
  hy_free_raw(&first.device, raw);
}

static void test_explicit_kinds_are_passed_on(void** state) {
  (void)state;
  unsigned char host[BYTES];
  unsigned char* a = take(on_first, BYTES);
  fill(host, BYTES, 7);
  for (int kind = 0; kind < HY_COPY_DEFAULT; kind++) {
    CHECK_OK(hy_memcpy(on_first, a, host, BYTES, (hy_copy_kind)kind));
    assert_int_equal(first.last_kind, kind);
  }
}

static void test_another_devices_memory_is_refused(void** state) {
  (void)state;
  unsigned char host[BYTES];
  unsigned char *a = take(on_first, BYTES), *b = take(on_second, BYTES);
  fill(host, BYTES, 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "src is on fake:1 and the stream is of fake:0",
              hy_memcpy(on_first, a, b, BYTES, HY_COPY_DEFAULT));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "dst is on fake:1 and the stream is of near:0",
              hy_memcpy(on_shared, b, host, BYTES, HY_COPY_DEFAULT));
  assert_int_equal(first.copies + second.copies + shared.copies, 0);
}

static void test_memset(void** state) {
  (void)state;
  unsigned char* a = take(on_first, BYTES);
  CHECK_OK(hy_memset(on_first, a, 0xab, BYTES));
  assert_int_equal(a[0], 0xab);
  assert_int_equal(a[BYTES - 1], 0xab);
}

static void test_bad_arguments(void** state) {
  (void)state;
  unsigned char host[BYTES];
  unsigned char* a = take(on_first, BYTES);
  fill(host, BYTES, 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream is NULL", hy_memcpy(NULL, a, host, 1, HY_COPY_DEFAULT));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "dst is NULL",
              hy_memcpy(on_first, NULL, host, 1, HY_COPY_DEFAULT));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "src is NULL", hy_memcpy(on_first, a, NULL, 1, HY_COPY_DEFAULT));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "9 is no kind",
              hy_memcpy(on_first, a, host, 1, (hy_copy_kind)9));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "dst is NULL", hy_memset(on_first, NULL, 0, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream is NULL", hy_memset(NULL, a, 0, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "src_stream is NULL", hy_memcpy_peer(on_first, a, NULL, a, 1));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "dst is NULL", hy_memcpy_peer(on_first, NULL, on_second, a, 1));
  // Nothing to copy needs no addresses.
  CHECK_OK(hy_memcpy(on_first, NULL, NULL, 0, HY_COPY_DEFAULT));
  CHECK_OK(hy_memset(on_first, NULL, 0, 0));
  CHECK_OK(hy_memcpy_peer(on_first, NULL, on_second, NULL, 0));
  assert_int_equal(first.copies, 0);
}

static void check_peer(hy_stream* to, hy_stream* from, size_t bytes) {
  unsigned char *src = take(from, bytes), *dst = take(to, bytes);
  fill(src, bytes, (unsigned)bytes);
  memset(dst, 0, bytes);
  CHECK_OK(hy_memcpy_peer(to, dst, from, src, bytes));
  assert_memory_equal(dst, src, bytes);
  CHECK_OK(hy_stream_query(to));
  CHECK_OK(hy_stream_query(from));
  CHECK_OK(hy_free(hy_stream_device(from), src));
  CHECK_OK(hy_free(hy_stream_device(to), dst));
}

static void test_peer(void** state) {
  (void)state;
  hy_stream* streams[] = {on_first, on_second, on_shared};
  for (int i = 0; i < 3; i++) {
    for (int j = 0; j < 3; j++) {
      check_peer(streams[i], streams[j], 1);
      check_peer(streams[i], streams[j], ((size_t)12 << 20) + 17);  // several stages and a rest
    }
  }
  assert_int_equal(first.live_pinned, 0);
}

static void test_peer_failures_free_the_stage(void** state) {
  (void)state;
  const size_t bytes = (size_t)9 << 20;
  unsigned char *src = take(on_first, bytes), *dst = take(on_second, bytes);
  int failures = 0;
  for (int nth = 1; nth < 100; nth++) {
    hy_inject_fault(HY_FAULT_COPY, nth);
    hy_status status = hy_memcpy_peer(on_second, dst, on_first, src, bytes);
    assert_int_equal(first.live_pinned, 0);
    if (status == HY_OK) break;
    assert_int_equal(status, HY_DEVICE_FAILED);
    failures++;
  }
  assert_int_equal(failures, 6);  // three parts, down and up
}

static void test_injected_faults(void** state) {
  (void)state;
  unsigned char host[BYTES];
  unsigned char* a = take(on_first, BYTES);
  fill(host, BYTES, 3);
  hy_inject_fault(HY_FAULT_COPY, 3);
  CHECK_OK(hy_memcpy(on_first, a, host, BYTES, HY_COPY_DEFAULT));
  CHECK_OK(hy_memset(on_first, a, 1, BYTES));
  CHECK_FAILS(HY_DEVICE_FAILED, "copy of 1000 bytes on fake:0 failed by an injected fault",
              hy_memcpy(on_first, a, host, BYTES, HY_COPY_DEFAULT));
  CHECK_OK(hy_memcpy(on_first, a, host, BYTES, HY_COPY_DEFAULT));
  assert_int_equal(hy_fault_events(HY_FAULT_COPY), 4);
  hy_inject_fault(HY_FAULT_COPY, 1);
  CHECK_FAILS(HY_DEVICE_FAILED, "memset", hy_memset(on_first, a, 1, BYTES));
}

static void test_pinned_memory(void** state) {
  (void)state;
  fake_device* devices[] = {&first, &second};  // with and without pinned memory of its own
  for (int i = 0; i < 2; i++) {
    hy_device* device = &devices[i]->device;
    void *a, *b;
    char local;
    CHECK_OK(hy_host_alloc(device, BYTES, &a));
    CHECK_OK(hy_host_alloc(device, 0, &b));
    assert_int_equal(devices[i]->live_pinned, i == 0 ? 2 : 0);
    memset(a, 1, BYTES);
    assert_true(hy_host_is_pinned(device, a));
    assert_true(hy_host_is_pinned(device, (char*)a + BYTES - 1));
    assert_true(hy_host_is_pinned(device, b));
    assert_false(hy_host_is_pinned(device, &local));
    assert_false(hy_host_is_pinned(&shared.device, a));
    hy_host_free(device, a);
    assert_false(hy_host_is_pinned(device, a));
    hy_host_free(device, b);
    hy_host_free(device, NULL);
    assert_int_equal(devices[i]->live_pinned, 0);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_default_finds_the_kind),
      TEST(test_explicit_kinds_are_passed_on),
      TEST(test_another_devices_memory_is_refused),
      TEST(test_memset),
      TEST(test_bad_arguments),
      TEST(test_peer),
      TEST(test_peer_failures_free_the_stage),
      TEST(test_injected_faults),
      TEST(test_pinned_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
