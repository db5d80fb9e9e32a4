// echo_rtlmodel.h - the Verilog of the device, compiled by Verilator, on a simulated AXI memory.
//
// Time stands still between calls: the clock runs inside register accesses and echo_rtlmodel_run.
// Calls on one model must not overlap; different models are independent.
#ifndef ECHO_RTLMODEL_H
#define ECHO_RTLMODEL_H

#ifdef __cplusplus
extern "C" {
#endif

#include "echo_ram.h"

typedef struct echo_rtlmodel echo_rtlmodel;

// How the memory behaves. All zero but latency is a memory that never makes the device wait.
typedef struct echo_rtl_bus {
  uint32_t latency;                  // cycles from an accepted request to its first answer
  uint32_t stall_percent;            // chance in each cycle that a channel does not move
  uint64_t seed;                     // of the stalls
  uint64_t error_base, error_limit;  // beats that touch this range are answered with SLVERR
  uint64_t freeze_at;                // cycle from which nothing moves; 0: never
  uint32_t serial;  // reads are answered when no write is open: announced, data missing
} echo_rtl_bus;

// With fd >= 0 the memory is that file (see echo_ram.h). ECHO_NPU_TRACE names a file for a waveform
// (FST); ECHO_NPU_RAM_LATENCY sets the latency (default 40), ECHO_NPU_RTL_BUS the rest, in one or
// more of "stall=PERCENT", "freeze=CYCLE", "error=ADDRESS+BYTES", "serial=1" joined by commas. NULL
// when memory cannot be had.
echo_rtlmodel* echo_rtlmodel_create(const echo_area* areas, int fd);
void echo_rtlmodel_destroy(echo_rtlmodel* model);

uint32_t echo_rtlmodel_read(echo_rtlmodel* model, uint32_t offset);
void echo_rtlmodel_write(echo_rtlmodel* model, uint32_t offset, uint32_t value);
void* echo_rtlmodel_memory(echo_rtlmodel* model, uint64_t addr, uint64_t bytes);

// Tells of a block that was allocated or freed. From the first one on, the memory answers a beat
// outside all blocks with an error, but for reads of the `ring_bytes` at `ring`. 0, or -1 without
// host memory.
int echo_rtlmodel_track(echo_rtlmodel* model, uint64_t addr, uint64_t bytes, int allocated);
void echo_rtlmodel_set_ring(echo_rtlmodel* model, uint64_t ring, uint64_t ring_bytes);

void echo_rtlmodel_set_bus(echo_rtlmodel* model, const echo_rtl_bus* bus);
void echo_rtlmodel_step(echo_rtlmodel* model, uint64_t cycles);
// Runs until STATUS is not BUSY or `limit` cycles have passed; returns whether it is not BUSY.
int echo_rtlmodel_run(echo_rtlmodel* model, uint64_t limit);
uint64_t echo_rtlmodel_cycles(const echo_rtlmodel* model);
// The first rule of AXI4 that the device has broken, in words; NULL: none.
const char* echo_rtlmodel_violation(const echo_rtlmodel* model);
int echo_rtlmodel_irq(const echo_rtlmodel* model);

#ifdef __cplusplus
}
#endif

#endif  // ECHO_RTLMODEL_H
