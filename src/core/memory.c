// Device memory as callers see it: the cache behind a lock, raw and pinned memory, limits.
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/allocator.h"
#include "core/debug.h"

// All allocators, so that an address can be told to be a device's. Locked before any of theirs.
static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static hy__allocator* list;
static atomic_int n_separate;  // allocators of devices whose memory is not the host's

// ---- limits ----

// "512M", "2G", "1048576". False when it is none.
static bool parse_bytes(const char* text, size_t length, uint64_t* bytes) {
  char number[32];
  if (length == 0 || length >= sizeof number || !isdigit((unsigned char)text[0])) return false;
  memcpy(number, text, length);
  number[length] = 0;
  char* end;
  errno = 0;
  unsigned long long value = strtoull(number, &end, 10);
  if (errno) return false;
  int shift = 0;
  switch (toupper((unsigned char)*end)) {
    case 'K': shift = 10; break;
    case 'M': shift = 20; break;
    case 'G': shift = 30; break;
    case 'T': shift = 40; break;
  }
  if (shift) end++;
  if (*end || value > UINT64_MAX >> shift) return false;
  *bytes = (uint64_t)value << shift;
  return true;
}

// Whether "cuda" or "cuda:0" means the device.
static bool names_device(const hy_device* device, const char* name, size_t length) {
  if (strncmp(device->selector, name, length) != 0) return false;
  return device->selector[length] == 0 || device->selector[length] == ':';
}

static hy_status limit_from_environment(const hy_device* device, uint64_t* limit) {
  const char* text = hy__env("HALYARD_MEMORY_LIMIT");
  while (text && *text) {
    size_t length = strcspn(text, ",");
    const char* equals = memchr(text, '=', length);
    const char* value = equals ? equals + 1 : text;
    uint64_t bytes;
    if (!parse_bytes(value, length - (size_t)(value - text), &bytes)) {
      return hy_fail(HY_INVALID_ARGUMENT,
                     "HALYARD_MEMORY_LIMIT: \"%.*s\" is not a limit; write \"2G\" or "
                     "\"cuda:0=8G,cpu=512M\"",
                     (int)length, text);
    }
    if (!equals || names_device(device, text, (size_t)(equals - text))) *limit = bytes;
    text += length;
    if (*text == ',') text++;
  }
  return HY_OK;
}

hy_status hy_memory_set_limit(hy_device* device, uint64_t bytes) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_memory_set_limit: device is NULL");
  pthread_mutex_lock(&device->allocator->mutex);
  device->allocator->stats.limit = bytes;
  pthread_mutex_unlock(&device->allocator->mutex);
  return HY_OK;
}

// ---- the allocator's life ----

hy_status hy__allocator_create(hy_device* device, hy__allocator** allocator) {
  uint64_t limit = 0;
  HY_TRY(limit_from_environment(device, &limit));
  HY_TRY(hy__debug_init());
  hy__allocator* a = hy__calloc(1, sizeof *a);
  if (!a) return hy_fail(HY_OUT_OF_MEMORY, "%s: no host memory", device->selector);
  a->device = device;
  a->stats.limit = limit;
  pthread_mutex_init(&a->mutex, NULL);
  pthread_mutex_lock(&list_mutex);
  a->next = list;
  list = a;
  if (!device->is_host) atomic_fetch_add(&n_separate, 1);
  pthread_mutex_unlock(&list_mutex);
  *allocator = a;
  return HY_OK;
}

static void pinned_release(const hy_device* device, void* address) {
  if (device->backend->host_alloc) {
    device->backend->host_free(device->handle, address);
  } else {
    free(address);
  }
}

void hy__allocator_destroy(hy__allocator* a) {
  if (!a) return;
  pthread_mutex_lock(&list_mutex);
  hy__allocator** link = &list;
  while (*link != a) link = &(*link)->next;
  *link = a->next;
  if (!a->device->is_host) atomic_fetch_sub(&n_separate, 1);
  pthread_mutex_unlock(&list_mutex);
  hy__allocator_clear(a);
  for (size_t i = 0; i < a->raw.count; i++) {
    a->device->backend->memory_free(a->device->handle, (void*)a->raw.items[i].begin);
  }
  for (size_t i = 0; i < a->pinned.count; i++) {
    pinned_release(a->device, (void*)a->pinned.items[i].begin);
  }
  if (a->delay) a->device->backend->memory_free(a->device->handle, a->delay);
  hy__imports_close(a);
  hy__ranges_clear(&a->fenced);
  hy__ranges_clear(&a->raw);
  hy__ranges_clear(&a->pinned);
  pthread_mutex_destroy(&a->mutex);
  hy__mfree(a);
}

