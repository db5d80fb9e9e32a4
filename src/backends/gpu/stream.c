// Streams and events over the driver's. Errors come two ways: from the driver, and from kernels
// that met a bad index and wrote it down in the stream's fault, which is page-locked memory, so
// that looking costs a load.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpu/gpu.h"

// ---- Errors ----

static void describe_fault(const hy_gpu_fault* fault, hy_async_error* error) {
  error->op = (hy_op)fault->op;
  error->status = fault->kind == HY_GPU_FAULT_DIVISION ? HY_INVALID_ARGUMENT : HY_INDEX;
  switch (fault->kind) {
    case HY_GPU_FAULT_DIVISION:
      snprintf(error->message, sizeof error->message, "integer division by zero");
      break;
    case HY_GPU_FAULT_TARGET:
      snprintf(error->message, sizeof error->message, "target %lld is none of the %lld classes",
               fault->value, fault->size);
      break;
    default:
      snprintf(error->message, sizeof error->message,
               "index %lld lies outside dimension %lld, which has size %lld", fault->value,
               fault->dim, fault->size);
  }
}

// Keeps the first error: a kernel's fault before what the driver says.
static void keep_error(hy__gpu_stream* s, hy_status status) {
  pthread_mutex_lock(&s->mutex);
  if (s->error.status == HY_OK) {
    hy_gpu_fault fault = {.op = __atomic_load_n(&s->fault->op, __ATOMIC_ACQUIRE)};
    if (fault.op) {
      fault = *s->fault;
      describe_fault(&fault, &s->error);
    } else if (status != HY_OK) {
      s->error.status = status;
      s->error.op = s->last_op;
      snprintf(s->error.message, sizeof s->error.message, "%.250s", hy__backend_host->last_error());
    }
  }
  pthread_mutex_unlock(&s->mutex);
}

// What the driver answered to a call that waits for the stream.
static hy_status result(hy__gpu_stream* s, int error, const char* what) {
  char doing[96];
  if (error) {
    snprintf(doing, sizeof doing, "%s after %s", what,
             s->last_op == HY_OP_NONE ? "a copy" : hy__backend_host->op_name(s->last_op));
  }
  hy_status status = error ? hy__gpu_fail(s->device, error, doing) : HY_OK;
  if (status == HY_NOT_READY) return status;
  keep_error(s, status);
  return s->error.status == HY_OK ? status
                                  : hy__backend_host->fail(s->error.status, "%s", s->error.message);
}

void hy__gpu_stream_error(void* device, void* stream, hy_async_error* error) {
  (void)device;
  hy__gpu_stream* s = stream;
  if (__atomic_load_n(&s->fault->op, __ATOMIC_RELAXED)) keep_error(s, HY_OK);
  pthread_mutex_lock(&s->mutex);
  *error = s->error;
  pthread_mutex_unlock(&s->mutex);
}

// ---- Streams ----

hy_status hy__gpu_stream_create(void* device, void** stream) {
  enum { NON_BLOCKING = 1 };
  hy__gpu_device* d = device;
  const hy__gpu_driver* driver = &d->api->driver;
  hy__gpu_stream* s = calloc(1, sizeof *s);
  if (!s) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", d->api->name);
  s->device = d;
  void* fault = NULL;
  hy_status status = hy__backend_host_alloc(device, sizeof *s->fault, &fault);
  if (status != HY_OK) {
    free(s);
    return status;
  }
  s->fault = fault;
  memset(fault, 0, sizeof *s->fault);
  bool entered = hy__gpu_enter(d);
  int error = driver->host_device_address(&s->fault_address, fault, 0);
  if (!error) error = driver->stream_create(&s->queue, NON_BLOCKING);
  hy__gpu_leave(d, entered);
  if (error) {
    status = hy__gpu_fail(d, error, "a new stream");
    hy__backend_host_free(device, fault);
    free(s);
    return status;
  }
  pthread_mutex_init(&s->mutex, NULL);
  *stream = s;
  return HY_OK;
}

void hy__gpu_stream_destroy(void* device, void* stream) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  bool entered = hy__gpu_enter(d);
  d->api->driver.stream_sync(s->queue);
  d->api->driver.stream_destroy(s->queue);
  for (int i = 0; i < s->workspace.count; i++) d->api->driver.memory_free(s->workspace.address[i]);
  if (s->counters) d->api->driver.memory_free(s->counters);
  d->api->driver.host_free(s->fault);
  hy__gpu_leave(d, entered);
  pthread_mutex_destroy(&s->mutex);
  free(s);
}

hy_status hy__gpu_stream_sync(void* device, void* stream) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.stream_sync(s->queue);
  hy__gpu_leave(d, entered);
  return result(s, error, "waiting for a stream");
}

