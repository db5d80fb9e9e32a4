// The library on a device with memory of its own and streams that run by themselves: the guarded
// plugin, loaded as any other.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halyard/halyard.h"
#include "support/check.h"

enum { N = 1000 };

static hy_device* device;
static hy_stream* stream;

static void start(void) {
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get("guarded:0", &device));
  CHECK_OK(hy_stream_create(device, &stream));
}

static int tear_down(void** state) {
  (void)state;
  for (int i = 0; i < HY_FAULT_COUNT; i++) hy_inject_fault((hy_fault)i, 0);
  hy_shutdown();
  unsetenv("HALYARD_GUARDED_OPS");
  unsetenv("HALYARD_GUARDED_FAIL");
  unsetenv("HALYARD_GUARDED_DEVICES");
  unsetenv("HALYARD_GUARDED_MEMORY");
  return 0;
}

static hy_tensor vector(hy_stream* s, const float* values, int64_t n) {
  hy_tensor t;
  void* address;
  CHECK_OK(hy_alloc(s, (size_t)n * sizeof(float), &address));
  CHECK_OK(hy_tensor_init(&t, address, HY_F32, 1, &n));
  if (values) {
    CHECK_OK(hy_memcpy(s, address, values, (size_t)n * sizeof(float), HY_COPY_HOST_TO_DEVICE));
  }
  return t;
}

static void read_back(hy_stream* s, const hy_tensor* t, float* values) {
  CHECK_OK(hy_memcpy(s, values, t->data, hy_tensor_bytes(t), HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(s));
}

static void test_device_memory_faults_under_the_host(void** state) {
  (void)state;
  start();
  void* address;
  CHECK_OK(hy_alloc(stream, 100, &address));
  assert_false(hy_device_is_host(device));
  for (int write = 0; write < 2; write++) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      signal(SIGSEGV, SIG_DFL);  // sanitizers would report and exit
      volatile char* p = address;
      if (write) {
        *p = 1;
      } else {
        (void)*p;
      }
      _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGSEGV);
  }
  CHECK_OK(hy_free(device, address));
}

static void test_ops_run_in_order(void** state) {
  (void)state;
  start();
  float values[N], result[N];
  for (int i = 0; i < N; i++) values[i] = (float)i;
  hy_tensor x = vector(stream, values, N), y = vector(stream, NULL, N);
  CHECK_OK(hy_add(stream, &y, &x, &x, hy_int(1)));  // 2x
  CHECK_OK(hy_mul(stream, &x, &y, &x));             // 2x^2
  CHECK_OK(hy_sub(stream, &y, &x, &y, hy_int(1)));  // 2x^2 - 2x
  read_back(stream, &y, result);
  for (int i = 0; i < N; i++) assert_true(result[i] == 2.0f * (float)i * (float)(i - 1));
  // A view that runs backwards over every second element.
  hy_tensor half = x, out = vector(stream, NULL, N / 2);
  half.data = (float*)x.data + N - 1;
  half.shape[0] = N / 2;
  half.stride[0] = -2;
  CHECK_OK(hy_neg(stream, &out, &half));
  read_back(stream, &out, result);
  for (int i = 0; i < N / 2; i++) {
    float v = (float)(N - 1 - 2 * i);
    assert_true(result[i] == -2 * v * v);
  }
  assert_int_equal(hy_fallback_count(), 0);
}

// The arguments of a queued call may be gone before it runs.
static void test_calls_are_copied(void** state) {
  (void)state;
  start();
  float values[N] = {0}, result[N];
  hy_tensor x = vector(stream, values, N);
  for (int i = 0; i < 200; i++) {
    hy_tensor* out = malloc(sizeof *out);
    hy_tensor* in = malloc(sizeof *in);
    *out = *in = x;
    hy_status status = hy_add_scalar(stream, out, in, hy_float(1), hy_int(1));
    memset(out, 0xff, sizeof *out);
    memset(in, 0xff, sizeof *in);
    free(out);
    free(in);
    CHECK_OK(status);
  }
  read_back(stream, &x, result);
  for (int i = 0; i < N; i++) assert_true(result[i] == 200);
}

