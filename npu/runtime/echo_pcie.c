// echo_pcie.c - PCIe access: mapped registers, DMA transfers, and waiting for an interrupt or by
// polling.
#define _GNU_SOURCE
#include "echo_pcie.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A card that has fallen off the bus reads as all ones.
#define GONE 0xffffffffu

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(long microseconds) {
  struct timespec t = {0, microseconds * 1000};
  nanosleep(&t, NULL);
}

uint32_t echo_pcie_read(void* device, uint32_t offset) {
  echo_pcie* d = device;
  return __atomic_load_n(&d->registers[offset / 4], __ATOMIC_ACQUIRE);
}

void echo_pcie_write(void* device, uint32_t offset, uint32_t value) {
  echo_pcie* d = device;
  __atomic_store_n(&d->registers[offset / 4], value, __ATOMIC_RELEASE);
  // Self-clearing bits: what follows must find the reset done.
  const uint32_t pulses = ECHO_NPU_CONTROL_RESET | ECHO_NPU_CONTROL_CLEAR_COUNTERS;
  if (offset != ECHO_NPU_REG_CONTROL || !(value & pulses)) return;
  for (double until = now() + 1; now() < until;) {
    uint32_t control = echo_pcie_read(d, offset);
    if (control == GONE || !(control & pulses)) break;
    nap(10);
  }
}

// Channels may move less than asked.
static int transfer(int fd, char* data, uint64_t bytes, uint64_t at, int out) {
  while (bytes) {
    size_t piece = bytes < (64u << 20) ? bytes : 64u << 20;
    ssize_t n = out ? pwrite(fd, data, piece, (off_t)at) : pread(fd, data, piece, (off_t)at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    data += n;
    at += (uint64_t)n;
    bytes -= (uint64_t)n;
  }
  return 0;
}

int echo_pcie_read_memory(void* device, uint64_t address, void* to, uint64_t bytes) {
  echo_pcie* d = device;
  if (!d->window) return transfer(d->from_device, to, bytes, address, 0);
  if (address > d->window_bytes || bytes > d->window_bytes - address) return -1;
  memcpy(to, d->window + address, bytes);
  return 0;
}

int echo_pcie_write_memory(void* device, uint64_t address, const void* from, uint64_t bytes) {
  echo_pcie* d = device;
  if (!d->window) return transfer(d->to_device, (char*)(uintptr_t)from, bytes, address, 1);
  if (address > d->window_bytes || bytes > d->window_bytes - address) return -1;
  memcpy(d->window + address, from, bytes);
  return 0;
}

void echo_pcie_doorbell(void* device, uint32_t tail) {
  echo_pcie* d = device;
  d->tail = tail;
  echo_pcie_write(d, ECHO_NPU_REG_RING_TAIL, tail);
}

// HEAD is written by the device alone, so it tells the end of the work even while the doorbell is
// still on its way; STATUS would not.
static int finished(echo_pcie* d) {
  return echo_pcie_read(d, ECHO_NPU_REG_STATUS) == ECHO_NPU_STATUS_ERROR ||
         echo_pcie_read(d, ECHO_NPU_REG_RING_HEAD) == d->tail;
}

// Returns whether the interrupt is still there.
static int take_event(echo_pcie* d) {
  uint64_t event;
  ssize_t n = read(d->interrupt, &event, d->event_bytes);
  return n == (ssize_t)d->event_bytes || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

echo_wait echo_pcie_wait(void* device, uint32_t milliseconds) {
  echo_pcie* d = device;
  double until = now() + milliseconds * 1e-3;
  while (!finished(d)) {
    if (echo_pcie_read(d, ECHO_NPU_REG_ID) == GONE) return ECHO_WAIT_LOST;
    double left = until - now();
    if (left <= 0) return ECHO_WAIT_TIMEOUT;
    if (d->interrupt < 0) {
      nap(50);
      continue;
    }
    struct pollfd p = {.fd = d->interrupt, .events = POLLIN};
    int ready = poll(&p, 1, left < 0.1 ? 1 + (int)(left * 1e3) : 100);
    if (ready > 0 && p.revents & POLLIN && !take_event(d)) return ECHO_WAIT_LOST;
    if (ready > 0 && p.revents & (POLLERR | POLLHUP | POLLNVAL) && !finished(d))
      return ECHO_WAIT_LOST;
  }
  // STATUS may lag HEAD by a moment; the caller reads it.
  while (echo_pcie_read(d, ECHO_NPU_REG_STATUS) == ECHO_NPU_STATUS_BUSY && now() < until) nap(10);
  return ECHO_WAIT_DONE;
}

int echo_pcie_identify(echo_pcie* d, echo_board* board, char* reason, size_t size) {
  uint32_t id = echo_pcie_read(d, ECHO_NPU_REG_ID),
           version = echo_pcie_read(d, ECHO_NPU_REG_VERSION);
  // The major version is the same; an older minor one lacks what the runtime uses.
  if (id != ECHO_NPU_ID || version >> 16 != ECHO_NPU_HW_VERSION >> 16 ||
      version < ECHO_NPU_HW_VERSION) {
    snprintf(reason, size, "not an ECHO NPU of version %d.%d: ID 0x%08x, VERSION 0x%08x",
             ECHO_NPU_HW_VERSION >> 16, ECHO_NPU_HW_VERSION & 0xffff, id, version);
    return -1;
  }
  board->clock_mhz = echo_pcie_read(d, ECHO_NPU_REG_CLOCK_MHZ);
  uint64_t total = 0;
  for (uint32_t i = 0; i < ECHO_NPU_AREAS; ++i) {
    uint32_t at = ECHO_NPU_REG_AREA + 16 * i;
    board->base[i] = echo_pcie_read(d, at) | (uint64_t)echo_pcie_read(d, at + 4) << 32;
    board->limit[i] = echo_pcie_read(d, at + 8) | (uint64_t)echo_pcie_read(d, at + 12) << 32;
    if (board->limit[i] < board->base[i] || board->limit[i] >> ECHO_NPU_ADDR_BITS) {
      snprintf(reason, size, "the AREA registers of the card make no sense");
      return -1;
    }
    total += board->limit[i] - board->base[i];
  }
  if (total == 0) {
    snprintf(reason, size, "the card reports no memory: are its AREA registers set?");
    return -1;
  }
  return 0;
}
