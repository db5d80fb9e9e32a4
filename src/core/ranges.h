// A sorted set of disjoint address ranges: which one is an address in? Not thread-safe.
#ifndef HALYARD_CORE_RANGES_H_
#define HALYARD_CORE_RANGES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hy__range {
  uintptr_t begin;
  size_t size;
  void* owner;
} hy__range;

typedef struct hy__ranges {
  hy__range* items;
  size_t count, capacity;
} hy__ranges;

// Makes room for one more range, so that the next add cannot fail. False when host memory is out.
bool hy__ranges_reserve(hy__ranges* set);
// There is room. Cost: linear in the ranges above it.
void hy__ranges_add(hy__ranges* set, const void* begin, size_t size, void* owner);
// The range that holds `address`, or NULL; valid until the set changes.
hy__range* hy__ranges_find(const hy__ranges* set, const void* address);
void hy__ranges_remove(hy__ranges* set, hy__range* range);
void hy__ranges_clear(hy__ranges* set);

#endif  // HALYARD_CORE_RANGES_H_
