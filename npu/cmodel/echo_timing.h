// echo_timing.h - how long the hardware would take. All parameters are here.
#ifndef ECHO_TIMING_H
#define ECHO_TIMING_H

#include "echo_decode.h"

typedef struct echo_timing {
  uint32_t n;             // matrix array is n x n
  uint32_t slots;         // accumulators of each unit of the array: a tile is slots * n * n outputs
  uint32_t slot_loop;     // cycles before an accumulator can be used again
  uint32_t pad_words;     // depth of a scratchpad: a chunk's k times its height (or width) over n
  uint32_t settle_cost;   // from the last product of a tile to its first store
  uint32_t bus_bytes;     // AXI data bus
  uint32_t burst_beats;   // of the longest burst
  uint32_t read_beats;    // in flight or buffered at most
  uint32_t write_bursts;  // announced and not answered at most
  uint32_t fma_latency;   // cycles
  uint32_t ram_latency;   // cycles from read request to first data, and from write to its answer
  uint32_t stall_percent;  // share of the cycles in which a channel of the bus moves nothing
  uint32_t bus_cost;       // cycles that a request and its data take inside the device
  uint32_t packet_cost;    // decode and check, beyond the fetch
  uint32_t locate_cost;    // addresses of an iteration, and handing it to its unit
  uint32_t unit_cost;      // start and end of a command in its unit
  uint32_t block_cost;     // a block of 128 columns of a vector pass, beyond its beats
  uint32_t uop_loop;       // cycles before the result of a micro-operation can be used
  uint32_t tree_cost;      // adding up the partial results of a reduction
} echo_timing;

typedef struct echo_cost {
  uint64_t cycles;
  uint64_t matrix_busy, macs, vector_busy, uops, copy_busy;
  uint64_t read_beats, write_beats;
} echo_cost;

// An n x n array behind a memory of this latency; everything else as in rtl/.
echo_timing echo_timing_of(uint32_t n, uint32_t ram_latency);
// The same with ECHO_NPU_ARRAY (default 16), ECHO_NPU_RAM_LATENCY (40) and the stalls of
// ECHO_NPU_RTL_BUS (none).
echo_timing echo_timing_from_environment(void);

// One iteration of a command.
echo_cost echo_timing_estimate(const echo_timing* t, const echo_command* c);

// The command in `iterations` of a REPEAT; fetched and checked once.
echo_cost echo_timing_loop(const echo_timing* t, const echo_command* c, uint64_t iterations);

#endif  // ECHO_TIMING_H
