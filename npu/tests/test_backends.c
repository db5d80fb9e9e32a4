// test_backends.c - two bottoms in one process: the functional model and the compiled hardware side
// by side give the same bits, and memory, streams and threads stay with the device they are of.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "echo_npu_compat.h"

#define OK(call) assert_int_equal((call), ECHO_NPU_SUCCESS)
#define N 100

static int listed(const char* name) {
  const char* names[ECHO_NPU_BACKENDS];
  int count = listBackends(names), found = 0;
  for (int i = 0; i < count; ++i) found += !strcmp(names[i], name);
  return found;
}

// a + alpha a and a product, on the current device.
static void compute(float* device, float alpha, float* sum, float* product) {
  float host[N];
  for (int i = 0; i < N; ++i) host[i] = 1.0f / (float)(i + 3);
  OK(echoNpuMemcpy(device, host, sizeof host, ECHO_NPU_MEMCPY_HOST_TO_DEVICE));
  OK(addTensor(device + N, device, device, N, alpha));
  OK(matMul(device + 2 * N, device, device, 10, 10, 10));
  OK(echoNpuMemcpy(sum, device + N, N * sizeof *sum, ECHO_NPU_MEMCPY_DEVICE_TO_HOST));
  OK(echoNpuMemcpy(product, device + 2 * N, N * sizeof *sum, ECHO_NPU_MEMCPY_DEVICE_TO_HOST));
}

typedef struct worker {
  float* device;
  float sum[N], product[N];
  echoNpuError error;
} worker;

// A thread that has used a device stays with it when the default changes.
static pthread_barrier_t default_changed, before_change;
static void* stays_where_it_was(void* argument) {
  worker* w = argument;
  w->error = echoNpuMalloc((void**)&w->device, 3 * N * sizeof(float));
  pthread_barrier_wait(&before_change);
  pthread_barrier_wait(&default_changed);
  float host[N] = {1};
  if (!w->error) w->error = echoNpuMemcpy(w->device, host, sizeof host, ECHO_NPU_MEMCPY_DEFAULT);
  if (!w->error) w->error = addTensor(w->device, w->device, w->device, N, 1);
  if (!w->error) w->error = echoNpuDeviceSynchronize();
  return NULL;
}

static void two_bottoms_side_by_side(void** state) {
  (void)state;
  assert_true(listed("cmodel"));
  assert_false(listed("asic"));
  if (!listed("rtlmodel")) {
    print_message("skipped: the compiled hardware is not built\n");
    skip();
  }
  float *soft, *hard, sum[2][N], product[2][N];
  OK(setDefaultBackend("cmodel"));
  assert_string_equal(echoNpuGetBackendName(), "cmodel");
  OK(echoNpuMalloc((void**)&soft, 3 * N * sizeof *soft));

  worker other = {0};
  pthread_t thread;
  pthread_barrier_init(&before_change, NULL, 2);
  pthread_barrier_init(&default_changed, NULL, 2);
  assert_int_equal(pthread_create(&thread, NULL, stays_where_it_was, &other), 0);
  pthread_barrier_wait(&before_change);
  OK(setDefaultBackend("rtlmodel"));
  pthread_barrier_wait(&default_changed);
  assert_string_equal(echoNpuGetBackendName(), "rtlmodel");
  OK(echoNpuMalloc((void**)&hard, 3 * N * sizeof *hard));
  pthread_join(thread, NULL);
  OK(other.error);
  pthread_barrier_destroy(&before_change);
  pthread_barrier_destroy(&default_changed);

  compute(hard, -0.3f, sum[0], product[0]);
  NpuStatus status;
  OK(getStatus(&status));
  assert_int_equal(status, NPU_STATUS_DONE);
  // The stream of the thread's device, the memory of another.
  assert_int_equal(addTensor(soft, soft, soft, N, 1), ECHO_NPU_ERROR_INVALID_POINTER);
  assert_non_null(strstr(echoNpuGetLastErrorMessage(), "memory of cmodel device 0"));
  // Copies find their devices from the pointers, across bottoms too.
  float back[N];
  OK(echoNpuMemcpy(soft + 2 * N, hard + N, N * sizeof *soft, ECHO_NPU_MEMCPY_DEVICE_TO_DEVICE));
  OK(echoNpuMemcpy(back, soft + 2 * N, sizeof back, ECHO_NPU_MEMCPY_DEVICE_TO_HOST));
  assert_memory_equal(back, sum[0], sizeof back);

  OK(setDefaultBackend("cmodel"));
  compute(soft, -0.3f, sum[1], product[1]);
  assert_memory_equal(sum[0], sum[1], sizeof sum[0]);
  assert_memory_equal(product[0], product[1], sizeof product[0]);

  // One is closed, the other works on.
  OK(echoNpuDeviceReset());
  assert_int_equal(echoNpuFree(soft), ECHO_NPU_ERROR_INVALID_POINTER);
  OK(setDefaultBackend("rtlmodel"));
  compute(hard, 2, sum[0], product[0]);
  assert_memory_equal(product[0], product[1], sizeof product[0]);
  OK(echoNpuDeviceReset());
}

static void backends_that_are_not_there(void** state) {
  (void)state;
  OK(setDefaultBackend("cmodel"));
  assert_int_equal(setDefaultBackend("tpu"), ECHO_NPU_ERROR_UNAVAILABLE);
  assert_non_null(strstr(echoNpuGetLastErrorMessage(), "'tpu'"));
  assert_int_equal(setDefaultBackend("asic"), ECHO_NPU_ERROR_UNAVAILABLE);
  assert_string_equal(echoNpuGetBackendName(), "cmodel");
  setenv("ECHO_NPU_BACKEND", "fpga", 1);
  assert_string_equal(echoNpuGetBackendName(), "cmodel");
  OK(setDefaultBackend(NULL));
  assert_string_equal(echoNpuGetBackendName(), "fpga");
  unsetenv("ECHO_NPU_BACKEND");
}

int main(void) {
  setenv("ECHO_NPU_MEMORY", "16M", 1);
  unsetenv("ECHO_NPU_ASIC_DEVICES");
  unsetenv("ECHO_NPU_ASIC_STANDIN");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_bottoms_side_by_side),
      cmocka_unit_test(backends_that_are_not_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
