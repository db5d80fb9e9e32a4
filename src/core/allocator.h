// The caching allocator's own parts, shared by allocator.c (how blocks live) and memory.c (the
// public functions around it).
//
// Memory is taken from the backend in segments. A segment is cut into blocks, which are merged with
// free neighbours when they come back. Free blocks are in bins by size, one set of bins per stream
// (a cache) and pool, because memory freed on a stream may be reused at once on that stream alone.
// All of this is kept in host memory: the device's own is never touched. Taking from the cache and
// giving back cost the same however many blocks there are.
#ifndef HALYARD_CORE_ALLOCATOR_H_
#define HALYARD_CORE_ALLOCATOR_H_

#include "core/internal.h"
#include "core/ranges.h"

#define HY__ALIGNMENT 64

// Blocks of at least 64 bytes, in bins that are 1/32 of a power of two wide.
enum { HY__SUB_LOG = 5, HY__SUBS = 1 << HY__SUB_LOG, HY__LEVELS = 40, HY__MAX_LOG = 48 };
// Small blocks get segments of their own, so that they do not split the memory of large ones.
typedef enum hy__pool { HY__POOL_SMALL, HY__POOL_LARGE, HY__POOLS } hy__pool;

typedef struct hy__segment {
  void* address;
  size_t size;
  hy__pool pool;
  int64_t busy;                   // blocks that are not free
  bool exported;                  // another process may use it: never goes back to the backend
  struct hy__alloc_block* first;  // by address
} hy__segment;

typedef struct hy__alloc_block {
  uintptr_t address;
  size_t size;
  struct hy__alloc_cache* cache;
  hy__segment* segment;
  struct hy__alloc_block *before, *after;   // neighbours in the segment
  struct hy__alloc_block *previous, *next;  // in the bin; `next` also links unused metadata
  uint64_t users;    // bit n: used on the streams of caches numbered n modulo 64 as well
  int32_t awaiting;  // events that must pass before the block is free
  bool free;
} hy__alloc_block;

typedef struct hy__bins {
  uint64_t levels;  // bit l: some bin of level l holds a block
  uint32_t subs[HY__LEVELS];
  hy__alloc_block* heads[HY__LEVELS][HY__SUBS];
} hy__bins;

// A block that work on the cache's stream still used when it was freed.
typedef struct hy__pending {
  struct hy__pending* next;
  void* event;
  hy__alloc_block* block;
} hy__pending;

// Outlives its stream: the next stream takes it over, with the free memory in it. A graph's private
// cache is in no list, so that nobody else takes what is in it, and dies with the graph.
typedef struct hy__alloc_cache {
  struct hy__alloc_cache* next;
  int number;                    // a private cache has its home's
  struct hy__alloc_cache* home;  // of the stream that captured; NULL: not private
  int captures;                  // under way on its streams, which are idle meanwhile
  hy__capture* capture;          // of a private cache, while it is under way
  bool attached;
  void* stream;  // the backend's handle while attached
  hy__bins bins[HY__POOLS];
  hy__pending *first, *last;  // in the order of the stream
} hy__alloc_cache;

typedef struct hy__alloc_slot {
  uintptr_t address;  // 0: empty
  hy__alloc_block* block;
} hy__alloc_slot;

struct hy__allocator {
  hy__allocator* next;  // in the list of all allocators
  hy_device* device;
  pthread_mutex_t mutex;  // guards all below
  hy_memory_stats stats;
  hy__alloc_cache* caches;
  hy__ranges segments, raw, pinned, imports;
  hy__ranges fenced;      // HALYARD_DEBUG: allocations with a zone behind them
  void* delay;            // and memory that delays are spent on
  hy__alloc_slot* slots;  // blocks in use, by address: open addressing
  size_t n_slots, n_used;
  hy__alloc_block* spare;  // unused metadata
  struct hy__chunk* chunks;
  hy__pending* idle;  // nodes with an event each, for use again
  int64_t n_pending;
};

// Closes what hy_memory_import opened and nobody closed: memory_handle.c.
void hy__imports_close(hy__allocator* a);

// The caller holds the mutex in all of these.

hy_status hy__allocator_take(hy__allocator* a, hy__alloc_cache* cache, size_t bytes,
                             void** address);
// NULL when no block in use begins at `address`.
hy__alloc_block* hy__allocator_find(hy__allocator* a, const void* address);
// Takes back the block that begins at `address`, and tells its capture. False when none in use
// does.
bool hy__allocator_give(hy__allocator* a, void* address);
// Waits for the device, then returns every wholly free segment to the backend.
void hy__allocator_flush(hy__allocator* a);
// Returns all segments, used or not, and drops every table. The device's work is done.
void hy__allocator_clear(hy__allocator* a);

#endif  // HALYARD_CORE_ALLOCATOR_H_
