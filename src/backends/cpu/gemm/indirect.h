// Indirect GEMM: a microkernel that reads both operands in place, with no packing at all.
//
// Rows of A are a constant distance apart, those of B where a list of offsets says: in a padded
// image that is what each tap of a convolution reads (frame.h). Words are as in packed operands:
// one f32, or two bf16 that follow one another along k.
#ifndef HALYARD_CPU_GEMM_INDIRECT_H_
#define HALYARD_CPU_GEMM_INDIRECT_H_

#include <stdbool.h>
#include <stdint.h>

enum { HY__INDIRECT_VECTOR = 16 };  // words of B that are read at once

typedef struct hy__indirect_kernel {
  int mr, nr;  // nr: a multiple of HY__INDIRECT_VECTOR
  int unit;    // numbers in a word
  // c[i * ldc + j] = (accumulate ? c : 0) + sum over k, for m x n of the tile. Row i of A begins at
  // a + i * a_row, in bytes, of any alignment; word (k, j) of B is b[rows[k] + j], and can be read
  // up to the next multiple of HY__INDIRECT_VECTOR columns.
  void (*multiply)(int words, const char* a, int64_t a_row, const float* b, const int64_t* rows,
                   float* c, int64_t ldc, int m, int n, bool accumulate);
} hy__indirect_kernel;

extern const hy__indirect_kernel hy__indirect_f32_avx512, hy__indirect_bf16_avx512;

#endif  // HALYARD_CPU_GEMM_INDIRECT_H_
