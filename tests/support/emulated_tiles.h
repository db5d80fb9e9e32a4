// AMX tiles in plain C, a set for each thread, for a test that compiles a kernel's file once more:
// processors with AVX-512 and without AMX test everything but the instructions. Included before the
// file, which then finds these in place of simd/amx.h; the test brings the product.
#ifndef HALYARD_TESTS_EMULATED_TILES_H_
#define HALYARD_TESTS_EMULATED_TILES_H_

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define HALYARD_CPU_SIMD_AMX_H_  // instead of the real tiles
typedef struct hy__tile_config {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} hy__tile_config;

static _Thread_local hy__tile_config shape;
static _Thread_local signed char tiles[8][16][64];

static void hy__tile_configure(const hy__tile_config* config) {
  shape = *config;
}
static void hy__tile_memory_written(void) {}

static void load(int t, const void* from, int64_t stride) {
  for (int r = 0; r < shape.rows[t]; r++)
    memcpy(tiles[t][r], (const char*)from + r * stride, shape.bytes[t]);
}

static void store(int t, void* to, int64_t stride) {
  for (int r = 0; r < shape.rows[t]; r++)
    memcpy((char*)to + r * stride, tiles[t][r], shape.bytes[t]);
}

static void clear(int t) {
  memset(tiles[t], 0, sizeof tiles[t]);
}

static void release(void) {
  memset(&shape, 0, sizeof shape);
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_release
#define _tile_loadd load
#define _tile_stored store
#define _tile_zero clear
#define _tile_release release

#endif  // HALYARD_TESTS_EMULATED_TILES_H_
