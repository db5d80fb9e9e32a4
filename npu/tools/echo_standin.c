// echo_standin - a stand-in for a card: runs a model of the NPU in a process of its own behind
// files that look like what the fpga and asic drivers open. It is not hardware and does not claim
// to be.
//
// Usage: echo_standin DIRECTORY [BACKEND [MEBIBYTES]]     BACKEND: cmodel (default) or rtlmodel
//
//   xdma0_user, bar0               the register BAR: a file both sides map. Nothing traps, so this
//   program
//                                  watches the registers the host may write and acts on changes.
//   xdma0_h2c_0, xdma0_c2h_0, bar2 the memory: a sparse file that the model uses as its RAM
//   xdma0_events_0                 the interrupt as XDMA gives it: a FIFO with 4 bytes an event
//   irq                            as an eventfd gives it: a FIFO with 8 bytes an event
//
// Prints "ready" when the files are there; runs until SIGTERM or the end of standard input.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "echo_driver.h"

static volatile sig_atomic_t stop;
static void on_signal(int signal) {
  (void)signal;
  stop = 1;
}

static char path_buffer[600];
static const char* in(const char* directory, const char* name) {
  snprintf(path_buffer, sizeof path_buffer, "%s/%s", directory, name);
  return path_buffer;
}

static int make_file(const char* directory, const char* name, uint64_t bytes) {
  int fd = open(in(directory, name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
    close(fd);
    fd = -1;
  }
  return fd;
}

static int make_link(const char* directory, const char* name, const char* target) {
  unlink(in(directory, name));
  return symlink(target, in(directory, name));
}

static int make_fifo(const char* directory, const char* name) {
  unlink(in(directory, name));
  if (mkfifo(in(directory, name), 0600) != 0) return -1;
  return open(in(directory, name), O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

// ---- The register BAR -------------------------------------------------------------------------

typedef struct card {
  const echo_driver* driver;
  void* device;
  volatile uint32_t* bar;
  int events, irq;
  uint32_t tail;
} card;

static uint32_t get(card* c, uint32_t offset) {
  return __atomic_load_n(&c->bar[offset / 4], __ATOMIC_ACQUIRE);
}
static void put(card* c, uint32_t offset, uint32_t value) {
  __atomic_store_n(&c->bar[offset / 4], value, __ATOMIC_RELEASE);
}
static void publish(card* c, uint32_t offset) {
  put(c, offset, c->driver->read_register(c->device, offset));
}

// HEAD goes last: it tells the host that the rest is there.
static void publish_results(card* c) {
  static const uint32_t offsets[] = {ECHO_NPU_REG_FAULT_CODE,    ECHO_NPU_REG_FAULT_INDEX,
                                     ECHO_NPU_REG_FAULT_ADDR_LO, ECHO_NPU_REG_FAULT_ADDR_HI,
                                     ECHO_NPU_REG_LAST_CYCLES,   ECHO_NPU_REG_IRQ_STATUS,
                                     ECHO_NPU_REG_STATUS};
  for (uint32_t i = 0; i < ECHO_NPU_COUNTERS * 2; ++i) publish(c, ECHO_NPU_REG_COUNTER + 4 * i);
  for (size_t i = 0; i < sizeof offsets / sizeof *offsets; ++i) publish(c, offsets[i]);
  publish(c, ECHO_NPU_REG_RING_HEAD);
}

static void publish_all(card* c) {
  publish(c, ECHO_NPU_REG_ID);
  publish(c, ECHO_NPU_REG_VERSION);
  publish(c, ECHO_NPU_REG_CONFIG);
  publish(c, ECHO_NPU_REG_CLOCK_MHZ);
  for (uint32_t i = 0; i < 4 * ECHO_NPU_AREAS; ++i) publish(c, ECHO_NPU_REG_AREA + 4 * i);
  for (uint32_t o = ECHO_NPU_REG_RING_BASE_LO; o <= ECHO_NPU_REG_IRQ_ENABLE; o += 4) publish(c, o);
  publish_results(c);
}

// Returns whether the device was reset.
static int act_on_control(card* c) {
  uint32_t control = get(c, ECHO_NPU_REG_CONTROL);
  uint32_t pulses = control & (ECHO_NPU_CONTROL_RESET | ECHO_NPU_CONTROL_CLEAR_COUNTERS);
  uint32_t before = c->driver->read_register(c->device, ECHO_NPU_REG_CONTROL);
  if (control == before) return 0;
  if (control & ECHO_NPU_CONTROL_ENABLE && !(before & ECHO_NPU_CONTROL_ENABLE)) {
    // What the host set while the ring was off.
    static const uint32_t offsets[] = {ECHO_NPU_REG_RING_BASE_LO, ECHO_NPU_REG_RING_BASE_HI,
                                       ECHO_NPU_REG_RING_LOG2, ECHO_NPU_REG_WATCHDOG,
                                       ECHO_NPU_REG_IRQ_ENABLE};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; ++i)
      c->driver->write_register(c->device, offsets[i], get(c, offsets[i]));
    for (uint32_t i = 0; i < 4 * ECHO_NPU_AREAS; ++i)
      c->driver->write_register(c->device, ECHO_NPU_REG_AREA + 4 * i,
                                get(c, ECHO_NPU_REG_AREA + 4 * i));
  }
  c->driver->write_register(c->device, ECHO_NPU_REG_CONTROL, control);
  if (pulses) {
    if (pulses & ECHO_NPU_CONTROL_RESET) c->tail = 0;
    publish_all(c);
  }
  put(c, ECHO_NPU_REG_CONTROL, c->driver->read_register(c->device, ECHO_NPU_REG_CONTROL));
  return (pulses & ECHO_NPU_CONTROL_RESET) != 0;
}

// An event; nobody need be reading. Little-endian, so that its first bytes are the count.
static int tell(int fd, size_t bytes) {
  const uint64_t event = 1;
  return write(fd, &event, bytes) == (ssize_t)bytes || errno == EAGAIN;
}

// Looks at the host's registers once; returns whether packets ran. The doorbell is read first: what
// the host wrote before ringing it is then seen too.
static int act(card* c) {
  uint32_t tail = get(c, ECHO_NPU_REG_RING_TAIL);
  if (act_on_control(c) || tail == c->tail) return 0;
  if (!(c->driver->read_register(c->device, ECHO_NPU_REG_CONTROL) & ECHO_NPU_CONTROL_ENABLE))
    return 0;
  c->tail = tail;
  c->driver->write_register(c->device, ECHO_NPU_REG_IRQ_STATUS, ~0u);
  c->driver->doorbell(c->device, tail);
  while (c->driver->wait(c->device, 1000) == ECHO_WAIT_TIMEOUT && !stop) continue;
  publish_results(c);
  uint32_t raised = c->driver->read_register(c->device, ECHO_NPU_REG_IRQ_STATUS) &
                    c->driver->read_register(c->device, ECHO_NPU_REG_IRQ_ENABLE);
  if (raised && (!tell(c->events, sizeof(uint32_t)) || !tell(c->irq, sizeof(uint64_t)))) stop = 1;
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: echo_standin DIRECTORY [BACKEND [MEBIBYTES]]\n");
    return 2;
  }
  const char* directory = argv[1];
  uint64_t bytes = (argc > 3 ? strtoull(argv[3], NULL, 10) : 64) << 20;
  char reason[256] = "";
  setenv("ECHO_NPU_BACKEND", argc > 2 ? argv[2] : "cmodel", 1);
  signal(SIGTERM, on_signal);
  signal(SIGINT, on_signal);
  signal(SIGPIPE, SIG_IGN);

  card c = {.driver = echo_driver_select(reason, sizeof reason)};
  if (!c.driver) {
    fprintf(stderr, "echo_standin: %s\n", reason);
    return 3;
  }
  int bar = make_file(directory, "xdma0_user", ECHO_NPU_REG_BYTES);
  int memory = make_file(directory, "bar2", ECHO_NPU_ACT_BASE + bytes);
  c.events = make_fifo(directory, "xdma0_events_0");
  c.irq = make_fifo(directory, "irq");
  if (bar < 0 || memory < 0 || c.events < 0 || c.irq < 0 ||
      make_link(directory, "bar0", "xdma0_user") || make_link(directory, "xdma0_h2c_0", "bar2") ||
      make_link(directory, "xdma0_c2h_0", "bar2")) {
    perror(directory);
    return 1;
  }
  echo_board board = {{ECHO_NPU_WEIGHT_BASE, ECHO_NPU_ACT_BASE, ECHO_NPU_HIGH_BASE},
                      {ECHO_NPU_WEIGHT_BASE + bytes, ECHO_NPU_ACT_BASE + bytes, ECHO_NPU_HIGH_BASE},
                      250,
                      memory};
  void* map = mmap(NULL, ECHO_NPU_REG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, bar, 0);
  if (map == MAP_FAILED || c.driver->open(0, &board, &c.device, reason, sizeof reason) != 0) {
    fprintf(stderr, "echo_standin: %s\n", reason);
    return 1;
  }
  c.bar = map;
  publish_all(&c);
  printf("ready\n");
  fflush(stdout);

  for (unsigned idle = 0; !stop; ++idle) {
    if (act(&c)) idle = 0;
    if (idle < 1000) continue;
    struct timespec t = {0, 20000};
    nanosleep(&t, NULL);
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    if (idle % 256 == 0 && poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0) break;
  }
  c.driver->close(c.device);
  return 0;
}