static void test_memory_is_reused_safely(void** state) {
  (void)state;
  start();
  hy_stream* other;
  CHECK_OK(hy_stream_create(device, &other));
  float values[N], result[N];
  for (int round = 0; round < 100; round++) {
    for (int i = 0; i < N; i++) values[i] = (float)(round + i);
    hy_tensor x = vector(stream, values, N);
    hy_event* ready;
    CHECK_OK(hy_event_create(device, &ready));
    CHECK_OK(hy_event_record(ready, stream));
    CHECK_OK(hy_stream_wait_event(other, ready));
    hy_event_destroy(ready);
    hy_tensor y = vector(other, NULL, N);
    CHECK_OK(hy_record_stream(other, x.data));
    CHECK_OK(hy_neg(other, &y, &x));
    CHECK_OK(hy_free(device, x.data));
    // Would overwrite x, were its memory given out too early.
    hy_tensor z = vector(stream, NULL, N);
    CHECK_OK(hy_memset(stream, z.data, 0xff, N * sizeof(float)));
    read_back(other, &y, result);
    for (int i = 0; i < N; i++) assert_true(result[i] == -values[i]);
    CHECK_OK(hy_stream_sync(stream));
    CHECK_OK(hy_free(device, y.data));
    CHECK_OK(hy_free(device, z.data));
  }
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(device, &stats));
  assert_in_range(stats.backend_allocations, 1, 2);  // one for each stream at most
  hy_stream_destroy(other);
}

static void test_events(void** state) {
  (void)state;
  start();
  hy_event *before, *after;
  CHECK_OK(hy_event_create(device, &before));
  CHECK_OK(hy_event_create(device, &after));
  hy_tensor x = vector(stream, NULL, N);
  CHECK_OK(hy_memset(stream, x.data, 0, N * sizeof(float)));
  CHECK_OK(hy_event_record(before, stream));
  for (int i = 0; i < 100; i++) CHECK_OK(hy_neg(stream, &x, &x));
  CHECK_OK(hy_event_record(after, stream));
  CHECK_OK(hy_event_sync(after));
  CHECK_OK(hy_event_query(before));
  double milliseconds;
  CHECK_OK(hy_event_elapsed(before, after, &milliseconds));
  assert_true(milliseconds > 0);
  // Destroyed while the queue still names it.
  CHECK_OK(hy_event_record(before, stream));
  hy_event_destroy(before);
  hy_event_destroy(after);
  CHECK_OK(hy_stream_sync(stream));
}

static void test_errors_come_late_and_stick(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_FAIL", "mul", 1);
  start();
  float values[4] = {1, 2, 3, 4}, result[4] = {0};
  hy_tensor x = vector(stream, values, 4), y = vector(stream, NULL, 4);
  CHECK_OK(hy_add(stream, &y, &x, &x, hy_int(1)));
  hy_status status = hy_mul(stream, &y, &x, &x);
  // What follows may be accepted as long as nobody knows, and must not run.
  for (int i = 0; i < 10 && status == HY_OK; i++) status = hy_neg(stream, &y, &y);
  const char* said = "mul on guarded:0 failed: the device was told to fail";
  CHECK_FAILS(HY_DEVICE_FAILED, said, hy_stream_sync(stream));
  CHECK_FAILS(HY_DEVICE_FAILED, said, hy_neg(stream, &y, &y));
  CHECK_FAILS(HY_DEVICE_FAILED, said,
              hy_memcpy(stream, result, y.data, sizeof result, HY_COPY_DEVICE_TO_HOST));
  CHECK_FAILS(HY_DEVICE_FAILED, said, hy_stream_query(stream));
  CHECK_OK(hy_stream_reset(stream));
  read_back(stream, &y, result);
  for (int i = 0; i < 4; i++) assert_true(result[i] == 2 * values[i]);
}

// What the kernel finds wrong arrives with its own status and text.
static void test_kernel_errors_keep_their_words(void** state) {
  (void)state;
  start();
  const int64_t shape[2] = {4, 3}, n = 1, out_shape[2] = {1, 3}, bad = 17;
  hy_tensor weight, index, out;
  void* address;
  CHECK_OK(hy_alloc(stream, 48, &address));
  CHECK_OK(hy_tensor_init(&weight, address, HY_F32, 2, shape));
  CHECK_OK(hy_memset(stream, address, 0, 48));
  CHECK_OK(hy_alloc(stream, 8, &address));
  CHECK_OK(hy_tensor_init(&index, address, HY_I64, 1, &n));
  CHECK_OK(hy_memcpy(stream, address, &bad, sizeof bad, HY_COPY_DEFAULT));
  CHECK_OK(hy_alloc(stream, 12, &address));
  CHECK_OK(hy_tensor_init(&out, address, HY_F32, 2, out_shape));
  hy_status status = hy_embedding(stream, &out, &weight, &index, -1);
  if (status == HY_UNSUPPORTED) {
    print_message("skipped: %s\n", hy_last_error());
    skip();
  }
  CHECK_OK(status);
  CHECK_FAILS(HY_INDEX, "embedding on guarded:0 failed", hy_stream_sync(stream));
  assert_non_null(strstr(hy_last_error(), "17"));
}

