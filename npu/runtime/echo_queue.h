// echo_queue.h - jobs: what a stream is a list of. Shared by the queue, streams and events.
#ifndef ECHO_QUEUE_H
#define ECHO_QUEUE_H

#include "echo_runtime.h"

typedef enum job_kind {
  JOB_PACKETS,
  JOB_WRITE,
  JOB_READ,
  JOB_RECORD,
  JOB_WAIT,
  JOB_RELEASE,
  JOB_CALL
} job_kind;

struct echo_job {
  echo_job* next;
  job_kind kind;
  union {
    struct {
      uint64_t device, bytes;
      const void* from;
      void* to;
    } copy;
    struct {
      echoNpuEvent event;
      uint64_t record;  // which recording of it
    } event;
    uint64_t address;
    struct {
      void (*call)(echo_device*, void*);
      void* argument;
    } call;
    struct {
      size_t count;
      char label[ECHO_NPU_LABEL_BYTES];
    };
  };
  echo_npu_packet packets[];
};

// NULL without host memory.
echo_job* echo__job(job_kind kind, size_t packets);
// Takes ownership of the job, NULL included; a refused job is settled and freed.
echoNpuError echo__enqueue(echoNpuStream stream, echo_job* job);
// The stream's pending error, with its message. Called with the device's lock held.
echoNpuError echo__stream_error(echoNpuStream stream);
// Runs a job that is ready, or waits until one has ended. Called with the device's lock held.
void echo__await_progress(echo_device* device);
// Adds a stream to the device; NULL without host memory.
echoNpuStream echo__stream_new(echo_device* device);

// Recording (echo_record.c): the label of the calling thread, and a packet that has just run.
const char* echo__label(void);
void echo__record(echo_device* device, const char* label, const echo_npu_packet* packet);
// Ends a recording that nobody stopped. On the queue thread, or after it.
void echo__record_end(echo_device* device);

// Events, as the queue thread sees them.
int echo__event_passed(echoNpuEvent event, uint64_t record);
void echo__event_complete(echoNpuEvent event, uint64_t record, uint64_t cycles);
void echo__event_release(echoNpuEvent event);

#endif  // ECHO_QUEUE_H
