// The caching allocator: segments from the backend, split into blocks, reused by stream order
// and events.
#include "core/allocator.h"

#include <stdio.h>

#include "core/allocator_bins.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { CHUNK_BLOCKS = 128 };

typedef struct hy__chunk {
  struct hy__chunk* next;
  hy__alloc_block blocks[CHUNK_BLOCKS];
} hy__chunk;

// ---- sizes ----

// Up to 2 MiB a size is on the lower edge of its bin, so that the first block there fits; above,
// that would waste too much, and the few blocks of a bin are looked through.
static size_t round_size(size_t bytes) {
  size_t grain = HY__ALIGNMENT;
  if (bytes > HY__ALIGNMENT << (HY__SUB_LOG + 1)) {
    grain = (size_t)1 << (hy__floor_log2(bytes - 1) - HY__SUB_LOG);
    if (grain > 64 * KIB) grain = 64 * KIB;
  }
  return bytes ? (bytes + grain - 1) & ~(grain - 1) : grain;
}

static size_t segment_size(size_t size) {
  if (size <= MIB) return 2 * MIB;
  if (size < 10 * MIB) return 20 * MIB;
  return (size + 2 * MIB - 1) & ~(2 * MIB - 1);
}

// ---- metadata ----

static hy__alloc_block* block_new(hy__allocator* a) {
  if (!a->spare) {
    hy__chunk* chunk = hy__malloc(sizeof *chunk);
    if (!chunk) return NULL;
    chunk->next = a->chunks;
    a->chunks = chunk;
    for (int i = 0; i < CHUNK_BLOCKS; i++) {
      chunk->blocks[i].next = a->spare;
      a->spare = &chunk->blocks[i];
    }
  }
  hy__alloc_block* block = a->spare;
  a->spare = block->next;
  return block;
}

static void block_delete(hy__allocator* a, hy__alloc_block* block) {
  block->next = a->spare;
  a->spare = block;
}

// ---- blocks in use, by address ----

static size_t slot_of(const hy__allocator* a, uintptr_t address) {
  uint64_t hash = (uint64_t)(address / HY__ALIGNMENT) * 0x9e3779b97f4a7c15ull;
  return (size_t)(hash >> 32) & (a->n_slots - 1);
}

static void slots_insert(hy__allocator* a, hy__alloc_block* block) {
  size_t i = slot_of(a, block->address);
  while (a->slots[i].address) i = (i + 1) & (a->n_slots - 1);
  a->slots[i] = (hy__alloc_slot){.address = block->address, .block = block};
  a->n_used++;
}

// Makes room for one more, so that an insert cannot fail.
static bool slots_reserve(hy__allocator* a) {
  if (2 * (a->n_used + 1) <= a->n_slots) return true;
  size_t n_old = a->n_slots;
  hy__alloc_slot* old = a->slots;
  hy__alloc_slot* slots = hy__calloc(n_old ? 2 * n_old : 256, sizeof *slots);
  if (!slots) return false;
  a->slots = slots;
  a->n_slots = n_old ? 2 * n_old : 256;
  a->n_used = 0;
  for (size_t i = 0; i < n_old; i++) {
    if (old[i].address) slots_insert(a, old[i].block);
  }
  hy__mfree(old);
  return true;
}

static hy__alloc_slot* slots_find(hy__allocator* a, uintptr_t address) {
  if (!a->n_used || !address) return NULL;
  size_t i = slot_of(a, address);
  while (a->slots[i].address && a->slots[i].address != address) i = (i + 1) & (a->n_slots - 1);
  return a->slots[i].address ? &a->slots[i] : NULL;
}

// Closes the gap, so that no search stops early at it.
static void slots_remove(hy__allocator* a, hy__alloc_slot* slot) {
  size_t mask = a->n_slots - 1;
  size_t hole = (size_t)(slot - a->slots);
  for (size_t i = (hole + 1) & mask; a->slots[i].address; i = (i + 1) & mask) {
    size_t home = slot_of(a, a->slots[i].address);
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    a->slots[hole] = a->slots[i];
    hole = i;
  }
  a->slots[hole].address = 0;
  a->n_used--;
}

