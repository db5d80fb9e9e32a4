// test_memory.c - the allocator and device memory as the host sees it.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "echo_allocator.h"
#include "echo_npu_runtime.h"

#define OK(call) assert_int_equal((call), ECHO_NPU_SUCCESS)

static void allocator_coalesces(void** state) {
  (void)state;
  const uint64_t base[] = {0, 0x10000000, 0x100000000},
                 limit[] = {0x10000, 0x10010000, 0x100000000};
  echo_allocator* a = echo_allocator_create(base, limit);
  assert_non_null(a);
  uint64_t total = echo_allocator_free_bytes(a);
  assert_int_equal(total, 0x10000 - 64 + 0x10000);
  assert_int_equal(echo_allocator_free_extents(a), 2);
  uint64_t p[64], seed = 5;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 64; ++i) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      p[i] = echo_allocator_alloc(a, (int)(seed >> 60 & 1), 1 + (seed >> 33) % 3000);
      if (!p[i]) continue;
      assert_int_equal(p[i] % 64, 0);
      assert_true(p[i] >= 64);
      for (int j = 0; j < i; ++j)
        assert_true(!p[j] || p[i] + echo_allocator_size(a, p[i]) <= p[j] ||
                    p[j] + echo_allocator_size(a, p[j]) <= p[i]);
    }
    for (int i = 0; i < 64; ++i) {
      int j = (i * 37 + round) % 64;
      if (!p[j]) continue;
      assert_true(echo_allocator_free(a, p[j]) > 0);
      assert_int_equal(echo_allocator_free(a, p[j]), 0);
      p[j] = 0;
    }
    assert_int_equal(echo_allocator_free_bytes(a), total);
    assert_int_equal(echo_allocator_free_extents(a), 2);
  }
  assert_int_equal(echo_allocator_alloc(a, 2, 64), 0);
  assert_int_equal(echo_allocator_alloc(a, 0, 0), 0);
  assert_int_equal(echo_allocator_alloc(a, 0, UINT64_MAX), 0);
  uint64_t whole = echo_allocator_alloc(a, 1, 0x10000);
  assert_int_equal(whole, 0x10000000);
  assert_int_equal(echo_allocator_alloc(a, 1, 1), 0);
  assert_int_equal(echo_allocator_rest(a, whole + 0xfff0), 0x10);
  echo_allocator_destroy(a);
}

static void malloc_and_copy(void** state) {
  (void)state;
  size_t before, after, total;
  OK(echoNpuMemGetInfo(&before, &total));
  assert_true(total > before);
  char out[1000], in[1000];
  for (int i = 0; i < 1000; ++i) out[i] = (char)(i * 7);
  void *p, *q;
  OK(echoNpuMalloc(&p, 1000));
  OK(echoNpuMalloc(&q, 1000));
  uint64_t address;
  int device;
  OK(echoNpuGetAddress((char*)p + 10, &device, &address));
  assert_int_equal(device, 0);
  assert_int_equal(address % 64, 10);
  OK(echoNpuMemcpy(p, out, 1000, ECHO_NPU_MEMCPY_HOST_TO_DEVICE));
  OK(echoNpuMemcpy(q, p, 1000, ECHO_NPU_MEMCPY_DEVICE_TO_DEVICE));
  OK(echoNpuMemset((char*)q + 3, 0x5a, 5));
  OK(echoNpuMemcpy(in, q, 1000, ECHO_NPU_MEMCPY_DEFAULT));
  assert_memory_equal(in, out, 3);
  for (int i = 3; i < 8; ++i) assert_int_equal(in[i], 0x5a);
  assert_memory_equal(in + 8, out + 8, 992);
  OK(echoNpuMemcpy(in, out, 1000, ECHO_NPU_MEMCPY_HOST_TO_HOST));
  assert_memory_equal(in, out, 1000);
  OK(echoNpuFree(p));
  OK(echoNpuFree(q));
  OK(echoNpuMemGetInfo(&after, NULL));
  assert_int_equal(before, after);
}

