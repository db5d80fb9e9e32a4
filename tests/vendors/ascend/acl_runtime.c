// libascendcl.so for tests: AscendCL's runtime. Signatures and enumerators are those of acl/acl.h,
// acl/acl_rt.h and acl/acl_base.h in CANN 8.1.RC1; aclmdlRICapture* and aclmdlRI* those of acl_rt.h
// in the public runtime sources of 2026.
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

// aclrtMemcpyKind, aclrtMemAttr, event flags, stream flags: acl/acl_rt.h.
enum { H2H = 0, H2D = 1, D2H = 2, D2D = 3 };
enum { ACL_HBM_MEM = 1 };
enum { EVENT_SYNC = 1, EVENT_CAPTURE_STREAM_PROGRESS = 2, EVENT_TIME_LINE = 8 };
enum { STREAM_COMPLETE = 0, STREAM_NOT_READY = 1 };
enum { RECORDED_NOT_READY = 0, RECORDED_COMPLETE = 1 };
enum { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };

typedef struct event {
  vendor_event* event;
  uint32_t flags;
} event;

static bool initialized;
static _Thread_local int current = -1;

// ---- devices ----

// The runtime itself hides what ASCEND_RT_VISIBLE_DEVICES does not name.
static int visible_devices(int* map) {
  return vendor_visible_devices("ASCEND_RT_VISIBLE_DEVICES", map);
}

VENDOR_API int aclInit(const char* configPath) {
  (void)configPath;
  ENTER(aclInit);
  if (initialized) return ACL_ERROR_REPEAT_INITIALIZE;
  initialized = true;
  return ACL_SUCCESS;
}

VENDOR_API int aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  ENTER(aclrtGetVersion);
  *major = 1;
  *minor = 13;
  *patch = 0;
  return ACL_SUCCESS;
}

VENDOR_API const char* aclGetRecentErrMsg(void) {
  return "EZ9999: told by the test library";
}

VENDOR_API const char* aclrtGetSocName(void) {
  return vendor_chip("Ascend910B3");
}

bool ascend_has_bf16(void) {
  const char* chip = aclrtGetSocName();
  return !strstr(chip, "310") && strcmp(chip, "Ascend910A") != 0;
}

VENDOR_API int aclrtGetDeviceCount(uint32_t* count) {
  int map[8];
  ENTER(aclrtGetDeviceCount);
  DEMAND(initialized, ACL_ERROR_UNINITIALIZE, "aclrtGetDeviceCount before aclInit");
  *count = (uint32_t)visible_devices(map);
  return *count ? ACL_SUCCESS : ACL_ERROR_RT_NO_DEVICE;
}

VENDOR_API int aclrtSetDevice(int32_t deviceId) {
  int map[8];
  ENTER(aclrtSetDevice);
  DEMAND(initialized, ACL_ERROR_UNINITIALIZE, "aclrtSetDevice before aclInit");
  DEMAND(deviceId >= 0 && deviceId < visible_devices(map), ACL_ERROR_RT_INVALID_DEVICEID,
         "aclrtSetDevice(%d): there is no such device", deviceId);
  current = map[deviceId];
  return ACL_SUCCESS;
}

VENDOR_API int aclrtGetDevice(int32_t* deviceId) {
  int map[8], n = visible_devices(map);
  ENTER(aclrtGetDevice);
  for (int i = 0; i < n; i++) {
    if (map[i] != current) continue;
    *deviceId = i;
    return ACL_SUCCESS;
  }
  return ACL_ERROR_RT_CONTEXT_NULL;  // no misuse: this is how one asks
}

int ascend_device(const char* call) {
  if (current < 0) vendor_misuse("%s: no context is current on this thread", call);
  return current;
}

