// Test vendors: device memory. Addresses given out fault when the host follows them; the bytes are
// elsewhere, at the same offsets.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vendor.h"

enum { MAX_DEVICES = 8, ALIGNMENT = 512, GAP = 4096 };

typedef struct extent {
  size_t offset, bytes;
} extent;

static struct {
  char *window, *store;
  size_t size, used;
  extent* extents;  // in order
  size_t count, capacity;
} memories[MAX_DEVICES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static size_t memory_size(void) {
  const char* text = getenv("HALYARD_VENDOR_MEMORY");
  long mebibytes = text ? strtol(text, NULL, 10) : 0;
  return (size_t)(mebibytes > 0 ? mebibytes : 1024) << 20;
}

static bool open_memory(int device) {
  if (memories[device].window) return true;
  size_t size = memory_size();
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char* window = mmap(NULL, size, PROT_NONE, flags, -1, 0);
  char* store = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (window == MAP_FAILED || store == MAP_FAILED) return false;
  memories[device].window = window;
  memories[device].store = store;
  memories[device].size = size;
  return true;
}

static void* take(int device, size_t bytes) {
  if (!open_memory(device)) return NULL;
  if (memories[device].count == memories[device].capacity) {
    size_t capacity = memories[device].capacity ? 2 * memories[device].capacity : 64;
    extent* extents = realloc(memories[device].extents, capacity * sizeof *extents);
    if (!extents) return NULL;
    memories[device].extents = extents;
    memories[device].capacity = capacity;
  }
  extent* e = memories[device].extents;
  size_t at = 0, offset = 0, count = memories[device].count;
  while (at < count && e[at].offset < offset + bytes + GAP) {
    offset = e[at].offset + e[at].bytes + GAP;
    offset = (offset + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    at++;
  }
  if (bytes > memories[device].size || offset > memories[device].size - bytes) return NULL;
  memmove(e + at + 1, e + at, (count - at) * sizeof *e);
  e[at] = (extent){offset, bytes};
  memories[device].count++;
  memories[device].used += bytes;
  // What is there is nobody's: a careless reader sees NaN.
  memset(memories[device].store + offset, 0xff, bytes);
  return memories[device].window + offset;
}

void* vendor_memory_take(int device, size_t bytes) {
  pthread_mutex_lock(&mutex);
  void* address = take(device, bytes ? bytes : 1);
  pthread_mutex_unlock(&mutex);
  return address;
}

// The extent that holds the offset, or -1.
static long extent_of(int device, size_t offset) {
  const extent* e = memories[device].extents;
  size_t low = 0, high = memories[device].count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (e[middle].offset + e[middle].bytes <= offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low < memories[device].count && e[low].offset <= offset ? (long)low : -1;
}

static size_t offset_of(int device, const void* address) {
  return (size_t)((uintptr_t)address - (uintptr_t)memories[device].window);
}

bool vendor_memory_give(int device, void* address) {
  pthread_mutex_lock(&mutex);
  size_t offset = offset_of(device, address);
  long at = memories[device].window ? extent_of(device, offset) : -1;
  bool begins = at >= 0 && memories[device].extents[at].offset == offset;
  if (begins) {
    extent* e = memories[device].extents + at;
    memories[device].used -= e->bytes;
    memories[device].count--;
    memmove(e, e + 1, (memories[device].count - (size_t)at) * sizeof *e);
  }
  pthread_mutex_unlock(&mutex);
  return begins;
}

char* vendor_memory_reach(int device, const void* address, size_t bytes) {
  char* found = NULL;
  pthread_mutex_lock(&mutex);
  size_t offset = offset_of(device, address);
  long at = memories[device].window ? extent_of(device, offset) : -1;
  if (at >= 0) {
    const extent* e = memories[device].extents + at;
    if (bytes <= e->offset + e->bytes - offset) found = memories[device].store + offset;
  }
  pthread_mutex_unlock(&mutex);
  return found;
}

int vendor_memory_owner(const void* address) {
  int owner = -1;
  pthread_mutex_lock(&mutex);
  for (int d = 0; d < MAX_DEVICES; d++)
    if (memories[d].window && offset_of(d, address) < memories[d].size) owner = d;
  pthread_mutex_unlock(&mutex);
  return owner;
}

void vendor_memory_sizes(int device, size_t* free_bytes, size_t* total) {
  pthread_mutex_lock(&mutex);
  *total = memory_size();
  *free_bytes = *total - memories[device].used;
  pthread_mutex_unlock(&mutex);
}
