// bench_model.h - a bare model on a small board, driven packet by packet through its registers.
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "echo_cmodel.h"
#include "echo_npu_hw.h"

#define BENCH_RING 0x10000000u
#define BENCH_DATA 0x10100000u
#define BENCH_MIB (1u << 20)

static inline echo_cmodel* bench_open(void) {
  const echo_area areas[ECHO_NPU_AREAS] = {{0, 4 * BENCH_MIB},
                                           {ECHO_NPU_ACT_BASE, ECHO_NPU_ACT_BASE + 64 * BENCH_MIB},
                                           {ECHO_NPU_HIGH_BASE, ECHO_NPU_HIGH_BASE + BENCH_MIB}};
  echo_cmodel* m = echo_cmodel_create(areas, -1);
  assert_non_null(m);
  return m;
}

static inline void bench_reset(echo_cmodel* m) {
  echo_cmodel_write(m, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET);
  echo_cmodel_write(m, ECHO_NPU_REG_RING_BASE_LO, BENCH_RING);
  echo_cmodel_write(m, ECHO_NPU_REG_RING_LOG2, 6);
  echo_cmodel_write(m, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_ENABLE);
}

// Puts one packet in the ring and runs the device; returns the fault code.
static inline uint32_t bench_send(echo_cmodel* m, const echo_npu_packet* p) {
  uint32_t tail = echo_cmodel_read(m, ECHO_NPU_REG_RING_TAIL);
  memcpy(echo_cmodel_memory(m, BENCH_RING + 64u * (tail & 63), 64), p, 64);
  echo_cmodel_write(m, ECHO_NPU_REG_RING_TAIL, tail + 1);
  echo_cmodel_run(m, 0);
  return echo_cmodel_read(m, ECHO_NPU_REG_FAULT_CODE);
}

static inline uint64_t bench_fault_addr(echo_cmodel* m) {
  return echo_cmodel_read(m, ECHO_NPU_REG_FAULT_ADDR_LO) |
         (uint64_t)echo_cmodel_read(m, ECHO_NPU_REG_FAULT_ADDR_HI) << 32;
}

static inline uint32_t bench_bits(float f) {
  uint32_t i;
  memcpy(&i, &f, 4);
  return i;
}

static inline uint64_t bench_random(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

#endif  // BENCH_MODEL_H
