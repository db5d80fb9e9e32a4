// test_card.c - the fpga and asic drivers end to end against a stand-in card: a model in a process
// of its own behind files (tools/echo_standin.c). No silicon is involved. Usage: test_card
// ECHO_STANDIN ECHO_TEST_OPS [BACKEND]
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "echo_npu_runtime.h"

#define OK(call) assert_int_equal((call), ECHO_NPU_SUCCESS)

static const char *standin, *test_ops, *backend = "cmodel";
static char directory[64];
static pid_t card;
static int card_input;

static int start_card(void** state) {
  (void)state;
  int in[2], out[2];
  char ready[8] = "";
  strcpy(directory, "/tmp/echo_card_XXXXXX");
  assert_non_null(mkdtemp(directory));
  assert_int_equal(pipe2(in, O_CLOEXEC), 0);
  assert_int_equal(pipe2(out, O_CLOEXEC), 0);
  card = fork();
  assert_true(card >= 0);
  if (card == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    execl(standin, standin, directory, backend, "16", (char*)NULL);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  card_input = in[1];
  ssize_t n = read(out[0], ready, 5);
  close(out[0]);
  assert_true(n == 5 && !memcmp(ready, "ready", 5));
  return 0;
}

static int stop_card(void** state) {
  (void)state;
  int status;
  close(card_input);  // the stand-in ends with its input
  if (card > 0) waitpid(card, &status, 0);
  card = 0;
  static const char* const names[] = {"xdma0_user",  "bar0",           "bar2", "xdma0_h2c_0",
                                      "xdma0_c2h_0", "xdma0_events_0", "irq"};
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, names[i]);
    unlink(path);
  }
  rmdir(directory);
  return 0;
}

static void choose(const char* driver) {
  setenv("ECHO_NPU_BACKEND", driver, 1);
  setenv("ECHO_NPU_FPGA_DIR", directory, 1);
  setenv("ECHO_NPU_ASIC_STANDIN", directory, 1);
}

// As the vendor's kernel driver answers: the events node gives 4 bytes to a read of 4, and EPROTO
// to any other. A FIFO would give what it has.
ssize_t __real_read(int fd, void* to, size_t bytes);
ssize_t __wrap_read(int fd, void* to, size_t bytes);
static atomic_uint events_read;
ssize_t __wrap_read(int fd, void* to, size_t bytes) {
  char link[64], path[160];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  path[n > 0 ? n : 0] = 0;
  if (!strstr(path, "/xdma0_events_0")) return __real_read(fd, to, bytes);
  atomic_fetch_add(&events_read, 1);
  if (bytes == 4) return __real_read(fd, to, bytes);
  errno = EPROTO;
  return -1;
}

static void operations_run_on(const char* driver) {
  choose(driver);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    execl(test_ops, test_ops, (char*)NULL);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void faults_come_back_from(const char* driver) {
  choose(driver);
  echoNpuBackendInfo info;
  OK(echoNpuGetBackendInfo(&info));
  assert_string_equal(info.name, driver);
  echoNpuDeviceProperties properties;
  OK(echoNpuGetDeviceProperties(0, &properties));
  assert_true(properties.memory_total > (30u << 20) && properties.memory_total < (33u << 20));
  assert_int_equal(properties.clock_mhz, 250);
  echo_npu_packet bad = {
      .opcode = ECHO_NPU_OP_MEMCPY, .src1 = 64, .dst = ECHO_NPU_REG_BASE, .param = {64}};
  for (int i = 0; i < 5; ++i) {
    OK(echoNpuSubmit(&bad, 1, NULL));
    assert_int_equal(echoNpuDeviceSynchronize(), ECHO_NPU_ERROR_FAULT);
    echoNpuFault fault;
    OK(echoNpuStreamGetFault(NULL, &fault));
    assert_int_equal(fault.code, ECHO_NPU_FAULT_RANGE);
    assert_int_equal(fault.address, ECHO_NPU_REG_BASE);
    float host[8] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8];
    void* p;
    OK(echoNpuMalloc(&p, sizeof host));
    OK(echoNpuMemcpy(p, host, sizeof host, ECHO_NPU_MEMCPY_DEFAULT));
    OK(echoNpuAddTensor(p, p, p, 8, NULL));
    OK(echoNpuMemcpy(back, p, sizeof back, ECHO_NPU_MEMCPY_DEFAULT));
    for (int j = 0; j < 8; ++j) assert_true(back[j] == 2 * host[j]);
    OK(echoNpuFree(p));
  }
  OK(echoNpuDeviceReset());
}

