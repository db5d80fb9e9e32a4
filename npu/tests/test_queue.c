// test_queue.c - streams, events, faults, several devices and many threads.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "echo_npu_runtime.h"

#define OK(call) assert_int_equal((call), ECHO_NPU_SUCCESS)
#define N 1000

static float host[N], back[N];

static float* upload(void) {
  void* p;
  for (int i = 0; i < N; ++i) host[i] = (float)i;
  OK(echoNpuMalloc(&p, sizeof host));
  OK(echoNpuMemcpy(p, host, sizeof host, ECHO_NPU_MEMCPY_HOST_TO_DEVICE));
  return p;
}

static void streams_keep_their_order(void** state) {
  (void)state;
  float* p = upload();
  echoNpuStream s;
  OK(echoNpuStreamCreate(&s));
  for (int i = 0; i < 3000; ++i) OK(echoNpuAddScalar(p, p, 1, N, s));
  OK(echoNpuMemcpyAsync(back, p, sizeof back, ECHO_NPU_MEMCPY_DEVICE_TO_HOST, s));
  OK(echoNpuStreamSynchronize(s));
  OK(echoNpuStreamQuery(s));
  for (int i = 0; i < N; ++i) assert_true(back[i] == (float)(i + 3000));
  OK(echoNpuStreamDestroy(s));
  OK(echoNpuFree(p));
}

static void events_order_streams(void** state) {
  (void)state;
  float* p = upload();
  echoNpuStream s[2];
  echoNpuEvent e[2];
  for (int i = 0; i < 2; ++i) {
    OK(echoNpuStreamCreate(&s[i]));
    OK(echoNpuEventCreate(&e[i]));
  }
  for (int i = 0; i < 100; ++i) {  // (x + 1) * 0.5, alternating streams
    OK(echoNpuAddScalar(p, p, 1, N, s[0]));
    OK(echoNpuEventRecord(e[0], s[0]));
    OK(echoNpuStreamWaitEvent(s[1], e[0]));
    OK(echoNpuMulScalar(p, p, 0.5f, N, s[1]));
    OK(echoNpuEventRecord(e[1], s[1]));
    OK(echoNpuStreamWaitEvent(s[0], e[1]));
  }
  OK(echoNpuEventSynchronize(e[1]));
  OK(echoNpuEventQuery(e[1]));
  OK(echoNpuMemcpy(back, p, sizeof back, ECHO_NPU_MEMCPY_DEVICE_TO_HOST));
  for (int i = 0; i < N; ++i) {
    float x = (float)i;
    for (int j = 0; j < 100; ++j) x = (x + 1) * 0.5f;
    assert_true(back[i] == x);
  }
  float ms = -1;
  uint64_t cycles = 0;
  OK(echoNpuEventElapsedTime(&ms, e[0], e[1]));
  OK(echoNpuEventElapsedCycles(&cycles, e[0], e[1]));
  assert_true(ms >= 0);
  assert_true(cycles > 0);
  echoNpuEvent never;
  OK(echoNpuEventCreate(&never));
  assert_int_equal(echoNpuEventElapsedTime(&ms, never, e[1]), ECHO_NPU_ERROR_INVALID_VALUE);
  OK(echoNpuEventDestroy(never));
  for (int i = 0; i < 2; ++i) {
    OK(echoNpuEventDestroy(e[i]));
    OK(echoNpuStreamDestroy(s[i]));
  }
  OK(echoNpuFree(p));
}

