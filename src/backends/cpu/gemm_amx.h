// Products in AMX tiles, for a file that defines UNIT (4: int8, 2: bfloat16) and PRODUCT, the
// instruction on three tiles: 32 rows by 32 columns in four tiles of sums.
//
// A lies in the packed block as the tiles want it, 16 rows of 64 bytes each, B with its lanes
// across. A thread's tiles are set up for each task and given back after it: holding them would
// make every switch of threads save 8 KiB.
#ifndef HALYARD_CPU_GEMM_AMX_H_
#define HALYARD_CPU_GEMM_AMX_H_

enum { ROWS = 32, PANEL = 32, TILE = 16 };  // TILE: rows, lanes and columns of a tile
#include "backends/cpu/avx512_lanes.h"

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
    for (int r = 0; r < ROWS; r++, to += TILE) {
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
  memset(to + (int64_t)used * PANEL, 0, (size_t)(lanes_of(depth) - used) * PANEL * sizeof *to);
}

typedef struct tile_config {
  uint8_t palette, start;
  uint8_t reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} tile_config;

static void begin(void) {
  tile_config config = {.palette = 1};
  for (int t = 0; t < 8; t++) {
    config.bytes[t] = TILE * 4;
    config.rows[t] = TILE;
  }
  _tile_loadconfig(&config);
}

static void end(void) {
  _tile_release();
}

// Sums of a whole tile, which are read and written where they are.
static void multiply_whole(int depth, const float* a, const float* b, float* c, int64_t stride,
                           bool accumulate) {
  int64_t bytes = stride * 4;
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
  for (int at = 0; at < lanes; at += TILE) {
    const float *rows = a + (int64_t)at * ROWS, *columns = b + (int64_t)at * PANEL;
    _tile_loadd(4, rows, TILE * 4);
    _tile_loadd(6, columns, PANEL * 4);
    _tile_loadd(7, columns + TILE, PANEL * 4);
    PRODUCT(0, 4, 6);
    PRODUCT(1, 4, 7);
    _tile_loadd(5, rows + TILE * TILE, TILE * 4);
    PRODUCT(2, 5, 6);
    PRODUCT(3, 5, 7);
  }
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + TILE, bytes);
  _tile_stored(2, c + TILE * stride, bytes);
  _tile_stored(3, c + TILE * stride + TILE, bytes);
}

static void multiply(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                     int n, bool accumulate) {
  if (m == ROWS && n == PANEL) {
    multiply_whole(depth, a, b, c, stride, accumulate);
    return;
  }
  float sums[ROWS * PANEL] __attribute__((aligned(64)));
  for (int i = 0; i < m && accumulate; i++)
    memcpy(sums + i * PANEL, c + i * stride, (size_t)n * sizeof *sums);
  multiply_whole(depth, a, b, sums, PANEL, accumulate);
  for (int i = 0; i < m; i++) memcpy(c + i * stride, sums + i * PANEL, (size_t)n * sizeof *sums);
}

// Lanes of up to sixteen rows of w, from the byte `at` of each on, as a tile: where they lie, or
// where something is missing, in `buffer` with zeros in its place.
static void load_rows(const char* w, int64_t row, int rows, int64_t at, int64_t bytes, char* buffer,
                      const char** from, int64_t* step) {
  *from = w + at;
  *step = row;
  if (rows >= TILE && bytes - at >= TILE * 4) return;
  for (int r = 0; r < TILE; r++)
    _mm512_storeu_si512(buffer + r * TILE * 4,
                        load_bytes(w + r * row + at, r < rows ? bytes - at : 0));
  *from = buffer;
  *step = TILE * 4;
}

// Rows of w are the left operand here, so that they need no packing; the sums come out transposed.
static void dot(const hy__matrix* w, int64_t first, int rows, int64_t k, const float* x, int lines,
                float* out, int64_t out_line) {
  char buffer[2][TILE * TILE * 4] __attribute__((aligned(64)));
  int64_t row = w->row * SIZE, bytes = k * SIZE;
  for (int done = 0; done < rows; done += 2 * TILE) {
    const char* data = hy__matrix_at(w, first + done, 0);
    int left = rows - done;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t at = 0; at < bytes; at += TILE * 4, x += TILE * PANEL) {
      const char* from;
      int64_t step;
      _tile_loadd(6, x, PANEL * 4);
      load_rows(data, row, left, at, bytes, buffer[0], &from, &step);
      _tile_loadd(4, from, step);
      PRODUCT(0, 4, 6);
      if (left <= TILE) continue;
      load_rows(data + TILE * row, row, left - TILE, at, bytes, buffer[1], &from, &step);
      _tile_loadd(5, from, step);
      PRODUCT(1, 5, 6);
    }
    x -= (bytes + TILE * 4 - 1) / (TILE * 4) * TILE * PANEL;
    for (int half = 0; half < 2 && half * TILE < left; half++) {
      float sums[TILE * TILE] __attribute__((aligned(64)));
      if (half == 0)
        _tile_stored(0, sums, TILE * 4);
      else
        _tile_stored(1, sums, TILE * 4);
      __m512 block[TILE];
      for (int r = 0; r < TILE; r++) block[r] = _mm512_load_ps(sums + r * TILE);
      hy__transpose16(block);
      for (int l = 0; l < lines; l++)
        _mm512_mask_storeu_ps(out + l * out_line + done + half * TILE,
                              hy__first16(left - half * TILE), block[l]);
    }
  }
}

HY__TARGET_END

#endif  // HALYARD_CPU_GEMM_AMX_H_
