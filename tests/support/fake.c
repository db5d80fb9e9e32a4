// A device whose clock is the test: streams advance only when told to.
#include "support/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_event {
  fake_stream* stream;
  uint64_t ticket;
} fake_event;

typedef struct fake_memory {
  size_t bytes;
  char reserved[56];
} fake_memory;

static hy_status device_sync(void* handle) {
  fake_device* fake = handle;
  fake->syncs++;
  for (int i = 0; i < FAKE_STREAMS; i++) {
    if (fake->streams[i]) fake->streams[i]->done = fake->streams[i]->submitted;
  }
  return HY_OK;
}

static hy_status memory_alloc(void* handle, size_t bytes, void** address) {
  fake_device* fake = handle;
  if (bytes > fake->capacity - fake->used) return hy_fail(HY_OUT_OF_MEMORY, "the fake is full");
  fake_memory* memory = aligned_alloc(64, sizeof *memory + (bytes + 63) / 64 * 64);
  if (!memory) return hy_fail(HY_OUT_OF_MEMORY, "the host is full");
  memory->bytes = bytes;
  fake->used += bytes;
  fake->live_memory++;
  *address = (char*)(memory + 1) + fake->misalign;
  return HY_OK;
}

static void memory_free(void* handle, void* address) {
  fake_device* fake = handle;
  fake_memory* memory = (fake_memory*)((char*)address - fake->misalign) - 1;
  fake->used -= memory->bytes;
  fake->live_memory--;
  free(memory);
}

static hy_status memory_info(void* handle, uint64_t* free_bytes, uint64_t* total_bytes) {
  fake_device* fake = handle;
  *free_bytes = fake->capacity - fake->used;
  *total_bytes = fake->capacity;
  return HY_OK;
}

static hy_status host_alloc(void* handle, size_t bytes, void** address) {
  fake_device* fake = handle;
  *address = malloc(bytes);
  if (!*address) return hy_fail(HY_OUT_OF_MEMORY, "the host is full");
  fake->live_pinned++;
  return HY_OK;
}

static void host_free(void* handle, void* address) {
  fake_device* fake = handle;
  fake->live_pinned--;
  free(address);
}

static hy_status copy(void* handle, void* stream, void* dst, const void* src, size_t bytes,
                      hy_copy_kind kind) {
  fake_device* fake = handle;
  fake->copies++;
  fake->last_kind = kind;
  ((fake_stream*)stream)->submitted++;
  memcpy(dst, src, bytes);
  return HY_OK;
}

static hy_status set(void* handle, void* stream, void* dst, int value, size_t bytes) {
  fake_device* fake = handle;
  fake->copies++;
  ((fake_stream*)stream)->submitted++;
  memset(dst, value, bytes);
  return HY_OK;
}

static hy_status stream_create(void* handle, void** stream) {
  fake_device* fake = handle;
  for (int i = 0; i < FAKE_STREAMS; i++) {
    if (fake->streams[i]) continue;
    fake_stream* fresh = calloc(1, sizeof *fresh);
    if (!fresh) return hy_fail(HY_OUT_OF_MEMORY, "the host is full");
    fresh->device = fake;
    fake->streams[i] = fresh;
    fake->live_streams++;
    *stream = fresh;
    return HY_OK;
  }
  return hy_fail(HY_OUT_OF_MEMORY, "the fake has no more streams");
}

static void stream_destroy(void* handle, void* stream) {
  fake_device* fake = handle;
  for (int i = 0; i < FAKE_STREAMS; i++) {
    if (fake->streams[i] == stream) fake->streams[i] = NULL;
  }
  fake->live_streams--;
  free(stream);
}

static hy_status stream_sync(void* handle, void* stream) {
  (void)handle;
  fake_stream* s = stream;
  s->done = s->submitted;
  return HY_OK;
}

static hy_status stream_query(void* handle, void* stream) {
  fake_stream* s = stream;
  ((fake_device*)handle)->queries++;
  return s->done == s->submitted ? HY_OK : HY_NOT_READY;
}

static void stream_error(void* handle, void* stream, hy_async_error* error) {
  (void)handle;
  *error = ((fake_stream*)stream)->error;
}