static void test_out_of_memory(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_MEMORY", "64", 1);
  start();
  void *a, *b;
  CHECK_OK(hy_alloc(stream, (size_t)50 << 20, &a));
  CHECK_FAILS(HY_OUT_OF_MEMORY, "guarded:0 is out of memory: 30.00 MiB requested",
              hy_alloc(stream, (size_t)30 << 20, &b));
  CHECK_OK(hy_memset(stream, a, 1, (size_t)50 << 20));
  CHECK_OK(hy_free(device, a));
  // The cached block is too small: it goes back, once the memset is done, and the request fits.
  CHECK_OK(hy_alloc(stream, (size_t)60 << 20, &b));
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(device, &stats));
  assert_int_equal(stats.retries, 1);
  assert_int_equal(stats.out_of_memory, 1);
  CHECK_OK(hy_free(device, b));
}

static void test_fallback(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_OPS", "add,mm", 1);
  start();
  hy_fallback_clear();
  float values[4] = {1, 2, 3, 4}, result[4];
  hy_tensor x = vector(stream, values, 4), y = vector(stream, NULL, 4);
  CHECK_OK(hy_add(stream, &y, &x, &x, hy_int(1)));
  assert_int_equal(hy_fallback_count(), 0);
  CHECK_OK(hy_mul(stream, &y, &y, &x));
  assert_int_equal(hy_fallback_count(), 1);
  read_back(stream, &y, result);
  for (int i = 0; i < 4; i++) assert_true(result[i] == 2 * values[i] * values[i]);
  hy_fallback_entry entry;
  assert_int_equal(hy_fallback_report(&entry, 1), 1);
  assert_int_equal(entry.op, HY_OP_mul);
  assert_int_equal(entry.reason, HY_SUPPORT_NO_OP);
  assert_string_equal(entry.device, "guarded:0");
  hy_set_strict(true);
  hy_status status = hy_mul(stream, &y, &y, &x);
  hy_set_strict(false);
  assert_int_equal(status, HY_FALLBACK_REFUSED);
}

// Whatever fails on the way through the host, nothing is lost and the stream goes on.
static void test_failures_within_a_fallback(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_OPS", "add", 1);
  start();
  static const hy_fault kinds[] = {HY_FAULT_COPY, HY_FAULT_ALLOCATION, HY_FAULT_HOST_ALLOCATION};
  float values[4] = {1, 2, 3, 4}, result[4];
  hy_tensor x = vector(stream, values, 4), y = vector(stream, NULL, 4);
  CHECK_OK(hy_mul(stream, &y, &x, &x));
  hy_memory_stats before, after;
  CHECK_OK(hy_memory_get_stats(device, &before));
  for (int k = 0; k < 3; k++) {
    hy_status status = HY_DEVICE_FAILED;
    for (int64_t nth = 1; status != HY_OK; nth++) {
      assert_true(nth < 50);
      hy_inject_fault(kinds[k], nth);
      status = hy_mul(stream, &y, &x, &x);
      if (status == HY_OK) break;
      assert_int_equal(status, kinds[k] == HY_FAULT_COPY ? HY_DEVICE_FAILED : HY_OUT_OF_MEMORY);
      assert_true(strlen(hy_last_error()) > 0);
    }
    hy_inject_fault(kinds[k], 0);
  }
  CHECK_OK(hy_memory_get_stats(device, &after));
  assert_int_equal(after.allocated, before.allocated);
  read_back(stream, &y, result);
  for (int i = 0; i < 4; i++) assert_true(result[i] == values[i] * values[i]);
}

static void test_two_devices(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_DEVICES", "2", 1);
  start();
  hy_device* second;
  hy_stream* there;
  CHECK_OK(hy_device_get("guarded:1", &second));
  CHECK_OK(hy_stream_create(second, &there));
  const size_t bytes = ((size_t)9 << 20) + 5;
  unsigned char *sent = malloc(bytes), *received = calloc(1, bytes);
  for (size_t i = 0; i < bytes; i++) sent[i] = (unsigned char)(i * 7 + i / 256);
  void *a, *b;
  CHECK_OK(hy_alloc(stream, bytes, &a));
  CHECK_OK(hy_alloc(there, bytes, &b));
  CHECK_OK(hy_memcpy(stream, a, sent, bytes, HY_COPY_DEFAULT));
  CHECK_OK(hy_memcpy_peer(there, b, stream, a, bytes));
  CHECK_OK(hy_memcpy(there, received, b, bytes, HY_COPY_DEFAULT));
  CHECK_OK(hy_stream_sync(there));
  assert_memory_equal(sent, received, bytes);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "hy_memcpy_peer", hy_memcpy(there, b, a, 1, HY_COPY_DEFAULT));
  free(sent);
  free(received);
}

