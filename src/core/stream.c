// Streams: in-order queues, their sticky errors, and the ways to come by one.
#include <stdio.h>

#include "core/internal.h"

// The backend's stream behind one of ours, made the way the first one was.
static hy_status open_handle(const hy_stream* s, void** handle) {
  const hy_device* device = s->device;
  const hy_backend* backend = device->backend;
  if (s->foreign) return backend->stream_wrap(device->handle, s->native, handle);
  if (s->priority) return backend->stream_create_with_priority(device->handle, s->priority, handle);
  return backend->stream_create(device->handle, handle);
}

// The caller holds the device's mutex.
static hy_status create(hy_device* device, const hy_stream* like, hy_stream** stream) {
  hy_stream* s = hy__calloc(1, sizeof *s);
  if (!s) return hy_fail(HY_OUT_OF_MEMORY, "%s: no host memory for a stream", device->selector);
  *s = *like;
  s->device = device;
  hy_status status = open_handle(s, &s->handle);
  if (status != HY_OK) goto fail_stream;
  status = hy__allocator_attach(device->allocator, s);
  if (status != HY_OK) goto fail_attach;
  s->older = device->streams;
  if (s->older) s->older->newer = s;
  device->streams = s;
  *stream = s;
  return HY_OK;

fail_attach:
  device->backend->stream_destroy(device->handle, s->handle);
fail_stream:
  hy__mfree(s);
  return status;
}

static hy_status create_locking(hy_device* device, const hy_stream* like, hy_stream** stream) {
  *stream = NULL;
  pthread_mutex_lock(&device->mutex);
  hy_status status = create(device, like, stream);
  pthread_mutex_unlock(&device->mutex);
  return status;
}

hy_status hy_stream_create(hy_device* device, hy_stream** stream) {
  if (!device || !stream) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_create: %s is NULL",
                   device ? "stream" : "device");
  }
  return create_locking(device, &(hy_stream){0}, stream);
}

hy_status hy_stream_priority_range(hy_device* device, int* least, int* greatest) {
  if (!device || !least || !greatest) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_priority_range: an argument is NULL");
  }
  int32_t low = 0, high = 0;
  if (device->backend->stream_priority_range) {
    HY_TRY(device->backend->stream_priority_range(device->handle, &low, &high));
  }
  *least = low;
  *greatest = high;
  return HY_OK;
}

hy_status hy_stream_create_priority(hy_device* device, int priority, hy_stream** stream) {
  if (!device || !stream) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_create_priority: %s is NULL",
                   device ? "stream" : "device");
  }
  *stream = NULL;
  int least, greatest;
  HY_TRY(hy_stream_priority_range(device, &least, &greatest));
  if (priority > least || priority < greatest) {
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_stream_create_priority: %d; priorities on %s go from %d, which runs first, "
                   "to %d",
                   priority, device->selector, greatest, least);
  }
  return create_locking(device, &(hy_stream){.priority = priority}, stream);
}

hy_status hy_stream_wrap(hy_device* device, void* native, hy_stream** stream) {
  if (!device || !stream) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_wrap: %s is NULL", device ? "stream" : "device");
  }
  *stream = NULL;
  if (!device->backend->stream_wrap) {
    return hy_fail(HY_UNSUPPORTED, "hy_stream_wrap: %s cannot work on streams of others",
                   device->selector);
  }
  return create_locking(device, &(hy_stream){.native = native, .foreign = true}, stream);
}

hy_status hy_stream_native(hy_stream* stream, void** native) {
  if (!stream || !native) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_native: %s is NULL",
                   stream ? "native" : "stream");
  }
  *native = NULL;
  const hy_device* device = stream->device;
  if (!device->backend->stream_native) {
    return hy_fail(HY_UNSUPPORTED, "hy_stream_native: streams of %s have no handle for others",
                   device->selector);
  }
  return device->backend->stream_native(device->handle, stream->handle, native);
}

