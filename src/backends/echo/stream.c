// Streams and events over those of the SDK, which forgets an error once it has told it; a stream of
// Halyard keeps its first one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/echo/echo.h"

static hy_status status_of(echoNpuError error) {
  switch (error) {
    case ECHO_NPU_SUCCESS: return HY_OK;
    case ECHO_NPU_ERROR_OUT_OF_MEMORY:
    case ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY: return HY_OUT_OF_MEMORY;
    case ECHO_NPU_ERROR_NOT_READY: return HY_NOT_READY;
    case ECHO_NPU_ERROR_UNAVAILABLE: return HY_UNAVAILABLE;
    case ECHO_NPU_ERROR_INVALID_DEVICE: return HY_NOT_FOUND;
    case ECHO_NPU_ERROR_INVALID_VALUE:
    case ECHO_NPU_ERROR_INVALID_POINTER:
    case ECHO_NPU_ERROR_INVALID_HANDLE: return HY_INVALID_ARGUMENT;
    case ECHO_NPU_ERROR_FAULT:
    case ECHO_NPU_ERROR_DEVICE_LOST:
    case ECHO_NPU_ERROR_TIMEOUT: break;
  }
  return HY_DEVICE_FAILED;
}

hy_status hy__echo_fail(echoNpuError error, const char* what) {
  return hy__backend_host->fail(status_of(error), "echo: %s: %s", what,
                                echoNpuGetLastErrorMessage());
}

int hy__echo_enter(const hy__echo_device* device) {
  int before = 0;
  echoNpuGetDevice(&before);
  echoNpuSetDevice(device->index);
  return before;
}

void hy__echo_leave(int before) {
  echoNpuSetDevice(before);
}

// ---- Errors ----

static uint64_t hash_packet(const echo_npu_packet* packet) {
  uint64_t words[sizeof *packet / sizeof(uint64_t)], hash = 0;
  memcpy(words, packet, sizeof words);
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

// The caller holds the stream's mutex.
static hy_op op_of_packet(const hy__echo_stream* stream, const echo_npu_packet* packet) {
  uint64_t wanted = hash_packet(packet);
  for (unsigned i = 0; i < HY__ECHO_TRAIL; i++)
    if (stream->trail[i].packet == wanted) return stream->trail[i].op;
  return HY_OP_NONE;
}

// The caller holds the stream's mutex, and the SDK has just told of `error`.
static void keep_error(hy__echo_stream* stream, echoNpuError error, const char* what) {
  if (stream->error.status != HY_OK) return;
  char message[sizeof stream->error.message];
  snprintf(message, sizeof message, "%s", echoNpuGetLastErrorMessage());
  echoNpuFault fault;
  stream->error.status = status_of(error);
  stream->error.op = HY_OP_NONE;
  if (error == ECHO_NPU_ERROR_FAULT &&
      echoNpuStreamGetFault(stream->queue, &fault) == ECHO_NPU_SUCCESS) {
    stream->error.op = op_of_packet(stream, &fault.packet);
    if (fault.code == ECHO_NPU_FAULT_INDEX) stream->error.status = HY_INDEX;
  }
  if (stream->error.op != HY_OP_NONE) what = hy__backend_host->op_name(stream->error.op);
  snprintf(stream->error.message, sizeof stream->error.message, "%.60s: %.180s", what, message);
}

hy_status hy__echo_stream_result(hy__echo_stream* stream, echoNpuError error, const char* what) {
  if (error == ECHO_NPU_ERROR_NOT_READY) return HY_NOT_READY;
  // What the call itself was refused for concerns the caller alone.
  bool of_stream = error == ECHO_NPU_ERROR_FAULT || error == ECHO_NPU_ERROR_DEVICE_LOST ||
                   error == ECHO_NPU_ERROR_TIMEOUT;
  if (error != ECHO_NPU_SUCCESS && !of_stream) return hy__echo_fail(error, what);
  pthread_mutex_lock(&stream->mutex);
  if (of_stream) keep_error(stream, error, what);
  pthread_mutex_unlock(&stream->mutex);
  return hy__echo_stream_status(stream);
}

hy_status hy__echo_stream_status(hy__echo_stream* stream) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&stream->mutex);
  if (stream->error.status != HY_OK)
    status = hy__backend_host->fail(stream->error.status, "echo: the stream has failed: %s",
                                    stream->error.message);
  pthread_mutex_unlock(&stream->mutex);
  return status;
}

hy_status hy__echo_submit(hy__echo_stream* stream, hy_op op, const echo_npu_packet* packets,
                          size_t count) {
  pthread_mutex_lock(&stream->mutex);
  for (size_t i = 0; i < count; i++) {
    unsigned at = stream->trail_at++ % HY__ECHO_TRAIL;
    stream->trail[at].packet = hash_packet(&packets[i]);
    stream->trail[at].op = op;
  }
  pthread_mutex_unlock(&stream->mutex);
  const char* name = hy__backend_host->op_name(op);
  echoNpuSetLabel(name);
  echoNpuError error = echoNpuSubmit(packets, count, stream->queue);
  echoNpuSetLabel(NULL);
  return hy__echo_stream_result(stream, error, name);
}

// ---- Scratch memory ----

static void free_retired(hy__echo_scratch* scratch) {
  for (int i = 0; i < scratch->n_retired; i++) echoNpuFree(scratch->retired[i]);
  scratch->n_retired = 0;
}

