// Weight prefetch: which weights came next last time.
#include "backends/cpu/runtime/weight_prefetch.h"

#include <stdint.h>

typedef struct entry {
  const void* from;         // what was read
  hy__prefetch_range next;  // what was read after it
} entry;

enum { BITS = 8 };
static _Thread_local entry entries[1 << BITS];
static _Thread_local const void* last;

static entry* entry_of(const void* data) {
  return &entries[((uint64_t)(uintptr_t)data * 0x9e3779b97f4a7c15u) >> (64 - BITS)];
}

void hy__weight_prefetch(const hy__prefetch_range* reading) {
  *entry_of(last) = (entry){last, *reading};
  last = reading->data;
  const entry* here = entry_of(last);
  if (here->from == last) hy__pool_prefetch(&here->next);
}
