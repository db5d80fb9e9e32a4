// Products of int8 lines with int8 or int4 weights, both with scales in groups along k.
//
// A kernel brings its own order of the numbers. Few lines are dot products, which read the weights
// in place; many are packed into tiles. A piece is a stretch of k with one scale on either side:
// its products are summed exactly in int32, and the sums of pieces in float32, k ascending.
#ifndef HALYARD_CPU_QUANT_LINEAR_INT8_H_
#define HALYARD_CPU_QUANT_LINEAR_INT8_H_

#include "backends/cpu/quant/quantized.h"

// More numbers than this in a piece could exceed int32.
enum { HY__INT8_MAX_PIECE = 1 << 16, HY__INT8_LINES = 4 };

// [m, k], a row without gaps; scale[i * scale_row + c / group].
typedef struct hy__int8_lines {
  const signed char* data;
  int64_t m, k, row;
  const float* scale;
  int64_t scale_row, group;
} hy__int8_lines;

typedef struct hy__int8_kernel {
  // ---- dot products ----
  // Whether `dot` can read these; plain C can read everything.
  bool (*takes)(const hy__int8_lines* x, const hy__quantized* w);
  // Bytes of a line in the kernel's order, a multiple of 64, and bringing line i into it.
  int64_t (*line_bytes)(const hy__int8_lines* x, const hy__quantized* w);
  void (*order)(const hy__int8_lines* x, const hy__quantized* w, int64_t i, void* line);
  // out[l * out_line + r] for up to HY__INT8_LINES ordered lines and rows first ... of the weights.
  void (*dot)(const hy__int8_lines* x, const hy__quantized* w, int64_t first, int rows,
              const void* lines, int n_lines, float* out, int64_t out_line);
  // ---- tiles: all NULL or 0 where the instruction set has none ----
  int rows, panel;
  int multiple;  // of which pieces are
  // Bytes of a packed tile of `rows` lines and of a panel of weights, multiples of 64.
  int64_t (*tile_bytes)(int64_t k, int64_t piece), (*panel_bytes)(int64_t k, int64_t piece);
  void (*pack_lines)(const hy__int8_lines* x, hy_dtype weights, int64_t first, int m, int64_t piece,
                     void* tile);
  void (*pack_weights)(const hy__quantized* w, int64_t first, int n, int64_t piece, void* packed);
  // sums[i * panel + j] for m lines; sums is aligned to 64 bytes and has room for the whole tile.
  void (*multiply)(int64_t k, int64_t piece, const void* tile, const void* packed, int m,
                   float* sums);
} hy__int8_kernel;

extern const hy__int8_kernel hy__int8_scalar, hy__int8_neon, hy__int8_avx2, hy__int8_vnni;

// The largest stretch with one scale on either side.
int64_t hy__int8_piece(const hy__int8_lines* x, const hy__quantized* w);

#endif  // HALYARD_CPU_QUANT_LINEAR_INT8_H_
