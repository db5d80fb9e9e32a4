// echo_trace.c - trace reader: one packet a line, and its cost on a device of given sizes.
#include "echo_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The counters of a line, in their order in the header.
static echo_cost cost_of(const uint64_t* counter) {
  return (echo_cost){
      .cycles = counter[ECHO_NPU_COUNTER_BUSY],
      .matrix_busy = counter[ECHO_NPU_COUNTER_MATRIX_BUSY],
      .macs = counter[ECHO_NPU_COUNTER_MACS],
      .vector_busy = counter[ECHO_NPU_COUNTER_VECTOR_BUSY],
      .uops = counter[ECHO_NPU_COUNTER_UOPS],
      .copy_busy = counter[ECHO_NPU_COUNTER_COPY_BUSY],
      .read_beats = counter[ECHO_NPU_COUNTER_READ_BEATS],
      .write_beats = counter[ECHO_NPU_COUNTER_WRITE_BEATS],
  };
}

// The next number of a line, or 0 with *ok cleared.
static uint64_t next_number(char** at, int base, int* ok) {
  char* end;
  errno = 0;
  uint64_t value = strtoull(*at, &end, base);
  if (end == *at || errno) *ok = 0;
  *at = end;
  return value;
}

static int parse_line(char* line, echo_trace_packet* out) {
  int ok = 1;
  uint64_t counter[ECHO_NPU_COUNTERS];
  char* at = strchr(line, ' ');
  if (!at || at == line || (size_t)(at - line) >= sizeof out->label) return -1;
  memset(out, 0, sizeof *out);
  memcpy(out->label, line, (size_t)(at - line));
  echo_npu_packet* p = &out->packet;
  p->opcode = (uint32_t)next_number(&at, 16, &ok);
  p->flags = (uint32_t)next_number(&at, 16, &ok);
  p->src1 = next_number(&at, 16, &ok);
  p->src2 = next_number(&at, 16, &ok);
  p->dst = next_number(&at, 16, &ok);
  for (int i = 0; i < 8; ++i) p->param[i] = (uint32_t)next_number(&at, 16, &ok);
  while (*at == ' ') ++at;
  if (*at++ != '=') return -1;
  for (int i = 0; i < ECHO_NPU_COUNTERS; ++i) counter[i] = next_number(&at, 10, &ok);
  out->cost = cost_of(counter);
  return ok && (*at == '\n' || *at == 0) ? 0 : -1;
}

static int append(echo_trace* t, size_t* capacity, const echo_trace_packet* packet) {
  if (t->count == *capacity) {
    size_t wanted = *capacity ? 2 * *capacity : 256;
    echo_trace_packet* grown = realloc(t->packets, wanted * sizeof *grown);
    if (!grown) return -1;
    t->packets = grown;
    *capacity = wanted;
  }
  t->packets[t->count++] = *packet;
  return 0;
}

int echo_trace_read(const char* path, echo_trace* trace, char* reason, size_t size) {
  char line[1024];
  size_t capacity = 0, number = 0;
  memset(trace, 0, sizeof *trace);
  FILE* file = fopen(path, "r");
  if (!file) {
    snprintf(reason, size, "%s: %s", path, strerror(errno));
    return -1;
  }
  int failed = 0;
  while (!failed && fgets(line, sizeof line, file)) {
    echo_trace_packet packet;
    if (number++ == 0) {
      failed = sscanf(line, "echo-npu-trace 1 %15s %u", trace->backend, &trace->array) != 2 ||
               trace->array == 0;
      if (failed) snprintf(reason, size, "%s: not a trace of the ECHO NPU, version 1", path);
    } else if (line[0] != '#') {
      failed = parse_line(line, &packet) != 0;
      if (failed) snprintf(reason, size, "%s, line %zu: not a packet", path, number);
      if (!failed && append(trace, &capacity, &packet) != 0) {
        failed = 1;
        snprintf(reason, size, "%s: no memory for its packets", path);
      }
    }
  }
  if (!failed && (ferror(file) || number == 0)) {
    failed = 1;
    snprintf(reason, size, "%s: nothing could be read", path);
  }
  fclose(file);
  if (failed) echo_trace_free(trace);
  return failed ? -1 : 0;
}

void echo_trace_free(echo_trace* trace) {
  free(trace->packets);
  memset(trace, 0, sizeof *trace);
}

void echo_cost_add(echo_cost* a, const echo_cost* b) {
  a->cycles += b->cycles;
  a->matrix_busy += b->matrix_busy;
  a->macs += b->macs;
  a->vector_busy += b->vector_busy;
  a->uops += b->uops;
  a->copy_busy += b->copy_busy;
  a->read_beats += b->read_beats;
  a->write_beats += b->write_beats;
}

int echo_trace_time(const echo_trace* trace, const echo_timing* timing, echo_cost* costs,
                    char* reason, size_t size) {
  uint64_t iterations = 1;
  int after_repeat = 0;
  for (size_t i = 0; i < trace->count; ++i) {
    const echo_npu_packet* p = &trace->packets[i].packet;
    echo_command command;
    echo_fault fault = echo_decode(p, after_repeat, &command);
    if (fault.code) {
      snprintf(reason, size, "packet %zu is not valid: %s", i, echoNpuGetFaultString(fault.code));
      return -1;
    }
    costs[i] = echo_timing_loop(timing, &command, iterations);
    costs[i].read_beats += 1;  // the packet itself
    after_repeat = command.opcode == ECHO_NPU_OP_REPEAT;
    iterations =
        after_repeat ? (uint64_t)command.p[ECHO_NPU_P_OUTER] * command.p[ECHO_NPU_P_INNER] : 1;
  }
  return 0;
}
