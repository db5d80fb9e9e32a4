// Microkernels of int8 activations with int8 or int4 weights, both with scale groups along k.
//
// A kernel brings its own order of the numbers. Few rows are a GEMV, which reads the weights in
// place; many are packed into tiles. A k group is a stretch of k with one scale on either side: its
// products are summed exactly in int32, and the sums of k groups in float32, k ascending.
#ifndef HALYARD_CPU_QUANT_INT8_KERNEL_H_
#define HALYARD_CPU_QUANT_INT8_KERNEL_H_

#include "backends/cpu/quant/quantized.h"

// More numbers than this in a k group could exceed int32.
enum { HY__INT8_MAX_GROUP = 1 << 16, HY__INT8_MAX_M = 4 };

// [m, k], a row without gaps; scale[i * scale_row + c / group].
typedef struct hy__int8_rows {
  const signed char* data;
  int64_t m, k, row;
  const float* scale;
  int64_t scale_row, group;
} hy__int8_rows;

typedef struct hy__int8_kernel {
  // ---- GEMV ----
  // Whether `gemv` can read these; the generic one can read everything.
  bool (*takes)(const hy__int8_rows* x, const hy__quantized* w);
  // Bytes of a row of x in the kernel's order, a multiple of 64, and bringing row i into it.
  int64_t (*row_bytes)(const hy__int8_rows* x, const hy__quantized* w);
  void (*order)(const hy__int8_rows* x, const hy__quantized* w, int64_t i, void* row);
  // out[i * ldo + j] for m ordered rows of x, up to HY__INT8_MAX_M, and n rows of the weights from
  // `first` on.
  void (*gemv)(const hy__int8_rows* x, const hy__quantized* w, int64_t first, int n,
               const void* rows, int m, float* out, int64_t ldo);
  // ---- tiles: all NULL or 0 where the instruction set has none ----
  int mr, nr;
  int multiple;  // of which k groups are
  // NULL, or what a thread does before its first `multiply` of a task and after its last.
  void (*begin)(int64_t k_group);
  void (*end)(void);
  // Bytes of a packed tile of `mr` rows and of a panel of weights, multiples of 64.
  int64_t (*tile_bytes)(int64_t k, int64_t k_group),
      (*panel_bytes)(const hy__quantized* w, int64_t k_group);
  void (*pack_rows)(const hy__int8_rows* x, hy_dtype weights, int64_t first, int m, int64_t k_group,
                    void* tile);
  void (*pack_weights)(const hy__quantized* w, int64_t first, int n, int64_t k_group, void* packed);
  // sums[i * nr + j] for m rows of x from `first` on, which are those of the tile; sums is aligned
  // to 64 bytes and has room for the whole tile.
  void (*multiply)(const hy__int8_rows* x, int64_t first, const hy__quantized* w, int64_t k_group,
                   const void* tile, const void* packed, int m, float* sums);
} hy__int8_kernel;

// The largest stretch with one scale on either side.
int64_t hy__int8_k_group(const hy__int8_rows* x, const hy__quantized* w);

#endif  // HALYARD_CPU_QUANT_INT8_KERNEL_H_