hy__alloc_block* hy__allocator_find(hy__allocator* a, const void* address) {
  hy__alloc_slot* slot = slots_find(a, (uintptr_t)address);
  return slot ? slot->block : NULL;
}

// ---- blocks: cutting and merging ----

// Makes `left` take in its right neighbour, which is in no bin.
static void absorb_after(hy__allocator* a, hy__alloc_block* left) {
  hy__alloc_block* right = left->after;
  left->size += right->size;
  left->after = right->after;
  if (right->after) right->after->before = left;
  block_delete(a, right);
}

// Puts a block that nobody uses any more into its cache.
static void block_release(hy__allocator* a, hy__alloc_block* block) {
  hy__bins* bins = &block->cache->bins[block->segment->pool];
  block->segment->busy--;
  hy__alloc_block* after = block->after;
  if (after && after->free && after->cache == block->cache) {
    hy__bins_remove(bins, after);
    absorb_after(a, block);
  }
  hy__alloc_block* before = block->before;
  if (before && before->free && before->cache == block->cache) {
    hy__bins_remove(bins, before);
    absorb_after(a, before);
    block = before;
  }
  block->free = true;
  hy__bins_insert(bins, block);
}

// Takes a free block of the cache into use and cuts it to size. Without metadata for the rest, the
// block stays whole.
static void block_acquire(hy__allocator* a, hy__alloc_block* block, size_t size) {
  hy__bins* bins = &block->cache->bins[block->segment->pool];
  hy__bins_remove(bins, block);
  block->free = false;
  block->users = 0;
  block->awaiting = 0;
  block->segment->busy++;
  size_t least = block->segment->pool == HY__POOL_SMALL ? HY__ALIGNMENT : 64 * KIB;
  if (block->size - size < least) return;
  hy__alloc_block* rest = block_new(a);
  if (!rest) return;
  *rest = (hy__alloc_block){.address = block->address + size,
                            .size = block->size - size,
                            .cache = block->cache,
                            .segment = block->segment,
                            .before = block,
                            .after = block->after,
                            .free = true};
  if (rest->after) rest->after->before = rest;
  block->after = rest;
  block->size = size;
  hy__bins_insert(bins, rest);
}

// ---- work that outlives a free ----

static void pending_pop(hy__allocator* a, hy__alloc_cache* cache) {
  hy__pending* pending = cache->first;
  cache->first = pending->next;
  if (!cache->first) cache->last = NULL;
  hy__alloc_block* block = pending->block;
  pending->next = a->idle;
  a->idle = pending;
  a->n_pending--;
  if (--block->awaiting == 0) block_release(a, block);
}

static void poll_pending(hy__allocator* a) {
  const hy_device* device = a->device;
  for (hy__alloc_cache* cache = a->caches; cache; cache = cache->next) {
    // An event that fails belongs to work that will not touch the memory any more.
    while (cache->first &&
           device->backend->event_query(device->handle, cache->first->event) != HY_NOT_READY) {
      pending_pop(a, cache);
    }
  }
}

static bool pending_push(hy__allocator* a, hy__alloc_cache* cache, hy__alloc_block* block) {
  const hy_device* device = a->device;
  if (!a->idle) {
    hy__pending* fresh = hy__malloc(sizeof *fresh);
    if (!fresh) return false;
    if (device->backend->event_create(device->handle, &fresh->event) != HY_OK) {
      hy__mfree(fresh);
      return false;
    }
    fresh->next = NULL;
    a->idle = fresh;
  }
  hy__pending* pending = a->idle;
  if (device->backend->event_record(device->handle, pending->event, cache->stream) != HY_OK) {
    return false;
  }
  a->idle = pending->next;
  pending->next = NULL;
  pending->block = block;
  if (cache->last) {
    cache->last->next = pending;
  } else {
    cache->first = pending;
  }
  cache->last = pending;
  block->awaiting++;
  a->n_pending++;
  return true;
}

