// Ascend devices: the current one of a thread, memory, and copies.
#include <stdlib.h>
#include <string.h>

#include "backends/ascend/ascend.h"

enum { HUGE_FIRST = 0, HBM = 1 };                    // aclrtMemMallocPolicy, aclrtMemAttr
enum { TO_DEVICE = 1, TO_HOST = 2, ON_DEVICE = 3 };  // aclrtMemcpyKind

// AscendCL has a current device for each thread. What another user of the library has set there is
// set again.
int hy__ascend_enter(const hy__ascend_device* device) {
  int32_t before = -1;
  if (hy__acl.aclrtGetDevice(&before)) before = -1;
  if (before != device->index) hy__acl.aclrtSetDevice(device->index);
  return before;
}

void hy__ascend_leave(const hy__ascend_device* device, int before) {
  if (before >= 0 && before != device->index) hy__acl.aclrtSetDevice(before);
}

hy_status hy__ascend_device_open(int index, void** device) {
  hy__ascend_device* d = calloc(1, sizeof *d);
  if (!d) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
  d->index = index;
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
  if (d->float8) hy__ascend_memory_free(d, d->float8);
  pthread_mutex_destroy(&d->mutex);
  free(d);
}

hy_status hy__ascend_device_sync(void* device) {
  ASCEND_CALL(device, "waiting for the device", hy__acl.aclrtSynchronizeDevice());
  return HY_OK;
}

// ---- Memory ----

hy_status hy__ascend_memory_alloc(void* device, size_t bytes, void** address) {
  ASCEND_CALL(device, "memory", hy__acl.aclrtMalloc(address, bytes ? bytes : 1, HUGE_FIRST));
  return HY_OK;
}

void hy__ascend_memory_free(void* device, void* address) {
  int before = hy__ascend_enter(device);
  int error = hy__acl.aclrtFree(address);
  hy__ascend_leave(device, before);
  if (error && hy__ascend_fail(error, "freeing memory"))
    hy__backend_host->log(1, "%s", hy__backend_host->last_error());
}

hy_status hy__ascend_memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  size_t free_now = 0, total = 0;
  ASCEND_CALL(device, "the size of memory", hy__acl.aclrtGetMemInfo(HBM, &free_now, &total));
  *free_bytes = free_now;
  *total_bytes = total;
  return HY_OK;
}

// ---- Pinned memory ----

// What was allocated here: an asynchronous copy is one with such memory only.
typedef struct pinned {
  struct pinned* next;
  char* memory;
  size_t bytes;
} pinned;

static pthread_mutex_t pinned_mutex = PTHREAD_MUTEX_INITIALIZER;
static pinned* pinned_list;

hy_status hy__ascend_host_alloc(void* device, size_t bytes, void** address) {
  pinned* p = malloc(sizeof *p);
  if (!p) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: no host memory");
  bytes = bytes ? bytes : 1;
  int before = hy__ascend_enter(device);
  int error = hy__acl.aclrtMallocHost(address, bytes);
  hy__ascend_leave(device, before);
  if (error) {
    free(p);
    return hy__ascend_fail(error, "pinned memory");
  }
  *p = (pinned){.memory = *address, .bytes = bytes};
  pthread_mutex_lock(&pinned_mutex);
  p->next = pinned_list;
  pinned_list = p;
  pthread_mutex_unlock(&pinned_mutex);
  return HY_OK;
}

void hy__ascend_host_free(void* device, void* address) {
  pthread_mutex_lock(&pinned_mutex);
  pinned** link = &pinned_list;
  while (*link && (*link)->memory != address) link = &(*link)->next;
  pinned* p = *link;
  if (p) *link = p->next;
  pthread_mutex_unlock(&pinned_mutex);
  free(p);
  int before = hy__ascend_enter(device);
  int error = hy__acl.aclrtFreeHost(address);
  hy__ascend_leave(device, before);
  if (error && hy__ascend_fail(error, "freeing pinned memory"))
    hy__backend_host->log(1, "%s", hy__backend_host->last_error());
}

static bool is_pinned(const void* at, size_t bytes) {
  const char* from = at;
  pthread_mutex_lock(&pinned_mutex);
  const pinned* p = pinned_list;
  while (p && !(from >= p->memory && from + bytes <= p->memory + p->bytes)) p = p->next;
  pthread_mutex_unlock(&pinned_mutex);
  return p != NULL;
}

// ---- Copies ----

// With memory that is not pinned, a copy waits for the stream's work and is done when it returns.
static hy_status copy_now(hy__ascend_device* d, void* stream, void* dst, const void* src,
                          size_t bytes, int kind) {
  HY_TRY(hy__ascend_stream_sync(d, stream));
  ASCEND_CALL(d, kind == TO_HOST ? "a copy to the host" : "a copy to the device",
              hy__acl.aclrtMemcpy(dst, bytes, src, bytes, kind));
  return HY_OK;
}

hy_status hy__ascend_copy_bytes(void* device, void* stream, void* dst, const void* src,
                                size_t bytes, hy_copy_kind kind) {
  hy__ascend_stream* s = stream;
  if (bytes == 0) return HY_OK;
  __atomic_store_n(&s->last_op, HY_OP_NONE, __ATOMIC_RELAXED);
  int how = ON_DEVICE;
  switch (kind) {
    case HY_COPY_HOST_TO_DEVICE:
      how = TO_DEVICE;
      if (!is_pinned(src, bytes)) return copy_now(device, stream, dst, src, bytes, how);
      break;
    case HY_COPY_DEVICE_TO_HOST:
      how = TO_HOST;
      if (!is_pinned(dst, bytes)) return copy_now(device, stream, dst, src, bytes, how);
      break;
    case HY_COPY_DEVICE_TO_DEVICE: break;
    default:
      HY_TRY(hy__ascend_stream_sync(device, stream));
      memmove(dst, src, bytes);
      return HY_OK;
  }
  ASCEND_CALL(device, "a copy", hy__acl.aclrtMemcpyAsync(dst, bytes, src, bytes, how, s->queue));
  return HY_OK;
}

hy_status hy__ascend_set_bytes(void* device, void* stream, void* dst, int value, size_t bytes) {
  hy__ascend_stream* s = stream;
  if (bytes == 0) return HY_OK;
  __atomic_store_n(&s->last_op, HY_OP_NONE, __ATOMIC_RELAXED);
  ASCEND_CALL(device, "a memset",
              hy__acl.aclrtMemsetAsync(dst, bytes, (unsigned char)value, bytes, s->queue));
  return HY_OK;
}