static void bad_pointers_are_refused(void** state) {
  (void)state;
  void* p;
  char host[64];
  OK(echoNpuMalloc(&p, 100));
  assert_int_equal(echoNpuFree((char*)p + 64), ECHO_NPU_ERROR_INVALID_POINTER);
  assert_int_equal(echoNpuFree(host), ECHO_NPU_ERROR_INVALID_POINTER);
  assert_int_equal(echoNpuMemcpy(p, host, 200, ECHO_NPU_MEMCPY_HOST_TO_DEVICE),
                   ECHO_NPU_ERROR_INVALID_POINTER);
  assert_non_null(strstr(echoNpuGetLastErrorMessage(), "200 bytes wanted, 128 allocated"));
  assert_int_equal(echoNpuMemcpy(host, host, 8, ECHO_NPU_MEMCPY_DEVICE_TO_HOST),
                   ECHO_NPU_ERROR_INVALID_POINTER);
  assert_int_equal(echoNpuMemcpy(p, host, 8, (echoNpuMemcpyKind)9), ECHO_NPU_ERROR_INVALID_VALUE);
  OK(echoNpuFree(p));
  assert_int_equal(echoNpuFree(p), ECHO_NPU_ERROR_INVALID_POINTER);
  OK(echoNpuFree(NULL));
  OK(echoNpuMalloc(&p, 0));
  assert_null(p);
  assert_int_equal(echoNpuMalloc(&p, (size_t)1 << 60), ECHO_NPU_ERROR_OUT_OF_MEMORY);
  assert_null(p);
  assert_int_equal(echoNpuMallocArea(&p, 64, 7), ECHO_NPU_ERROR_INVALID_VALUE);
}

static void areas_are_where_the_map_says(void** state) {
  (void)state;
  static const uint64_t from[] = {64, ECHO_NPU_ACT_BASE, ECHO_NPU_HIGH_BASE};
  for (int area = 0; area < ECHO_NPU_AREAS; ++area) {
    void* p;
    uint64_t address;
    OK(echoNpuMallocArea(&p, 4096, area));
    OK(echoNpuGetAddress(p, NULL, &address));
    assert_true(address >= from[area]);
    assert_true(area == 2 || address < from[area + 1]);
    OK(echoNpuFree(p));
  }
}

static void many_gigabytes_cost_nothing_untouched(void** state) {
  (void)state;
  void* p;
  OK(echoNpuMalloc(&p, (size_t)7 << 30));
  char in[16], *far = (char*)p + ((size_t)7 << 30) - 16;
  OK(echoNpuMemcpy(far, "end of the board", 16, ECHO_NPU_MEMCPY_HOST_TO_DEVICE));
  OK(echoNpuMemcpy(in, far, 16, ECHO_NPU_MEMCPY_DEVICE_TO_HOST));
  assert_memory_equal(in, "end of the board", 16);
  OK(echoNpuFree(p));
}

// What a child process does to device memory, and the signal it must die of.
static int dies(void* device, int write) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    volatile char* p = device;
    if (write) *p = 1;
    _exit(*p == 77 ? 1 : 2);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void the_host_cannot_touch_device_memory(void** state) {
  (void)state;
  for (int area = 0; area < ECHO_NPU_AREAS; ++area) {
    void* p;
    OK(echoNpuMallocArea(&p, 4096, area));
    assert_true(dies(p, 0));
    assert_true(dies(p, 1));
    assert_true(dies((char*)p + 4095, 0));
    OK(echoNpuFree(p));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(allocator_coalesces),
      cmocka_unit_test(malloc_and_copy),
      cmocka_unit_test(bad_pointers_are_refused),
      cmocka_unit_test(areas_are_where_the_map_says),
      cmocka_unit_test(many_gigabytes_cost_nothing_untouched),
      cmocka_unit_test(the_host_cannot_touch_device_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
