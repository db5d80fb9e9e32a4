// AMX tile configuration, in the memory layout of LDTILECFG.
#ifndef HALYARD_CPU_SIMD_AMX_H_
#define HALYARD_CPU_SIMD_AMX_H_

#include <stdint.h>

typedef struct hy__tile_config {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];  // of a row, by tile
  uint8_t rows[16];
} hy__tile_config;

#endif  // HALYARD_CPU_SIMD_AMX_H_
