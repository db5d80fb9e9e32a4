// test_stall.c - a bus that stands still or answers with errors, seen through the runtime on the
// compiled hardware: an error with a code, and a device that works afterwards.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "echo_npu_runtime.h"

#define OK(call) assert_int_equal((call), ECHO_NPU_SUCCESS)
#define N 64
// Where the first block of a fresh device is: behind the ring.
#define FIRST (ECHO_NPU_ACT_BASE + 0x10000)

static void configure(const char* bus, const char* watchdog, const char* timeout) {
  setenv("ECHO_NPU_BACKEND", "rtlmodel", 1);
  setenv("ECHO_NPU_MEMORY", "16M", 1);
  setenv("ECHO_NPU_RTL_BUS", bus, 1);
  setenv("ECHO_NPU_WATCHDOG", watchdog, 1);
  setenv("ECHO_NPU_TIMEOUT_MS", timeout, 1);
  echoNpuBackendInfo info;
  if (echoNpuGetBackendInfo(&info) == ECHO_NPU_ERROR_UNAVAILABLE) {
    print_message("skipped: %s\n", echoNpuGetLastErrorMessage());
    skip();
  }
}

// a + a of fresh memory, or the error on the way.
static echoNpuError add(float* p) {
  float host[N], back[N] = {0};
  for (int i = 0; i < N; ++i) host[i] = (float)i;
  OK(echoNpuMemcpy(p, host, sizeof host, ECHO_NPU_MEMCPY_HOST_TO_DEVICE));
  OK(echoNpuAddTensor(p, p, p, N, NULL));
  echoNpuError error = echoNpuDeviceSynchronize();
  if (error) return error;
  OK(echoNpuMemcpy(back, p, sizeof back, ECHO_NPU_MEMCPY_DEVICE_TO_HOST));
  for (int i = 0; i < N; ++i) assert_true(back[i] == 2 * host[i]);
  return error;
}

static echoNpuError add_until_it_fails(float* p) {
  for (int i = 0; i < 1000; ++i) {
    echoNpuError error = add(p);
    if (error) return error;
  }
  return ECHO_NPU_SUCCESS;
}

static void stalls(const char* watchdog, const char* timeout) {
  configure("freeze=20000", watchdog, timeout);
  float* p;
  OK(echoNpuMalloc((void**)&p, N * sizeof *p));
  assert_int_equal(add_until_it_fails(p), ECHO_NPU_ERROR_TIMEOUT);
  assert_non_null(strstr(echoNpuGetLastErrorMessage(), "in time: packet 0 (opcode 0x02"));
  echoNpuFault fault;
  OK(echoNpuStreamGetFault(NULL, &fault));
  assert_int_equal(fault.code, ECHO_NPU_FAULT_TIMEOUT);
  assert_int_equal(add(p), ECHO_NPU_ERROR_TIMEOUT);  // the bus is as dead as before
  OK(echoNpuDeviceReset());  // a board that was switched off and on: its clock starts again
  OK(echoNpuMalloc((void**)&p, N * sizeof *p));
  OK(add(p));
  OK(echoNpuDeviceReset());
}

static void the_watchdog_ends_a_stalled_bus(void** state) {
  (void)state;
  stalls("2000", "0");
}

static void the_time_limit_ends_it_without_a_watchdog(void** state) {
  (void)state;
  stalls("0", "300");
}

static void bus_errors_have_a_code_and_an_address(void** state) {
  (void)state;
  configure("error=0x10010100+64", "2000", "0");
  float *first, *bad, *good;
  OK(echoNpuMalloc((void**)&first, 256));
  OK(echoNpuMalloc((void**)&bad, 256));
  OK(echoNpuMalloc((void**)&good, 256));
  uint64_t address;
  OK(echoNpuGetAddress(bad, NULL, &address));
  assert_int_equal(address, FIRST + 0x100);
  for (int i = 0; i < 3; ++i) {
    echoNpuFault fault;
    OK(echoNpuAddTensor(first, bad, bad, N, NULL));
    assert_int_equal(echoNpuDeviceSynchronize(), ECHO_NPU_ERROR_FAULT);
    OK(echoNpuStreamGetFault(NULL, &fault));
    assert_int_equal(fault.code, ECHO_NPU_FAULT_BUS_READ);
    assert_int_equal(fault.address, address);
    OK(echoNpuAddTensor(bad, first, first, N, NULL));
    assert_int_equal(echoNpuDeviceSynchronize(), ECHO_NPU_ERROR_FAULT);
    OK(echoNpuStreamGetFault(NULL, &fault));
    assert_int_equal(fault.code, ECHO_NPU_FAULT_BUS_WRITE);
    OK(add(good));
  }
  OK(echoNpuDeviceReset());
}

// The memory refuses beats that nobody has allocated; the fault names the first of them.
static void commands_outside_allocations_fault(void** state) {
  (void)state;
  configure("", "2000", "0");
  float *p, *good;
  uint64_t address;
  OK(echoNpuMalloc((void**)&p, 256));
  OK(echoNpuMalloc((void**)&good, 256));
  OK(echoNpuGetAddress(p, NULL, &address));
  OK(echoNpuFree(good));
  const uint64_t outside = address + 256;
  const echo_npu_packet packets[] = {
      {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = address, .dst = address + 64, .param = {64}},
      {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = outside - 64, .dst = address, .param = {128}},
      {.opcode = ECHO_NPU_OP_MEMCPY, .src1 = address, .dst = outside, .param = {64}}};
  const uint32_t codes[] = {0, ECHO_NPU_FAULT_BUS_READ, ECHO_NPU_FAULT_BUS_WRITE};
  for (int i = 0; i < 3; ++i) {
    OK(echoNpuSubmit(&packets[i], 1, NULL));
    assert_int_equal(echoNpuDeviceSynchronize(),
                     codes[i] ? ECHO_NPU_ERROR_FAULT : ECHO_NPU_SUCCESS);
    if (!codes[i]) continue;
    echoNpuFault fault;
    OK(echoNpuStreamGetFault(NULL, &fault));
    assert_int_equal(fault.code, codes[i]);
    assert_int_equal(fault.address, outside);
  }
  OK(echoNpuMalloc((void**)&good, 256));
  OK(add(good));
  OK(echoNpuDeviceReset());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_watchdog_ends_a_stalled_bus),
      cmocka_unit_test(the_time_limit_ends_it_without_a_watchdog),
      cmocka_unit_test(bus_errors_have_a_code_and_an_address),
      cmocka_unit_test(commands_outside_allocations_fault),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
