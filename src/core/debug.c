// HALYARD_DEBUG=poison,bounds,delay: how mistakes of a backend are made to show.
#include "core/debug.h"

#include <string.h>

#include "core/allocator.h"

enum { ZONE = 8192, POISON = 0xff, ZONE_BYTE = 0xb5, DELAY_BYTES = 8 << 20 };

atomic_int hy__debug_flags;

static hy_status parse(const char* text, int* out) {
  static const struct {
    const char* word;
    int flag;
  } words[] = {
      {"poison", HY__DEBUG_POISON}, {"bounds", HY__DEBUG_BOUNDS}, {"delay", HY__DEBUG_DELAY}};
  *out = 0;
  while (text && *text) {
    size_t length = strcspn(text, ",");
    int i = 0;
    while (i < 3 && (strlen(words[i].word) != length || strncmp(words[i].word, text, length) != 0))
      i++;
    if (i == 3)
      return hy_fail(HY_INVALID_ARGUMENT,
                     "HALYARD_DEBUG: \"%.*s\" is none of poison, bounds and delay, separated by "
                     "commas",
                     (int)length, text);
    *out |= words[i].flag;
    text += length + (text[length] == ',');
  }
  return HY_OK;
}

hy_status hy__debug_init(void) {
  int found;
  HY_TRY(parse(hy__env("HALYARD_DEBUG"), &found));
  atomic_store(&hy__debug_flags, found);
  return HY_OK;
}

size_t hy__debug_extra(const hy_stream* stream) {
  return hy__debug() & HY__DEBUG_BOUNDS && !stream->capture ? ZONE : 0;
}

hy_status hy__debug_allocated(hy_stream* stream, void* address, size_t bytes) {
  hy_device* device = stream->device;
  const hy_backend* backend = device->backend;
  if (!hy__debug() || stream->capture) return HY_OK;
  if (hy__debug() & HY__DEBUG_POISON && bytes)
    HY_TRY(backend->set(device->handle, stream->handle, address, POISON, bytes));
  if (!(hy__debug() & HY__DEBUG_BOUNDS)) return HY_OK;
  HY_TRY(backend->set(device->handle, stream->handle, (char*)address + bytes, ZONE_BYTE, ZONE));
  hy__allocator* a = device->allocator;
  pthread_mutex_lock(&a->mutex);
  bool room = hy__ranges_reserve(&a->fenced);
  if (room) hy__ranges_add(&a->fenced, address, bytes + ZONE, NULL);
  pthread_mutex_unlock(&a->mutex);
  return room ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no host memory for HALYARD_DEBUG");
}

hy_status hy__debug_check(hy_device* device, const void* address, const char* who, bool forget) {
  unsigned char zone[ZONE];
  hy__allocator* a = device->allocator;
  const hy_backend* backend = device->backend;
  void* stream;
  if (!(hy__debug() & HY__DEBUG_BOUNDS)) return HY_OK;
  pthread_mutex_lock(&a->mutex);
  hy__range* range = hy__ranges_find(&a->fenced, address);
  hy__range found = range ? *range : (hy__range){0, 0, NULL};
  if (range && forget) hy__ranges_remove(&a->fenced, range);
  pthread_mutex_unlock(&a->mutex);
  if (!range || backend->device_sync(device->handle) != HY_OK) return HY_OK;
  if (backend->stream_create(device->handle, &stream) != HY_OK) return HY_OK;
  size_t bytes = found.size - ZONE;
  hy_status status = backend->copy(device->handle, stream, zone, (char*)found.begin + bytes, ZONE,
                                   HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = backend->stream_sync(device->handle, stream);
  backend->stream_destroy(device->handle, stream);
  for (int i = 0; i < ZONE && status == HY_OK; i++) {
    if (zone[i] == ZONE_BYTE) continue;
    status = hy_fail(HY_DEVICE_FAILED,
                     "HALYARD_DEBUG: %s on %s wrote %d bytes behind an allocation of %zu bytes",
                     who, device->selector, i, bytes);
    hy__log(0, "%s", hy_last_error());
  }
  return status;
}

void hy__debug_delay(hy_stream* stream) {
  hy_device* device = stream->device;
  hy__allocator* a = device->allocator;
  if (!(hy__debug() & HY__DEBUG_DELAY) || stream->capture) return;
  pthread_mutex_lock(&a->mutex);
  if (!a->delay) device->backend->memory_alloc(device->handle, DELAY_BYTES, &a->delay);
  void* scratch = a->delay;
  pthread_mutex_unlock(&a->mutex);
  if (scratch) device->backend->set(device->handle, stream->handle, scratch, 0, DELAY_BYTES);
}
