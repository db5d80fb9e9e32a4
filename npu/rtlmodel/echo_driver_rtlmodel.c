// echo_driver_rtlmodel.c - the compiled hardware as a bottom of the runtime. The clock runs inside
// wait.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "echo_rtlmodel.h"
#include "echo_simulated.h"

#define SLICE 4096  // cycles between looks at the clock on the wall

static int open_model(int index, echo_board* board, void** device, char* reason, size_t size) {
  (void)index;
  echo_area areas[ECHO_NPU_AREAS];
  echo_simulated_areas(board, areas);
  *device = echo_rtlmodel_create(areas, board->memory_fd);
  if (*device) {
    echo_rtlmodel_write(*device, ECHO_NPU_REG_CLOCK_MHZ, board->clock_mhz);
    return 0;
  }
  snprintf(reason, size, "rtlmodel: no memory for the simulated board");
  return -1;
}

static void close_model(void* device) {
  echo_rtlmodel_destroy(device);
}
static uint32_t read_register(void* device, uint32_t offset) {
  return echo_rtlmodel_read(device, offset);
}
static void write_register(void* device, uint32_t offset, uint32_t value) {
  echo_rtlmodel_write(device, offset, value);
  if (offset != ECHO_NPU_REG_RING_LOG2) return;
  const uint64_t low = echo_rtlmodel_read(device, ECHO_NPU_REG_RING_BASE_LO);
  const uint64_t high = echo_rtlmodel_read(device, ECHO_NPU_REG_RING_BASE_HI);
  echo_rtlmodel_set_ring(device, high << 32 | low, (uint64_t)ECHO_NPU_PACKET_BYTES << (value & 31));
}

static int read_memory(void* device, uint64_t address, void* to, uint64_t bytes) {
  const void* from = echo_rtlmodel_memory(device, address, bytes);
  if (!from) return -1;
  memcpy(to, from, bytes);
  return 0;
}

static int write_memory(void* device, uint64_t address, const void* from, uint64_t bytes) {
  void* to = echo_rtlmodel_memory(device, address, bytes);
  if (!to) return -1;
  memcpy(to, from, bytes);
  return 0;
}

static void doorbell(void* device, uint32_t tail) {
  echo_rtlmodel_write(device, ECHO_NPU_REG_RING_TAIL, tail);
}

static uint64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static echo_wait wait_model(void* device, uint32_t milliseconds) {
  const uint64_t end = now_ms() + milliseconds;
  while (!echo_rtlmodel_run(device, SLICE))
    if (now_ms() >= end) return ECHO_WAIT_TIMEOUT;
  return ECHO_WAIT_DONE;
}

static int track(void* device, uint64_t address, uint64_t bytes, int allocated) {
  return echo_rtlmodel_track(device, address, bytes, allocated);
}

__attribute__((visibility("default"))) const echo_driver echo_driver_rtlmodel_1 = {
    "rtlmodel",
    "verilog cycle-exact bit-exact f32 bf16 int8 waveform allocation-checks",
    echo_simulated_count,
    open_model,
    close_model,
    read_register,
    write_register,
    read_memory,
    write_memory,
    doorbell,
    wait_model,
    track,
    0,
};
