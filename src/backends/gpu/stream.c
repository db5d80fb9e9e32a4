// Streams and events over the driver's. Errors come two ways: from the driver, and from kernels
// that met a bad index and wrote it down in the stream's fault, which is page-locked memory, so
// that looking costs a load.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpu/blaslt.h"
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
               "index %lld is outside dimension %lld, which has size %lld", fault->value,
               fault->dim, fault->size);
  }
}

// A fault becomes the stream's first error. That of a graph is then over, for the next launch.
static void take_fault(hy__gpu_stream* s, hy__gpu_fault_cell* cell, bool of_graph) {
  if (!__atomic_load_n(&cell->fault->op, __ATOMIC_ACQUIRE) || s->error.status != HY_OK) return;
  describe_fault(cell->fault, &s->error);
  if (of_graph) __atomic_store_n(&cell->fault->op, 0, __ATOMIC_RELEASE);
}

static bool any_fault(hy__gpu_stream* s) {
  bool any = __atomic_load_n(&s->use.faults->fault->op, __ATOMIC_RELAXED) != 0;
  for (int i = 0; i < s->n_graphs; i++)
    any |= __atomic_load_n(&s->graphs[i]->fault->op, __ATOMIC_RELAXED) != 0;
  return any;
}

// Keeps the first error: a kernel's fault before what the driver says.
static void keep_error(hy__gpu_stream* s, hy_status status) {
  pthread_mutex_lock(&s->mutex);
  if (s->error.status == HY_OK) {
    take_fault(s, s->use.faults, false);
    for (int i = 0; i < s->n_graphs; i++) take_fault(s, s->graphs[i], true);
    if (s->error.status == HY_OK && status != HY_OK) {
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
  pthread_mutex_lock(&s->mutex);
  bool fault = any_fault(s);
  pthread_mutex_unlock(&s->mutex);
  if (fault) keep_error(s, HY_OK);
  pthread_mutex_lock(&s->mutex);
  *error = s->error;
  pthread_mutex_unlock(&s->mutex);
}

// ---- Resources ----

hy_status hy__gpu_resources_create(hy__gpu_device* d, hy__gpu_resources* r) {
  *r = (hy__gpu_resources){.faults = calloc(1, sizeof *r->faults)};
  if (!r->faults)
    return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", d->api->name);
  r->faults->references = 1;
  void* fault = NULL;
  hy_status status = hy__gpu_host_alloc(d, sizeof *r->faults->fault, &fault);
  if (status == HY_OK) {
    memset(fault, 0, sizeof *r->faults->fault);
    r->faults->fault = fault;
    bool entered = hy__gpu_enter(d);
    int error = d->api->driver.host_device_address(&r->faults->address, fault, 0);
    hy__gpu_leave(d, entered);
    if (error) status = hy__gpu_fail(d, error, "page-locked memory");
  }
  if (status != HY_OK) hy__gpu_resources_destroy(d, r);
  return status;
}

hy_status hy__gpu_resources_count(hy__gpu_device* d, void* queue, hy__gpu_resources* r) {
  const size_t bytes = HY__GPU_COUNTERS * sizeof(uint32_t);
  if (r->counters) return HY_OK;
  int error = d->api->driver.memory_alloc(&r->counters, bytes);
  if (!error) error = d->api->driver.set_bytes(r->counters, 0, bytes, queue);
  return error ? hy__gpu_fail(d, error, "counters") : HY_OK;
}

void hy__gpu_faults_release(hy__gpu_device* d, hy__gpu_fault_cell* cell) {
  if (__atomic_sub_fetch(&cell->references, 1, __ATOMIC_ACQ_REL) > 0) return;
  if (cell->fault) hy__gpu_host_free(d, cell->fault);
  free(cell);
}

void hy__gpu_resources_destroy(hy__gpu_device* d, hy__gpu_resources* r) {
  bool entered = hy__gpu_enter(d);
  for (int i = 0; i < r->workspace.count; i++) d->api->driver.memory_free(r->workspace.address[i]);
  if (r->counters) d->api->driver.memory_free(r->counters);
  if (r->blas) d->api->blaslt->destroy(r->blas);
  hy__gpu_leave(d, entered);
  if (r->faults) hy__gpu_faults_release(d, r->faults);
  *r = (hy__gpu_resources){0};
}

// ---- Streams ----

enum { NON_BLOCKING = 1 };  // the legacy default stream of the process is not waited for

static void join_list(hy__gpu_device* d, hy__gpu_stream* s) {
  pthread_mutex_lock(&d->mutex);
  s->next = d->streams;
  s->link = &d->streams;
  if (s->next) s->next->link = &s->next;
  d->streams = s;
  pthread_mutex_unlock(&d->mutex);
}

static void leave_list(hy__gpu_device* d, hy__gpu_stream* s) {
  pthread_mutex_lock(&d->mutex);
  *s->link = s->next;
  if (s->next) s->next->link = s->link;
  pthread_mutex_unlock(&d->mutex);
}

// Over `native`, or over a new one of that priority where it is NULL.
static hy_status create(hy__gpu_device* d, void* native, int priority, void** stream) {
  const hy__gpu_driver* driver = &d->api->driver;
  hy__gpu_stream* s = calloc(1, sizeof *s);
  if (!s) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", d->api->name);
  s->device = d;
  s->queue = native;
  s->borrowed = native != NULL;
  s->written.unknown = s->borrowed;
  hy_status status = hy__gpu_resources_create(d, &s->use);
  if (status != HY_OK) {
    free(s);
    return status;
  }
  bool entered = hy__gpu_enter(d);
  int error = 0;
  if (!s->borrowed && priority == 0) error = driver->stream_create(&s->queue, NON_BLOCKING);
  if (!s->borrowed && priority != 0)
    error = driver->stream_create_with_priority(&s->queue, NON_BLOCKING, priority);
  hy__gpu_leave(d, entered);
  if (error) {
    status = hy__gpu_fail(d, error, "a new stream");
    hy__gpu_resources_destroy(d, &s->use);
    free(s);
    return status;
  }
  pthread_mutex_init(&s->mutex, NULL);
  join_list(d, s);
  *stream = s;
  return HY_OK;
}

hy_status hy__gpu_stream_create(void* device, void** stream) {
  return create(device, NULL, 0, stream);
}

hy_status hy__gpu_stream_wrap(void* device, void* native, void** stream) {
  if (!native)
    return hy__backend_host->fail(HY_INVALID_ARGUMENT,
                                  "the default stream has no handle to wrap; make a stream");
  return create(device, native, 0, stream);
}

hy_status hy__gpu_stream_native(void* device, void* stream, void** native) {
  (void)device;
  *native = ((hy__gpu_stream*)stream)->queue;
  return HY_OK;
}

hy_status hy__gpu_stream_priority_range(void* device, int32_t* least, int32_t* greatest) {
  hy__gpu_device* d = device;
  *least = *greatest = 0;
  if (!d->api->driver.stream_create_with_priority || !d->api->driver.stream_priority_range)
    return HY_OK;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.stream_priority_range(least, greatest);
  hy__gpu_leave(d, entered);
  return error ? hy__gpu_fail(d, error, "the range of priorities") : HY_OK;
}

hy_status hy__gpu_stream_create_with_priority(void* device, int32_t priority, void** stream) {
  int32_t least, greatest;
  HY_TRY(hy__gpu_stream_priority_range(device, &least, &greatest));
  if (priority < greatest || priority > least)
    return hy__backend_host->fail(HY_INVALID_ARGUMENT, "priority %d is outside %d to %d", priority,
                                  greatest, least);
  return create(device, NULL, priority, stream);
}

void hy__gpu_stream_destroy(void* device, void* stream) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  leave_list(d, s);
  bool entered = hy__gpu_enter(d);
  d->api->driver.stream_sync(s->queue);
  if (!s->borrowed) d->api->driver.stream_destroy(s->queue);
  hy__gpu_leave(d, entered);
  hy__gpu_resources_destroy(d, &s->use);
  for (int i = 0; i < s->n_graphs; i++) hy__gpu_faults_release(d, s->graphs[i]);
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

// Chunks that one call added become one chunk, so that the next such call finds it whole. During a
// capture they stay, for what was captured uses them.
hy_status hy__gpu_workspace_begin(hy__gpu_stream* s) {
  hy__gpu_workspace_chunks* w = &s->use.workspace;
  w->used = 0;
  if (w->count <= 1 || s->capturing) return HY_OK;
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
  hy__gpu_workspace_chunks* w = &task->stream->use.workspace;
  bytes = (bytes + 255) / 256 * 256;
  if (w->count == 0 || w->size[w->count - 1] - w->used < bytes) {
    size_t size = bytes < LEAST ? LEAST : (bytes + ROUND - 1) / ROUND * ROUND;
    // Few chunks serve a whole capture where each is twice the one before.
    if (task->stream->capturing && w->count > 0 && size < 2 * w->size[w->count - 1])
      size = 2 * w->size[w->count - 1];
    if (w->count == HY__GPU_CHUNKS) {
      task->status =
          hy__backend_host->fail(HY_INTERNAL, "%s: one call asked for workspace %d times",
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
  if (task->status == HY_OK && !s->use.counters)
    task->status = hy__gpu_resources_count(task->device, s->queue, &s->use);
  return s->use.counters;
}

// ---- What kernels under way write ----

bool hy__gpu_readable_early(const hy__gpu_task* task, const hy_tensor* const* tensors, int n) {
  const hy__gpu_written* w = &task->stream->written;
  if (w->unknown || task->launches > 0) return false;
  for (int i = 0; i < n; i++) {
    if (tensors[i]->dtype == HY_NONE) continue;
    const char* data = tensors[i]->data;
    int64_t first, last;
    hy_tensor_extent(tensors[i], &first, &last);
    for (int k = 0; k < w->count; k++)
      if (data + first < w->last[k] && w->first[k] < data + last) return false;
  }
  return true;
}

static void add_written(hy__gpu_written* w, const char* first, const char* last) {
  for (int i = 0; i < w->count; i++)
    if (w->first[i] == first && w->last[i] == last) return;
  w->unknown |= w->count == HY__GPU_WRITTEN;
  if (w->unknown) return;
  w->first[w->count] = first;
  w->last[w->count++] = last;
}

void hy__gpu_note_written(hy__gpu_task* task, const hy_call* call) {
  hy__gpu_written* w = &task->stream->written;
  if (task->independent) *w = (hy__gpu_written){0};
  for (int i = 0; i < call->n_out; i++) {
    if (call->out[i].dtype == HY_NONE) continue;
    int64_t first, last;
    hy_tensor_extent(&call->out[i], &first, &last);
    add_written(w, (const char*)call->out[i].data + first, (const char*)call->out[i].data + last);
  }
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
