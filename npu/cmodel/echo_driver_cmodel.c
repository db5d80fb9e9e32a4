// echo_driver_cmodel.c - the functional model as a bottom of the runtime. Packets run inside wait.
#include <stdio.h>
#include <string.h>

#include "echo_cmodel.h"
#include "echo_simulated.h"

static int open_model(int index, echo_board* board, void** device, char* reason, size_t size) {
  (void)index;
  echo_area areas[ECHO_NPU_AREAS];
  echo_simulated_areas(board, areas);
  *device = echo_cmodel_create(areas, board->memory_fd);
  if (*device) {
    echo_cmodel_write(*device, ECHO_NPU_REG_CLOCK_MHZ, board->clock_mhz);
    return 0;
  }
  snprintf(reason, size, "cmodel: no memory or threads for the simulated board");
  return -1;
}

static void close_model(void* device) {
  echo_cmodel_destroy(device);
}
static uint32_t read_register(void* device, uint32_t offset) {
  return echo_cmodel_read(device, offset);
}
static void write_register(void* device, uint32_t offset, uint32_t value) {
  echo_cmodel_write(device, offset, value);
}

static int read_memory(void* device, uint64_t address, void* to, uint64_t bytes) {
  const void* from = echo_cmodel_memory(device, address, bytes);
  if (!from) return -1;
  memcpy(to, from, bytes);
  return 0;
}

static int write_memory(void* device, uint64_t address, const void* from, uint64_t bytes) {
  void* to = echo_cmodel_memory(device, address, bytes);
  if (!to) return -1;
  memcpy(to, from, bytes);
  return 0;
}

static void doorbell(void* device, uint32_t tail) {
  echo_cmodel_write(device, ECHO_NPU_REG_RING_TAIL, tail);
}

static echo_wait wait_model(void* device, uint32_t milliseconds) {
  (void)milliseconds;
  echo_cmodel_run(device, 0);
  return echo_cmodel_read(device, ECHO_NPU_REG_STATUS) == ECHO_NPU_STATUS_BUSY ? ECHO_WAIT_TIMEOUT
                                                                               : ECHO_WAIT_DONE;
}

static int track(void* device, uint64_t address, uint64_t bytes, int allocated) {
  return echo_cmodel_track(device, address, bytes, allocated);
}

const echo_driver echo_driver_cmodel = {
    "cmodel",
    "functional bit-exact f32 bf16 int8 timing-estimate allocation-checks",
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