static void fpga_runs_operations(void** state) {
  (void)state;
  operations_run_on("fpga");
}
static void asic_runs_operations(void** state) {
  (void)state;
  operations_run_on("asic");
}
static void fpga_reports_faults(void** state) {
  (void)state;
  faults_come_back_from("fpga");
}

// An interrupt while the card still works: it is taken as XDMA gives it, and the wait goes on.
static void fpga_takes_events_of_four_bytes(void** state) {
  (void)state;
  choose("fpga");
  float host[8] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8];
  void* p;
  OK(echoNpuMalloc(&p, sizeof host));
  OK(echoNpuMemcpy(p, host, sizeof host, ECHO_NPU_MEMCPY_DEFAULT));
  OK(echoNpuDeviceSynchronize());
  kill(card, SIGSTOP);
  atomic_store(&events_read, 0);
  OK(echoNpuAddTensor(p, p, p, 8, NULL));
  char path[128];
  snprintf(path, sizeof path, "%s/xdma0_events_0", directory);
  int node = open(path, O_WRONLY);
  uint32_t event = 1;
  assert_true(node >= 0 && write(node, &event, sizeof event) == sizeof event);
  close(node);
  while (!atomic_load(&events_read)) usleep(1000);
  kill(card, SIGCONT);
  OK(echoNpuMemcpy(back, p, sizeof back, ECHO_NPU_MEMCPY_DEFAULT));
  for (int j = 0; j < 8; ++j) assert_true(back[j] == 2 * host[j]);
  OK(echoNpuDeviceReset());
}
static void asic_reports_faults(void** state) {
  (void)state;
  faults_come_back_from("asic");
}

static void a_dead_card_is_lost_not_a_hang(void** state) {
  (void)state;
  choose("fpga");
  void* p;
  OK(echoNpuMalloc(&p, 4096));
  OK(echoNpuMemset(p, 0, 4096));
  kill(card, SIGKILL);
  waitpid(card, NULL, 0);
  card = 0;
  OK(echoNpuAddTensor(p, p, p, 100, NULL));
  assert_int_equal(echoNpuDeviceSynchronize(), ECHO_NPU_ERROR_DEVICE_LOST);
  OK(echoNpuDeviceReset());
}

// A card that answers nothing: the command ends in time, the device counts as lost, and works again
// once the card does and it has been reset.
static void a_hung_card_is_given_up(void** state) {
  (void)state;
  choose("fpga");
  setenv("ECHO_NPU_TIMEOUT_MS", "300", 1);
  float host[8] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8];
  void* p;
  OK(echoNpuMalloc(&p, sizeof host));
  OK(echoNpuMemset(p, 0, sizeof host));
  OK(echoNpuDeviceSynchronize());
  kill(card, SIGSTOP);
  OK(echoNpuAddTensor(p, p, p, 8, NULL));
  assert_int_equal(echoNpuDeviceSynchronize(), ECHO_NPU_ERROR_TIMEOUT);
  OK(echoNpuAddTensor(p, p, p, 8, NULL));
  assert_int_equal(echoNpuDeviceSynchronize(), ECHO_NPU_ERROR_DEVICE_LOST);
  kill(card, SIGCONT);
  unsetenv("ECHO_NPU_TIMEOUT_MS");
  OK(echoNpuDeviceReset());
  OK(echoNpuMalloc(&p, sizeof host));
  OK(echoNpuMemcpy(p, host, sizeof host, ECHO_NPU_MEMCPY_DEFAULT));
  OK(echoNpuAddTensor(p, p, p, 8, NULL));
  OK(echoNpuMemcpy(back, p, sizeof back, ECHO_NPU_MEMCPY_DEFAULT));
  for (int j = 0; j < 8; ++j) assert_true(back[j] == 2 * host[j]);
  OK(echoNpuDeviceReset());
}

