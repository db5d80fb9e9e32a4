// AMX tiles: their configuration in the memory layout of LDTILECFG, and what the compiler is not
// told by its own intrinsics.
//
// gcc 12's _tile_loadconfig claims to read 8 bytes and its _tile_loadd none: stores to the rest are
// dropped as dead, and the first tile instruction raises SIGILL.
#ifndef HALYARD_CPU_SIMD_AMX_H_
#define HALYARD_CPU_SIMD_AMX_H_

#include <stdint.h>

typedef struct hy__tile_config {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];  // of a row, by tile
  uint8_t rows[16];
} hy__tile_config;

#if defined(__x86_64__)
static inline void hy__tile_configure(const hy__tile_config* config) {
  __asm__ volatile("ldtilecfg %0" ::"m"(*config));
}
#endif

// In front of _tile_loadd from memory that the same function has written.
static inline void hy__tile_memory_written(void) {
  __asm__ volatile("" ::: "memory");
}

#endif  // HALYARD_CPU_SIMD_AMX_H_
