// echo_cmodel.h - the functional model of the device: registers, ring, units, simulated RAM.
//
// The model has no thread of its own: packets run inside echo_cmodel_run. Calls on one model must
// not overlap; different models are independent.
#ifndef ECHO_CMODEL_H
#define ECHO_CMODEL_H

#include "echo_ram.h"

typedef struct echo_cmodel echo_cmodel;

// NULL when memory or threads cannot be had. memory_fd is a file to use as the memory, or -1.
echo_cmodel* echo_cmodel_create(const echo_area* areas, int memory_fd);
void echo_cmodel_destroy(echo_cmodel* model);

// AXI4-Lite accesses, by byte offset from ECHO_NPU_REG_BASE.
uint32_t echo_cmodel_read(echo_cmodel* model, uint32_t offset);
void echo_cmodel_write(echo_cmodel* model, uint32_t offset, uint32_t value);

// Runs packets until the ring drains, a fault, or at most `limit` packets (0: no limit).
void echo_cmodel_run(echo_cmodel* model, uint64_t limit);

// Host pointer to simulated memory, or NULL when the range is not inside one area.
void* echo_cmodel_memory(echo_cmodel* model, uint64_t addr, uint64_t bytes);

// Tells the model of allocations. Once told of one, a command that touches bytes outside every
// allocation faults with UNALLOCATED. May be called at any time, from any thread. Returns -1 when
// the table cannot grow or the extent to forget is not there.
int echo_cmodel_track(echo_cmodel* model, uint64_t addr, uint64_t bytes, int allocated);

// A memory that answers no more, until it is told otherwise. The device then stands still, or ends
// the next packet with TIMEOUT where WATCHDOG is set.
void echo_cmodel_freeze(echo_cmodel* model, int frozen);

// Called before each packet with its ring index; for traces. May be NULL.
typedef void (*echo_cmodel_trace)(void* context, uint32_t index, const echo_npu_packet* packet,
                                  uint64_t cycles);
void echo_cmodel_set_trace(echo_cmodel* model, echo_cmodel_trace trace, void* context);

// Uses the named kernels ("scalar", "avx2", "avx512"); -1 when this processor has none such.
int echo_cmodel_use_kernels(echo_cmodel* model, const char* name);

#endif  // ECHO_CMODEL_H
