// libcnrt.so for tests: CNRT's runtime. Signatures are those with which torch_mlu (2024) and
// mlu-ops (2026) call it, and those of CNRT's guide; those of capture are of cnrt.h (CNRT 6).
#include <stdlib.h>
#include <string.h>

#include "cambricon.h"

// cnrtMemTransDir_t and cnrtDeviceAttr_t: CNRT's guide.
enum { HostToDev = 0, DevToDev = 1, DevToHost = 2, HostToHost = 3 };
enum { ComputeCapabilityMajor = 0x01, ComputeCapabilityMinor = 0x02, SupportBF16 = 0x07 };

static _Thread_local int current = -1;

// ---- devices ----

// The runtime itself hides what MLU_VISIBLE_DEVICES does not name.
static int visible_devices(int* map) {
  return vendor_visible_devices("MLU_VISIBLE_DEVICES", map);
}

VENDOR_API int cnrtGetLibVersion(int* libMajor, int* libMinor, int* libPatch) {
  ENTER(cnrtGetLibVersion);
  *libMajor = 6;
  *libMinor = 9;
  *libPatch = 0;
  return cnrtSuccess;
}

VENDOR_API const char* cnrtGetErrorStr(int err_code) {
  return err_code == cnrtErrorNoMem ? "cnrtErrorNoMem" : "told by the test library";
}

bool cambricon_has_bf16(void) {
  return strcmp(vendor_chip("MLU590"), "MLU370") != 0;
}

VENDOR_API int cnrtGetDeviceCount(unsigned int* dev_num) {
  int map[8];
  ENTER(cnrtGetDeviceCount);
  *dev_num = (unsigned int)visible_devices(map);
  return *dev_num ? cnrtSuccess : cnrtErrorNoDevice;
}

VENDOR_API int cnrtSetDevice(int ordinal) {
  int map[8];
  ENTER(cnrtSetDevice);
  DEMAND(ordinal >= 0 && ordinal < visible_devices(map), cnrtErrorDeviceInvalid,
         "cnrtSetDevice(%d): there is no such device", ordinal);
  current = map[ordinal];
  return cnrtSuccess;
}

VENDOR_API int cnrtGetDevice(int* ordinal) {
  int map[8], n = visible_devices(map);
  ENTER(cnrtGetDevice);
  for (int i = 0; i < n; i++) {
    if (map[i] != current) continue;
    *ordinal = i;
    return cnrtSuccess;
  }
  return cnrtErrorDeviceInvalid;  // no misuse: this is how one asks
}

VENDOR_API int cnrtDeviceGetAttribute(int* pValue, int attr, int ordinal) {
  int map[8];
  bool mlu370 = !cambricon_has_bf16();
  ENTER(cnrtDeviceGetAttribute);
  DEMAND(ordinal >= 0 && ordinal < visible_devices(map), cnrtErrorDeviceInvalid,
         "cnrtDeviceGetAttribute: there is no device %d", ordinal);
  switch (attr) {
    case ComputeCapabilityMajor: *pValue = mlu370 ? 3 : 5; break;
    case ComputeCapabilityMinor: *pValue = mlu370 ? 72 : 92; break;
    case SupportBF16: *pValue = !mlu370; break;
    default: DEMAND(false, cnrtErrorArgsInvalid, "cnrtDeviceGetAttribute: attribute %d", attr);
  }
  return cnrtSuccess;
}

int cambricon_device(const char* call) {
  if (current < 0) vendor_misuse("%s: no device is current on this thread", call);
  return current;
}

