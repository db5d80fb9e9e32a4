// Dot products of any number of rows and lines, for a file that defines ROWS, LINES and `block`,
// which takes up to as many at once.
#ifndef HALYARD_CPU_GEMM_GEMV_TMPL_H_
#define HALYARD_CPU_GEMM_GEMV_TMPL_H_

#include "backends/cpu/family.h"
#include "backends/cpu/runtime/target.h"

HY__INLINE void rows_of(hy_dtype dtype, const hy__matrix* w, int64_t first, int rows, int64_t k,
                        const float* x, int64_t x_line, int lines, float* out, int64_t out_line) {
  for (int r = 0; r < rows; r += rows - r < ROWS ? 1 : ROWS) {
    bool whole = rows - r >= ROWS;
    const char* four[ROWS];
    for (int i = 0; i < ROWS; i++) four[i] = hy__matrix_at(w, first + r + (whole ? i : 0), 0);
    for (int l = 0; l < lines; l += LINES) {
      const float* from = x + l * x_line;
      float* to = out + l * out_line + r;
      bool both = lines - l >= LINES;
      if (whole && both)
        block(ROWS, LINES, dtype, four, k, from, x_line, to, out_line);
      else if (whole)
        block(ROWS, 1, dtype, four, k, from, x_line, to, out_line);
      else if (both)
        block(1, LINES, dtype, four, k, from, x_line, to, out_line);
      else
        block(1, 1, dtype, four, k, from, x_line, to, out_line);
    }
  }
}

#endif  // HALYARD_CPU_GEMM_GEMV_TMPL_H_