hy_status hy_stream_default(hy_device* device, hy_stream** stream) {
  if (!device || !stream) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_default: %s is NULL",
                   device ? "stream" : "device");
  }
  hy_status status = HY_OK;
  pthread_mutex_lock(&device->mutex);
  if (!device->default_stream) status = create(device, &(hy_stream){0}, &device->default_stream);
  *stream = device->default_stream;
  pthread_mutex_unlock(&device->mutex);
  return status;
}

void hy_stream_destroy(hy_stream* stream) {
  if (!stream) return;
  hy_device* device = stream->device;
  if (stream->capture) stream->capture->drop(stream);
  pthread_mutex_lock(&device->mutex);
  if (device->default_stream == stream) device->default_stream = NULL;
  if (stream->older) stream->older->newer = stream->newer;
  *(stream->newer ? &stream->newer->older : &device->streams) = stream->older;
  pthread_mutex_unlock(&device->mutex);
  device->backend->stream_sync(device->handle, stream->handle);
  hy__upload_ring_destroy(stream);
  hy__allocator_detach(device->allocator, stream);
  device->backend->stream_destroy(device->handle, stream->handle);
  hy__mfree(stream);
}

void hy__streams_close(hy_device* device) {
  while (device->streams) hy_stream_destroy(device->streams);
}

bool hy_stream_is_capturing(const hy_stream* stream) {
  return stream && stream->capture;
}

hy_device* hy_stream_device(const hy_stream* stream) {
  return stream ? stream->device : NULL;
}

hy_status hy__stream_error(hy_stream* stream) {
  const hy_device* device = stream->device;
  if (stream->failed == HY_OK) {
    hy_async_error error;
    error.status = HY_OK;
    device->backend->stream_error(device->handle, stream->handle, &error);
    if (error.status == HY_OK) return HY_OK;
    stream->failed = error.status;
    snprintf(stream->failure, sizeof stream->failure, "%s on %s failed: %s",
             error.op == HY_OP_NONE ? "work" : hy__ops.op_name(error.op), device->selector,
             error.message);
  }
  return hy_fail(stream->failed, "%s", stream->failure);
}

hy_status hy__capture_refuse(hy_stream* stream, const char* what, const char* why) {
  hy__capture* capture = stream->capture;
  hy_status status = hy_fail(HY_UNSUPPORTED, "%s cannot be captured into a graph on %s: %s", what,
                             stream->device->selector, why);
  if (capture->failed == HY_OK) {
    capture->failed = status;
    snprintf(capture->failure, sizeof capture->failure, "%s", hy_last_error());
  }
  return status;
}

static const char* const runs_later = "its work runs when the graph is launched";

hy_status hy_stream_sync(hy_stream* stream) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_sync: stream is NULL");
  const hy_device* device = stream->device;
  if (stream->capture) return hy__capture_refuse(stream, "hy_stream_sync", runs_later);
  HY_TRY(hy__stream_check(stream));
  hy_status status = device->backend->stream_sync(device->handle, stream->handle);
  HY_TRY(hy__stream_check(stream));
  return status;
}

hy_status hy_stream_query(hy_stream* stream) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_query: stream is NULL");
  const hy_device* device = stream->device;
  if (stream->capture) return hy__capture_refuse(stream, "hy_stream_query", runs_later);
  hy_status status = device->backend->stream_query(device->handle, stream->handle);
  HY_TRY(hy__stream_check(stream));
  return status;
}

hy_status hy_stream_reset(hy_stream* stream) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_reset: stream is NULL");
  const hy_device* device = stream->device;
  void* old = stream->handle;
  void* fresh;
  if (stream->capture) stream->capture->drop(stream);
  device->backend->stream_sync(device->handle, old);
  hy__upload_ring_destroy(stream);
  HY_TRY(open_handle(stream, &fresh));
  stream->handle = fresh;
  hy_status status = hy__allocator_attach(device->allocator, stream);
  stream->failed = HY_OK;
  device->backend->stream_destroy(device->handle, old);
  return status;
}
