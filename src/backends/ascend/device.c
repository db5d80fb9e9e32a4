// Ascend devices, and AscendCL's runtime as the common code calls it.
#include <stdlib.h>

#include "backends/ascend/ascend.h"

enum { HUGE_FIRST = 0, HBM = 1 };         // aclrtMemMallocPolicy, aclrtMemAttr
enum { FAST_LAUNCH = 1, FAST_SYNC = 2 };  // stream flags
enum { STREAM_COMPLETE = 0, RECORDED_COMPLETE = 1 };
enum { EVENT_SYNC = 1, EVENT_CAPTURE_STREAM_PROGRESS = 2, EVENT_TIME_LINE = 8 };

static int get_device(int* device) {
  int32_t current = -1;
  int error = hy__acl.aclrtGetDevice(&current);
  *device = current;
  return error;
}
static int set_device(int device) {
  return hy__acl.aclrtSetDevice(device);
}
static int device_sync(void) {
  return hy__acl.aclrtSynchronizeDevice();
}
static int memory_info(size_t* free_bytes, size_t* total) {
  return hy__acl.aclrtGetMemInfo(HBM, free_bytes, total);
}
static int memory_alloc(void** memory, size_t bytes) {
  return hy__acl.aclrtMalloc(memory, bytes, HUGE_FIRST);
}
static int memory_free(void* memory) {
  return hy__acl.aclrtFree(memory);
}
static int host_alloc(void** memory, size_t bytes) {
  return hy__acl.aclrtMallocHost(memory, bytes);
}
static int host_free(void* memory) {
  return hy__acl.aclrtFreeHost(memory);
}

// aclrtMemcpyKind
static int kind_of(hy_copy_kind kind) {
  enum { TO_DEVICE = 1, TO_HOST = 2, ON_DEVICE = 3 };
  return kind == HY_COPY_HOST_TO_DEVICE   ? TO_DEVICE
         : kind == HY_COPY_DEVICE_TO_HOST ? TO_HOST
                                          : ON_DEVICE;
}
static int copy(void* dst, const void* src, size_t bytes, hy_copy_kind kind) {
  return hy__acl.aclrtMemcpy(dst, bytes, src, bytes, kind_of(kind));
}
static int copy_async(void* dst, const void* src, size_t bytes, hy_copy_kind kind, void* queue) {
  return hy__acl.aclrtMemcpyAsync(dst, bytes, src, bytes, kind_of(kind), queue);
}
static int set_async(void* dst, int value, size_t bytes, void* queue) {
  return hy__acl.aclrtMemsetAsync(dst, bytes, value, bytes, queue);
}

static int queue_create(void** queue) {
  return hy__acl.aclrtCreateStreamWithConfig(queue, 0, FAST_LAUNCH | FAST_SYNC);
}
static int queue_destroy(void* queue) {
  return hy__acl.aclrtDestroyStream(queue);
}
static int queue_sync(void* queue) {
  return hy__acl.aclrtSynchronizeStream(queue);
}
static int queue_query(void* queue, bool* idle) {
  int state = STREAM_COMPLETE, error = hy__acl.aclrtStreamQuery(queue, &state);
  *idle = state == STREAM_COMPLETE;
  return error;
}
static int queue_wait(void* queue, void* event) {
  return hy__acl.aclrtStreamWaitEvent(queue, event);
}
static int event_create(void** event) {
  return hy__acl.aclrtCreateEventExWithFlag(
      event, EVENT_SYNC | EVENT_CAPTURE_STREAM_PROGRESS | EVENT_TIME_LINE);
}
static int event_destroy(void* event) {
  return hy__acl.aclrtDestroyEvent(event);
}
static int event_record(void* event, void* queue) {
  return hy__acl.aclrtRecordEvent(event, queue);
}
static int event_query(void* event, bool* done) {
  int state = RECORDED_COMPLETE, error = hy__acl.aclrtQueryEventStatus(event, &state);
  *done = state == RECORDED_COMPLETE;
  return error;
}
static int event_sync(void* event) {
  return hy__acl.aclrtSynchronizeEvent(event);
}
static int event_elapsed(float* milliseconds, void* start, void* stop) {
  return hy__acl.aclrtEventElapsedTime(milliseconds, start, stop);
}
static int capture_begin(void* queue) {
  enum { RELAXED = 2 };  // aclmdlRICaptureMode
  return hy__acl.aclmdlRICaptureBegin(queue, RELAXED);
}
static int capture_end(void* queue, void** graph, bool* ended) {
  int error = hy__acl.aclmdlRICaptureEnd(queue, graph);
  *ended = error == 0;
  return error;
}
static int graph_launch(void* graph, void* queue) {
  return hy__acl.aclmdlRIExecuteAsync(graph, queue);
}
static int graph_destroy(void* graph) {
  return hy__acl.aclmdlRIDestroy(graph);
}

const hy__vendor hy__ascend_vendor = {
    .name = "ascend",
    .no_memory = 207001,
    .fail = hy__ascend_fail,
    .get_device = get_device,
    .set_device = set_device,
    .device_sync = device_sync,
    .memory_info = memory_info,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .copy = copy,
    .copy_async = copy_async,
    .set_async = set_async,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .queue_sync = queue_sync,
    .queue_query = queue_query,
    .queue_wait = queue_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_elapsed = event_elapsed,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .ccl = &hy__ascend_ccl,
};

// ---- Devices ----

hy_status hy__ascend_device_open(int index, void** device) {
  hy__ascend_device* d = calloc(1, sizeof *d);
  if (!d) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
  d->base = (hy__vendor_device){&hy__ascend_vendor, index};
  d->chip = hy__ascend_chip_of(hy__acl.aclrtGetSocName());
  int error = hy__acl.aclrtSetDevice(index);
  if (error) {
    free(d);
    return hy__ascend_fail(error, "opening the device");
  }
  pthread_mutex_init(&d->mutex, NULL);
  *device = d;
  return HY_OK;
}

// The device itself stays set: others in the process may be using it.
void hy__ascend_device_close(void* device) {
  hy__ascend_device* d = device;
  if (d->float8) hy__vendor_memory_free(d, d->float8);
  pthread_mutex_destroy(&d->mutex);
  free(d);
}
