// Memory of the guarded device: addresses that fault, and the bytes behind them in a file without a
// name, which another process may map (IPC).
#include "guarded.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t page = 4096;

hy_status guarded_memory_open(guarded_memory* memory, size_t size) {
  *memory = (guarded_memory){.size = size};
  memory->window = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory->window == MAP_FAILED) goto fail_window;
  memory->file = memfd_create("halyard_guarded", MFD_CLOEXEC);
  if (memory->file < 0 || ftruncate(memory->file, (off_t)size) != 0) goto fail_file;
  memory->store =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory->file, 0);
  if (memory->store == MAP_FAILED) goto fail_file;
  pthread_mutex_init(&memory->mutex, NULL);
  return HY_OK;

fail_file:
  if (memory->file >= 0) close(memory->file);
  munmap(memory->window, size);
fail_window:
  return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no address space for %zu bytes", size);
}

void guarded_memory_close(guarded_memory* memory) {
  munmap(memory->window, memory->size);
  munmap(memory->store, memory->size);
  close(memory->file);
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

// First fit, on page boundaries, with an unused page behind each allocation. The caller holds the
// mutex.
static hy_status take(guarded_memory* memory, size_t bytes, bool imported, void** address) {
  if (memory->count == memory->capacity) {
    size_t capacity = memory->capacity ? 2 * memory->capacity : 64;
    guarded_extent* extents = realloc(memory->extents, capacity * sizeof *extents);
    if (!extents) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory");
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
    return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no room for %zu bytes", bytes);
  }
  memmove(memory->extents + at + 1, memory->extents + at,
          (memory->count - at) * sizeof *memory->extents);
  memory->extents[at] = (guarded_extent){offset, bytes, imported};
  memory->count++;
  memory->used += bytes;
  *address = memory->window + offset;
  return HY_OK;
}

hy_status guarded_memory_alloc(guarded_memory* memory, size_t bytes, void** address) {
  pthread_mutex_lock(&memory->mutex);
  hy_status status = take(memory, bytes, false, address);
  pthread_mutex_unlock(&memory->mutex);
  return status;
}

// The extent that begins at the address, or NULL. The caller holds the mutex.
static guarded_extent* extent_at(guarded_memory* memory, const void* address, bool imported) {
  size_t offset = (size_t)((uintptr_t)address - (uintptr_t)memory->window);
  size_t at = extent_above(memory, offset);
  if (at == memory->count) return NULL;
  guarded_extent* extent = &memory->extents[at];
  return extent->offset == offset && extent->imported == imported ? extent : NULL;
}

static void drop(guarded_memory* memory, guarded_extent* extent) {
  size_t at = (size_t)(extent - memory->extents);
  memory->used -= extent->bytes;
  memory->count--;
  memmove(extent, extent + 1, (memory->count - at) * sizeof *extent);
}

void guarded_memory_free(guarded_memory* memory, void* address) {
  pthread_mutex_lock(&memory->mutex);
  guarded_extent* extent = extent_at(memory, address, false);
  if (extent) {
    fallocate(memory->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)extent->offset,
              (off_t)extent->bytes);
    drop(memory, extent);
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
                              "guarded: %zu bytes at %p are not in one allocation", bytes, address);
  }
  *bytes_at = memory->store + offset;
  return HY_OK;
}

// ---- between processes ----

// The file of the process that exports, as the system shows it to others of the same user.
typedef struct shared_extent {
  char magic[8];
  int64_t process, file;
  uint64_t offset, bytes;
} shared_extent;

_Static_assert(sizeof(shared_extent) <= sizeof(hy_memory_blob), "the blob has room");

static const char magic[8] = "guarded";

static size_t whole_pages(size_t bytes) {
  return (bytes + page - 1) / page * page;
}

hy_status guarded_memory_export(guarded_memory* memory, void* address, hy_memory_blob* blob) {
  shared_extent shared = {.process = getpid(), .file = memory->file};
  memcpy(shared.magic, magic, sizeof magic);
  pthread_mutex_lock(&memory->mutex);
  const guarded_extent* extent = extent_at(memory, address, false);
  if (extent) {
    shared.offset = extent->offset;
    shared.bytes = extent->bytes;
  }
  pthread_mutex_unlock(&memory->mutex);
  if (!shared.bytes) {
    return guarded_host->fail(HY_INVALID_ARGUMENT, "guarded: %p does not begin an allocation",
                              address);
  }
  memset(blob, 0, sizeof *blob);
  memcpy(blob, &shared, sizeof shared);
  return HY_OK;
}

// Opens the exporter's file; an error unless it is a file of a guarded device that large.
static hy_status open_shared(const shared_extent* shared, int* file) {
  char path[64], name[64] = "";
  snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)shared->process,
           (long long)shared->file);
  ssize_t length = readlink(path, name, sizeof name - 1);
  if (length < 0 || !strstr(name, "halyard_guarded")) {
    return guarded_host->fail(HY_NOT_FOUND, "guarded: process %lld shares no memory by this handle",
                              (long long)shared->process);
  }
  *file = open(path, O_RDWR | O_CLOEXEC);
  if (*file < 0) {
    return guarded_host->fail(HY_UNAVAILABLE, "guarded: memory of process %lld cannot be opened",
                              (long long)shared->process);
  }
  off_t size = lseek(*file, 0, SEEK_END);
  if (size >= 0 && shared->offset % page == 0 && shared->offset <= (uint64_t)size &&
      shared->bytes <= (uint64_t)size - shared->offset) {
    return HY_OK;
  }
  close(*file);
  return guarded_host->fail(HY_FORMAT, "guarded: the handle reaches beyond the memory it names");
}

hy_status guarded_memory_import(guarded_memory* memory, const hy_memory_blob* blob,
                                void** address) {
  shared_extent shared;
  memcpy(&shared, blob, sizeof shared);
  if (memcmp(shared.magic, magic, sizeof magic) != 0 || shared.bytes == 0) {
    return guarded_host->fail(HY_FORMAT, "guarded: this is no handle of this backend");
  }
  if (shared.process == getpid()) {
    return guarded_host->fail(HY_INVALID_ARGUMENT,
                              "guarded: the handle is of this process, and for others");
  }
  int file = -1;
  HY_TRY(open_shared(&shared, &file));
  pthread_mutex_lock(&memory->mutex);
  hy_status status = take(memory, shared.bytes, true, address);
  if (status == HY_OK) {
    char* at = memory->store + ((char*)*address - memory->window);
    if (mmap(at, whole_pages(shared.bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
             (off_t)shared.offset) == MAP_FAILED) {
      drop(memory, extent_at(memory, *address, true));
      status = guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: shared memory cannot be mapped");
    }
  }
  pthread_mutex_unlock(&memory->mutex);
  close(file);
  return status;
}

hy_status guarded_memory_unmap(guarded_memory* memory, void* address) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&memory->mutex);
  guarded_extent* extent = extent_at(memory, address, true);
  if (!extent) {
    status = guarded_host->fail(HY_INVALID_ARGUMENT, "guarded: %p was not imported", address);
  } else if (mmap(memory->store + extent->offset, whole_pages(extent->bytes),
                  PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, memory->file,
                  (off_t)extent->offset) == MAP_FAILED) {
    status = guarded_host->fail(HY_INTERNAL, "guarded: the memory's own file cannot be mapped");
  } else {
    drop(memory, extent);
  }
  pthread_mutex_unlock(&memory->mutex);
  return status;
}