bool hy__allocator_give(hy__allocator* a, void* address) {
  hy__alloc_slot* slot = slots_find(a, (uintptr_t)address);
  if (!slot) return false;
  hy__alloc_block* block = slot->block;
  hy__capture* capture = block->cache->capture;
  if (capture) capture->memory(capture, address, 0, false);
  slots_remove(a, slot);
  a->stats.frees++;
  a->stats.allocated -= block->size;
  if (block->users) {
    for (hy__alloc_cache* cache = a->caches; cache; cache = cache->next) {
      if (!cache->attached || cache->captures || cache == block->cache) continue;
      if (!(block->users >> (cache->number % 64) & 1)) continue;
      // Where the moment cannot be marked, wait for it.
      if (!pending_push(a, cache, block)) a->device->backend->device_sync(a->device->handle);
    }
    if (block->awaiting) return true;
  }
  block_release(a, block);
  return true;
}

// ---- segments ----

// Whether nobody can ask for the memory of a segment any more.
static bool may_return(const hy__segment* segment) {
  if (segment->busy || segment->exported) return false;
  for (const hy__alloc_block* block = segment->first; block; block = block->after) {
    if (block->cache->home) return false;  // a graph writes there when it is launched
  }
  return true;
}

void hy__allocator_flush(hy__allocator* a) {
  const hy_device* device = a->device;
  if (!a->segments.count) return;
  if (!device->is_host) {
    // A device that fails here does no more work either.
    device->backend->device_sync(device->handle);
    for (hy__alloc_cache* cache = a->caches; cache; cache = cache->next) {
      while (cache->first) pending_pop(a, cache);
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < a->segments.count; i++) {
    hy__segment* segment = a->segments.items[i].owner;
    if (!may_return(segment)) {
      a->segments.items[kept++] = a->segments.items[i];
      continue;
    }
    for (hy__alloc_block *block = segment->first, *after; block; block = after) {
      after = block->after;
      hy__bins_remove(&block->cache->bins[segment->pool], block);
      block_delete(a, block);
    }
    device->backend->memory_free(device->handle, segment->address);
    a->stats.reserved -= segment->size;
    hy__mfree(segment);
  }
  a->segments.count = kept;
}

// Memory from the backend within the limit.
static hy_status segment_memory(hy__allocator* a, size_t size, void** address) {
  const hy_device* device = a->device;
  hy_memory_stats* stats = &a->stats;
  if (stats->limit && (size > stats->limit || stats->reserved > stats->limit - size)) {
    return HY_OUT_OF_MEMORY;
  }
  HY_TRY(device->backend->memory_alloc(device->handle, size, address));
  if (!*address || (uintptr_t)*address % HY__ALIGNMENT) {
    if (*address) device->backend->memory_free(device->handle, *address);
    return hy_fail(HY_DEVICE_FAILED,
                   "%s: the backend gave %p as memory, which is not an address aligned to %d",
                   device->selector, *address, HY__ALIGNMENT);
  }
  stats->backend_allocations++;
  stats->reserved += size;
  if (stats->reserved > stats->reserved_peak) stats->reserved_peak = stats->reserved;
  return HY_OK;
}

static void describe_bytes(uint64_t bytes, char text[32]) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double value = (double)bytes;
  while (value >= 1024 && unit < 4) value /= 1024, unit++;
  snprintf(text, 32, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
}

static hy_status out_of_memory(hy__allocator* a, size_t bytes) {
  const hy_device* device = a->device;
  uint64_t free_bytes = 0, total_bytes = 0;
  device->backend->memory_info(device->handle, &free_bytes, &total_bytes);
  char wanted[32], allocated[32], reserved[32], limit[32] = "none", unused[32], total[32];
  describe_bytes(bytes, wanted);
  describe_bytes(a->stats.allocated, allocated);
  describe_bytes(a->stats.reserved, reserved);
  if (a->stats.limit) describe_bytes(a->stats.limit, limit);
  describe_bytes(free_bytes, unused);
  describe_bytes(total_bytes, total);
  a->stats.out_of_memory++;
  return hy_fail(HY_OUT_OF_MEMORY,
                 "%s is out of memory: %s requested; %s allocated, %s reserved, limit %s; %s free "
                 "on the device of %s. Free tensors, use smaller batches or a smaller data type%s",
                 device->selector, wanted, allocated, reserved, limit, unused, total,
                 a->stats.limit ? ", or raise HALYARD_MEMORY_LIMIT" : "");
}

static hy_status host_memory_out(const hy__allocator* a) {
  return hy_fail(HY_OUT_OF_MEMORY, "%s: no host memory for the allocator's own tables",
                 a->device->selector);
}

// A free block that fits, from the cache of a stream that has nothing to do.
static hy__alloc_block* steal(hy__allocator* a, hy__alloc_cache* thief, hy__pool pool,
                              size_t size) {
  const hy_device* device = a->device;
  for (hy__alloc_cache* cache = a->caches; cache; cache = cache->next) {
    if (cache == thief) continue;
    hy__alloc_block* block = hy__bins_find(&cache->bins[pool], size);
    if (!block) continue;
    // A stream that captures was idle when it began, and must not be asked.
    if (cache->attached && !cache->captures &&
        device->backend->stream_query(device->handle, cache->stream) != HY_OK) {
      continue;
    }
    hy__bins_remove(&cache->bins[pool], block);
    block->cache = thief;
    hy__bins_insert(&thief->bins[pool], block);
    return block;
  }
  return NULL;
}

// What the cache does not hold: from an idle stream, from the backend, or after a flush. The block
// is in the cache's bins on return.
static hy_status miss(hy__allocator* a, hy__alloc_cache* cache, hy__pool pool, size_t size,
                      hy__alloc_block** found) {
  *found = steal(a, cache, pool, size);
  if (*found) return HY_OK;

  hy__segment* segment = hy__malloc(sizeof *segment);
  hy__alloc_block* block = block_new(a);
  hy_status status = HY_OK;
  if (!segment || !block || !hy__ranges_reserve(&a->segments)) {
    status = host_memory_out(a);
    goto fail;
  }
  size_t bytes = segment_size(size);
  void* address = NULL;
  status = segment_memory(a, bytes, &address);
  if (status == HY_OUT_OF_MEMORY && bytes != size) {
    bytes = size;
    status = segment_memory(a, bytes, &address);
  }
  if (status == HY_OUT_OF_MEMORY) {
    hy__allocator_flush(a);
    *found = hy__bins_find(&cache->bins[pool], size);
    if (!*found) *found = steal(a, cache, pool, size);
    if (!*found) status = segment_memory(a, bytes, &address);
    if (*found || status == HY_OK) a->stats.retries++;
  }
  if (*found) {
    status = HY_OK;
    goto fail;
  }
  if (status == HY_OUT_OF_MEMORY) status = out_of_memory(a, size);
  if (status != HY_OK) goto fail;

  *segment = (hy__segment){.address = address, .size = bytes, .pool = pool, .first = block};
  *block = (hy__alloc_block){.address = (uintptr_t)address,
                             .size = bytes,
                             .cache = cache,
                             .segment = segment,
                             .free = true};
  hy__ranges_add(&a->segments, address, bytes, segment);
  hy__bins_insert(&cache->bins[pool], block);
  *found = block;
  return HY_OK;

fail:
  if (block) block_delete(a, block);
  hy__mfree(segment);
  return status;
}

hy_status hy__allocator_take(hy__allocator* a, hy__alloc_cache* cache, size_t bytes,
                             void** address) {
  if (bytes > (size_t)1 << HY__MAX_LOG) return out_of_memory(a, bytes);
  size_t size = round_size(bytes);
  hy__pool pool = size <= MIB ? HY__POOL_SMALL : HY__POOL_LARGE;
  if (a->n_pending) poll_pending(a);
  if (!slots_reserve(a)) return host_memory_out(a);
  hy__alloc_block* block = hy__bins_find(&cache->bins[pool], size);
  if (!block) HY_TRY(miss(a, cache, pool, size, &block));
  block_acquire(a, block, size);
  slots_insert(a, block);
  a->stats.allocations++;
  a->stats.allocated += block->size;
  if (a->stats.allocated > a->stats.allocated_peak) a->stats.allocated_peak = a->stats.allocated;
  *address = (void*)block->address;
  return HY_OK;
}

// ---- caches ----

static hy__alloc_cache* cache_new(hy__allocator* a) {
  hy__alloc_cache* cache = hy__calloc(1, sizeof *cache);
  if (!cache) return NULL;
  cache->number = a->caches ? a->caches->number + 1 : 0;
  cache->next = a->caches;
  a->caches = cache;
  return cache;
}

hy_status hy__allocator_attach(hy__allocator* a, hy_stream* stream) {
  pthread_mutex_lock(&a->mutex);
  hy__alloc_cache* cache = stream->cache;
  if (!cache) {
    cache = a->caches;
    // Where calls finish before they return, all streams share what is free.
    if (!a->device->is_host) {
      while (cache && cache->attached) cache = cache->next;
    }
    if (!cache) cache = cache_new(a);
  }
  if (cache) {
    while (cache->first) pending_pop(a, cache);
    cache->attached = true;
    cache->stream = stream->handle;
    stream->cache = cache;
  }
  pthread_mutex_unlock(&a->mutex);
  return cache ? HY_OK : host_memory_out(a);
}

void hy__allocator_detach(hy__allocator* a, hy_stream* stream) {
  if (!stream->cache) return;
  pthread_mutex_lock(&a->mutex);
  if (!a->device->is_host) {
    while (stream->cache->first) pending_pop(a, stream->cache);
    stream->cache->attached = false;
    stream->cache->stream = NULL;
  }
  pthread_mutex_unlock(&a->mutex);
  stream->cache = NULL;
}

// ---- private caches, for graphs ----

hy_status hy__allocator_capture_begin(hy__allocator* a, hy_stream* stream, hy__capture* capture) {
  hy__alloc_cache* private = hy__calloc(1, sizeof *private);
  if (!private) return host_memory_out(a);
  pthread_mutex_lock(&a->mutex);
  private->home = stream->cache;
  private->number = stream->cache->number;
  private->capture = capture;
  stream->cache->captures++;
  stream->cache = private;
  pthread_mutex_unlock(&a->mutex);
  return HY_OK;
}

hy__alloc_cache* hy__allocator_capture_end(hy__allocator* a, hy_stream* stream) {
  pthread_mutex_lock(&a->mutex);
  hy__alloc_cache* private = stream->cache;
  private->capture = NULL;
  stream->cache = private->home;
  stream->cache->captures--;
  pthread_mutex_unlock(&a->mutex);
  return private;
}

uint64_t hy__allocator_private_bytes(hy__allocator* a, const hy__alloc_cache* private) {
  uint64_t bytes = 0;
  pthread_mutex_lock(&a->mutex);
  for (size_t i = 0; i < a->segments.count; i++) {
    const hy__segment* segment = a->segments.items[i].owner;
    for (const hy__alloc_block* block = segment->first; block; block = block->after) {
      if (block->cache == private) bytes += block->size;
    }
  }
  pthread_mutex_unlock(&a->mutex);
  return bytes;
}

void hy__allocator_private_release(hy__allocator* a, hy__alloc_cache* private) {
  if (!private) return;
  pthread_mutex_lock(&a->mutex);
  for (size_t i = 0; i < a->segments.count; i++) {
    hy__segment* segment = a->segments.items[i].owner;
    for (hy__alloc_block* block = segment->first; block; block = block->after) {
      if (block->cache != private) continue;
      block->cache = private->home;
      if (!block->free) continue;
      hy__alloc_block* before = block->before;
      bool merges = before && before->free && before->cache == block->cache;
      hy__bins_remove(&private->bins[segment->pool], block);
      segment->busy++;
      block_release(a, block);
      if (merges) block = before;
    }
  }
  pthread_mutex_unlock(&a->mutex);
  hy__mfree(private);
}

void hy__allocator_clear(hy__allocator* a) {
  const hy_device* device = a->device;
  for (hy__alloc_cache* cache = a->caches; cache; cache = cache->next) {
    while (cache->first) pending_pop(a, cache);
  }
  for (size_t i = 0; i < a->segments.count; i++) {
    hy__segment* segment = a->segments.items[i].owner;
    device->backend->memory_free(device->handle, segment->address);
    hy__mfree(segment);
  }
  hy__ranges_clear(&a->segments);
  for (hy__alloc_cache *cache = a->caches, *next; cache; cache = next) {
    next = cache->next;
    hy__mfree(cache);
  }
  for (hy__pending *pending = a->idle, *next; pending; pending = next) {
    next = pending->next;
    device->backend->event_destroy(device->handle, pending->event);
    hy__mfree(pending);
  }
  for (hy__chunk *chunk = a->chunks, *next; chunk; chunk = next) {
    next = chunk->next;
    hy__mfree(chunk);
  }
  hy__mfree(a->slots);
}
