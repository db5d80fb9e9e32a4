// Vendor streams and events. Errors come two ways: from the vendor, and from checks of indices,
// whose answers are read when the stream is waited for.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/common/vendor_runtime.h"

// ---- Errors ----

void hy__vendor_keep_error(hy__vendor_stream* s, hy_status status, hy_op op, const char* message) {
  pthread_mutex_lock(&s->mutex);
  if (s->error.status == HY_OK) {
    s->error.status = status;
    s->error.op = op;
    snprintf(s->error.message, sizeof s->error.message, "%.250s", message);
  }
  pthread_mutex_unlock(&s->mutex);
}

void hy__vendor_stream_error(void* device, void* stream, hy_async_error* error) {
  (void)device;
  hy__vendor_stream* s = stream;
  pthread_mutex_lock(&s->mutex);
  *error = s->error;
  pthread_mutex_unlock(&s->mutex);
}

static hy_status kept_error(hy__vendor_stream* s) {
  hy_async_error error;
  hy__vendor_stream_error(s->device, s, &error);
  return error.status == HY_OK ? HY_OK : hy__backend_host->fail(error.status, "%s", error.message);
}

// ---- Checks ----

// The checks made since the last look, on a stream that is idle.
static hy_status look_at_checks(hy__vendor_stream* s) {
  const hy__vendor* vendor = s->device->vendor;
  int n = s->n_checks;
  s->n_checks = 0;
  if (n == 0) return HY_OK;
  int error = vendor->copy(s->flags_host, s->flags, (size_t)n, HY_COPY_DEVICE_TO_HOST);
  if (error) return vendor->fail(error, "reading the checks of indices");
  for (int i = 0; i < n; i++)
    if (s->flags_host[i])
      hy__vendor_keep_error(s, HY_INDEX, s->checked[i],
                            "an index is outside the dimension it is for");
  return HY_OK;
}

hy_status hy__vendor_check_place(hy__vendor_stream* s, hy_op op, char** place) {
  if (s->n_checks == HY__VENDOR_CHECKS) HY_TRY(hy__vendor_stream_sync(s->device, s));
  *place = s->flags + s->n_checks;
  s->checked[s->n_checks++] = op;
  return HY_OK;
}

// ---- Streams ----

hy_status hy__vendor_stream_init(hy__vendor_device* d, hy__vendor_stream* s) {
  void *flags = NULL, *host = NULL;
  s->device = d;
  pthread_mutex_init(&s->mutex, NULL);
  HY__VENDOR_CALL(d, "a new stream", d->vendor->queue_create(&s->queue));
  HY_TRY(hy__vendor_memory_alloc(d, HY__VENDOR_CHECKS, &flags));
  s->flags = flags;
  HY_TRY(hy__vendor_host_alloc(d, HY__VENDOR_CHECKS, &host));
  s->flags_host = host;
  memset(s->flags_host, 0, HY__VENDOR_CHECKS);
  // A check whose kernel never ran has found nothing.
  HY__VENDOR_CALL(
      d, "a new stream",
      d->vendor->copy(s->flags, s->flags_host, HY__VENDOR_CHECKS, HY_COPY_HOST_TO_DEVICE));
  return HY_OK;
}

void hy__vendor_stream_release(hy__vendor_stream* s) {
  hy__vendor_device* d = s->device;
  int before = hy__vendor_enter(d);
  if (s->queue) {
    d->vendor->queue_sync(s->queue);
    d->vendor->queue_destroy(s->queue);
  }
  hy__vendor_arena_free(d->vendor, &s->arena);
  if (s->flags) d->vendor->memory_free(s->flags);
  hy__vendor_leave(d, before);
  if (s->flags_host) hy__vendor_host_free(d, s->flags_host);
  pthread_mutex_destroy(&s->mutex);
}

hy_status hy__vendor_stream_native(void* device, void* stream, void** native) {
  (void)device;
  *native = ((hy__vendor_stream*)stream)->queue;
  return HY_OK;
}

