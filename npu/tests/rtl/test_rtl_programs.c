// test_rtl_programs.c - random programs leave the same memory and faults on the hardware as on the
// functional model. ECHO_NPU_RTL_PROGRAMS sets how many (300 by default; 10000 for the night),
// ECHO_NPU_RTL_SEED the first seed. One program in four runs on a memory that stalls, one in four
// on one that serialises reads behind open writes. The device keeps the rules of AXI4 throughout.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "echo_cmodel.h"
#include "echo_program.h"
#include "echo_rtlmodel.h"

#define RING 0x10000000u
#define CYCLE_LIMIT 20000000u

static const echo_area areas[ECHO_NPU_AREAS] = {{0, 0x100000},
                                                {ECHO_NPU_ACT_BASE, ECHO_NPU_ACT_BASE + 0x400000},
                                                {ECHO_NPU_HIGH_BASE, ECHO_NPU_HIGH_BASE}};

static uint64_t number(const char* name, uint64_t fallback) {
  const char* text = getenv(name);
  return text ? strtoull(text, NULL, 10) : fallback;
}

static void report(const echo_program* p, const uint8_t* want, const uint8_t* got) {
  for (size_t i = 0; i < p->count; ++i) {
    char line[240];
    echo_program_describe(&p->packets[i], line, sizeof line);
    print_message("%s\n", line);
  }
  unsigned shown = 0;
  for (size_t i = 0; i < ECHO_PROGRAM_BYTES && shown < 4; i += 4)
    if (memcmp(want + i, got + i, 4)) {
      uint32_t w, g;
      memcpy(&w, want + i, 4);
      memcpy(&g, got + i, 4);
      print_message("at %08zx: cmodel %08x, rtl %08x\n", ECHO_PROGRAM_BASE + i, w, g);
      ++shown;
    }
}

static void programs_agree(void** state) {
  (void)state;
  const uint64_t count = number("ECHO_NPU_RTL_PROGRAMS", 300),
                 first = number("ECHO_NPU_RTL_SEED", 1);
  echo_cmodel* c = echo_cmodel_create(areas, -1);
  echo_rtlmodel* r = echo_rtlmodel_create(areas, -1);
  uint8_t* image = malloc(ECHO_PROGRAM_BYTES);
  assert_true(c && r && image);
  uint64_t faults = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    echo_program p;
    uint32_t want[4], got[4];
    echo_program_generate(&p, seed, seed % 8 ? 48 : 200);
    echo_program_image(seed, image);
    uint8_t* cm = echo_cmodel_memory(c, ECHO_PROGRAM_BASE, ECHO_PROGRAM_BYTES);
    uint8_t* rm = echo_rtlmodel_memory(r, ECHO_PROGRAM_BASE, ECHO_PROGRAM_BYTES);
    memcpy(cm, image, ECHO_PROGRAM_BYTES);
    memcpy(rm, image, ECHO_PROGRAM_BYTES);
    memcpy(echo_cmodel_memory(c, RING, 64 * p.count), p.packets, 64 * p.count);
    memcpy(echo_rtlmodel_memory(r, RING, 64 * p.count), p.packets, 64 * p.count);
    const echo_rtl_bus bus = {.latency = 1 + seed % 50,
                              .stall_percent = seed % 4 ? 0 : 30,
                              .seed = seed,
                              .serial = seed / 4 % 4 == 1};
    echo_rtlmodel_set_bus(r, &bus);

    const uint32_t setup[][2] = {{ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET},
                                 {ECHO_NPU_REG_RING_BASE_LO, RING},
                                 {ECHO_NPU_REG_RING_LOG2, 6},
                                 {ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_ENABLE},
                                 {ECHO_NPU_REG_RING_TAIL, (uint32_t)p.count}};
    for (size_t i = 0; i < 5; ++i) {
      echo_cmodel_write(c, setup[i][0], setup[i][1]);
      echo_rtlmodel_write(r, setup[i][0], setup[i][1]);
    }
    echo_cmodel_run(c, 0);
    if (!echo_rtlmodel_run(r, CYCLE_LIMIT)) {
      report(&p, cm, rm);
      fail_msg("program %llu hangs at packet %u", (unsigned long long)seed,
               echo_rtlmodel_read(r, ECHO_NPU_REG_RING_HEAD));
    }
    for (uint32_t i = 0; i < 4; ++i) {
      want[i] = echo_cmodel_read(c, ECHO_NPU_REG_FAULT_CODE + 4 * i);
      got[i] = echo_rtlmodel_read(r, ECHO_NPU_REG_FAULT_CODE + 4 * i);
    }
    faults += want[0] != 0;
    if (memcmp(want, got, sizeof want)) {
      report(&p, cm, rm);
      fail_msg("program %llu: fault %u at %u (%08x), not %u at %u (%08x)", (unsigned long long)seed,
               got[0], got[1], got[2], want[0], want[1], want[2]);
    }
    if (memcmp(cm, rm, ECHO_PROGRAM_BYTES)) {
      report(&p, cm, rm);
      fail_msg("program %llu differs", (unsigned long long)seed);
    }
    assert_int_equal(echo_rtlmodel_read(r, ECHO_NPU_REG_IRQ_STATUS),
                     echo_cmodel_read(c, ECHO_NPU_REG_IRQ_STATUS));
    assert_int_equal(echo_rtlmodel_read(r, ECHO_NPU_REG_RING_HEAD),
                     echo_cmodel_read(c, ECHO_NPU_REG_RING_HEAD));
  }
  assert_null(echo_rtlmodel_violation(r));
  print_message("  %llu programs, %llu ended in a fault, %llu cycles\n", (unsigned long long)count,
                (unsigned long long)faults, (unsigned long long)echo_rtlmodel_cycles(r));
  free(image);
  echo_cmodel_destroy(c);
  echo_rtlmodel_destroy(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(programs_agree)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
