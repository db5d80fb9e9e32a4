// echo_stream.c - creating streams and waiting for them.
#include <stdlib.h>

#include "echo_queue.h"

// ---- Waiting ----------------------------------------------------------------------------------

// Called with the lock held. The error is left where it is.
static echoNpuError wait_locked(echoNpuStream s) {
  for (uint64_t target = s->submitted; s->completed < target;) echo__await_progress(s->device);
  return s->error ? echo__stream_error(s) : ECHO_NPU_SUCCESS;
}

echoNpuError echo__stream_wait(echoNpuStream s) {
  pthread_mutex_lock(&s->device->lock);
  echoNpuError error = wait_locked(s);
  pthread_mutex_unlock(&s->device->lock);
  return error;
}

static int is_idle(const echo_device* d) {
  for (echoNpuStream s = d->streams; s; s = s->next)
    if (s->completed < s->submitted) return 0;
  return 1;
}

// Waits until all streams are idle. With `take`, returns a pending error and clears all of them.
static echoNpuError wait_idle(echo_device* d, int take) {
  echoNpuError error = ECHO_NPU_SUCCESS;
  pthread_mutex_lock(&d->lock);
  while (!is_idle(d)) echo__await_progress(d);
  for (echoNpuStream s = d->streams; s; s = s->next) {
    if (s->error && !error) error = echo__stream_error(s);
    if (take) s->error = ECHO_NPU_SUCCESS;
  }
  pthread_mutex_unlock(&d->lock);
  return error;
}

echoNpuError echo__device_wait(echo_device* d) {
  return wait_idle(d, 0);
}

echoNpuError echoNpuDeviceSynchronize(void) {
  echo_device* d;
  echoNpuError error = echo__current_device(&d);
  return error ? error : wait_idle(d, 1);
}

typedef struct awaited_call {
  void (*call)(echo_device*, void*);
  void* argument;
  pthread_mutex_t lock;
  pthread_cond_t done;
  int finished;
} awaited_call;

static void run_awaited(echo_device* d, void* argument) {
  awaited_call* a = argument;
  a->call(d, a->argument);
  pthread_mutex_lock(&a->lock);
  a->finished = 1;
  pthread_cond_signal(&a->done);
  pthread_mutex_unlock(&a->lock);
}

// On a stream of its own, so that neither errors nor queues of others matter.
echoNpuError echo__call(echo_device* d, void (*call)(echo_device*, void*), void* argument) {
  echoNpuStream s = echo__stream_new(d);
  echo_job* job = echo__job(JOB_CALL, 0);
  if (!s || !job) {
    free(job);
    if (s) echoNpuStreamDestroy(s);
    return echo__fail(ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a job");
  }
  awaited_call a = {call, argument, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
  job->call.call = run_awaited;
  job->call.argument = &a;
  echo__enqueue(s, job);
  pthread_mutex_lock(&a.lock);
  while (!a.finished) pthread_cond_wait(&a.done, &a.lock);
  pthread_mutex_unlock(&a.lock);
  return echoNpuStreamDestroy(s);
}

// ---- Streams ----------------------------------------------------------------------------------

echoNpuError echoNpuStreamCreate(echoNpuStream* stream) {
  echo_device* d;
  if (!stream) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the stream");
  *stream = NULL;
  echoNpuError error = echo__current_device(&d);
  if (error) return error;
  *stream = echo__stream_new(d);
  return *stream ? ECHO_NPU_SUCCESS
                 : echo__fail(ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a stream");
}

echoNpuError echoNpuStreamDestroy(echoNpuStream s) {
  if (!s || s == s->device->default_stream)
    return echo__fail(ECHO_NPU_ERROR_INVALID_HANDLE, "the default stream is not destroyed");
  echo_device* d = s->device;
  pthread_mutex_lock(&d->lock);
  echoNpuError error = wait_locked(s);
  echoNpuStream* link = &d->streams;
  while (*link && *link != s) link = &(*link)->next;
  if (*link) *link = s->next;
  pthread_mutex_unlock(&d->lock);
  free(s);
  return error;
}

echoNpuError echoNpuStreamSynchronize(echoNpuStream stream) {
  echoNpuStream s;
  echoNpuError error = echo__stream(stream, &s);
  if (error) return error;
  pthread_mutex_lock(&s->device->lock);
  error = wait_locked(s);
  s->error = ECHO_NPU_SUCCESS;
  pthread_mutex_unlock(&s->device->lock);
  return error;
}

echoNpuError echoNpuStreamQuery(echoNpuStream stream) {
  echoNpuStream s;
  echoNpuError error = echo__stream(stream, &s);
  if (error) return error;
  pthread_mutex_lock(&s->device->lock);
  if (s->error)
    error = echo__stream_error(s);
  else if (s->completed < s->submitted)
    error = echo__fail(ECHO_NPU_ERROR_NOT_READY, "the stream has work pending");
  pthread_mutex_unlock(&s->device->lock);
  return error;
}

echoNpuError echoNpuStreamGetFault(echoNpuStream stream, echoNpuFault* fault) {
  echoNpuStream s;
  if (!fault) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the fault");
  echoNpuError error = echo__stream(stream, &s);
  if (error) return error;
  pthread_mutex_lock(&s->device->lock);
  *fault = s->fault;
  pthread_mutex_unlock(&s->device->lock);
  return ECHO_NPU_SUCCESS;
}
