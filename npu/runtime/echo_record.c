// echo_record.c - what was run and what it cost, packet by packet, as a text file.
//
// The queue thread runs one packet at a time while it records, and reads the counters after each. A
// packet takes as long as it would with others behind it: the device works on one at a time.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echo_queue.h"

#define NAME_BYTES 1024

struct echo_recorder {
  FILE* file;
  char path[NAME_BYTES], temporary[NAME_BYTES + 8];
  uint64_t before[ECHO_NPU_COUNTERS];
};

static _Thread_local char label[ECHO_NPU_LABEL_BYTES];

void echoNpuSetLabel(const char* text) {
  snprintf(label, sizeof label, "%s", text ? text : "");
  for (char* c = label; *c; ++c)
    if (*c <= ' ' || *c > '~') *c = '_';
}

const char* echo__label(void) {
  return label;
}

static echo_recorder* open_recorder(const char* path) {
  echo_recorder* r = calloc(1, sizeof *r);
  if (!r) return NULL;
  snprintf(r->path, sizeof r->path, "%s", path);
  snprintf(r->temporary, sizeof r->temporary, "%s.part", path);
  r->file = fopen(r->temporary, "w");
  if (r->file) return r;
  free(r);
  return NULL;
}

// Ends the recording; a file that could not be written whole does not appear.
static int close_recorder(echo_recorder* r) {
  int failed = ferror(r->file);
  failed |= fclose(r->file) != 0;
  if (!failed) failed = rename(r->temporary, r->path) != 0;
  if (failed) remove(r->temporary);
  free(r);
  return failed ? -1 : 0;
}

typedef struct record_call {
  const char* path;
  enum { FINE, WRONG_TIME, NOT_WRITTEN } outcome;
  int error;  // of the operating system
} record_call;

static void start(echo_device* d, void* argument) {
  record_call* call = argument;
  if (d->recorder) {
    call->outcome = WRONG_TIME;
    return;
  }
  d->recorder = open_recorder(call->path);
  if (!d->recorder) {
    call->outcome = NOT_WRITTEN;
    call->error = errno;
    return;
  }
  uint32_t config = d->driver->read_register(d->handle, ECHO_NPU_REG_CONFIG);
  fprintf(d->recorder->file,
          "echo-npu-trace 1 %s %u\n"
          "# label opcode flags src1 src2 dst p0..p7, all hexadecimal, = the counters it moved\n",
          d->driver->name, config >> ECHO_NPU_CONFIG_N_SHIFT & 0xff);
  echo__read_counters(d, d->recorder->before);
}

static void stop(echo_device* d, void* argument) {
  record_call* call = argument;
  if (!d->recorder) {
    call->outcome = WRONG_TIME;
  } else if (close_recorder(d->recorder) != 0) {
    call->outcome = NOT_WRITTEN;
    call->error = errno;
  }
  d->recorder = NULL;
}

void echo__record(echo_device* d, const char* text, const echo_npu_packet* p) {
  echo_recorder* r = d->recorder;
  uint64_t now[ECHO_NPU_COUNTERS];
  echo__read_counters(d, now);
  fprintf(r->file, "%s %x %x %llx %llx %llx", *text ? text : "-", p->opcode, p->flags,
          (unsigned long long)p->src1, (unsigned long long)p->src2, (unsigned long long)p->dst);
  for (int i = 0; i < 8; ++i) fprintf(r->file, " %x", p->param[i]);
  fprintf(r->file, " =");
  for (int i = 0; i < ECHO_NPU_COUNTERS; ++i)
    fprintf(r->file, " %llu", (unsigned long long)(now[i] - r->before[i]));
  fprintf(r->file, "\n");
  memcpy(r->before, now, sizeof now);
}

void echo__record_end(echo_device* d) {
  if (d->recorder) close_recorder(d->recorder);
  d->recorder = NULL;
}

static echoNpuError on_device(void (*function)(echo_device*, void*), record_call* call,
                              const char* wrong_time) {
  echo_device* d;
  echoNpuError error = echo__current_device(&d);
  if (!error) error = echo__device_wait(d);
  if (!error) error = echo__call(d, function, call);
  if (error || call->outcome == FINE) return error;
  if (call->outcome == WRONG_TIME)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "record: device %d %s", d->index, wrong_time);
  return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "record: the file cannot be written: %s",
                    strerror(call->error));
}

echoNpuError echoNpuRecordStart(const char* path) {
  record_call call = {path, FINE, 0};
  if (!path || !*path || strlen(path) >= NAME_BYTES)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "record: no name for the file, or too long");
  return on_device(start, &call, "records already");
}

echoNpuError echoNpuRecordStop(void) {
  record_call call = {NULL, FINE, 0};
  return on_device(stop, &call, "does not record");
}
