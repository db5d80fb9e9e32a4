// Streams and events of backends whose calls finish before they return: nothing is ever pending,
// and an event is a point in the host's time.
#include "core/registry.h"

typedef struct inline_event {
  atomic_llong ns;
} inline_event;

static char the_stream;  // has no state, so all share one handle

static hy_status stream_create(void* device, void** stream) {
  (void)device;
  *stream = &the_stream;
  return HY_OK;
}

static void stream_destroy(void* device, void* stream) {
  (void)device;
  (void)stream;
}

static hy_status stream_done(void* device, void* stream) {
  (void)device;
  (void)stream;
  return HY_OK;
}

static hy_status device_done(void* device) {
  (void)device;
  return HY_OK;
}

static hy_status event_create(void* device, void** event) {
  (void)device;
  inline_event* e = hy__calloc(1, sizeof *e);
  if (!e) return hy_fail(HY_OUT_OF_MEMORY, "no memory for an event");
  *event = e;
  return HY_OK;
}

static void event_destroy(void* device, void* event) {
  (void)device;
  hy__mfree(event);
}

static hy_status event_record(void* device, void* event, void* stream) {
  (void)device;
  (void)stream;
  atomic_store(&((inline_event*)event)->ns, hy__now_ns());
  return HY_OK;
}

static hy_status event_elapsed(void* device, void* start, void* stop, double* milliseconds) {
  (void)device;
  long long first = atomic_load(&((inline_event*)start)->ns);
  long long last = atomic_load(&((inline_event*)stop)->ns);
  if (!first || !last)
    return hy_fail(HY_INVALID_ARGUMENT, "elapsed time: the %s event was never recorded",
                   first ? "second" : "first");
  *milliseconds = (double)(last - first) / 1e6;
  return HY_OK;
}

static hy_status stream_wait_event(void* device, void* stream, void* event) {
  (void)device;
  (void)stream;
  (void)event;
  return HY_OK;
}

void hy__use_inline_streams(hy_backend* b) {
  if (!b->device_sync) b->device_sync = device_done;
  b->stream_create = stream_create;
  b->stream_destroy = stream_destroy;
  b->stream_sync = stream_done;
  b->stream_query = stream_done;
  b->event_create = event_create;
  b->event_destroy = event_destroy;
  b->event_record = event_record;
  b->event_query = stream_done;
  b->event_sync = stream_done;
  b->event_elapsed = event_elapsed;
  b->stream_wait_event = stream_wait_event;
}