static hy_status event_create(void* handle, void** event) {
  *event = calloc(1, sizeof(fake_event));
  if (!*event) return hy_fail(HY_OUT_OF_MEMORY, "the host is full");
  ((fake_device*)handle)->live_events++;
  return HY_OK;
}

static void event_destroy(void* handle, void* event) {
  ((fake_device*)handle)->live_events--;
  free(event);
}

static hy_status event_record(void* handle, void* event, void* stream) {
  fake_device* fake = handle;
  if (fake->fail_records) return hy_fail(HY_DEVICE_FAILED, "the fake records nothing");
  fake->records++;
  ((fake_event*)event)->stream = stream;
  ((fake_event*)event)->ticket = ((fake_stream*)stream)->submitted;
  return HY_OK;
}

static hy_status event_query(void* handle, void* event) {
  (void)handle;
  fake_event* e = event;
  return e->stream->done >= e->ticket ? HY_OK : HY_NOT_READY;
}

static hy_status event_sync(void* handle, void* event) {
  (void)handle;
  fake_event* e = event;
  if (e->stream->done < e->ticket) e->stream->done = e->ticket;
  return HY_OK;
}

static hy_status event_elapsed(void* handle, void* start, void* stop, double* milliseconds) {
  (void)handle;
  *milliseconds = (double)(((fake_event*)stop)->ticket - ((fake_event*)start)->ticket);
  return HY_OK;
}

static hy_status stream_wait_event(void* handle, void* stream, void* event) {
  (void)handle, (void)event;
  ((fake_stream*)stream)->submitted++;
  return HY_OK;
}

#define FAKE_TABLE(flag_bits, pin, unpin, error_function)                                         \
  {                                                                                               \
    .size = sizeof(hy_backend), .abi = HY_ABI_VERSION, .flags = flag_bits, .name = "fake",        \
    .version = "1", .description = "a device driven by the test", .device_sync = device_sync,     \
    .memory_alloc = memory_alloc, .memory_free = memory_free, .memory_info = memory_info,         \
    .host_alloc = pin, .host_free = unpin, .copy = copy, .set = set,                              \
    .stream_create = stream_create, .stream_destroy = stream_destroy, .stream_sync = stream_sync, \
    .stream_query = stream_query, .stream_error = error_function, .event_create = event_create,   \
    .event_destroy = event_destroy, .event_record = event_record, .event_query = event_query,     \
    .event_sync = event_sync, .event_elapsed = event_elapsed,                                     \
    .stream_wait_event = stream_wait_event                                                        \
  }

static const hy_backend tables[2][2] = {
    {FAKE_TABLE(0, NULL, NULL, stream_error), FAKE_TABLE(0, host_alloc, host_free, stream_error)},
    {FAKE_TABLE(HY_BACKEND_HOST_MEMORY, NULL, NULL, NULL),
     FAKE_TABLE(HY_BACKEND_HOST_MEMORY, host_alloc, host_free, NULL)},
};

hy_status fake_open(fake_device* fake, const char* selector, uint32_t flags, bool pinned,
                    size_t capacity) {
  memset(fake, 0, sizeof *fake);
  fake->capacity = capacity;
  hy_device* device = &fake->device;
  device->is_host = flags & HY_BACKEND_HOST_MEMORY;
  device->backend = &tables[device->is_host][pinned];
  device->handle = fake;
  device->root = device;
  snprintf(device->selector, sizeof device->selector, "%s", selector);
  pthread_mutex_init(&device->mutex, NULL);
  hy_status status = hy__allocator_create(device, &device->allocator);
  if (status != HY_OK) pthread_mutex_destroy(&device->mutex);
  return status;
}

void fake_close(fake_device* fake) {
  hy__streams_close(&fake->device);
  hy__allocator_destroy(fake->device.allocator);
  pthread_mutex_destroy(&fake->device.mutex);
}

void fake_submit(hy_stream* stream) {
  ((fake_stream*)stream->handle)->submitted++;
}

void fake_finish(hy_stream* stream) {
  fake_stream* s = stream->handle;
  s->done = s->submitted;
}

void fake_break(hy_stream* stream, hy_status status, hy_op op, const char* message) {
  hy_async_error* error = &((fake_stream*)stream->handle)->error;
  error->status = status;
  error->op = op;
  snprintf(error->message, sizeof error->message, "%s", message);
}