hy_status hy__gpu_stream_query(void* device, void* stream) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.stream_query(s->queue);
  hy__gpu_leave(d, entered);
  return result(s, error, "asking a stream");
}

// ---- Workspace ----

// Chunks that one call added become one chunk, so that the next such call finds it whole.
hy_status hy__gpu_workspace_begin(hy__gpu_stream* s) {
  hy__gpu_workspace_chunks* w = &s->workspace;
  w->used = 0;
  if (w->count <= 1) return HY_OK;
  const hy__gpu_driver* driver = &s->device->api->driver;
  int error = driver->stream_sync(s->queue);
  size_t total = 0;
  for (int i = 0; i < w->count; i++) {
    total += w->size[i];
    if (!error) error = driver->memory_free(w->address[i]);
  }
  w->count = 0;
  if (!error) error = driver->memory_alloc(&w->address[0], total);
  if (error) return hy__gpu_fail(s->device, error, "workspace");
  w->size[0] = total;
  w->count = 1;
  return HY_OK;
}

uint64_t hy__gpu_workspace(hy__gpu_task* task, size_t bytes) {
  enum { LEAST = 4 << 20, ROUND = 2 << 20 };
  if (task->status != HY_OK) return 0;
  hy__gpu_workspace_chunks* w = &task->stream->workspace;
  bytes = (bytes + 255) / 256 * 256;
  if (w->count == 0 || w->size[w->count - 1] - w->used < bytes) {
    size_t size = bytes < LEAST ? LEAST : (bytes + ROUND - 1) / ROUND * ROUND;
    if (w->count == HY__GPU_CHUNKS) {
      task->status = hy__backend_host->fail(HY_INTERNAL, "%s: one call asked for workspace %d times",
                                        hy__backend_host->op_name(task->op), HY__GPU_CHUNKS);
      return 0;
    }
    int error = task->device->api->driver.memory_alloc(&w->address[w->count], size);
    if (error) {
      task->status = hy__gpu_fail(task->device, error, "workspace");
      return 0;
    }
    w->size[w->count++] = size;
    w->used = 0;
  }
  uint64_t address = w->address[w->count - 1] + w->used;
  w->used += bytes;
  return address;
}

uint64_t hy__gpu_counters(hy__gpu_task* task) {
  hy__gpu_stream* s = task->stream;
  if (task->status != HY_OK || s->counters) return s->counters;
  const hy__gpu_driver* driver = &task->device->api->driver;
  const size_t bytes = HY__GPU_COUNTERS * sizeof(uint32_t);
  int error = driver->memory_alloc(&s->counters, bytes);
  if (!error) error = driver->set_bytes(s->counters, 0, bytes, s->queue);
  if (error) task->status = hy__gpu_fail(task->device, error, "counters");
  return s->counters;
}

// ---- Events ----

hy_status hy__gpu_event_create(void* device, void** event) {
  hy__gpu_device* d = device;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.event_create(event, 0);
  hy__gpu_leave(d, entered);
  return error ? hy__gpu_fail(d, error, "a new event") : HY_OK;
}

void hy__gpu_event_destroy(void* device, void* event) {
  hy__gpu_device* d = device;
  bool entered = hy__gpu_enter(d);
  d->api->driver.event_destroy(event);
  hy__gpu_leave(d, entered);
}

hy_status hy__gpu_event_record(void* device, void* event, void* stream) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.event_record(event, s->queue);
  hy__gpu_leave(d, entered);
  return error ? hy__gpu_fail(d, error, "recording an event") : HY_OK;
}

hy_status hy__gpu_event_query(void* device, void* event) {
  hy__gpu_device* d = device;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.event_query(event);
  hy__gpu_leave(d, entered);
  return error ? hy__gpu_fail(d, error, "asking an event") : HY_OK;
}

hy_status hy__gpu_event_sync(void* device, void* event) {
  hy__gpu_device* d = device;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.event_sync(event);
  hy__gpu_leave(d, entered);
  return error ? hy__gpu_fail(d, error, "waiting for an event") : HY_OK;
}

hy_status hy__gpu_event_elapsed(void* device, void* start, void* stop, double* milliseconds) {
  hy__gpu_device* d = device;
  float elapsed = 0;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.event_elapsed(&elapsed, start, stop);
  hy__gpu_leave(d, entered);
  *milliseconds = (double)elapsed;
  return error ? hy__gpu_fail(d, error, "time between events") : HY_OK;
}

hy_status hy__gpu_stream_wait_event(void* device, void* stream, void* event) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.stream_wait_event(s->queue, event, 0);
  hy__gpu_leave(d, entered);
  return error ? hy__gpu_fail(d, error, "a stream's wait for an event") : HY_OK;
}
