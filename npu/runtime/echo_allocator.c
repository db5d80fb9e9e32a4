// echo_allocator.c - best-fit allocator: two sorted arrays, free extents and areas in use.
#include "echo_allocator.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct extent {
  uint64_t addr, bytes;
} extent;

// A table of disjoint extents, sorted by address.
typedef struct table {
  extent* at;
  size_t count, capacity;
} table;

struct echo_allocator {
  pthread_mutex_t lock;
  table free, live;
  uint64_t base[ECHO_NPU_AREAS], limit[ECHO_NPU_AREAS];
};

// Number of extents that start at or below addr.
static size_t rank(const table* t, uint64_t addr) {
  size_t low = 0, high = t->count;
  while (low < high) {
    size_t mid = (low + high) / 2;
    if (t->at[mid].addr <= addr)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

static int reserve(table* t, size_t more) {
  if (t->count + more <= t->capacity) return 0;
  size_t capacity = t->capacity ? 2 * t->capacity : 64;
  extent* grown = realloc(t->at, capacity * sizeof *grown);
  if (!grown) return -1;
  t->at = grown;
  t->capacity = capacity;
  return 0;
}

static void insert(table* t, size_t i, extent e) {
  memmove(t->at + i + 1, t->at + i, (t->count - i) * sizeof *t->at);
  t->at[i] = e;
  ++t->count;
}

static void erase(table* t, size_t i) {
  memmove(t->at + i, t->at + i + 1, (t->count - i - 1) * sizeof *t->at);
  --t->count;
}

echo_allocator* echo_allocator_create(const uint64_t base[ECHO_NPU_AREAS],
                                      const uint64_t limit[ECHO_NPU_AREAS]) {
  echo_allocator* a = calloc(1, sizeof *a);
  if (!a) return NULL;
  if (reserve(&a->free, ECHO_NPU_AREAS) != 0) {
    free(a);
    return NULL;
  }
  for (int i = 0; i < ECHO_NPU_AREAS; ++i) {
    uint64_t from = base[i] ? base[i] : ECHO_NPU_ALIGN;
    a->base[i] = from;
    a->limit[i] = limit[i] & ~(uint64_t)(ECHO_NPU_ALIGN - 1);
    if (from < a->limit[i]) insert(&a->free, a->free.count, (extent){from, a->limit[i] - from});
  }
  pthread_mutex_init(&a->lock, NULL);
  return a;
}

void echo_allocator_destroy(echo_allocator* a) {
  if (!a) return;
  pthread_mutex_destroy(&a->lock);
  free(a->free.at);
  free(a->live.at);
  free(a);
}

uint64_t echo_allocator_alloc(echo_allocator* a, int area, uint64_t bytes) {
  if (bytes == 0 || bytes > ECHO_NPU_HIGH_MAX) return 0;
  bytes = (bytes + ECHO_NPU_ALIGN - 1) & ~(uint64_t)(ECHO_NPU_ALIGN - 1);
  uint64_t addr = 0;
  pthread_mutex_lock(&a->lock);
  size_t best = a->free.count;
  for (size_t i = 0; i < a->free.count; ++i) {
    const extent* e = &a->free.at[i];
    if (e->addr < a->base[area] || e->addr >= a->limit[area] || e->bytes < bytes) continue;
    if (best == a->free.count || e->bytes < a->free.at[best].bytes) best = i;
  }
  if (best < a->free.count && reserve(&a->live, 1) == 0) {
    extent* e = &a->free.at[best];
    addr = e->addr;
    e->addr += bytes;
    e->bytes -= bytes;
    if (e->bytes == 0) erase(&a->free, best);
    insert(&a->live, rank(&a->live, addr), (extent){addr, bytes});
  }
  pthread_mutex_unlock(&a->lock);
  return addr;
}

// Areas are never joined to each other even when they touch.
static int same_area(const echo_allocator* a, uint64_t left, uint64_t right) {
  for (int i = 0; i < ECHO_NPU_AREAS; ++i)
    if (left >= a->base[i] && left < a->limit[i]) return right < a->limit[i];
  return 0;
}

uint64_t echo_allocator_free(echo_allocator* a, uint64_t addr) {
  uint64_t bytes = 0;
  pthread_mutex_lock(&a->lock);
  size_t i = rank(&a->live, addr);
  if (i > 0 && a->live.at[i - 1].addr == addr) {
    extent e = a->live.at[i - 1];
    size_t at = rank(&a->free, addr);
    extent* left = at > 0 ? &a->free.at[at - 1] : NULL;
    extent* right = at < a->free.count ? &a->free.at[at] : NULL;
    int join_left = left && left->addr + left->bytes == addr && same_area(a, left->addr, addr);
    int join_right = right && addr + e.bytes == right->addr && same_area(a, addr, right->addr);
    if (join_left || join_right || reserve(&a->free, 1) == 0) {
      bytes = e.bytes;
      erase(&a->live, i - 1);
      if (join_left && join_right) {
        left->bytes += e.bytes + right->bytes;
        erase(&a->free, at);
      } else if (join_left) {
        left->bytes += e.bytes;
      } else if (join_right) {
        right->addr = addr;
        right->bytes += e.bytes;
      } else {
        insert(&a->free, at, e);
      }
    }
  }
  pthread_mutex_unlock(&a->lock);
  return bytes;
}

uint64_t echo_allocator_rest(echo_allocator* a, uint64_t addr) {
  uint64_t rest = 0;
  pthread_mutex_lock(&a->lock);
  size_t i = rank(&a->live, addr);
  if (i > 0) {
    extent e = a->live.at[i - 1];
    if (addr - e.addr < e.bytes) rest = e.bytes - (addr - e.addr);
  }
  pthread_mutex_unlock(&a->lock);
  return rest;
}

uint64_t echo_allocator_size(echo_allocator* a, uint64_t addr) {
  uint64_t bytes = 0;
  pthread_mutex_lock(&a->lock);
  size_t i = rank(&a->live, addr);
  if (i > 0 && a->live.at[i - 1].addr == addr) bytes = a->live.at[i - 1].bytes;
  pthread_mutex_unlock(&a->lock);
  return bytes;
}

uint64_t echo_allocator_free_bytes(echo_allocator* a) {
  uint64_t sum = 0;
  pthread_mutex_lock(&a->lock);
  for (size_t i = 0; i < a->free.count; ++i) sum += a->free.at[i].bytes;
  pthread_mutex_unlock(&a->lock);
  return sum;
}

uint64_t echo_allocator_free_extents(echo_allocator* a) {
  pthread_mutex_lock(&a->lock);
  uint64_t n = a->free.count;
  pthread_mutex_unlock(&a->lock);
  return n;
}

uint64_t echo_allocator_total_bytes(const echo_allocator* a) {
  uint64_t sum = 0;
  for (int i = 0; i < ECHO_NPU_AREAS; ++i)
    if (a->limit[i] > a->base[i]) sum += a->limit[i] - a->base[i];
  return sum;
}
