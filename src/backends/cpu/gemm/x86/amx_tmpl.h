// GEMM microkernel in AMX tiles, for a file that defines UNIT (4: int8, 2: bfloat16) and PRODUCT,
// the instruction on three tiles: MR x NR = 32 x 32 in four tiles of sums.
//
// Packed A has the order of the tiles, 16 rows of 64 bytes each; packed B has its words across. A
// thread configures its tiles for each task and releases them after it: holding them would make
// every context switch save 8 KiB.
#ifndef HALYARD_CPU_GEMM_X86_AMX_TMPL_H_
#define HALYARD_CPU_GEMM_X86_AMX_TMPL_H_

enum { MR = 32, NR = 32, TILE = 16 };  // TILE: rows, lanes and columns of a tile
#include "backends/cpu/gemm/x86/pack_avx512.h"
#include "backends/cpu/simd/amx.h"

HY__TARGET_AMX

static int lanes_of(int depth) {
  return ((depth + UNIT - 1) / UNIT + TILE - 1) / TILE * TILE;
}

// packed[lane / 16][row][lane % 16]
static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  const char* data = hy__matrix_at(a, i, k);
  uint32_t* to = (uint32_t*)packed;
  int lanes = lanes_of(depth);
  for (int at = 0; at < lanes; at += TILE) {
    for (int r = 0; r < MR; r++, to += TILE) {
      int left = depth - at * UNIT;
      if (r >= m) {
        memset(to, 0, TILE * sizeof *to);
      } else if (a->column == 1) {
        _mm512_storeu_si512(
            to, load_bytes(data + (r * a->row + (int64_t)at * UNIT) * SIZE, (int64_t)left * SIZE));
      } else {
        for (int l = 0; l < TILE; l++)
          to[l] = gather_lane(data + (r * a->row + (int64_t)(at + l) * UNIT * a->column) * SIZE,
                              a->column, left - l * UNIT);
      }
    }
  }
}

static void pack_b(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed) {
  uint32_t* to = (uint32_t*)packed;
  pack_columns(b, k, depth, j, n, to);
  int used = (depth + UNIT - 1) / UNIT;
  memset(to + (int64_t)used * NR, 0, (size_t)(lanes_of(depth) - used) * NR * sizeof *to);
}

static void begin(void) {
  hy__tile_config config = {.palette = 1};
  for (int t = 0; t < 8; t++) {
    config.bytes[t] = TILE * 4;
    config.rows[t] = TILE;
  }
  hy__tile_configure(&config);
}

static void end(void) {
  _tile_release();
}

// Sums of a whole tile, which are read and written where they are. The rows of A are `a_row` bytes
// apart, and their next sixteen lanes `a_next`.
HY__INLINE void multiply_whole(int depth, const char* a, int64_t a_row, int64_t a_next,
                               const float* b, float* c, int64_t stride, bool accumulate) {
  int64_t bytes = stride * 4;
  hy__tile_memory_written();
  if (accumulate) {
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + TILE, bytes);
    _tile_loadd(2, c + TILE * stride, bytes);
    _tile_loadd(3, c + TILE * stride + TILE, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  int lanes = lanes_of(depth);
  for (int at = 0; at < lanes; at += TILE, a += a_next) {
    const float* columns = b + (int64_t)at * NR;
    _tile_loadd(4, a, a_row);
    _tile_loadd(6, columns, NR * 4);
    _tile_loadd(7, columns + TILE, NR * 4);
    PRODUCT(0, 4, 6);
    PRODUCT(1, 4, 7);
    _tile_loadd(5, a + TILE * a_row, a_row);
    PRODUCT(2, 5, 6);
    PRODUCT(3, 5, 7);
  }
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + TILE, bytes);
  _tile_stored(2, c + TILE * stride, bytes);
  _tile_stored(3, c + TILE * stride + TILE, bytes);
}

HY__INLINE void multiply_any(int depth, const char* a, int64_t a_row, int64_t a_next,
                             const float* b, float* c, int64_t stride, int m, int n,
                             bool accumulate) {
  if (m == MR && n == NR) {
    multiply_whole(depth, a, a_row, a_next, b, c, stride, accumulate);
    return;
  }
  float sums[MR * NR] __attribute__((aligned(64)));
  for (int i = 0; i < m && accumulate; i++)
    memcpy(sums + i * NR, c + i * stride, (size_t)n * sizeof *sums);
  multiply_whole(depth, a, a_row, a_next, b, sums, NR, accumulate);
  for (int i = 0; i < m; i++) memcpy(c + i * stride, sums + i * NR, (size_t)n * sizeof *sums);
}

static void multiply(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                     int n, bool accumulate) {
  multiply_any(depth, (const char*)a, TILE * 4, MR * TILE * 4, b, c, stride, m, n, accumulate);
}

// Tiles are read whole: what is missing of them must have been packed.
static bool in_place(const hy__gemm* g) {
  return g->a.column == 1 && g->m % MR == 0 && g->k % (TILE * UNIT) == 0;
}

static void multiply_in_place(const hy__matrix* a, int64_t i, int64_t k, int depth, const float* b,
                              float* c, int64_t stride, int m, int n, bool accumulate) {
  multiply_any(depth, hy__matrix_at(a, i, k), a->row * SIZE, TILE * 4, b, c, stride, m, n,
               accumulate);
}

HY__TARGET_END

#endif  // HALYARD_CPU_GEMM_X86_AMX_TMPL_H_