static void faults_stick_to_their_stream(void** state) {
  (void)state;
  float* p = upload();
  uint64_t at;
  OK(echoNpuGetAddress(p, NULL, &at));
  echoNpuStream bad, good;
  OK(echoNpuStreamCreate(&bad));
  OK(echoNpuStreamCreate(&good));
  echo_npu_packet packets[3] = {
      {.opcode = ECHO_NPU_OP_NOP}, {.opcode = ECHO_NPU_OP_NOP}, {.opcode = 0x77}};
  packets[1] = (echo_npu_packet){
      .opcode = ECHO_NPU_OP_MEMCPY, .src1 = at, .dst = at + (1u << 20), .param = {64}};
  OK(echoNpuSubmit(packets, 3, bad));
  assert_int_equal(echoNpuStreamSynchronize(bad), ECHO_NPU_ERROR_FAULT);
  assert_non_null(strstr(echoNpuGetLastErrorMessage(), "packet 1"));
  echoNpuFault fault;
  OK(echoNpuStreamGetFault(bad, &fault));
  assert_int_equal(fault.code, ECHO_NPU_FAULT_UNALLOCATED);
  assert_int_equal(fault.index, 1);
  assert_int_equal(fault.address, at + (1u << 20));
  assert_memory_equal(&fault.packet, &packets[1], sizeof fault.packet);
  OK(echoNpuStreamQuery(bad));

  OK(echoNpuSubmit(packets + 2, 1, bad));
  OK(echoNpuAddScalar(p, p, 1, N, good));
  OK(echoNpuStreamSynchronize(good));
  while (echoNpuStreamQuery(bad) == ECHO_NPU_ERROR_NOT_READY) continue;
  assert_int_equal(echoNpuAddScalar(p, p, 1, N, bad), ECHO_NPU_ERROR_FAULT);
  assert_int_equal(echoNpuStreamSynchronize(bad), ECHO_NPU_ERROR_FAULT);
  OK(echoNpuStreamGetFault(bad, &fault));
  assert_int_equal(fault.code, ECHO_NPU_FAULT_OPCODE);
  assert_int_equal(fault.index, 0);
  OK(echoNpuAddScalar(p, p, 1, N, bad));
  OK(echoNpuStreamSynchronize(bad));
  OK(echoNpuMemcpy(back, p, sizeof back, ECHO_NPU_MEMCPY_DEVICE_TO_HOST));
  for (int i = 0; i < N; ++i) assert_true(back[i] == (float)(i + 2));

  // A fault deep in a submission larger than the ring, with work queued behind it.
  echo_npu_packet* many = calloc(5000, sizeof *many);
  assert_non_null(many);
  many[4321].opcode = 0x99;
  OK(echoNpuSubmit(many, 5000, bad));
  assert_int_equal(echoNpuStreamSynchronize(bad), ECHO_NPU_ERROR_FAULT);
  OK(echoNpuStreamGetFault(bad, &fault));
  assert_int_equal(fault.index, 4321);
  free(many);
  OK(echoNpuStreamDestroy(bad));
  OK(echoNpuStreamDestroy(good));
  OK(echoNpuFree(p));
}

static void counters_count(void** state) {
  (void)state;
  float* p = upload();
  uint64_t c[ECHO_NPU_COUNTERS];
  OK(echoNpuClearCounters());
  OK(echoNpuMatMul(p, p + 256, p + 512, 8, 8, 16, 0, 0, NULL));
  OK(echoNpuDeviceSynchronize());
  OK(echoNpuReadCounters(c));
  assert_int_equal(c[ECHO_NPU_COUNTER_MACS], 8 * 8 * 16);
  assert_int_equal(c[ECHO_NPU_COUNTER_PACKETS], 1);
  assert_true(c[ECHO_NPU_COUNTER_BUSY] >= c[ECHO_NPU_COUNTER_MATRIX_BUSY]);
  OK(echoNpuFree(p));
}

static void devices_are_separate(void** state) {
  (void)state;
  int count, device;
  OK(echoNpuGetDeviceCount(&count));
  assert_int_equal(count, 3);
  void* p[3];
  for (int d = 0; d < 3; ++d) {
    OK(echoNpuSetDevice(d));
    OK(echoNpuMalloc(&p[d], sizeof host));
    OK(echoNpuGetAddress(p[d], &device, NULL));
    assert_int_equal(device, d);
    for (int i = 0; i < N; ++i) host[i] = (float)(i + d);
    OK(echoNpuMemcpy(p[d], host, sizeof host, ECHO_NPU_MEMCPY_DEFAULT));
  }
  // Memory of another device is refused; a copy between devices works.
  assert_int_equal(echoNpuAddScalar(p[0], p[0], 1, N, NULL), ECHO_NPU_ERROR_INVALID_POINTER);
  OK(echoNpuMemcpy(p[0], p[2], sizeof host, ECHO_NPU_MEMCPY_DEVICE_TO_DEVICE));
  OK(echoNpuMemcpy(back, p[0], sizeof back, ECHO_NPU_MEMCPY_DEFAULT));
  for (int i = 0; i < N; ++i) assert_true(back[i] == (float)(i + 2));
  assert_int_equal(echoNpuSetDevice(3), ECHO_NPU_ERROR_INVALID_DEVICE);
  for (int d = 0; d < 3; ++d) OK(echoNpuFree(p[d]));
  OK(echoNpuSetDevice(2));
  OK(echoNpuDeviceReset());
  OK(echoNpuSetDevice(0));
  echoNpuDeviceProperties properties;
  OK(echoNpuGetDeviceProperties(0, &properties));
  assert_int_equal(properties.vector_lanes, 16);
  assert_int_equal(properties.bus_bytes, 64);
}

