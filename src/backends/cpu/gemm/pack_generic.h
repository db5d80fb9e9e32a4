// Packing panels of A and B in plain C, for microkernels whose MR and NR are defined before this is
// included.
#ifndef HALYARD_CPU_GEMM_PACK_GENERIC_H_
#define HALYARD_CPU_GEMM_PACK_GENERIC_H_

#include "backends/cpu/family.h"
#include "backends/cpu/simd/half.h"

// packed[k * width + line] for lines `step` apart whose elements are `along` apart, in elements.
static inline void pack_lines(const char* data, hy_dtype dtype, int64_t step, int64_t along,
                              int lines, int depth, int width, float* packed) {
  int64_t size = dtype == HY_F32 ? 4 : 2;
  for (int k = 0; k < depth; k++) {
    const char* from = data + k * along * size;
    float* to = packed + (int64_t)k * width;
    if (dtype == HY_F32 && step == 1) {
      memcpy(to, from, (size_t)lines * sizeof *to);
    } else {
      for (int i = 0; i < lines; i++) to[i] = hy__load1(from + i * step * size, dtype);
    }
    for (int i = lines; i < width; i++) to[i] = 0;
  }
}

static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  pack_lines(hy__matrix_at(a, i, k), a->dtype, a->row, a->column, m, depth, MR, packed);
}

static void pack_b(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed) {
  pack_lines(hy__matrix_at(b, k, j), b->dtype, b->column, b->row, n, depth, NR, packed);
}

#endif  // HALYARD_CPU_GEMM_PACK_GENERIC_H_
