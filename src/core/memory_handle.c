// Memory between processes (IPC): a handle names an allocation of this process, as plain bytes that
// another process turns into an address of its own.
#include <string.h>

#include "core/allocator.h"

// What travels. The blob is the backend's; the rest says which allocation inside which memory.
typedef struct handle {
  char magic[8];
  char backend[24];
  uint64_t bytes;   // of the allocation
  uint64_t offset;  // of the allocation in the memory that the backend exports
  uint64_t whole;   // bytes of that memory
  hy_memory_blob blob;
} handle;

_Static_assert(sizeof(handle) <= sizeof(hy_memory_handle), "a handle has room for ours");

static const char magic[8] = "hy_mem1";

// Imported once, however many allocations in it were asked for.
typedef struct import {
  hy_memory_blob blob;
  void* base;
  int64_t uses;
} import;

static hy_status unsupported(const hy_device* device, const char* caller) {
  return hy_fail(HY_UNSUPPORTED, "%s: %s cannot share memory between processes", caller,
                 device->selector);
}

// The memory the backend gave in which an allocation begins. The caller holds the mutex.
static hy_status find_whole(hy__allocator* a, const void* address, handle* h, void** base) {
  hy__alloc_block* block = hy__allocator_find(a, address);
  hy__range* raw = hy__ranges_find(&a->raw, address);
  if (block) {
    // Pinned even if exporting fails then: rare, and harmless.
    block->segment->exported = true;
    *base = block->segment->address;
    h->whole = block->segment->size;
    h->bytes = block->size;
  } else if (raw && raw->begin == (uintptr_t)address) {
    *base = (void*)raw->begin;
    h->whole = h->bytes = raw->size;
  } else {
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_memory_export: %p is not the beginning of an allocation on %s", address,
                   a->device->selector);
  }
  h->offset = (uint64_t)((uintptr_t)address - (uintptr_t)*base);
  return HY_OK;
}

hy_status hy_memory_export(hy_device* device, void* address, hy_memory_handle* out) {
  if (!device || !out) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_memory_export: %s is NULL",
                   device ? "handle" : "device");
  }
  if (!device->backend->memory_export) return unsupported(device, "hy_memory_export");
  handle h = {.whole = 0};
  memcpy(h.magic, magic, sizeof magic);
  strncpy(h.backend, device->backend->name, sizeof h.backend - 1);
  void* base = NULL;
  pthread_mutex_lock(&device->allocator->mutex);
  hy_status status = find_whole(device->allocator, address, &h, &base);
  pthread_mutex_unlock(&device->allocator->mutex);
  HY_TRY(status);
  HY_TRY(device->backend->memory_export(device->handle, base, &h.blob));
  memset(out, 0, sizeof *out);
  memcpy(out, &h, sizeof h);
  return HY_OK;
}

static import* find_import(hy__allocator* a, const hy_memory_blob* blob) {
  for (size_t i = 0; i < a->imports.count; i++) {
    import* known = a->imports.items[i].owner;
    if (!memcmp(&known->blob, blob, sizeof *blob)) return known;
  }
  return NULL;
}

// The caller holds the mutex, so that two threads do not import the same memory twice.
static hy_status open_import(hy__allocator* a, const handle* h, import** found) {
  const hy_device* device = a->device;
  *found = find_import(a, &h->blob);
  if (*found) return HY_OK;
  import* fresh = hy__calloc(1, sizeof *fresh);
  if (!fresh || !hy__ranges_reserve(&a->imports)) {
    hy__mfree(fresh);
    return hy_fail(HY_OUT_OF_MEMORY, "hy_memory_import: no host memory");
  }
  hy_status status = device->backend->memory_import(device->handle, &h->blob, &fresh->base);
  if (status != HY_OK) {
    hy__mfree(fresh);
    return status;
  }
  fresh->blob = h->blob;
  hy__ranges_add(&a->imports, fresh->base, h->whole, fresh);
  *found = fresh;
  return HY_OK;
}

hy_status hy_memory_import(hy_device* device, const hy_memory_handle* in, void** address,
                           size_t* bytes) {
  if (!device || !in || !address || !bytes) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_memory_import: an argument is NULL");
  }
  *address = NULL;
  *bytes = 0;
  if (!device->backend->memory_import) return unsupported(device, "hy_memory_import");
  handle h;
  memcpy(&h, in, sizeof h);
  h.backend[sizeof h.backend - 1] = 0;
  if (memcmp(h.magic, magic, sizeof magic) != 0 || h.whole > (uint64_t)1 << HY__MAX_LOG ||
      h.offset > h.whole || h.bytes > h.whole - h.offset) {
    return hy_fail(HY_FORMAT, "hy_memory_import: these bytes are no handle of hy_memory_export");
  }
  if (strcmp(h.backend, device->backend->name) != 0) {
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_memory_import: the handle is of backend %s, the device is %s", h.backend,
                   device->selector);
  }
  import* found;
  pthread_mutex_lock(&device->allocator->mutex);
  hy_status status = open_import(device->allocator, &h, &found);
  if (status == HY_OK) {
    found->uses++;
    *address = (char*)found->base + h.offset;
    *bytes = h.bytes;
  }
  pthread_mutex_unlock(&device->allocator->mutex);
  return status;
}

hy_status hy_memory_close(hy_device* device, void* address) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_memory_close: device is NULL");
  hy__allocator* a = device->allocator;
  hy_status status = HY_OK;
  pthread_mutex_lock(&a->mutex);
  hy__range* range = hy__ranges_find(&a->imports, address);
  if (!range) {
    status = hy_fail(HY_INVALID_ARGUMENT, "hy_memory_close: %p is in no imported memory of %s",
                     address, device->selector);
  } else {
    import* known = range->owner;
    if (--known->uses == 0) {
      status = device->backend->memory_close(device->handle, known->base);
      hy__ranges_remove(&a->imports, range);
      hy__mfree(known);
    }
  }
  pthread_mutex_unlock(&a->mutex);
  return status;
}

void hy__imports_close(hy__allocator* a) {
  for (size_t i = 0; i < a->imports.count; i++) {
    import* known = a->imports.items[i].owner;
    a->device->backend->memory_close(a->device->handle, known->base);
    hy__mfree(known);
  }
  hy__ranges_clear(&a->imports);
}
