// Asynchronous uploads: through a ring of pinned memory that each stream has, whose slots are
// reused when events say that their copies are done.
#include <string.h>

#include "core/internal.h"

enum { SLOTS = 8 };  // uploads under way before one waits for the oldest

typedef struct slot {
  void* memory;  // pinned; grows to the largest upload that came by
  size_t bytes;
  hy_event* event;  // behind the last copy
} slot;

struct hy__upload_ring {
  slot slots[SLOTS];
  int next;
};

void hy__upload_ring_destroy(hy_stream* stream) {
  struct hy__upload_ring* ring = stream->uploads;
  if (!ring) return;
  for (int i = 0; i < SLOTS; i++) {
    hy_event_destroy(ring->slots[i].event);
    hy_host_free(stream->device, ring->slots[i].memory);
  }
  hy__mfree(ring);
  stream->uploads = NULL;
}

// The copy out of the slot is done.
static hy_status wait_for(const slot* s) {
  if (!s->event) return HY_OK;
  hy_status status = hy_event_query(s->event);
  return status == HY_NOT_READY ? hy_event_sync(s->event) : status;
}

static hy_status make_room(hy_device* device, slot* s, size_t bytes) {
  if (!s->event) HY_TRY(hy_event_create(device, &s->event));
  if (bytes <= s->bytes) return HY_OK;
  size_t room = 4096;
  while (room < bytes) room *= 2;
  hy_host_free(device, s->memory);
  s->memory = NULL;
  s->bytes = 0;
  HY_TRY(hy_host_alloc(device, room, &s->memory));
  s->bytes = room;
  return HY_OK;
}

static hy_status copy_and_wait(hy_stream* stream, void* dst, const void* src, size_t bytes) {
  HY_TRY(hy_memcpy(stream, dst, src, bytes, HY_COPY_HOST_TO_DEVICE));
  return hy_stream_sync(stream);
}

hy_status hy_upload(hy_stream* stream, void* dst, const void* src, size_t bytes) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_upload: stream is NULL");
  if (bytes > 0 && (!dst || !src))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_upload: %s is NULL", dst ? "src" : "dst");
  if (stream->capture)
    return hy__capture_refuse(stream, "hy_upload", "a launch would copy what its source held once");
  hy_device* device = stream->device;
  if (device->is_host || bytes == 0 || bytes > HY_UPLOAD_RING_BYTES)
    return copy_and_wait(stream, dst, src, bytes);
  if (!stream->uploads) stream->uploads = hy__calloc(1, sizeof *stream->uploads);
  if (!stream->uploads)
    return hy_fail(HY_OUT_OF_MEMORY, "%s: no host memory for uploads", device->selector);
  slot* s = &stream->uploads->slots[stream->uploads->next];
  HY_TRY(wait_for(s));
  HY_TRY(make_room(device, s, bytes));
  memcpy(s->memory, src, bytes);
  HY_TRY(hy_memcpy(stream, dst, s->memory, bytes, HY_COPY_HOST_TO_DEVICE));
  stream->uploads->next = (stream->uploads->next + 1) % SLOTS;
  hy_status status = hy_event_record(s->event, stream);
  // Without an event nobody would know when the slot is free.
  return status == HY_OK ? HY_OK : hy_stream_sync(stream);
}