static void* worker(void* argument) {
  long id = (long)argument;
  enum { COUNT = 512 };
  float values[COUNT], result[COUNT];
  echoNpuError error = echoNpuSetDevice((int)(id % 2));
  echoNpuStream s = NULL;
  if (!error) error = echoNpuStreamCreate(&s);
  for (int round = 0; round < 20 && !error; ++round) {
    void *a, *b;
    error = echoNpuMalloc(&a, sizeof values);
    if (!error) error = echoNpuMalloc(&b, sizeof values);
    for (int i = 0; i < COUNT; ++i) values[i] = (float)(i + id * 1000 + round);
    if (!error)
      error = echoNpuMemcpyAsync(a, values, sizeof values, ECHO_NPU_MEMCPY_HOST_TO_DEVICE, s);
    if (!error) error = echoNpuAddTensor(b, a, a, COUNT, s);
    if (!error) error = echoNpuMulScalar(b, b, 0.5f, COUNT, s);
    if (!error)
      error = echoNpuMemcpyAsync(result, b, sizeof values, ECHO_NPU_MEMCPY_DEVICE_TO_HOST, s);
    if (!error) error = echoNpuStreamSynchronize(s);
    if (!error && memcmp(values, result, sizeof values)) error = ECHO_NPU_ERROR_INVALID_VALUE;
    if (!error) error = echoNpuFree(a);
    if (!error) error = echoNpuFree(b);
  }
  if (!error) error = echoNpuStreamDestroy(s);
  return (void*)(long)error;
}

static void threads_do_not_disturb_each_other(void** state) {
  (void)state;
  pthread_t t[8];
  for (long i = 0; i < 8; ++i) assert_int_equal(pthread_create(&t[i], NULL, worker, (void*)i), 0);
  for (int i = 0; i < 8; ++i) {
    void* result;
    pthread_join(t[i], &result);
    assert_null(result);
  }
}

// The lines of a child that works at this debug level.
static void debug_lines(const char* level, char* text, size_t size) {
  int out[2];
  assert_int_equal(pipe(out), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(out[1], 2);
    setenv("ECHO_NPU_DEBUG_LEVEL", level, 1);
    execl("/proc/self/exe", "test_queue", "--work", (char*)NULL);
    _exit(127);
  }
  close(out[1]);
  size_t used = 0;
  for (ssize_t n; (n = read(out[0], text + used, size - 1 - used)) > 0;) used += (size_t)n;
  text[used] = 0;
  close(out[0]);
  int status;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static int work(void) {
  void* p;
  float x[4] = {1, 2, 3, 4};
  int failed = echoNpuMalloc(&p, sizeof x) ||
               echoNpuMemcpy(p, x, sizeof x, ECHO_NPU_MEMCPY_DEFAULT) ||
               echoNpuSiLU(p, p, 4, NULL) || echoNpuDeviceSynchronize() || echoNpuFree(p);
  echoNpuDebugLog(1, ECHO_NPU_DEBUG_CPU, "sort");
  echoNpuDebugLog(1, ECHO_NPU_DEBUG_VIEW, "transpose");
  return failed;
}

static void debug_levels(void** state) {
  (void)state;
  static char text[4][4096];
  const char* levels[] = {"0", "1", "2", "3"};
  for (int i = 0; i < 4; ++i) debug_lines(levels[i], text[i], sizeof text[i]);
  assert_string_equal(text[0], "");
  assert_string_equal(text[1], "[NPU] SiLU n=4\n[CPU] sort\n[VIEW] transpose\n");
  assert_non_null(strstr(text[2], "[COPY] host to device 16 bytes\n"));
  assert_null(strstr(text[2], "malloc"));
  assert_non_null(strstr(text[3], "[NPU] malloc 16"));
}

static void names_and_backend(void** state) {
  (void)state;
  assert_string_equal(echoNpuGetErrorName(ECHO_NPU_ERROR_OUT_OF_MEMORY),
                      "ECHO_NPU_ERROR_OUT_OF_MEMORY");
  assert_string_equal(echoNpuGetErrorString(ECHO_NPU_SUCCESS), "success");
  for (uint32_t i = 0; i <= ECHO_NPU_FAULT_UNALLOCATED; ++i)
    assert_true(strcmp(echoNpuGetFaultString(i), "unknown fault"));
  echoNpuBackendInfo info;
  OK(echoNpuGetBackendInfo(&info));
  assert_string_equal(info.name, "cmodel");
  assert_string_equal(echoNpuGetBackendName(), "cmodel");
  assert_non_null(strstr(info.features, "bf16"));
  setenv("ECHO_NPU_BACKEND", "nothing", 1);
  assert_int_equal(echoNpuGetBackendInfo(&info), ECHO_NPU_ERROR_UNAVAILABLE);
  unsetenv("ECHO_NPU_BACKEND");
}

int main(int argc, char** argv) {
  if (argc == 2 && !strcmp(argv[1], "--work")) return work();
  setenv("ECHO_NPU_DEVICE_COUNT", "3", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(streams_keep_their_order),
      cmocka_unit_test(events_order_streams),
      cmocka_unit_test(faults_stick_to_their_stream),
      cmocka_unit_test(counters_count),
      cmocka_unit_test(devices_are_separate),
      cmocka_unit_test(threads_do_not_disturb_each_other),
      cmocka_unit_test(debug_levels),
      cmocka_unit_test(names_and_backend),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