static hy_status result(hy__vendor_stream* s, int error, const char* what) {
  if (!error) return kept_error(s);
  char doing[96];
  hy_op op = __atomic_load_n(&s->last_op, __ATOMIC_RELAXED);
  snprintf(doing, sizeof doing, "%s after %s", what,
           op == HY_OP_NONE ? "a copy" : hy__backend_host->op_name(op));
  hy_status status = s->device->vendor->fail(error, doing);
  hy__vendor_keep_error(s, status, op, hy__backend_host->last_error());
  return kept_error(s);
}

hy_status hy__vendor_stream_sync(void* device, void* stream) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  int before, error = hy__vendor_try_enter(d, &before);
  if (!error) error = d->vendor->queue_sync(s->queue);
  hy_status status = error ? HY_OK : look_at_checks(s);
  hy__vendor_leave(d, before);
  HY_TRY(status);
  return result(s, error, "waiting for a stream");
}

// Any thread may ask: the checks are left to who waits.
hy_status hy__vendor_stream_query(void* device, void* stream) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  bool idle = true;
  int before, error = hy__vendor_try_enter(d, &before);
  if (!error) error = d->vendor->queue_query(s->queue, &idle);
  hy__vendor_leave(d, before);
  if (!error && !idle) return HY_NOT_READY;
  return result(s, error, "asking a stream");
}

// ---- Events ----

// Vendors differ in what an event says that was never recorded; here it has nothing to wait for.
typedef struct event {
  void* handle;
  bool recorded;
} event;

hy_status hy__vendor_event_create(void* device, void** out) {
  const hy__vendor_device* d = device;
  event* e = calloc(1, sizeof *e);
  if (!e) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", d->vendor->name);
  HY__VENDOR_CALL_OR_FREE(d, "a new event", e, d->vendor->event_create(&e->handle));
  *out = e;
  return HY_OK;
}

void hy__vendor_event_destroy(void* device, void* handle) {
  const hy__vendor_device* d = device;
  event* e = handle;
  int before = hy__vendor_enter(d);
  d->vendor->event_destroy(e->handle);
  hy__vendor_leave(d, before);
  free(e);
}

hy_status hy__vendor_event_record(void* device, void* handle, void* stream) {
  const hy__vendor_device* d = device;
  event* e = handle;
  HY__VENDOR_CALL(d, "recording an event",
                  d->vendor->event_record(e->handle, ((hy__vendor_stream*)stream)->queue));
  __atomic_store_n(&e->recorded, true, __ATOMIC_RELEASE);
  return HY_OK;
}

static bool was_recorded(const event* e) {
  return __atomic_load_n(&e->recorded, __ATOMIC_ACQUIRE);
}

hy_status hy__vendor_event_query(void* device, void* handle) {
  const hy__vendor_device* d = device;
  event* e = handle;
  bool done = true;
  if (!was_recorded(e)) return HY_OK;
  HY__VENDOR_CALL(d, "asking an event", d->vendor->event_query(e->handle, &done));
  return done ? HY_OK : HY_NOT_READY;
}

hy_status hy__vendor_event_sync(void* device, void* handle) {
  const hy__vendor_device* d = device;
  event* e = handle;
  if (!was_recorded(e)) return HY_OK;
  HY__VENDOR_CALL(d, "waiting for an event", d->vendor->event_sync(e->handle));
  return HY_OK;
}

hy_status hy__vendor_event_elapsed(void* device, void* start, void* stop, double* milliseconds) {
  const hy__vendor_device* d = device;
  float elapsed = 0;
  HY_TRY(hy__vendor_event_query(device, start));
  HY_TRY(hy__vendor_event_query(device, stop));
  HY__VENDOR_CALL(
      d, "the time between two events",
      d->vendor->event_elapsed(&elapsed, ((event*)start)->handle, ((event*)stop)->handle));
  *milliseconds = (double)elapsed;
  return HY_OK;
}

hy_status hy__vendor_stream_wait_event(void* device, void* stream, void* handle) {
  const hy__vendor_device* d = device;
  event* e = handle;
  if (!was_recorded(e)) return HY_OK;
  HY__VENDOR_CALL(d, "a wait for an event",
                  d->vendor->queue_wait(((hy__vendor_stream*)stream)->queue, e->handle));
  return HY_OK;
}
