// Scratch memory that a thread keeps: kernels follow one another, and fresh memory costs a page
// fault for every 4 KiB.
#ifndef HALYARD_CPU_RUNTIME_SCRATCH_H_
#define HALYARD_CPU_RUNTIME_SCRATCH_H_

#include <stddef.h>

// What the memory is for. A slot's memory is lost when the same thread asks for the slot again, so
// that kernels that call one another use different ones.
typedef enum hy__scratch_slot {
  HY__SCRATCH_GEMM_A,
  HY__SCRATCH_GEMM_B,
  HY__SCRATCH_GEMM_C,
  HY__SCRATCH_GEMV,
  HY__SCRATCH_ATTENTION,
  HY__SCRATCH_KEYS,
  HY__SCRATCH_ROWS,
  HY__SCRATCH_COUNT
} hy__scratch_slot;

// At least `bytes`, 64-byte aligned, uninitialised; NULL when there is none, or when a test makes a
// host allocation fail. Freed with the thread.
void* hy__scratch_get(hy__scratch_slot slot, size_t bytes);
// Frees the calling thread's now.
void hy__scratch_release(void);

#endif  // HALYARD_CPU_RUNTIME_SCRATCH_H_
