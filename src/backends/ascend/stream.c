// Ascend streams, events and graph capture over AscendCL's. Errors come two ways: from AscendCL,
// and from checks of indices, whose answers are read when the stream is waited for.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/ascend/ascend.h"

enum { FAST_LAUNCH = 1, FAST_SYNC = 2 };  // stream flags
enum { STREAM_COMPLETE = 0, RECORDED_COMPLETE = 1, TO_HOST = 2, CAPTURE_RELAXED = 2 };
enum { EVENT_SYNC = 1, EVENT_CAPTURE_STREAM_PROGRESS = 2, EVENT_TIME_LINE = 8 };

// ---- Errors ----

static void keep_error(hy__ascend_stream* s, hy_status status, hy_op op, const char* message) {
  pthread_mutex_lock(&s->mutex);
  if (s->error.status == HY_OK) {
    s->error.status = status;
    s->error.op = op;
    snprintf(s->error.message, sizeof s->error.message, "%.250s", message);
  }
  pthread_mutex_unlock(&s->mutex);
}

static hy_status kept_error(hy__ascend_stream* s) {
  hy_async_error error;
  hy__ascend_stream_error(s->device, s, &error);
  return error.status == HY_OK ? HY_OK : hy__backend_host->fail(error.status, "%s", error.message);
}

void hy__ascend_stream_error(void* device, void* stream, hy_async_error* error) {
  (void)device;
  hy__ascend_stream* s = stream;
  pthread_mutex_lock(&s->mutex);
  *error = s->error;
  pthread_mutex_unlock(&s->mutex);
}

// The checks made since the last look, on a stream that is idle.
static hy_status look_at_checks(hy__ascend_stream* s) {
  int n = s->n_checks;
  s->n_checks = 0;
  if (n == 0) return HY_OK;
  int error = hy__acl.aclrtMemcpy(s->flags_host, (size_t)n, s->flags, (size_t)n, TO_HOST);
  if (error) return hy__ascend_fail(error, "reading the checks of indices");
  for (int i = 0; i < n; i++)
    if (s->flags_host[i])
      keep_error(s, HY_INDEX, s->checked[i], "an index lies outside the dimension it is for");
  return HY_OK;
}

// ---- Streams ----

hy_status hy__ascend_stream_create(void* device, void** stream) {
  hy__ascend_device* d = device;
  hy__ascend_stream* s = calloc(1, sizeof *s);
  if (!s) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
  s->device = d;
  pthread_mutex_init(&s->mutex, NULL);
  void *flags = NULL, *host = NULL;
  int before = hy__ascend_enter(d);
  int error = hy__acl.aclrtCreateStreamWithConfig(&s->queue, 0, FAST_LAUNCH | FAST_SYNC);
  hy__ascend_leave(d, before);
  hy_status status = error ? hy__ascend_fail(error, "a new stream") : HY_OK;
  if (status == HY_OK) status = hy__ascend_memory_alloc(d, HY__ASCEND_CHECKS, &flags);
  if (status == HY_OK) status = hy__ascend_host_alloc(d, HY__ASCEND_CHECKS, &host);
  s->flags = flags;
  s->flags_host = host;
  if (status != HY_OK)
    hy__ascend_stream_destroy(d, s);
  else
    *stream = s;
  return status;
}

void hy__ascend_stream_destroy(void* device, void* stream) {
  hy__ascend_device* d = device;
  hy__ascend_stream* s = stream;
  int before = hy__ascend_enter(d);
  if (s->queue) {
    hy__acl.aclrtSynchronizeStream(s->queue);
    hy__acl.aclrtDestroyStream(s->queue);
  }
  hy__ascend_arena_free(&s->arena);
  if (s->flags) hy__acl.aclrtFree(s->flags);
  hy__ascend_leave(d, before);
  if (s->flags_host) hy__ascend_host_free(d, s->flags_host);
  pthread_mutex_destroy(&s->mutex);
  free(s);
}

hy_status hy__ascend_stream_native(void* device, void* stream, void** native) {
  (void)device;
  *native = ((hy__ascend_stream*)stream)->queue;
  return HY_OK;
}

static hy_status result(hy__ascend_stream* s, int error, const char* what) {
  if (!error) return kept_error(s);
  char doing[96];
  hy_op op = __atomic_load_n(&s->last_op, __ATOMIC_RELAXED);
  snprintf(doing, sizeof doing, "%s after %s", what,
           op == HY_OP_NONE ? "a copy" : hy__backend_host->op_name(op));
  hy_status status = hy__ascend_fail(error, doing);
  keep_error(s, status, op, hy__backend_host->last_error());
  return kept_error(s);
}

hy_status hy__ascend_stream_sync(void* device, void* stream) {
  hy__ascend_device* d = device;
  hy__ascend_stream* s = stream;
  int before = hy__ascend_enter(d);
  int error = hy__acl.aclrtSynchronizeStream(s->queue);
  hy_status status = error ? HY_OK : look_at_checks(s);
  hy__ascend_leave(d, before);
  HY_TRY(status);
  return result(s, error, "waiting for a stream");
}

// Any thread may ask: the checks are left to who waits.
hy_status hy__ascend_stream_query(void* device, void* stream) {
  hy__ascend_device* d = device;
  hy__ascend_stream* s = stream;
  int state = STREAM_COMPLETE;
  int before = hy__ascend_enter(d);
  int error = hy__acl.aclrtStreamQuery(s->queue, &state);
  hy__ascend_leave(d, before);
  if (!error && state != STREAM_COMPLETE) return HY_NOT_READY;
  return result(s, error, "asking a stream");
}

