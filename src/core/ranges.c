// An ordered set of address ranges, for finding whose memory an address is.
#include "core/ranges.h"

#include <string.h>

#include "core/internal.h"

// How many ranges begin at or below `address`.
static size_t rank(const hy__ranges* set, uintptr_t address) {
  size_t low = 0, high = set->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (set->items[middle].begin <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

bool hy__ranges_reserve(hy__ranges* set) {
  if (set->count < set->capacity) return true;
  size_t capacity = set->capacity ? 2 * set->capacity : 16;
  hy__range* items = hy__realloc(set->items, capacity * sizeof *items);
  if (!items) return false;
  set->items = items;
  set->capacity = capacity;
  return true;
}

void hy__ranges_add(hy__ranges* set, const void* begin, size_t size, void* owner) {
  size_t at = rank(set, (uintptr_t)begin);
  memmove(set->items + at + 1, set->items + at, (set->count - at) * sizeof *set->items);
  set->items[at] = (hy__range){.begin = (uintptr_t)begin, .size = size, .owner = owner};
  set->count++;
}

hy__range* hy__ranges_find(const hy__ranges* set, const void* address) {
  size_t at = rank(set, (uintptr_t)address);
  if (at == 0) return NULL;
  hy__range* range = &set->items[at - 1];
  return (uintptr_t)address - range->begin < range->size ? range : NULL;
}

void hy__ranges_remove(hy__ranges* set, hy__range* range) {
  size_t at = (size_t)(range - set->items);
  set->count--;
  memmove(range, range + 1, (set->count - at) * sizeof *range);
}

void hy__ranges_clear(hy__ranges* set) {
  hy__mfree(set->items);
  *set = (hy__ranges){0};
}
