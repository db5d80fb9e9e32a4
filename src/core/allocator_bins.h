// Bins of the caching allocator: free blocks by size, found in constant time (two-level segregated
// fit). Part of allocator.c, whose hot path it is.
#ifndef HALYARD_CORE_ALLOCATOR_BINS_H_
#define HALYARD_CORE_ALLOCATOR_BINS_H_

#include "core/allocator.h"

enum { HY__BIN_SCAN = 16 };  // blocks of one bin that are looked through

static int hy__floor_log2(uint64_t x) {
  return 63 - __builtin_clzll(x);
}

static void hy__bin_of(size_t size, int* level, int* sub) {
  uint64_t units = size / HY__ALIGNMENT;
  if (units < HY__SUBS) {
    *level = 0;
    *sub = (int)units;
  } else {
    int log = hy__floor_log2(units);
    *level = log - HY__SUB_LOG + 1;
    *sub = (int)(units >> (log - HY__SUB_LOG)) - HY__SUBS;
  }
}

static void hy__bins_insert(hy__bins* bins, hy__alloc_block* block) {
  int level, sub;
  hy__bin_of(block->size, &level, &sub);
  hy__alloc_block** head = &bins->heads[level][sub];
  block->previous = NULL;
  block->next = *head;
  if (*head) (*head)->previous = block;
  *head = block;
  bins->subs[level] |= 1u << sub;
  bins->levels |= 1ull << level;
}

static void hy__bins_remove(hy__bins* bins, hy__alloc_block* block) {
  if (block->next) block->next->previous = block->previous;
  if (block->previous) {
    block->previous->next = block->next;
    return;
  }
  int level, sub;
  hy__bin_of(block->size, &level, &sub);
  bins->heads[level][sub] = block->next;
  if (block->next) return;
  bins->subs[level] &= ~(1u << sub);
  if (!bins->subs[level]) bins->levels &= ~(1ull << level);
}

static hy__alloc_block* hy__bins_find(const hy__bins* bins, size_t size) {
  int level, sub;
  hy__bin_of(size, &level, &sub);
  hy__alloc_block* block = bins->heads[level][sub];
  for (int i = 0; block && i < HY__BIN_SCAN; i++, block = block->next) {
    if (block->size >= size) return block;
  }
  // Whatever is in a higher bin fits.
  uint32_t subs = sub + 1 < HY__SUBS ? bins->subs[level] & (~0u << (sub + 1)) : 0;
  if (!subs) {
    uint64_t levels = bins->levels & (~0ull << (level + 1));
    if (!levels) return NULL;
    level = __builtin_ctzll(levels);
    subs = bins->subs[level];
  }
  return bins->heads[level][__builtin_ctz(subs)];
}

#endif  // HALYARD_CORE_ALLOCATOR_BINS_H_