static void test_addresses_are_checked(void** state) {
  (void)state;
  start();
  char* a;
  char host[64] = {0};
  CHECK_OK(hy_alloc_raw(device, 100, (void**)&a));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "are not in one allocation",
              hy_memcpy(stream, a + 60, host, 64, HY_COPY_HOST_TO_DEVICE));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "are not in one allocation",
              hy_memcpy(stream, host, host, 64, HY_COPY_DEVICE_TO_HOST));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "are not in one allocation", hy_memset(stream, a - 1, 0, 2));
  hy_free_raw(device, a);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "are not in one allocation", hy_memset(stream, a, 0, 1));
}

static void test_injected_faults(void** state) {
  (void)state;
  start();
  float values[4] = {1, 2, 3, 4};
  hy_tensor x = vector(stream, values, 4);
  for (int64_t nth = 1; nth <= 3; nth++) {
    hy_inject_fault(HY_FAULT_KERNEL, nth);
    for (int64_t i = 1; i <= 4; i++) {
      if (i == nth) {
        CHECK_FAILS(HY_DEVICE_FAILED, "injected", hy_neg(stream, &x, &x));
      } else {
        CHECK_OK(hy_neg(stream, &x, &x));
      }
    }
    hy_inject_fault(HY_FAULT_COPY, nth);
    hy_inject_fault(HY_FAULT_ALLOCATION, nth);
    for (int64_t i = 1; i <= 4; i++) {
      hy_status expected = i == nth ? HY_DEVICE_FAILED : HY_OK;
      assert_int_equal(hy_memcpy(stream, x.data, values, 16, HY_COPY_DEFAULT), expected);
      void* address;
      expected = i == nth ? HY_OUT_OF_MEMORY : HY_OK;
      assert_int_equal(hy_alloc(stream, 16, &address), expected);
    }
  }
  CHECK_OK(hy_stream_sync(stream));
}

static void* use_a_stream(void* argument) {
  hy_stream* s = argument;
  float values[64], result[64];
  for (int round = 0; round < 100; round++) {
    for (int i = 0; i < 64; i++) values[i] = (float)(round * i);
    int64_t n = 64;
    hy_tensor x, y;
    void *a = NULL, *b = NULL;
    hy_status status = hy_alloc(s, sizeof values, &a);
    if (status == HY_OK) status = hy_alloc(s, sizeof values, &b);
    if (status == HY_OK) status = hy_tensor_init(&x, a, HY_F32, 1, &n);
    if (status == HY_OK) status = hy_tensor_init(&y, b, HY_F32, 1, &n);
    if (status == HY_OK) status = hy_memcpy(s, a, values, sizeof values, HY_COPY_DEFAULT);
    if (status == HY_OK) status = hy_neg(s, &y, &x);
    if (status == HY_OK) status = hy_free(hy_stream_device(s), a);
    if (status == HY_OK) status = hy_memcpy(s, result, b, sizeof result, HY_COPY_DEFAULT);
    if (status == HY_OK) status = hy_free(hy_stream_device(s), b);
    if (status == HY_OK) status = hy_stream_sync(s);
    if (status != HY_OK) return s;
    for (int i = 0; i < 64; i++) {
      if (result[i] != -values[i]) return s;
    }
  }
  return NULL;
}

static void test_threads(void** state) {
  (void)state;
  start();
  pthread_t threads[4];
  hy_stream* streams[4];
  for (int i = 0; i < 4; i++) CHECK_OK(hy_stream_create(device, &streams[i]));
  for (int i = 0; i < 4; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, use_a_stream, streams[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    void* failed;
    pthread_join(threads[i], &failed);
    assert_null(failed);
  }
}

static void test_wrong_options_are_named(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_OPS", "add,madd", 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "\"madd\" is no op", hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  unsetenv("HALYARD_GUARDED_OPS");
  setenv("HALYARD_GUARDED_DEVICES", "9", 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "HALYARD_GUARDED_DEVICES",
              hy_load_plugin(HALYARD_GUARDED_PLUGIN));
}

#define TEST(name) cmocka_unit_test_teardown(name, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_device_memory_faults_under_the_host),
      TEST(test_ops_run_in_order),
      TEST(test_calls_are_copied),
      TEST(test_memory_is_reused_safely),
      TEST(test_events),
      TEST(test_errors_come_late_and_stick),
      TEST(test_kernel_errors_keep_their_words),
      TEST(test_out_of_memory),
      TEST(test_fallback),
      TEST(test_failures_within_a_fallback),
      TEST(test_two_devices),
      TEST(test_addresses_are_checked),
      TEST(test_injected_faults),
      TEST(test_threads),
      TEST(test_wrong_options_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
