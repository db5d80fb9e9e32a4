// echo_event.c - marks in streams, to wait for and to measure between.
#include <stdlib.h>
#include <time.h>

#include "echo_queue.h"

struct echoNpuEvent_st {
  int references;      // the user's and one per job
  uint64_t recorded;   // recordings asked for
  uint64_t completed;  // recordings passed
  double seconds;
  uint64_t cycles;
};

static pthread_mutex_t event_lock = PTHREAD_MUTEX_INITIALIZER;  // a leaf: held alone or innermost
static pthread_cond_t event_done = PTHREAD_COND_INITIALIZER;

void echo__event_release(echoNpuEvent event) {
  pthread_mutex_lock(&event_lock);
  int left = --event->references;
  pthread_mutex_unlock(&event_lock);
  if (left == 0) free(event);
}

int echo__event_passed(echoNpuEvent event, uint64_t record) {
  pthread_mutex_lock(&event_lock);
  int passed = event->completed >= record;
  pthread_mutex_unlock(&event_lock);
  return passed;
}

void echo__event_complete(echoNpuEvent event, uint64_t record, uint64_t cycles) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  pthread_mutex_lock(&event_lock);
  if (record > event->completed) {
    event->completed = record;
    event->seconds = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    event->cycles = cycles;
  }
  pthread_cond_broadcast(&event_done);
  pthread_mutex_unlock(&event_lock);
  echo__wake_all();
}

echoNpuError echoNpuEventCreate(echoNpuEvent* event) {
  if (!event) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the event");
  *event = calloc(1, sizeof **event);
  if (!*event) return echo__fail(ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an event");
  (*event)->references = 1;
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuEventDestroy(echoNpuEvent event) {
  if (!event) return echo__fail(ECHO_NPU_ERROR_INVALID_HANDLE, "no event");
  echo__event_release(event);
  return ECHO_NPU_SUCCESS;
}

static echoNpuError enqueue_event(job_kind kind, echoNpuEvent event, echoNpuStream stream) {
  echoNpuStream s;
  if (!event) return echo__fail(ECHO_NPU_ERROR_INVALID_HANDLE, "no event");
  echoNpuError error = echo__stream(stream, &s);
  if (error) return error;
  echo_job* job = echo__job(kind, 0);
  if (job) {
    pthread_mutex_lock(&event_lock);
    ++event->references;
    if (kind == JOB_RECORD) ++event->recorded;
    job->event.event = event;
    job->event.record = event->recorded;
    pthread_mutex_unlock(&event_lock);
  }
  return echo__enqueue(s, job);
}

echoNpuError echoNpuEventRecord(echoNpuEvent event, echoNpuStream stream) {
  return enqueue_event(JOB_RECORD, event, stream);
}

echoNpuError echoNpuStreamWaitEvent(echoNpuStream stream, echoNpuEvent event) {
  return enqueue_event(JOB_WAIT, event, stream);
}

echoNpuError echoNpuEventSynchronize(echoNpuEvent event) {
  if (!event) return echo__fail(ECHO_NPU_ERROR_INVALID_HANDLE, "no event");
  pthread_mutex_lock(&event_lock);
  for (uint64_t target = event->recorded; event->completed < target;)
    pthread_cond_wait(&event_done, &event_lock);
  pthread_mutex_unlock(&event_lock);
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuEventQuery(echoNpuEvent event) {
  if (!event) return echo__fail(ECHO_NPU_ERROR_INVALID_HANDLE, "no event");
  pthread_mutex_lock(&event_lock);
  int ready = event->completed >= event->recorded;
  pthread_mutex_unlock(&event_lock);
  return ready ? ECHO_NPU_SUCCESS : echo__fail(ECHO_NPU_ERROR_NOT_READY, "the event is pending");
}

static echoNpuError elapsed(echoNpuEvent start, echoNpuEvent end, double* seconds,
                            uint64_t* cycles) {
  if (!start || !end) return echo__fail(ECHO_NPU_ERROR_INVALID_HANDLE, "no event");
  echoNpuError error = ECHO_NPU_SUCCESS;
  pthread_mutex_lock(&event_lock);
  if (!start->recorded || !end->recorded)
    error = echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "an event was never recorded");
  else if (start->completed < start->recorded || end->completed < end->recorded)
    error = echo__fail(ECHO_NPU_ERROR_NOT_READY, "an event is pending");
  *seconds = end->seconds - start->seconds;
  *cycles = end->cycles - start->cycles;
  pthread_mutex_unlock(&event_lock);
  return error;
}

echoNpuError echoNpuEventElapsedTime(float* milliseconds, echoNpuEvent start, echoNpuEvent end) {
  double seconds = 0;
  uint64_t cycles;
  if (!milliseconds) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the time");
  echoNpuError error = elapsed(start, end, &seconds, &cycles);
  *milliseconds = (float)(seconds * 1e3);
  return error;
}

echoNpuError echoNpuEventElapsedCycles(uint64_t* cycles, echoNpuEvent start, echoNpuEvent end) {
  double seconds;
  if (!cycles) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the cycles");
  return elapsed(start, end, &seconds, cycles);
}
