// Vendor devices: the current one of a thread, memory, the arena of a stream, and copies.
#include <stdlib.h>
#include <string.h>

#include "backends/common/vendor_runtime.h"

enum { ALIGNMENT = 512, LEAST_CHUNK = 4 << 20 };

// What another user of the vendor's library has made current on a thread is made so again.
int hy__vendor_try_enter(const hy__vendor_device* device, int* before) {
  if (device->vendor->get_device(before)) *before = -1;
  return *before == device->index ? 0 : device->vendor->set_device(device->index);
}

int hy__vendor_enter(const hy__vendor_device* device) {
  int before;
  hy__vendor_try_enter(device, &before);
  return before;
}

void hy__vendor_leave(const hy__vendor_device* device, int before) {
  if (before >= 0 && before != device->index) device->vendor->set_device(before);
}

hy_status hy__vendor_device_sync(void* device) {
  const hy__vendor_device* d = device;
  HY__VENDOR_CALL(d, "waiting for the device", d->vendor->device_sync());
  return HY_OK;
}

// ---- Memory ----

hy_status hy__vendor_memory_alloc(void* device, size_t bytes, void** address) {
  const hy__vendor_device* d = device;
  HY__VENDOR_CALL(d, "memory", d->vendor->memory_alloc(address, bytes ? bytes : 1));
  return HY_OK;
}

static void log_failure(const hy__vendor* vendor, int error, const char* what) {
  if (error && vendor->fail(error, what))
    hy__backend_host->log(1, "%s", hy__backend_host->last_error());
}

void hy__vendor_memory_free(void* device, void* address) {
  const hy__vendor_device* d = device;
  int before = hy__vendor_enter(d);
  int error = d->vendor->memory_free(address);
  hy__vendor_leave(d, before);
  log_failure(d->vendor, error, "freeing memory");
}

hy_status hy__vendor_memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  const hy__vendor_device* d = device;
  size_t free_now = 0, total = 0;
  HY__VENDOR_CALL(d, "the size of memory", d->vendor->memory_info(&free_now, &total));
  *free_bytes = free_now;
  *total_bytes = total;
  return HY_OK;
}

// ---- The arena ----

void hy__vendor_arena_reset(hy__vendor_arena* arena) {
  arena->current = 0;
  arena->used = 0;
}

void hy__vendor_arena_free(const hy__vendor* vendor, hy__vendor_arena* arena) {
  for (int i = 0; i < arena->count; i++) vendor->memory_free(arena->chunk[i]);
  memset(arena, 0, sizeof *arena);
}

// Chunks double, so that a stream that has seen its largest call asks for nothing more.
static int add_chunk(const hy__vendor* vendor, hy__vendor_arena* a, size_t bytes) {
  if (a->count == HY__VENDOR_CHUNKS) return vendor->no_memory;
  size_t size = LEAST_CHUNK;
  for (int i = 0; i < a->count; i++) size += a->size[i];
  if (size < bytes) size = bytes;
  void* memory = NULL;
  int error = vendor->memory_alloc(&memory, size);
  if (error && size > bytes) {
    size = bytes;
    error = vendor->memory_alloc(&memory, size);
  }
  if (error) return error;
  a->chunk[a->count] = memory;
  a->size[a->count++] = size;
  a->used = 0;
  return 0;
}

void* hy__vendor_arena_take(const hy__vendor* vendor, hy__vendor_arena* a, size_t bytes,
                            int* error) {
  bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  while (a->current < a->count && a->size[a->current] - a->used < bytes) {
    a->current++;
    a->used = 0;
  }
  *error = a->current == a->count ? add_chunk(vendor, a, bytes) : 0;
  if (*error) return NULL;
  void* taken = a->chunk[a->current] + a->used;
  a->used += bytes;
  return taken;
}

void* hy__vendor_arena_lend(const hy__vendor* vendor, hy__vendor_arena* a, size_t bytes,
                            int* error) {
  int current = a->current;
  size_t used = a->used;
  void* memory = hy__vendor_arena_take(vendor, a, bytes, error);
  if (current < a->count && current == a->current) a->used = used;
  return memory;
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

hy_status hy__vendor_host_alloc(void* device, size_t bytes, void** address) {
  const hy__vendor_device* d = device;
  pinned* p = malloc(sizeof *p);
  if (!p) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", d->vendor->name);
  bytes = bytes ? bytes : 1;
  HY__VENDOR_CALL_OR_FREE(d, "pinned memory", p, d->vendor->host_alloc(address, bytes));
  *p = (pinned){.memory = *address, .bytes = bytes};
  pthread_mutex_lock(&pinned_mutex);
  p->next = pinned_list;
  pinned_list = p;
  pthread_mutex_unlock(&pinned_mutex);
  return HY_OK;
}

void hy__vendor_host_free(void* device, void* address) {
  const hy__vendor_device* d = device;
  pthread_mutex_lock(&pinned_mutex);
  pinned** link = &pinned_list;
  while (*link && (*link)->memory != address) link = &(*link)->next;
  pinned* p = *link;
  if (p) *link = p->next;
  pthread_mutex_unlock(&pinned_mutex);
  free(p);
  int before = hy__vendor_enter(d);
  int error = d->vendor->host_free(address);
  hy__vendor_leave(d, before);
  log_failure(d->vendor, error, "freeing pinned memory");
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
static hy_status copy_now(hy__vendor_device* d, void* stream, void* dst, const void* src,
                          size_t bytes, hy_copy_kind kind) {
  HY_TRY(hy__vendor_stream_sync(d, stream));
  HY__VENDOR_CALL(d, kind == HY_COPY_DEVICE_TO_HOST ? "a copy to the host" : "a copy to the device",
                  d->vendor->copy(dst, src, bytes, kind));
  return HY_OK;
}

hy_status hy__vendor_copy(void* device, void* stream, void* dst, const void* src, size_t bytes,
                          hy_copy_kind kind) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  if (bytes == 0) return HY_OK;
  __atomic_store_n(&s->last_op, HY_OP_NONE, __ATOMIC_RELAXED);
  switch (kind) {
    case HY_COPY_HOST_TO_DEVICE:
      if (!is_pinned(src, bytes)) return copy_now(d, stream, dst, src, bytes, kind);
      break;
    case HY_COPY_DEVICE_TO_HOST:
      if (!is_pinned(dst, bytes)) return copy_now(d, stream, dst, src, bytes, kind);
      break;
    case HY_COPY_DEVICE_TO_DEVICE: break;
    default:
      HY_TRY(hy__vendor_stream_sync(d, stream));
      memmove(dst, src, bytes);
      return HY_OK;
  }
  HY__VENDOR_CALL(d, "a copy", d->vendor->copy_async(dst, src, bytes, kind, s->queue));
  return HY_OK;
}

hy_status hy__vendor_set(void* device, void* stream, void* dst, int value, size_t bytes) {
  const hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  if (bytes == 0) return HY_OK;
  __atomic_store_n(&s->last_op, HY_OP_NONE, __ATOMIC_RELAXED);
  HY__VENDOR_CALL(d, "a memset", d->vendor->set_async(dst, (unsigned char)value, bytes, s->queue));
  return HY_OK;
}
