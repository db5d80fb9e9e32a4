// Host memory: malloc with fault injection in front of it, for everything the library keeps on the
// host. Thread-safe.
#ifndef HALYARD_BASE_MEMORY_H_
#define HALYARD_BASE_MEMORY_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "halyard/stream.h"

void* hy__malloc(size_t bytes);
void* hy__calloc(size_t count, size_t size);
void* hy__realloc(void* p, size_t bytes);
char* hy__strdup(const char* text);
void hy__mfree(void* p);

// Fault injection: counts an event of that kind and says whether it must fail.
extern atomic_int
    hy__faults_armed;  // non-zero while any fault is armed, so that the usual path is one load
bool hy__fault_now(hy_fault fault);
static inline bool hy__fault(hy_fault fault) {
  return atomic_load_explicit(&hy__faults_armed, memory_order_relaxed) && hy__fault_now(fault);
}

#endif  // HALYARD_BASE_MEMORY_H_
