// rtl_bench.h - the hardware on a small board, driven packet by packet through its registers.
#ifndef RTL_BENCH_H
#define RTL_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "echo_rtlmodel.h"

#define RTL_RING 0x10000000u
#define RTL_RING_LOG2 6

static inline uint64_t rtl_number(const char* name, uint64_t fallback) {
  const char* text = getenv(name);
  return text ? strtoull(text, NULL, 10) : fallback;
}

static inline void rtl_reset(echo_rtlmodel* m) {
  echo_rtlmodel_write(m, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET);
  echo_rtlmodel_write(m, ECHO_NPU_REG_RING_BASE_LO, RTL_RING);
  echo_rtlmodel_write(m, ECHO_NPU_REG_RING_LOG2, RTL_RING_LOG2);
  echo_rtlmodel_write(m, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_ENABLE);
}

// Puts a packet in the ring and rings the bell.
static inline void rtl_post(echo_rtlmodel* m, const echo_npu_packet* p) {
  uint32_t tail = echo_rtlmodel_read(m, ECHO_NPU_REG_RING_TAIL);
  memcpy(echo_rtlmodel_memory(m, RTL_RING + 64u * (tail & ((1u << RTL_RING_LOG2) - 1)), 64), p, 64);
  echo_rtlmodel_write(m, ECHO_NPU_REG_RING_TAIL, tail + 1);
}

static inline uint64_t rtl_counter(echo_rtlmodel* m, uint32_t which) {
  uint64_t low = echo_rtlmodel_read(m, ECHO_NPU_REG_COUNTER + 8 * which);
  return low | (uint64_t)echo_rtlmodel_read(m, ECHO_NPU_REG_COUNTER + 8 * which + 4) << 32;
}

static inline uint64_t rtl_fault_addr(echo_rtlmodel* m) {
  return echo_rtlmodel_read(m, ECHO_NPU_REG_FAULT_ADDR_LO) |
         (uint64_t)echo_rtlmodel_read(m, ECHO_NPU_REG_FAULT_ADDR_HI) << 32;
}

#endif  // RTL_BENCH_H