static void missing_cards_are_explained(void** state) {
  (void)state;
  int count;
  setenv("ECHO_NPU_BACKEND", "fpga", 1);
  setenv("ECHO_NPU_FPGA_DIR", "/nonexistent", 1);
  unsetenv("ECHO_NPU_ASIC_STANDIN");
  assert_int_equal(echoNpuGetDeviceCount(&count), ECHO_NPU_ERROR_UNAVAILABLE);
  assert_non_null(strstr(echoNpuGetLastErrorMessage(), "/nonexistent/xdma0_user"));
  setenv("ECHO_NPU_BACKEND", "asic", 1);
  assert_int_equal(echoNpuGetDeviceCount(&count), ECHO_NPU_ERROR_UNAVAILABLE);
  setenv("ECHO_NPU_ASIC_DEVICES", "0000:ff:1f.7", 1);
  OK(echoNpuGetDeviceCount(&count));
  void* p;
  assert_int_equal(echoNpuMalloc(&p, 64), ECHO_NPU_ERROR_UNAVAILABLE);
  assert_non_null(strstr(echoNpuGetLastErrorMessage(), "0000:ff:1f.7"));
  echoNpuBackendInfo info;
  setenv("ECHO_NPU_BACKEND", "cmodel", 1);
  OK(echoNpuGetBackendInfo(&info));
  assert_non_null(strstr(info.missing, "fpga: no /nonexistent/xdma0_user"));
}

// A BAR that is not an NPU's, and an NPU from before what the runtime relies on.
static void strangers_are_refused(void** state) {
  (void)state;
  char path[128];
  snprintf(path, sizeof path, "%s/xdma0_user", directory);
  kill(card, SIGKILL);
  waitpid(card, NULL, 0);
  card = 0;
  static const uint32_t strangers[][2] = {{0x10ee7038, ECHO_NPU_HW_VERSION},
                                          {ECHO_NPU_ID, 0x00010000}};
  for (int i = 0; i < 2; ++i) {
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0 && pwrite(fd, strangers[i], 8, ECHO_NPU_REG_ID) == 8);
    close(fd);
    choose("fpga");
    void* p;
    assert_int_equal(echoNpuMalloc(&p, 64), ECHO_NPU_ERROR_UNAVAILABLE);
    assert_non_null(strstr(echoNpuGetLastErrorMessage(), "not an ECHO NPU of version 1.1"));
  }
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: test_card ECHO_STANDIN ECHO_TEST_OPS [BACKEND]\n");
    return 2;
  }
  standin = argv[1];
  test_ops = argv[2];
  if (argc > 3) backend = argv[3];
#define WITH_CARD(test) cmocka_unit_test_setup_teardown(test, start_card, stop_card)
  const struct CMUnitTest tests[] = {
      WITH_CARD(fpga_runs_operations),
      WITH_CARD(asic_runs_operations),
      WITH_CARD(fpga_reports_faults),
      WITH_CARD(asic_reports_faults),
      WITH_CARD(fpga_takes_events_of_four_bytes),
      WITH_CARD(a_dead_card_is_lost_not_a_hang),
      WITH_CARD(a_hung_card_is_given_up),
      WITH_CARD(strangers_are_refused),
      cmocka_unit_test(missing_cards_are_explained),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
