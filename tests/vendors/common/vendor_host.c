// Test vendors: pinned host memory, and copies, which only it may be part of when they are
// asynchronous.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "vendor.h"

typedef struct pinned {
  struct pinned* next;
  char* memory;
  size_t bytes;
} pinned;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pinned* list;

void* vendor_host_take(size_t bytes) {
  pinned* p = malloc(sizeof *p);
  if (!p || posix_memalign((void**)&p->memory, 64, bytes)) {
    free(p);
    return NULL;
  }
  p->bytes = bytes;
  pthread_mutex_lock(&mutex);
  p->next = list;
  list = p;
  pthread_mutex_unlock(&mutex);
  return p->memory;
}

bool vendor_host_give(void* address) {
  pthread_mutex_lock(&mutex);
  pinned** link = &list;
  while (*link && (*link)->memory != address) link = &(*link)->next;
  pinned* p = *link;
  if (p) *link = p->next;
  pthread_mutex_unlock(&mutex);
  if (!p) return false;
  free(p->memory);
  free(p);
  return true;
}

static bool is_pinned(const void* at, size_t bytes) {
  const char* from = at;
  pthread_mutex_lock(&mutex);
  const pinned* p = list;
  while (p && !(from >= p->memory && from + bytes <= p->memory + p->bytes)) p = p->next;
  pthread_mutex_unlock(&mutex);
  return p != NULL;
}

char* vendor_side(const char* call, int device, const void* at, size_t bytes, bool must_pin) {
  if (device >= 0) {
    char* found = vendor_memory_reach(device, at, bytes);
    if (!found)
      vendor_misuse("%s: %zu bytes at %p are in no allocation of device %d", call, bytes, at,
                    device);
    return found;
  }
  if (vendor_memory_owner(at) >= 0) {
    vendor_misuse("%s: %p is device memory and was called the host's", call, at);
    return NULL;
  }
  if (must_pin && !is_pinned(at, bytes)) {
    vendor_misuse("%s: host memory of an asynchronous copy must be the vendor's own", call);
    return NULL;
  }
  return (char*)at;
}

typedef struct copy {
  char* dst;
  const char* src;
  size_t bytes;
  int value;
} copy;

static int run_copy(void* context) {
  const copy* c = context;
  memmove(c->dst, c->src, c->bytes);
  return 0;
}

static int run_set(void* context) {
  const copy* c = context;
  memset(c->dst, c->value, c->bytes);
  return 0;
}

void vendor_queue_copy(vendor_queue* queue, char* dst, const char* src, size_t bytes) {
  copy c = {.dst = dst, .src = src, .bytes = bytes};
  vendor_queue_push(queue, run_copy, &c, sizeof c);
}

void vendor_queue_set(vendor_queue* queue, char* dst, int value, size_t bytes) {
  copy c = {.dst = dst, .bytes = bytes, .value = value};
  vendor_queue_push(queue, run_set, &c, sizeof c);
}
