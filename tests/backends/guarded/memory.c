// The guarded device's memory: mapped so that a host access faults.
#include "guarded.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t page = 4096;

hy_status guarded_memory_open(guarded_memory* memory, size_t size) {
  *memory = (guarded_memory){.size = size};
  memory->window = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory->window == MAP_FAILED) goto fail_window;
  memory->store =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory->store == MAP_FAILED) goto fail_store;
  pthread_mutex_init(&memory->mutex, NULL);
  return HY_OK;

fail_store:
  munmap(memory->window, size);
fail_window:
  return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no address space for %zu bytes", size);
}

void guarded_memory_close(guarded_memory* memory) {
  munmap(memory->window, memory->size);
  munmap(memory->store, memory->size);
  free(memory->extents);
  pthread_mutex_destroy(&memory->mutex);
}

// Index of the first extent that ends above `offset`.
static size_t extent_above(const guarded_memory* memory, size_t offset) {
  size_t low = 0, high = memory->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (memory->extents[middle].offset + memory->extents[middle].bytes <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// First fit, on page boundaries, with an unused page behind each allocation.
hy_status guarded_memory_alloc(guarded_memory* memory, size_t bytes, void** address) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&memory->mutex);
  if (memory->count == memory->capacity) {
    size_t capacity = memory->capacity ? 2 * memory->capacity : 64;
    guarded_extent* extents = realloc(memory->extents, capacity * sizeof *extents);
    if (!extents) {
      status = guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory");
      goto done;
    }
    memory->extents = extents;
    memory->capacity = capacity;
  }
  size_t at = 0, offset = 0;
  while (at < memory->count &&
         (bytes > memory->size || memory->extents[at].offset < offset + bytes + page)) {
    offset = memory->extents[at].offset + memory->extents[at].bytes;
    offset = (offset + 2 * page - 1) / page * page;
    at++;
  }
  if (offset > memory->size || bytes > memory->size - offset) {
    status = guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no room for %zu bytes", bytes);
    goto done;
  }
  memmove(memory->extents + at + 1, memory->extents + at,
          (memory->count - at) * sizeof *memory->extents);
  memory->extents[at] = (guarded_extent){offset, bytes};
  memory->count++;
  memory->used += bytes;
  *address = memory->window + offset;
done:
  pthread_mutex_unlock(&memory->mutex);
  return status;
}

void guarded_memory_free(guarded_memory* memory, void* address) {
  size_t offset = (size_t)((char*)address - memory->window);
  pthread_mutex_lock(&memory->mutex);
  size_t at = extent_above(memory, offset);
  if (at < memory->count && memory->extents[at].offset == offset) {
    size_t bytes = memory->extents[at].bytes;
    madvise(memory->store + offset, bytes, MADV_DONTNEED);
    memory->used -= bytes;
    memory->count--;
    memmove(memory->extents + at, memory->extents + at + 1,
            (memory->count - at) * sizeof *memory->extents);
  } else {
    guarded_host->log(1, "guarded: %p was not allocated", address);
  }
  pthread_mutex_unlock(&memory->mutex);
}

hy_status guarded_memory_reach(guarded_memory* memory, const void* address, size_t bytes,
                               char** bytes_at) {
  size_t offset = (size_t)((uintptr_t)address - (uintptr_t)memory->window);
  bool inside = false;
  if (offset < memory->size) {
    pthread_mutex_lock(&memory->mutex);
    size_t at = extent_above(memory, offset);
    if (at < memory->count && memory->extents[at].offset <= offset) {
      inside = bytes <= memory->extents[at].offset + memory->extents[at].bytes - offset;
    }
    pthread_mutex_unlock(&memory->mutex);
  }
  if (!inside) {
    return guarded_host->fail(HY_INVALID_ARGUMENT,
                              "guarded: %zu bytes at %p do not lie in one allocation", bytes,
                              address);
  }
  *bytes_at = memory->store + offset;
  return HY_OK;
}