// ---- Events ----

// AscendCL calls an event that was never recorded not ready; here it has nothing to wait for.
typedef struct event {
  void* handle;
  bool recorded;
} event;

hy_status hy__ascend_event_create(void* device, void** out) {
  event* e = calloc(1, sizeof *e);
  if (!e) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
  int before = hy__ascend_enter(device);
  int error = hy__acl.aclrtCreateEventExWithFlag(
      &e->handle, EVENT_SYNC | EVENT_CAPTURE_STREAM_PROGRESS | EVENT_TIME_LINE);
  hy__ascend_leave(device, before);
  if (error) {
    free(e);
    return hy__ascend_fail(error, "a new event");
  }
  *out = e;
  return HY_OK;
}

void hy__ascend_event_destroy(void* device, void* handle) {
  event* e = handle;
  int before = hy__ascend_enter(device);
  hy__acl.aclrtDestroyEvent(e->handle);
  hy__ascend_leave(device, before);
  free(e);
}

hy_status hy__ascend_event_record(void* device, void* handle, void* stream) {
  event* e = handle;
  ASCEND_CALL(device, "recording an event",
              hy__acl.aclrtRecordEvent(e->handle, ((hy__ascend_stream*)stream)->queue));
  __atomic_store_n(&e->recorded, true, __ATOMIC_RELEASE);
  return HY_OK;
}

static bool was_recorded(const event* e) {
  return __atomic_load_n(&e->recorded, __ATOMIC_ACQUIRE);
}

hy_status hy__ascend_event_query(void* device, void* handle) {
  event* e = handle;
  int state = RECORDED_COMPLETE;
  if (!was_recorded(e)) return HY_OK;
  ASCEND_CALL(device, "asking an event", hy__acl.aclrtQueryEventStatus(e->handle, &state));
  return state == RECORDED_COMPLETE ? HY_OK : HY_NOT_READY;
}

hy_status hy__ascend_event_sync(void* device, void* handle) {
  event* e = handle;
  if (!was_recorded(e)) return HY_OK;
  ASCEND_CALL(device, "waiting for an event", hy__acl.aclrtSynchronizeEvent(e->handle));
  return HY_OK;
}

hy_status hy__ascend_event_elapsed(void* device, void* start, void* stop, double* milliseconds) {
  float elapsed = 0;
  HY_TRY(hy__ascend_event_query(device, start));
  HY_TRY(hy__ascend_event_query(device, stop));
  ASCEND_CALL(
      device, "the time between two events",
      hy__acl.aclrtEventElapsedTime(&elapsed, ((event*)start)->handle, ((event*)stop)->handle));
  *milliseconds = (double)elapsed;
  return HY_OK;
}

hy_status hy__ascend_stream_wait_event(void* device, void* stream, void* handle) {
  event* e = handle;
  if (!was_recorded(e)) return HY_OK;
  ASCEND_CALL(device, "a wait for an event",
              hy__acl.aclrtStreamWaitEvent(((hy__ascend_stream*)stream)->queue, e->handle));
  return HY_OK;
}

// ---- Graphs ----

// What a graph needs besides its own: the temporaries of its calls.
typedef struct graph {
  void* model;
  hy__ascend_arena arena;
} graph;

hy_status hy__ascend_capture_begin(void* device, void* stream) {
  hy__ascend_stream* s = stream;
  graph* g = calloc(1, sizeof *g);
  if (!g) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
  int before = hy__ascend_enter(device);
  int error = hy__acl.aclmdlRICaptureBegin(s->queue, CAPTURE_RELAXED);
  hy__ascend_leave(device, before);
  if (error) {
    free(g);
    return hy__ascend_fail(error, "beginning a capture");
  }
  g->arena = s->arena;  // the stream's, until the end
  memset(&s->arena, 0, sizeof s->arena);
  s->capturing = g;
  return HY_OK;
}

hy_status hy__ascend_capture_end(void* device, void* stream, void** out) {
  hy__ascend_stream* s = stream;
  graph* g = s->capturing;
  int before = hy__ascend_enter(device);
  int error = hy__acl.aclmdlRICaptureEnd(s->queue, &g->model);
  // The stream must take work again: once more, and what comes of it is dropped.
  bool stuck = error && hy__acl.aclmdlRICaptureEnd(s->queue, &g->model);
  hy__ascend_leave(device, before);
  hy__ascend_arena streams = g->arena;
  g->arena = s->arena;
  s->arena = streams;
  s->capturing = NULL;
  if (stuck) keep_error(s, HY_DEVICE_FAILED, HY_OP_NONE, "ascend: a capture does not end");
  if (error || !out) {
    hy__ascend_graph_destroy(device, g);
    return error ? hy__ascend_fail(error, "ending a capture") : HY_OK;
  }
  *out = g;
  return HY_OK;
}

hy_status hy__ascend_graph_launch(void* device, void* handle, void* stream) {
  hy__ascend_stream* s = stream;
  ASCEND_CALL(device, "launching a graph",
              hy__acl.aclmdlRIExecuteAsync(((graph*)handle)->model, s->queue));
  return HY_OK;
}

void hy__ascend_graph_destroy(void* device, void* handle) {
  graph* g = handle;
  int before = hy__ascend_enter(device);
  if (g->model) hy__acl.aclmdlRIDestroy(g->model);
  hy__ascend_arena_free(&g->arena);
  hy__ascend_leave(device, before);
  free(g);
}
