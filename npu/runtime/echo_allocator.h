// echo_allocator.h - physical device memory: best fit over address-ordered free extents that are
// joined when they touch. Knows addresses only. Thread-safe.
#ifndef ECHO_ALLOCATOR_H
#define ECHO_ALLOCATOR_H

#include <stdint.h>

#include "echo_npu_hw.h"

typedef struct echo_allocator echo_allocator;

// Area i is [base[i], limit[i]); address 0 is never given out. NULL without host memory.
echo_allocator* echo_allocator_create(const uint64_t base[ECHO_NPU_AREAS],
                                      const uint64_t limit[ECHO_NPU_AREAS]);
void echo_allocator_destroy(echo_allocator* a);

// A block of at least `bytes` in the area, aligned to 64; 0 when there is none or no host memory.
uint64_t echo_allocator_alloc(echo_allocator* a, int area, uint64_t bytes);
// Size of the block that starts at addr, which is freed; 0 when no live block starts there.
uint64_t echo_allocator_free(echo_allocator* a, uint64_t addr);
// Size of the live block that starts at addr, or 0.
uint64_t echo_allocator_size(echo_allocator* a, uint64_t addr);
// Bytes from addr to the end of the live block that holds it, or 0.
uint64_t echo_allocator_rest(echo_allocator* a, uint64_t addr);

uint64_t echo_allocator_free_bytes(echo_allocator* a);
uint64_t echo_allocator_total_bytes(const echo_allocator* a);
uint64_t echo_allocator_free_extents(echo_allocator* a);

#endif  // ECHO_ALLOCATOR_H