bool hy__allocator_owns(hy__allocator* a, const void* address) {
  pthread_mutex_lock(&a->mutex);
  bool owns = hy__ranges_find(&a->segments, address) || hy__ranges_find(&a->raw, address) ||
              hy__ranges_find(&a->imports, address);
  pthread_mutex_unlock(&a->mutex);
  return owns;
}

static hy_device* find_owner(const void* address, bool or_host) {
  hy_device* owner = NULL;
  pthread_mutex_lock(&list_mutex);
  for (hy__allocator* a = list; a && !owner; a = a->next) {
    if ((or_host || !a->device->is_host) && hy__allocator_owns(a, address)) owner = a->device;
  }
  pthread_mutex_unlock(&list_mutex);
  return owner;
}

hy_device* hy__memory_owner(const void* address) {
  if (atomic_load_explicit(&n_separate, memory_order_relaxed) == 0) return NULL;
  return find_owner(address, false);
}

hy_device* hy__memory_of_any(const void* address) {
  return find_owner(address, true);
}

// ---- cached memory ----

hy_status hy_alloc(hy_stream* stream, size_t bytes, void** address) {
  if (!stream || !address) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_alloc: %s is NULL", stream ? "address" : "stream");
  }
  *address = NULL;
  HY_TRY(hy__stream_check(stream));
  if (hy__fault(HY_FAULT_ALLOCATION)) {
    return hy_fail(HY_OUT_OF_MEMORY, "%s: allocation of %zu bytes failed by an injected fault",
                   stream->device->selector, bytes);
  }
  hy__allocator* a = stream->device->allocator;
  size_t extra = hy__debug() ? hy__debug_extra(stream) : 0;
  pthread_mutex_lock(&a->mutex);
  hy_status status = hy__allocator_take(a, stream->cache, bytes + extra, address);
  hy__capture* capture = stream->cache->capture;
  if (status == HY_OK && capture) capture->memory(capture, *address, bytes, true);
  pthread_mutex_unlock(&a->mutex);
  if (status == HY_OK && hy__debug()) return hy__debug_allocated(stream, *address, bytes);
  return status;
}

// Why no block in use begins at `address`. The caller holds the mutex.
static hy_status unknown_address(hy__allocator* a, const char* caller, const void* address) {
  const char* why = "is in no memory of this device's cache";
  if (hy__ranges_find(&a->segments, address)) {
    why = "was freed before, or is not the beginning of an allocation";
  } else if (hy__ranges_find(&a->raw, address)) {
    why = "is raw memory, which hy_free_raw returns";
  } else if (hy__ranges_find(&a->pinned, address)) {
    why = "is pinned host memory, which hy_host_free returns";
  } else if (hy__ranges_find(&a->imports, address)) {
    why = "is imported memory, which hy_memory_close returns";
  }
  return hy_fail(HY_INVALID_ARGUMENT, "%s: %p on %s %s", caller, address, a->device->selector, why);
}

hy_status hy_free(hy_device* device, void* address) {
  if (!address) return HY_OK;
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_free: device is NULL");
  hy__allocator* a = device->allocator;
  hy_status status = hy__debug() ? hy__debug_check(device, address, "something", true) : HY_OK;
  pthread_mutex_lock(&a->mutex);
  if (!hy__allocator_give(a, address)) status = unknown_address(a, "hy_free", address);
  pthread_mutex_unlock(&a->mutex);
  return status;
}

hy_status hy_record_stream(hy_stream* stream, void* address) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_record_stream: stream is NULL");
  HY_TRY(hy__stream_check(stream));
  hy__allocator* a = stream->device->allocator;
  hy_status status = HY_OK;
  pthread_mutex_lock(&a->mutex);
  hy__alloc_block* block = hy__allocator_find(a, address);
  if (!block) {
    status = unknown_address(a, "hy_record_stream", address);
  } else if (block->cache != stream->cache && stream->capture) {
    status = hy__capture_refuse(stream, "hy_record_stream",
                                "memory from before the capture must outlive the graph");
  } else if (block->cache != stream->cache) {
    block->users |= 1ull << (stream->cache->number % 64);
  }
  pthread_mutex_unlock(&a->mutex);
  return status;
}

hy_status hy_empty_cache(hy_device* device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_empty_cache: device is NULL");
  pthread_mutex_lock(&device->allocator->mutex);
  hy__allocator_flush(device->allocator);
  pthread_mutex_unlock(&device->allocator->mutex);
  return HY_OK;
}

