// echo_timing.h - how long the hardware would take. All parameters are here.
#ifndef ECHO_TIMING_H
#define ECHO_TIMING_H

#include "echo_decode.h"

typedef struct echo_timing {
  uint32_t n;             // matrix array is n x n
  uint32_t accumulators;  // outputs each element of the array rotates through
  uint32_t bus_bytes;     // AXI data bus
  uint32_t fma_latency;   // cycles
  uint32_t ram_latency;   // cycles from read request to first data
  uint32_t packet_cost;   // fetch, decode, check
  uint32_t pass_cost;     // start and end of a vector pass over a row
} echo_timing;

typedef struct echo_cost {
  uint64_t cycles;
  uint64_t matrix_busy, macs, vector_busy, uops, copy_busy;
  uint64_t read_beats, write_beats;
} echo_cost;

// Defaults, changed by ECHO_NPU_ARRAY (n) and ECHO_NPU_RAM_LATENCY.
echo_timing echo_timing_from_environment(void);

// One iteration of a command.
echo_cost echo_timing_estimate(const echo_timing* t, const echo_command* c);

#endif  // ECHO_TIMING_H
