// Streams: in-order queues, and the error that sticks to one.
#include <stdio.h>

#include "core/internal.h"

// The caller holds the device's mutex.
static hy_status create(hy_device* device, hy_stream** stream) {
  hy_stream* s = hy__calloc(1, sizeof *s);
  if (!s) return hy_fail(HY_OUT_OF_MEMORY, "%s: no host memory for a stream", device->selector);
  s->device = device;
  hy_status status = device->backend->stream_create(device->handle, &s->handle);
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

hy_status hy_stream_create(hy_device* device, hy_stream** stream) {
  if (!device || !stream) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_create: %s is NULL",
                   device ? "stream" : "device");
  }
  *stream = NULL;
  pthread_mutex_lock(&device->mutex);
  hy_status status = create(device, stream);
  pthread_mutex_unlock(&device->mutex);
  return status;
}

hy_status hy_stream_default(hy_device* device, hy_stream** stream) {
  if (!device || !stream) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_default: %s is NULL",
                   device ? "stream" : "device");
  }
  hy_status status = HY_OK;
  pthread_mutex_lock(&device->mutex);
  if (!device->default_stream) status = create(device, &device->default_stream);
  *stream = device->default_stream;
  pthread_mutex_unlock(&device->mutex);
  return status;
}

void hy_stream_destroy(hy_stream* stream) {
  if (!stream) return;
  hy_device* device = stream->device;
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

hy_device* hy_stream_device(const hy_stream* stream) {
  return stream ? stream->device : NULL;
}

hy_status hy__stream_check(hy_stream* stream) {
  const hy_device* device = stream->device;
  if (stream->failed == HY_OK) {
    if (!device->backend->stream_error) return HY_OK;
    hy_async_error error;
    error.status = HY_OK;
    device->backend->stream_error(device->handle, stream->handle, &error);
    if (error.status == HY_OK) return HY_OK;
    stream->failed = error.status;
    snprintf(stream->failure, sizeof stream->failure, "%s on %s failed: %s",
             error.op == HY_OP_NONE ? "a copy" : hy__ops.op_name(error.op), device->selector,
             error.message);
  }
  return hy_fail(stream->failed, "%s", stream->failure);
}

hy_status hy_stream_sync(hy_stream* stream) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_sync: stream is NULL");
  const hy_device* device = stream->device;
  HY_TRY(hy__stream_check(stream));
  hy_status status = device->backend->stream_sync(device->handle, stream->handle);
  HY_TRY(hy__stream_check(stream));
  return status;
}

hy_status hy_stream_query(hy_stream* stream) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_query: stream is NULL");
  const hy_device* device = stream->device;
  hy_status status = device->backend->stream_query(device->handle, stream->handle);
  HY_TRY(hy__stream_check(stream));
  return status;
}

hy_status hy_stream_reset(hy_stream* stream) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_stream_reset: stream is NULL");
  const hy_device* device = stream->device;
  void* old = stream->handle;
  void* fresh;
  device->backend->stream_sync(device->handle, old);
  HY_TRY(device->backend->stream_create(device->handle, &fresh));
  stream->handle = fresh;
  hy_status status = hy__allocator_attach(device->allocator, stream);
  stream->failed = HY_OK;
  device->backend->stream_destroy(device->handle, old);
  return status;
}
