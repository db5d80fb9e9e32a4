// Scratch memory per thread, kept from one kernel to the next.
#include "backends/cpu/runtime/scratch.h"

#include <pthread.h>
#include <stdlib.h>

#include "backends/cpu/runtime/huge_pages.h"
#include "base/memory.h"

typedef struct memory {
  void* data[HY__SCRATCH_COUNT];
  size_t bytes[HY__SCRATCH_COUNT];
} memory;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local memory* mine;

static void release(void* of_thread) {
  memory* m = of_thread;
  for (int i = 0; i < HY__SCRATCH_COUNT; i++) free(m->data[i]);
  hy__mfree(m);
  mine = NULL;
}

static void create_key(void) {
  pthread_key_create(&key, release);
}

static memory* of_thread(void) {
  if (mine) return mine;
  pthread_once(&once, create_key);
  memory* m = hy__calloc(1, sizeof *m);
  if (!m || pthread_setspecific(key, m) != 0) {
    hy__mfree(m);
    return NULL;
  }
  return mine = m;
}

void* hy__scratch_get(hy__scratch_slot slot, size_t bytes) {
  memory* m = of_thread();
  if (!m || hy__fault(HY_FAULT_HOST_ALLOCATION)) return NULL;
  if (m->bytes[slot] >= bytes) return m->data[slot];
  free(m->data[slot]);
  m->bytes[slot] = 0;
  m->data[slot] = hy__page_alloc(bytes);
  if (m->data[slot]) m->bytes[slot] = bytes;
  return m->data[slot];
}

void hy__scratch_release(void) {
  if (!mine) return;
  pthread_setspecific(key, NULL);
  release(mine);
}
