// Huge pages: memory for tensors and scratch.
#ifndef HALYARD_CPU_RUNTIME_HUGE_PAGES_H_
#define HALYARD_CPU_RUNTIME_HUGE_PAGES_H_

#include <stddef.h>

// At least `bytes`, 64-byte aligned, uninitialised; NULL when there is none. Given back with
// free(). What is larger than a huge page asks the system for huge pages: products walk over many
// rows at once, and with small pages each would take an address translation of its own.
void* hy__page_alloc(size_t bytes);

#endif  // HALYARD_CPU_RUNTIME_HUGE_PAGES_H_