#define CONTEXT(name)                               \
  ENTER(name);                                      \
  int device = ascend_device(#name);                \
  if (device < 0) return ACL_ERROR_RT_CONTEXT_NULL; \
  (void)device

VENDOR_API int aclrtGetMemInfo(int attr, size_t* free_bytes, size_t* total) {
  CONTEXT(aclrtGetMemInfo);
  DEMAND(attr == ACL_HBM_MEM, ACL_ERROR_INVALID_PARAM, "aclrtGetMemInfo: attribute %d", attr);
  vendor_memory_sizes(device, free_bytes, total);
  return ACL_SUCCESS;
}

VENDOR_API int aclrtSynchronizeDevice(void) {
  CONTEXT(aclrtSynchronizeDevice);
  return vendor_queues_wait(device);
}

// ---- memory ----

VENDOR_API int aclrtMalloc(void** devPtr, size_t size, int policy) {
  CONTEXT(aclrtMalloc);
  DEMAND(size > 0, ACL_ERROR_INVALID_PARAM, "aclrtMalloc of 0 bytes");
  DEMAND(policy >= 0 && policy <= 2, ACL_ERROR_INVALID_PARAM, "aclrtMalloc: policy %d", policy);
  *devPtr = vendor_memory_take(device, size);
  return *devPtr ? ACL_SUCCESS : ACL_ERROR_RT_MEMORY_ALLOCATION;
}

VENDOR_API int aclrtFree(void* devPtr) {
  CONTEXT(aclrtFree);
  int owner = vendor_memory_owner(devPtr);
  DEMAND(owner >= 0 && vendor_memory_give(owner, devPtr), ACL_ERROR_INVALID_PARAM,
         "aclrtFree: %p was not allocated, or is free already", devPtr);
  return ACL_SUCCESS;
}

VENDOR_API int aclrtMallocHost(void** hostPtr, size_t size) {
  CONTEXT(aclrtMallocHost);
  DEMAND(size > 0, ACL_ERROR_INVALID_PARAM, "aclrtMallocHost of 0 bytes");
  *hostPtr = vendor_host_take(size);
  return *hostPtr ? ACL_SUCCESS : ACL_ERROR_RT_MEMORY_ALLOCATION;
}

VENDOR_API int aclrtFreeHost(void* hostPtr) {
  CONTEXT(aclrtFreeHost);
  DEMAND(vendor_host_give(hostPtr), ACL_ERROR_INVALID_PARAM, "aclrtFreeHost: %p was not allocated",
         hostPtr);
  return ACL_SUCCESS;
}

bool ascend_stream_fits(const char* call, const void* stream) {
  if (!vendor_alive(stream, "stream")) {
    vendor_misuse("%s: %p is no stream", call, stream);
    return false;
  }
  if (vendor_queue_device(stream) != current) {
    vendor_misuse("%s: the stream is of device %d, current on this thread is %d", call,
                  vendor_queue_device(stream), current);
    return false;
  }
  return true;
}

#define STREAM(name, stream) \
  CONTEXT(name);             \
  if (!ascend_stream_fits(#name, stream)) return ACL_ERROR_RT_STREAM_CONTEXT

VENDOR_API int aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, int kind) {
  CONTEXT(aclrtMemcpy);
  DEMAND(kind >= H2H && kind <= D2D, ACL_ERROR_INVALID_PARAM, "aclrtMemcpy: kind %d", kind);
  DEMAND(count <= destMax, ACL_ERROR_INVALID_PARAM, "aclrtMemcpy: %zu bytes into %zu", count,
         destMax);
  char* to =
      vendor_side("aclrtMemcpy", kind == H2D || kind == D2D ? device : -1, dst, count, false);
  char* from =
      vendor_side("aclrtMemcpy", kind == D2H || kind == D2D ? device : -1, src, count, false);
  if (!to || !from) return ACL_ERROR_INVALID_PARAM;
  memmove(to, from, count);
  return ACL_SUCCESS;
}

VENDOR_API int aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, int kind,
                                void* stream) {
  STREAM(aclrtMemcpyAsync, stream);
  DEMAND(kind >= H2D && kind <= D2D, ACL_ERROR_INVALID_PARAM, "aclrtMemcpyAsync: kind %d", kind);
  DEMAND(count <= destMax, ACL_ERROR_INVALID_PARAM, "aclrtMemcpyAsync: %zu bytes into %zu", count,
         destMax);
  DEMAND(kind == D2D || !vendor_queue_is_capturing(stream), ACL_ERROR_INVALID_PARAM,
         "aclrtMemcpyAsync: a copy with the host is not captured");
  char* to = vendor_side("aclrtMemcpyAsync", kind != D2H ? device : -1, dst, count, true);
  char* from = vendor_side("aclrtMemcpyAsync", kind != H2D ? device : -1, src, count, true);
  if (!to || !from) return ACL_ERROR_INVALID_PARAM;
  vendor_queue_copy(stream, to, from, count);
  return ACL_SUCCESS;
}

VENDOR_API int aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                                void* stream) {
  STREAM(aclrtMemsetAsync, stream);
  DEMAND(count <= maxCount, ACL_ERROR_INVALID_PARAM, "aclrtMemsetAsync: %zu bytes of %zu", count,
         maxCount);
  char* to = vendor_side("aclrtMemsetAsync", device, devPtr, count, false);
  if (!to) return ACL_ERROR_INVALID_PARAM;
  vendor_queue_set(stream, to, value, count);
  return ACL_SUCCESS;
}