hy_status hy_memory_get_stats(hy_device* device, hy_memory_stats* stats) {
  if (!device || !stats) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_memory_get_stats: %s is NULL",
                   device ? "stats" : "device");
  }
  pthread_mutex_lock(&device->allocator->mutex);
  *stats = device->allocator->stats;
  pthread_mutex_unlock(&device->allocator->mutex);
  return HY_OK;
}

hy_status hy_memory_reset_peak(hy_device* device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_memory_reset_peak: device is NULL");
  hy_memory_stats* stats = &device->allocator->stats;
  pthread_mutex_lock(&device->allocator->mutex);
  stats->allocated_peak = stats->allocated;
  stats->reserved_peak = stats->reserved;
  pthread_mutex_unlock(&device->allocator->mutex);
  return HY_OK;
}

hy_status hy_memory_info(hy_device* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  if (!device || !free_bytes || !total_bytes) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_memory_info: an argument is NULL");
  }
  return device->backend->memory_info(device->handle, free_bytes, total_bytes);
}

// ---- raw and pinned memory ----

// Makes room in a set of ranges and notes a new one; the backend is called outside the lock.
static bool note(hy__allocator* a, hy__ranges* set, void* address, size_t bytes) {
  pthread_mutex_lock(&a->mutex);
  bool room = hy__ranges_reserve(set);
  if (room) hy__ranges_add(set, address, bytes, NULL);
  pthread_mutex_unlock(&a->mutex);
  return room;
}

// False when no range of the set begins at `address`.
static bool forget(hy__allocator* a, hy__ranges* set, const void* address) {
  pthread_mutex_lock(&a->mutex);
  hy__range* range = hy__ranges_find(set, address);
  bool known = range && range->begin == (uintptr_t)address;
  if (known) hy__ranges_remove(set, range);
  pthread_mutex_unlock(&a->mutex);
  return known;
}

static hy_status check_request(const char* caller, hy_device* device, size_t bytes,
                               void** address) {
  if (!device || !address) {
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %s is NULL", caller, device ? "address" : "device");
  }
  *address = NULL;
  if (hy__fault(HY_FAULT_ALLOCATION)) {
    return hy_fail(HY_OUT_OF_MEMORY,
                   "%s: allocation of %zu bytes on %s failed by an injected fault", caller, bytes,
                   device->selector);
  }
  return HY_OK;
}

hy_status hy_alloc_raw(hy_device* device, size_t bytes, void** address) {
  HY_TRY(check_request("hy_alloc_raw", device, bytes, address));
  if (bytes == 0) bytes = HY__ALIGNMENT;
  const hy_backend* backend = device->backend;
  HY_TRY(backend->memory_alloc(device->handle, bytes, address));
  if (note(device->allocator, &device->allocator->raw, *address, bytes)) return HY_OK;
  backend->memory_free(device->handle, *address);
  *address = NULL;
  return hy_fail(HY_OUT_OF_MEMORY, "hy_alloc_raw: no host memory");
}

void hy_free_raw(hy_device* device, void* address) {
  if (!device || !address) return;
  if (forget(device->allocator, &device->allocator->raw, address)) {
    device->backend->memory_free(device->handle, address);
  } else {
    hy__log(1, "hy_free_raw: %p is no raw memory of %s", address, device->selector);
  }
}

hy_status hy_host_alloc(hy_device* device, size_t bytes, void** address) {
  HY_TRY(check_request("hy_host_alloc", device, bytes, address));
  if (bytes == 0) bytes = HY__ALIGNMENT;
  if (device->backend->host_alloc) {
    HY_TRY(device->backend->host_alloc(device->handle, bytes, address));
  } else if (posix_memalign(address, HY__ALIGNMENT, bytes)) {
    *address = NULL;
    return hy_fail(HY_OUT_OF_MEMORY, "hy_host_alloc: no host memory for %zu bytes", bytes);
  }
  if (note(device->allocator, &device->allocator->pinned, *address, bytes)) return HY_OK;
  pinned_release(device, *address);
  *address = NULL;
  return hy_fail(HY_OUT_OF_MEMORY, "hy_host_alloc: no host memory");
}

void hy_host_free(hy_device* device, void* address) {
  if (!device || !address) return;
  if (forget(device->allocator, &device->allocator->pinned, address)) {
    pinned_release(device, address);
  } else {
    hy__log(1, "hy_host_free: %p is no pinned memory of %s", address, device->selector);
  }
}

bool hy_host_is_pinned(hy_device* device, const void* address) {
  if (!device) return false;
  pthread_mutex_lock(&device->allocator->mutex);
  bool pinned = hy__ranges_find(&device->allocator->pinned, address);
  pthread_mutex_unlock(&device->allocator->mutex);
  return pinned;
}