#define DEVICE(name)                             \
  ENTER(name);                                   \
  int device = cambricon_device(#name);          \
  if (device < 0) return cnrtErrorDeviceInvalid; \
  (void)device

VENDOR_API int cnrtSyncDevice(void) {
  DEVICE(cnrtSyncDevice);
  return vendor_queues_wait(device);
}

// ---- memory ----

VENDOR_API int cnrtMemGetInfo(size_t* free_bytes, size_t* total) {
  DEVICE(cnrtMemGetInfo);
  vendor_memory_sizes(device, free_bytes, total);
  return cnrtSuccess;
}

VENDOR_API int cnrtMalloc(void** pPtr, size_t bytes) {
  DEVICE(cnrtMalloc);
  DEMAND(bytes > 0, cnrtErrorArgsInvalid, "cnrtMalloc of 0 bytes");
  *pPtr = vendor_memory_take(device, bytes);
  return *pPtr ? cnrtSuccess : cnrtErrorNoMem;
}

VENDOR_API int cnrtFree(void* ptr) {
  DEVICE(cnrtFree);
  int owner = vendor_memory_owner(ptr);
  DEMAND(owner >= 0 && vendor_memory_give(owner, ptr), cnrtErrorArgsInvalid,
         "cnrtFree: %p was not allocated, or is free already", ptr);
  return cnrtSuccess;
}

VENDOR_API int cnrtHostMalloc(void** pPtr, size_t bytes) {
  DEVICE(cnrtHostMalloc);
  DEMAND(bytes > 0, cnrtErrorArgsInvalid, "cnrtHostMalloc of 0 bytes");
  *pPtr = vendor_host_take(bytes);
  return *pPtr ? cnrtSuccess : cnrtErrorNoMem;
}

VENDOR_API int cnrtFreeHost(void* ptr) {
  DEVICE(cnrtFreeHost);
  DEMAND(vendor_host_give(ptr), cnrtErrorArgsInvalid, "cnrtFreeHost: %p was not allocated", ptr);
  return cnrtSuccess;
}

VENDOR_API int cnrtMemcpy(void* dst, void* src, size_t bytes, int dir) {
  DEVICE(cnrtMemcpy);
  DEMAND(dir >= HostToDev && dir <= HostToHost, cnrtErrorArgsInvalid, "cnrtMemcpy: direction %d",
         dir);
  bool to_device = dir == HostToDev || dir == DevToDev;
  bool from_device = dir == DevToHost || dir == DevToDev;
  char* to = vendor_side("cnrtMemcpy", to_device ? device : -1, dst, bytes, false);
  char* from = vendor_side("cnrtMemcpy", from_device ? device : -1, src, bytes, false);
  if (!to || !from) return cnrtErrorArgsInvalid;
  memmove(to, from, bytes);
  return cnrtSuccess;
}

// ---- queues ----

bool cambricon_queue_fits(const char* call, const void* queue) {
  if (!vendor_alive(queue, "queue")) {
    vendor_misuse("%s: %p is no queue", call, queue);
    return false;
  }
  if (vendor_queue_device(queue) != current) {
    vendor_misuse("%s: the queue is of device %d, current on this thread is %d", call,
                  vendor_queue_device(queue), current);
    return false;
  }
  return true;
}

#define QUEUE(name, queue) \
  DEVICE(name);            \
  if (!cambricon_queue_fits(#name, queue)) return cnrtErrorArgsInvalid

VENDOR_API int cnrtMemcpyAsync_V2(void* dst, void* src, size_t bytes, void* queue, int dir) {
  QUEUE(cnrtMemcpyAsync_V2, queue);
  DEMAND(dir >= HostToDev && dir <= DevToHost, cnrtErrorArgsInvalid,
         "cnrtMemcpyAsync_V2: direction %d", dir);
  char* to = vendor_side("cnrtMemcpyAsync_V2", dir != DevToHost ? device : -1, dst, bytes, true);
  char* from = vendor_side("cnrtMemcpyAsync_V2", dir != HostToDev ? device : -1, src, bytes, true);
  if (!to || !from) return cnrtErrorArgsInvalid;
  vendor_queue_copy(queue, to, from, bytes);
  return cnrtSuccess;
}

VENDOR_API int cnrtMemsetAsync(void* ptr, int value, size_t bytes, void* queue) {
  QUEUE(cnrtMemsetAsync, queue);
  char* to = vendor_side("cnrtMemsetAsync", device, ptr, bytes, false);
  if (!to) return cnrtErrorArgsInvalid;
  vendor_queue_set(queue, to, value, bytes);
  return cnrtSuccess;
}

VENDOR_API int cnrtQueueCreate(void** pQueue) {
  DEVICE(cnrtQueueCreate);
  *pQueue = vendor_queue_create(device);
  vendor_born(*pQueue, "queue");
  return cnrtSuccess;
}

VENDOR_API int cnrtQueueDestroy(void* queue) {
  QUEUE(cnrtQueueDestroy, queue);
  vendor_dies(queue, "queue");
  vendor_queue_destroy(queue);
  return cnrtSuccess;
}

#define NOT_CAPTURED(name, queue)                                 \
  DEMAND(!vendor_queue_is_capturing(queue), cnrtErrorArgsInvalid, \
         #name ": the queue is being captured")

VENDOR_API int cnrtQueueSync(void* queue) {
  QUEUE(cnrtQueueSync, queue);
  NOT_CAPTURED(cnrtQueueSync, queue);
  return vendor_queue_wait(queue);
}

VENDOR_API int cnrtQueueQuery(void* queue) {
  QUEUE(cnrtQueueQuery, queue);
  NOT_CAPTURED(cnrtQueueQuery, queue);
  int code;
  bool idle = vendor_queue_is_idle(queue, &code);
  return code ? code : idle ? cnrtSuccess : cnrtErrorNotReady;
}

// ---- notifiers ----

#define NOTIFIER(name, notifier)                                                                \
  DEMAND(vendor_alive(notifier, "notifier"), cnrtErrorArgsInvalid, #name ": %p is no notifier", \
         notifier)

VENDOR_API int cnrtNotifierCreate(void** pNotifier) {
  DEVICE(cnrtNotifierCreate);
  *pNotifier = vendor_event_create();
  vendor_born(*pNotifier, "notifier");
  return cnrtSuccess;
}

VENDOR_API int cnrtNotifierDestroy(void* notifier) {
  DEVICE(cnrtNotifierDestroy);
  NOTIFIER(cnrtNotifierDestroy, notifier);
  vendor_dies(notifier, "notifier");
  vendor_event_destroy(notifier);
  return cnrtSuccess;
}

VENDOR_API int cnrtPlaceNotifier(void* notifier, void* queue) {
  QUEUE(cnrtPlaceNotifier, queue);
  NOTIFIER(cnrtPlaceNotifier, notifier);
  NOT_CAPTURED(cnrtPlaceNotifier, queue);
  vendor_event_record(notifier, queue);
  return cnrtSuccess;
}

VENDOR_API int cnrtQueueWaitNotifier(void* notifier, void* queue, unsigned int flag) {
  QUEUE(cnrtQueueWaitNotifier, queue);
  NOTIFIER(cnrtQueueWaitNotifier, notifier);
  NOT_CAPTURED(cnrtQueueWaitNotifier, queue);
  DEMAND(flag == 0, cnrtErrorArgsInvalid, "cnrtQueueWaitNotifier: flag %u", flag);
  vendor_event_hold(notifier, queue);
  return cnrtSuccess;
}

VENDOR_API int cnrtQueryNotifier(void* notifier) {
  DEVICE(cnrtQueryNotifier);
  NOTIFIER(cnrtQueryNotifier, notifier);
  return vendor_event_is_done(notifier) ? cnrtSuccess : cnrtErrorNotReady;
}

VENDOR_API int cnrtWaitNotifier(void* notifier) {
  DEVICE(cnrtWaitNotifier);
  NOTIFIER(cnrtWaitNotifier, notifier);
  vendor_event_wait(notifier);
  return cnrtSuccess;
}

VENDOR_API int cnrtNotifierElapsedTime(void* start, void* end, float* ms) {
  DEVICE(cnrtNotifierElapsedTime);
  NOTIFIER(cnrtNotifierElapsedTime, start);
  NOTIFIER(cnrtNotifierElapsedTime, end);
  DEMAND(vendor_event_elapsed(start, end, ms), cnrtErrorArgsInvalid,
         "cnrtNotifierElapsedTime: a notifier has not been passed");
  return cnrtSuccess;
}

// ---- capture ----

// A topology and the entity that is made of it share what was captured.
typedef struct captured {
  vendor_list* list;
  int owners;
} captured;

static void disown(captured* c) {
  if (--c->owners > 0) return;
  vendor_list_free(c->list);
  free(c);
}

VENDOR_API int cnrtQueueBeginCapture(void* queue, int mode) {
  QUEUE(cnrtQueueBeginCapture, queue);
  enum { Global = 0, Relaxed = 2 };  // 1, of a thread, is not supported yet
  DEMAND(mode == Global || mode == Relaxed, cnrtErrorArgsInvalid, "cnrtQueueBeginCapture: mode %d",
         mode);
  DEMAND(vendor_queue_capture(queue), cnrtErrorArgsInvalid,
         "cnrtQueueBeginCapture: the queue is captured already");
  return cnrtSuccess;
}

VENDOR_API int cnrtQueueEndCapture(void* queue, void** pTaskTopo) {
  QUEUE(cnrtQueueEndCapture, queue);
  vendor_list* list = vendor_queue_captured(queue);
  DEMAND(list, cnrtErrorArgsInvalid, "cnrtQueueEndCapture: the queue is not captured");
  captured* c = malloc(sizeof *c);
  if (!c) abort();
  *c = (captured){list, 1};
  vendor_born(c, "topology");
  *pTaskTopo = c;
  return cnrtSuccess;
}

VENDOR_API int cnrtTaskTopoInstantiate(void** pEntity, void* taskTopo, void** pErrNode,
                                       char* logBuffer, size_t bufferSize) {
  DEVICE(cnrtTaskTopoInstantiate);
  DEMAND(vendor_alive(taskTopo, "topology"), cnrtErrorArgsInvalid,
         "cnrtTaskTopoInstantiate: %p is no topology", taskTopo);
  DEMAND(!pErrNode && !logBuffer && bufferSize == 0, cnrtErrorArgsInvalid,
         "cnrtTaskTopoInstantiate: this library writes no log");
  captured** entity = malloc(sizeof *entity);
  if (!entity) return cnrtErrorNoMem;
  *entity = taskTopo;
  (*entity)->owners++;
  vendor_born(entity, "entity");
  *pEntity = entity;
  return cnrtSuccess;
}

VENDOR_API int cnrtTaskTopoDestroy(void* taskTopo) {
  DEVICE(cnrtTaskTopoDestroy);
  DEMAND(vendor_dies(taskTopo, "topology"), cnrtErrorArgsInvalid,
         "cnrtTaskTopoDestroy: %p is no topology", taskTopo);
  disown(taskTopo);
  return cnrtSuccess;
}

VENDOR_API int cnrtTaskTopoEntityInvoke(void* entity, void* queue) {
  QUEUE(cnrtTaskTopoEntityInvoke, queue);
  DEMAND(vendor_alive(entity, "entity"), cnrtErrorArgsInvalid,
         "cnrtTaskTopoEntityInvoke: %p is no entity", entity);
  vendor_list_push((*(captured**)entity)->list, queue);
  return cnrtSuccess;
}

VENDOR_API int cnrtTaskTopoEntityDestroy(void* entity) {
  DEVICE(cnrtTaskTopoEntityDestroy);
  DEMAND(vendor_dies(entity, "entity"), cnrtErrorArgsInvalid,
         "cnrtTaskTopoEntityDestroy: %p is no entity", entity);
  disown(*(captured**)entity);
  free(entity);
  return cnrtSuccess;
}