// ---- streams ----

VENDOR_API int aclrtCreateStreamWithConfig(void** stream, uint32_t priority, uint32_t flag) {
  CONTEXT(aclrtCreateStreamWithConfig);
  DEMAND(priority <= 7, ACL_ERROR_INVALID_PARAM, "aclrtCreateStreamWithConfig: priority %u",
         priority);
  DEMAND(flag <= 3, ACL_ERROR_INVALID_PARAM, "aclrtCreateStreamWithConfig: flag %u", flag);
  *stream = vendor_queue_create(device);
  vendor_born(*stream, "stream");
  return ACL_SUCCESS;
}

VENDOR_API int aclrtDestroyStream(void* stream) {
  STREAM(aclrtDestroyStream, stream);
  vendor_dies(stream, "stream");
  vendor_queue_destroy(stream);
  return ACL_SUCCESS;
}

#define NOT_CAPTURING(name, stream)                                   \
  DEMAND(!vendor_queue_is_capturing(stream), ACL_ERROR_INVALID_PARAM, \
         #name ": the stream is being captured")

VENDOR_API int aclrtSynchronizeStream(void* stream) {
  STREAM(aclrtSynchronizeStream, stream);
  NOT_CAPTURING(aclrtSynchronizeStream, stream);
  return vendor_queue_wait(stream);
}

VENDOR_API int aclrtStreamQuery(void* stream, int* status) {
  STREAM(aclrtStreamQuery, stream);
  NOT_CAPTURING(aclrtStreamQuery, stream);
  int code;
  *status = vendor_queue_is_idle(stream, &code) ? STREAM_COMPLETE : STREAM_NOT_READY;
  return code;
}

// ---- events ----

VENDOR_API int aclrtCreateEventExWithFlag(void** out, uint32_t flag) {
  CONTEXT(aclrtCreateEventExWithFlag);
  const uint32_t all = EVENT_SYNC | EVENT_CAPTURE_STREAM_PROGRESS | EVENT_TIME_LINE;
  DEMAND(flag && !(flag & ~all), ACL_ERROR_INVALID_PARAM, "aclrtCreateEventExWithFlag: flag %u",
         flag);
  event* e = malloc(sizeof *e);
  if (!e) return ACL_ERROR_RT_MEMORY_ALLOCATION;
  *e = (event){vendor_event_create(), flag};
  vendor_born(e, "event");
  *out = e;
  return ACL_SUCCESS;
}

#define EVENT(name, handle, needs)                                                         \
  DEMAND(vendor_alive(handle, "event"), ACL_ERROR_INVALID_PARAM, #name ": %p is no event", \
         handle);                                                                          \
  event* e = handle;                                                                       \
  DEMAND(((needs) & ~e->flags) == 0, ACL_ERROR_INVALID_PARAM,                              \
         #name ": the event was created with flag %u, which is not enough", e->flags)

VENDOR_API int aclrtDestroyEvent(void* handle) {
  CONTEXT(aclrtDestroyEvent);
  EVENT(aclrtDestroyEvent, handle, 0);
  vendor_dies(handle, "event");
  vendor_event_destroy(e->event);
  free(e);
  return ACL_SUCCESS;
}

VENDOR_API int aclrtRecordEvent(void* handle, void* stream) {
  STREAM(aclrtRecordEvent, stream);
  EVENT(aclrtRecordEvent, handle, 0);
  NOT_CAPTURING(aclrtRecordEvent, stream);
  vendor_event_record(e->event, stream);
  return ACL_SUCCESS;
}

VENDOR_API int aclrtStreamWaitEvent(void* stream, void* handle) {
  STREAM(aclrtStreamWaitEvent, stream);
  EVENT(aclrtStreamWaitEvent, handle, EVENT_SYNC);
  NOT_CAPTURING(aclrtStreamWaitEvent, stream);
  vendor_event_hold(e->event, stream);
  return ACL_SUCCESS;
}

VENDOR_API int aclrtSynchronizeEvent(void* handle) {
  CONTEXT(aclrtSynchronizeEvent);
  EVENT(aclrtSynchronizeEvent, handle, 0);
  vendor_event_wait(e->event);
  return ACL_SUCCESS;
}

VENDOR_API int aclrtQueryEventStatus(void* handle, int* status) {
  CONTEXT(aclrtQueryEventStatus);
  EVENT(aclrtQueryEventStatus, handle, EVENT_CAPTURE_STREAM_PROGRESS);
  *status = vendor_event_is_done(e->event) ? RECORDED_COMPLETE : RECORDED_NOT_READY;
  return ACL_SUCCESS;
}

VENDOR_API int aclrtEventElapsedTime(float* ms, void* start, void* end) {
  CONTEXT(aclrtEventElapsedTime);
  event* other = end;
  EVENT(aclrtEventElapsedTime, start, EVENT_TIME_LINE);
  DEMAND(vendor_alive(end, "event") && other->flags & EVENT_TIME_LINE, ACL_ERROR_INVALID_PARAM,
         "aclrtEventElapsedTime: the second event has no time");
  DEMAND(vendor_event_elapsed(e->event, other->event, ms), ACL_ERROR_INVALID_PARAM,
         "aclrtEventElapsedTime: an event has not happened");
  return ACL_SUCCESS;
}

// ---- capture ----

VENDOR_API int aclmdlRICaptureBegin(void* stream, int mode) {
  STREAM(aclmdlRICaptureBegin, stream);
  DEMAND(mode >= CAPTURE_GLOBAL && mode <= CAPTURE_RELAXED, ACL_ERROR_INVALID_PARAM,
         "aclmdlRICaptureBegin: mode %d", mode);
  DEMAND(vendor_queue_capture(stream), ACL_ERROR_INVALID_PARAM,
         "aclmdlRICaptureBegin: the stream is being captured already");
  return ACL_SUCCESS;
}

VENDOR_API int aclmdlRICaptureEnd(void* stream, void** modelRI) {
  STREAM(aclmdlRICaptureEnd, stream);
  vendor_list* list = vendor_queue_captured(stream);
  DEMAND(list, ACL_ERROR_INVALID_PARAM, "aclmdlRICaptureEnd: the stream is not being captured");
  vendor_born(list, "modelRI");
  *modelRI = list;
  return ACL_SUCCESS;
}

VENDOR_API int aclmdlRIExecuteAsync(void* modelRI, void* stream) {
  STREAM(aclmdlRIExecuteAsync, stream);
  DEMAND(vendor_alive(modelRI, "modelRI"), ACL_ERROR_INVALID_PARAM,
         "aclmdlRIExecuteAsync: %p is no captured model", modelRI);
  vendor_list_push(modelRI, stream);
  return ACL_SUCCESS;
}

VENDOR_API int aclmdlRIDestroy(void* modelRI) {
  CONTEXT(aclmdlRIDestroy);
  DEMAND(vendor_dies(modelRI, "modelRI"), ACL_ERROR_INVALID_PARAM,
         "aclmdlRIDestroy: %p is no captured model", modelRI);
  vendor_list_free(modelRI);
  return ACL_SUCCESS;
}
