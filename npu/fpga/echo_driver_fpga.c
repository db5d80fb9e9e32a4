// echo_driver_fpga.c - a PCIe card with a Xilinx DMA (XDMA) bridge in front of the NPU.
//
// The XDMA kernel driver gives character devices, for card N:
//   xdmaN_user       the AXI4-Lite BAR; mapped, it is the register file
//   xdmaN_h2c_0      host to card; the file offset is the AXI address
//   xdmaN_c2h_0      card to host
//   xdmaN_events_0   a read of exactly 4 bytes returns when the card has raised user interrupt 0;
//                    the driver answers any other length with EPROTO
// They are looked for in ECHO_NPU_FPGA_DIR, /dev by default.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "echo_pcie.h"

#define MAX_CARDS 16

static const char* directory(void) {
  const char* d = getenv("ECHO_NPU_FPGA_DIR");
  return d && *d ? d : "/dev";
}

static int open_node(int card, const char* node, int flags) {
  char path[512];
  snprintf(path, sizeof path, "%s/xdma%d_%s", directory(), card, node);
  return open(path, flags | O_CLOEXEC);
}

static int count(char* reason, size_t size) {
  int n = 0;
  char path[512];
  for (; n < MAX_CARDS; ++n) {
    snprintf(path, sizeof path, "%s/xdma%d_user", directory(), n);
    if (access(path, F_OK) != 0) break;
  }
  if (n == 0)
    snprintf(reason, size, "no %s/xdma0_user: is the card in and the xdma kernel driver loaded?",
             directory());
  return n;
}

static void close_card(void* device) {
  echo_pcie* d = device;
  if (d->registers) munmap((void*)(uintptr_t)d->registers, ECHO_NPU_REG_BYTES);
  if (d->to_device >= 0) close(d->to_device);
  if (d->from_device >= 0) close(d->from_device);
  if (d->interrupt >= 0) close(d->interrupt);
  free(d);
}

static int open_card(int index, echo_board* board, void** device, char* reason, size_t size) {
  echo_pcie* d = calloc(1, sizeof *d);
  if (!d) {
    snprintf(reason, size, "no host memory");
    return -1;
  }
  d->to_device = open_node(index, "h2c_0", O_WRONLY);
  d->from_device = open_node(index, "c2h_0", O_RDONLY);
  d->interrupt = open_node(index, "events_0", O_RDONLY | O_NONBLOCK);
  d->event_bytes = sizeof(uint32_t);
  int user = open_node(index, "user", O_RDWR);
  if (user < 0 || d->to_device < 0 || d->from_device < 0) {
    snprintf(reason, size, "%s/xdma%d_*: %s", directory(), index, strerror(errno));
    if (user >= 0) close(user);
    close_card(d);
    return -1;
  }
  void* bar = mmap(NULL, ECHO_NPU_REG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, user, 0);
  close(user);
  if (bar == MAP_FAILED) {
    snprintf(reason, size, "mapping the registers of card %d: %s", index, strerror(errno));
    close_card(d);
    return -1;
  }
  d->registers = bar;
  if (echo_pcie_identify(d, board, reason, size) != 0) {
    close_card(d);
    return -1;
  }
  *device = d;
  return 0;
}

const echo_driver echo_driver_fpga = {
    "fpga",
    "pcie xdma f32 bf16 int8 interrupts",
    count,
    open_card,
    close_card,
    echo_pcie_read,
    echo_pcie_write,
    echo_pcie_read_memory,
    echo_pcie_write_memory,
    echo_pcie_doorbell,
    echo_pcie_wait,
    NULL,
    10000,
};
