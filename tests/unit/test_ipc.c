// Memory between processes: exported by this one, imported by a child that was started before the
// device was opened, so that nothing but the handle joins them.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halyard/halyard.h"
#include "support/check.h"

enum { N = 5000, BYTES = N * sizeof(float) };

static hy_device* device;
static hy_stream* stream;

static void start(void) {
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get("guarded:0", &device));
  CHECK_OK(hy_stream_create(device, &stream));
}

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  unsetenv("HALYARD_GUARDED_LACKS");
  return 0;
}

// ---- the child ----

#define OR_ELSE(code, condition) \
  if (!(condition)) return code

// Adds one to what it finds, twice the handle, twice the import.
static int add_one(const hy_memory_handle* handle) {
  OR_ELSE(10, hy_load_plugin(HALYARD_GUARDED_PLUGIN) == HY_OK);
  OR_ELSE(11, hy_device_get("guarded:0", &device) == HY_OK);
  OR_ELSE(12, hy_stream_create(device, &stream) == HY_OK);
  void *address, *again, *own;
  size_t bytes;
  const int64_t n = N;
  hy_tensor x;
  hy_device* owner;
  OR_ELSE(13, hy_alloc(stream, BYTES, &own) == HY_OK);
  OR_ELSE(14, hy_memory_import(device, handle, &address, &bytes) == HY_OK);
  OR_ELSE(15, bytes >= BYTES && address != own);
  OR_ELSE(16, hy_memory_import(device, handle, &again, &bytes) == HY_OK && again == address);
  OR_ELSE(17, hy_device_of_pointer(address, &owner) == HY_OK && owner == device);
  OR_ELSE(18, hy_free(device, address) == HY_INVALID_ARGUMENT);
  OR_ELSE(19, hy_memory_close(device, again) == HY_OK);
  hy_tensor_init(&x, address, HY_F32, 1, &n);
  OR_ELSE(20, hy_add_scalar(stream, &x, &x, hy_float(1), hy_int(1)) == HY_OK);
  OR_ELSE(21, hy_stream_sync(stream) == HY_OK);
  OR_ELSE(22, hy_memory_close(device, address) == HY_OK);
  OR_ELSE(23, hy_memory_close(device, address) == HY_INVALID_ARGUMENT);
  // Gone: the address is no memory of the device any more.
  OR_ELSE(24, hy_add_scalar(stream, &x, &x, hy_float(1), hy_int(1)) != HY_OK);
  // One more, left for hy_shutdown to close.
  OR_ELSE(25, hy_memory_import(device, handle, &address, &bytes) == HY_OK);
  hy_shutdown();
  return 0;
}

// Starts a child that waits for a handle at the other end of `to_child`.
static pid_t start_child(int* to_child) {
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    hy_memory_handle handle;
    close(ends[1]);
    ssize_t got = read(ends[0], &handle, sizeof handle);
    _exit(got == sizeof handle ? add_one(&handle) : 2);
  }
  close(ends[0]);
  *to_child = ends[1];
  return child;
}

static void send_and_wait(pid_t child, int to_child, const hy_memory_handle* handle) {
  int how;
  assert_int_equal(write(to_child, handle, sizeof *handle), sizeof *handle);
  close(to_child);
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFEXITED(how));
  if (WEXITSTATUS(how)) fail_msg("the child failed at %d", WEXITSTATUS(how));
}

// ---- the parent ----

static void share(bool raw) {
  int to_child;
  pid_t child = start_child(&to_child);
  start();
  static float values[N], got[N];
  for (int i = 0; i < N; i++) values[i] = (float)i;
  void *before, *address;
  CHECK_OK(hy_alloc(stream, 3000, &before));  // so that ours begins inside a segment
  if (raw) {
    CHECK_OK(hy_alloc_raw(device, BYTES, &address));
  } else {
    CHECK_OK(hy_alloc(stream, BYTES, &address));
  }
  CHECK_OK(hy_memcpy(stream, address, values, BYTES, HY_COPY_HOST_TO_DEVICE));
  CHECK_OK(hy_stream_sync(stream));
  hy_memory_handle handle;
  CHECK_OK(hy_memory_export(device, address, &handle));
  send_and_wait(child, to_child, &handle);
  CHECK_OK(hy_memcpy(stream, got, address, BYTES, HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(stream));
  for (int i = 0; i < N; i++) {
    if (got[i] != values[i] + 1) fail_msg("element %d is %g", i, got[i]);
  }
  // Cached memory that was exported stays reserved, for others may still have it mapped.
  if (raw) {
    hy_free_raw(device, address);
    return;
  }
  CHECK_OK(hy_free(device, address));
  CHECK_OK(hy_free(device, before));
  CHECK_OK(hy_empty_cache(device));
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(device, &stats));
  assert_true(stats.reserved > 0);
}

static void test_cached_memory_is_shared(void** state) {
  (void)state;
  share(false);
}

static void test_raw_memory_is_shared(void** state) {
  (void)state;
  share(true);
}

static void test_wrong_handles(void** state) {
  (void)state;
  start();
  hy_memory_handle handle, broken;
  void *address, *imported;
  size_t bytes;
  CHECK_OK(hy_alloc(stream, BYTES, &address));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "not the beginning of an allocation",
              hy_memory_export(device, (char*)address + 64, &handle));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "not the beginning of an allocation",
              hy_memory_export(device, &handle, &handle));
  CHECK_OK(hy_memory_export(device, address, &handle));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "of this process",
              hy_memory_import(device, &handle, &imported, &bytes));
  assert_null(imported);
  // Any byte changed: an error, never a crash.
  for (size_t i = 0; i < sizeof handle; i++) {
    broken = handle;
    broken.bytes[i] ^= 0x55;
    assert_int_not_equal(hy_memory_import(device, &broken, &imported, &bytes), HY_OK);
  }
  memset(&broken, 0xff, sizeof broken);
  CHECK_FAILS(HY_FORMAT, "no handle", hy_memory_import(device, &broken, &imported, &bytes));
}

static void test_backends_that_cannot_share(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_LACKS", "sharing", 1);
  start();
  hy_memory_handle handle = {{0}};
  void* address;
  size_t bytes;
  CHECK_OK(hy_alloc(stream, BYTES, &address));
  CHECK_FAILS(HY_UNSUPPORTED, "cannot share memory", hy_memory_export(device, address, &handle));
  CHECK_FAILS(HY_UNSUPPORTED, "cannot share memory",
              hy_memory_import(device, &handle, &address, &bytes));
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
  const struct CMUnitTest tests[] = {TEST(test_cached_memory_is_shared),
                                     TEST(test_raw_memory_is_shared), TEST(test_wrong_handles),
                                     TEST(test_backends_that_cannot_share)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
