// HALYARD_DEBUG: poisoned memory, bounds of allocations, a queue that runs behind. Works on any
// backend, through the functions that every backend has; slow.
#ifndef HALYARD_CORE_DEBUG_H_
#define HALYARD_CORE_DEBUG_H_

#include "core/internal.h"

enum {
  HY__DEBUG_POISON = 1,  // fresh memory holds NaN
  HY__DEBUG_BOUNDS = 2,  // a zone behind each allocation, looked at after each op and when freed
  HY__DEBUG_DELAY = 4,   // work in front of each copy and op, so that what does not wait is seen
};

extern atomic_int hy__debug_flags;
// Those of the process; 0, at the cost of one relaxed load, unless somebody asks. Whoever is on a
// hot path asks this before calling anything below.
static inline int hy__debug(void) {
  return atomic_load_explicit(&hy__debug_flags, memory_order_relaxed);
}
// Reads HALYARD_DEBUG; a word that means nothing is an error.
hy_status hy__debug_init(void);

// How much more than asked for to allocate.
size_t hy__debug_extra(const hy_stream* stream);
// Prepares memory that was just allocated on the stream.
hy_status hy__debug_allocated(hy_stream* stream, void* address, size_t bytes);
// Waits for the device and looks behind the allocation that `address` is in: HY_DEVICE_FAILED where
// something was written there, by `who`. With `forget`, the allocation is about to be freed.
hy_status hy__debug_check(hy_device* device, const void* address, const char* who, bool forget);
// Makes the stream busy for a while.
void hy__debug_delay(hy_stream* stream);

#endif  // HALYARD_CORE_DEBUG_H_
