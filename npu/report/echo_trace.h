// echo_trace.h - a recorded stream of packets, and what it would cost on another device.
#ifndef ECHO_TRACE_H
#define ECHO_TRACE_H

#include "echo_npu_runtime.h"
#include "echo_timing.h"

typedef struct echo_trace_packet {
  char label[ECHO_NPU_LABEL_BYTES];  // "-": none
  echo_npu_packet packet;
  echo_cost cost;  // as it was recorded
} echo_trace_packet;

typedef struct echo_trace {
  char backend[16];  // what it was recorded on
  uint32_t array;    // and the side of its matrix array
  size_t count;
  echo_trace_packet* packets;
} echo_trace;

// Reads what echoNpuRecordStart wrote. 0, or -1 with a reason and nothing to free.
int echo_trace_read(const char* path, echo_trace* trace, char* reason, size_t size);
void echo_trace_free(echo_trace* trace);

// costs[i] is what the timing model says of packet i. 0, or -1 with a reason when a packet is not
// valid.
int echo_trace_time(const echo_trace* trace, const echo_timing* timing, echo_cost* costs,
                    char* reason, size_t size);

// a += b
void echo_cost_add(echo_cost* a, const echo_cost* b);

#endif  // ECHO_TRACE_H
