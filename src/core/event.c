// Events: points in a stream, for ordering streams among each other and for timing.
#include "core/internal.h"

struct hy_event {
  hy_device* device;
  void* handle;   // the backend's
  bool recorded;  // an event that never was is done, and waits for nothing
};

static const char* const orders_launches = "events order launches of graphs, not what is in them";

hy_status hy_event_create(hy_device* device, hy_event** event) {
  if (!device || !event) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_event_create: %s is NULL", device ? "event" : "device");
  }
  *event = NULL;
  hy_event* e = hy__calloc(1, sizeof *e);
  if (!e) return hy_fail(HY_OUT_OF_MEMORY, "hy_event_create: no host memory");
  e->device = device;
  hy_status status = device->backend->event_create(device->handle, &e->handle);
  if (status != HY_OK) {
    hy__mfree(e);
    return status;
  }
  *event = e;
  return HY_OK;
}

void hy_event_destroy(hy_event* event) {
  if (!event) return;
  event->device->backend->event_destroy(event->device->handle, event->handle);
  hy__mfree(event);
}

hy_status hy_event_record(hy_event* event, hy_stream* stream) {
  if (!event || !stream) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_event_record: %s is NULL", event ? "stream" : "event");
  }
  if (!hy__same_device(event->device, stream->device)) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_event_record: the event is of %s, the stream of %s",
                   event->device->selector, stream->device->selector);
  }
  if (stream->capture) return hy__capture_refuse(stream, "hy_event_record", orders_launches);
  HY_TRY(hy__stream_check(stream));
  HY_TRY(
      event->device->backend->event_record(event->device->handle, event->handle, stream->handle));
  event->recorded = true;
  return HY_OK;
}

hy_status hy_event_query(hy_event* event) {
  if (!event) return hy_fail(HY_INVALID_ARGUMENT, "hy_event_query: event is NULL");
  if (!event->recorded) return HY_OK;
  return event->device->backend->event_query(event->device->handle, event->handle);
}

hy_status hy_event_sync(hy_event* event) {
  if (!event) return hy_fail(HY_INVALID_ARGUMENT, "hy_event_sync: event is NULL");
  if (!event->recorded) return HY_OK;
  return event->device->backend->event_sync(event->device->handle, event->handle);
}

hy_status hy_event_elapsed(hy_event* start, hy_event* stop, double* milliseconds) {
  if (!start || !stop || !milliseconds) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_event_elapsed: an argument is NULL");
  }
  if (!hy__same_device(start->device, stop->device)) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_event_elapsed: one event is of %s, the other of %s",
                   start->device->selector, stop->device->selector);
  }
  if (!start->recorded || !stop->recorded) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_event_elapsed: the %s event was never recorded",
                   start->recorded ? "stop" : "start");
  }
  return start->device->backend->event_elapsed(start->device->handle, start->handle, stop->handle,
                                               milliseconds);
}

hy_status hy_stream_wait_event(hy_stream* stream, hy_event* event) {
  if (!stream || !event) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_wait_event: %s is NULL",
                   stream ? "event" : "stream");
  }
  if (stream->capture) return hy__capture_refuse(stream, "hy_stream_wait_event", orders_launches);
  HY_TRY(hy__stream_check(stream));
  if (!event->recorded) return HY_OK;
  // No backend can wait for another's device: the host does.
  if (!hy__same_device(event->device, stream->device)) return hy_event_sync(event);
  return stream->device->backend->stream_wait_event(stream->device->handle, stream->handle,
                                                    event->handle);
}
