// echo_simulated.h - what the bottoms that simulate a board have in common.
#ifndef ECHO_SIMULATED_H
#define ECHO_SIMULATED_H

#include <stdio.h>
#include <stdlib.h>

#include "echo_driver.h"
#include "echo_ram.h"

// As many boards as ECHO_NPU_DEVICE_COUNT says, one without it; 0 with the reason.
static inline int echo_simulated_count(char* reason, size_t size) {
  const char* text = getenv("ECHO_NPU_DEVICE_COUNT");
  if (!text) return 1;
  char* end;
  long n = strtol(text, &end, 10);
  if (*text && !*end && n >= 0 && n <= 64) {
    if (n == 0) snprintf(reason, size, "ECHO_NPU_DEVICE_COUNT is 0");
    return (int)n;
  }
  snprintf(reason, size, "ECHO_NPU_DEVICE_COUNT is '%s', not a number from 0 to 64", text);
  return 0;
}

static inline void echo_simulated_areas(const echo_board* board, echo_area areas[ECHO_NPU_AREAS]) {
  for (int i = 0; i < ECHO_NPU_AREAS; ++i) areas[i] = (echo_area){board->base[i], board->limit[i]};
}

#endif  // ECHO_SIMULATED_H