hy_status hy__echo_scratch_take(hy__echo_stream* stream, size_t bytes, void** memory) {
  hy__echo_scratch* s = &stream->scratch;
  bytes = (bytes + 63) / 64 * 64;
  if (s->size - s->used < bytes) {
    // Freeing waits for the device; growing by doubles makes that rare.
    if (s->n_retired == HY__ECHO_RETIRED) {
      hy_status idle = hy__echo_stream_sync(stream->device, stream);
      if (idle != HY_OK) return idle;
    }
    size_t size = 2 * s->size > bytes ? 2 * s->size : bytes;
    if (size < 65536) size = 65536;
    void* fresh = NULL;
    int before = hy__echo_enter(stream->device);
    echoNpuError error = echoNpuMalloc(&fresh, size);
    hy__echo_leave(before);
    if (error != ECHO_NPU_SUCCESS) return hy__echo_fail(error, "memory for a kernel");
    if (s->memory) s->retired[s->n_retired++] = s->memory;
    s->memory = fresh;
    s->size = size;
    s->used = 0;
  }
  *memory = s->memory + s->used;
  s->used += bytes;
  return HY_OK;
}

// ---- Streams ----

hy_status hy__echo_stream_create(void* device, void** stream) {
  hy__echo_device* d = device;
  hy__echo_stream* fresh = calloc(1, sizeof *fresh);
  if (!fresh) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "echo: no host memory for a stream");
  int before = hy__echo_enter(d);
  echoNpuError error = echoNpuStreamCreate(&fresh->queue);
  hy__echo_leave(before);
  if (error != ECHO_NPU_SUCCESS) {
    free(fresh);
    return hy__echo_fail(error, "a new stream");
  }
  fresh->device = d;
  pthread_mutex_init(&fresh->mutex, NULL);
  pthread_mutex_lock(&d->mutex);
  fresh->next = d->streams;
  d->streams = fresh;
  pthread_mutex_unlock(&d->mutex);
  *stream = fresh;
  return HY_OK;
}

void hy__echo_stream_destroy(void* device, void* stream) {
  hy__echo_device* d = device;
  hy__echo_stream* s = stream;
  pthread_mutex_lock(&d->mutex);
  hy__echo_stream** link = &d->streams;
  while (*link != s) link = &(*link)->next;
  *link = s->next;
  pthread_mutex_unlock(&d->mutex);
  echoNpuStreamDestroy(s->queue);
  free_retired(&s->scratch);
  echoNpuFree(s->scratch.memory);
  free(s->known);
  pthread_mutex_destroy(&s->mutex);
  free(s);
}

hy_status hy__echo_stream_sync(void* device, void* stream) {
  (void)device;
  hy__echo_stream* s = stream;
  hy_status status =
      hy__echo_stream_result(s, echoNpuStreamSynchronize(s->queue), "waiting for a stream");
  free_retired(&s->scratch);
  return status;
}

hy_status hy__echo_stream_query(void* device, void* stream) {
  (void)device;
  hy__echo_stream* s = stream;
  return hy__echo_stream_result(s, echoNpuStreamQuery(s->queue), "asking a stream");
}

void hy__echo_stream_error(void* device, void* stream, hy_async_error* error) {
  hy__echo_stream* s = stream;
  hy__echo_stream_query(device, stream);
  pthread_mutex_lock(&s->mutex);
  *error = s->error;
  pthread_mutex_unlock(&s->mutex);
}

// Stream by stream: the SDK's own wait for a device would forget the errors of its streams.
hy_status hy__echo_device_sync(void* device) {
  hy__echo_device* d = device;
  pthread_mutex_lock(&d->mutex);
  for (hy__echo_stream* s = d->streams; s; s = s->next)
    hy__echo_stream_result(s, echoNpuStreamSynchronize(s->queue), "waiting for the device");
  pthread_mutex_unlock(&d->mutex);
  return HY_OK;
}

// ---- Events ----

hy_status hy__echo_event_create(void* device, void** event) {
  (void)device;
  echoNpuError error = echoNpuEventCreate((echoNpuEvent*)event);
  return error == ECHO_NPU_SUCCESS ? HY_OK : hy__echo_fail(error, "a new event");
}

void hy__echo_event_destroy(void* device, void* event) {
  (void)device;
  echoNpuEventDestroy(event);
}

// A failed stream has nothing pending: the SDK counts the event as passed, and nobody waits for it.
hy_status hy__echo_event_record(void* device, void* event, void* stream) {
  (void)device;
  hy__echo_stream* s = stream;
  hy_status status =
      hy__echo_stream_result(s, echoNpuEventRecord(event, s->queue), "recording an event");
  return status == HY_OUT_OF_MEMORY ? status : HY_OK;
}

hy_status hy__echo_event_query(void* device, void* event) {
  (void)device;
  return echoNpuEventQuery(event) == ECHO_NPU_SUCCESS ? HY_OK : HY_NOT_READY;
}

hy_status hy__echo_event_sync(void* device, void* event) {
  (void)device;
  echoNpuError error = echoNpuEventSynchronize(event);
  return error == ECHO_NPU_SUCCESS ? HY_OK : hy__echo_fail(error, "waiting for an event");
}

hy_status hy__echo_event_elapsed(void* device, void* start, void* stop, double* milliseconds) {
  (void)device;
  float elapsed = 0;
  echoNpuError error = echoNpuEventElapsedTime(&elapsed, start, stop);
  *milliseconds = (double)elapsed;
  return error == ECHO_NPU_SUCCESS ? HY_OK : hy__echo_fail(error, "time between events");
}

hy_status hy__echo_stream_wait_event(void* device, void* stream, void* event) {
  (void)device;
  hy__echo_stream* s = stream;
  return hy__echo_stream_result(s, echoNpuStreamWaitEvent(s->queue, event), "waiting for an event");
}
