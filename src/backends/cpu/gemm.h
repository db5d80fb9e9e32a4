// C = A B in float32 arithmetic, of any strides and of float32, bfloat16 or float16 in memory.
//
// B is cut into panels of columns and A into panels of rows, both in blocks of HY__GEMM_DEPTH of
// the inner dimension. A's block is packed once by all threads; then each task packs a few panels
// of B into its own cache and multiplies all of A with them. Every element of C is summed in one
// order, k ascending within a block and blocks ascending, whatever the number of threads.
#ifndef HALYARD_CPU_GEMM_H_
#define HALYARD_CPU_GEMM_H_

#include "halyard/tensor.h"

enum { HY__GEMM_DEPTH = 384, HY__GEMM_MAX_ROWS = 16, HY__GEMM_MAX_PANEL = 32 };

// A matrix in memory: element (i, j) lies at data + i * row + j * column, in elements.
typedef struct hy__matrix {
  void* data;
  hy_dtype dtype;  // f32, bf16, f16
  int64_t row, column;
} hy__matrix;

static inline char* hy__matrix_at(const hy__matrix* m, int64_t i, int64_t j) {
  return (char*)m->data + (i * m->row + j * m->column) * (m->dtype == HY_F32 ? 4 : 2);
}

// What an instruction set gives the driver.
typedef struct hy__gemm_kernel {
  int rows, panel;
  // packed[k * rows + i] for `rows` rows of a block of `depth`; rows past `m` are zero.
  void (*pack_a)(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed);
  // packed[k * panel + j] likewise for columns.
  void (*pack_b)(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed);
  // c[i * stride + j] = (accumulate ? c : 0) + sum over k, for m x n of the tile.
  void (*multiply)(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                   int n, bool accumulate);
} hy__gemm_kernel;

// A product. The sums go to `c`, f32 with column stride 1, or to `finish`, which is given each tile
// once it is complete, from several threads at once, and may overwrite it.
typedef struct hy__gemm {
  int64_t m, n, k;
  hy__matrix a, b;
  float* c;
  int64_t c_row;
  void (*finish)(const void* context, int64_t i, int64_t j, int m, int n, float* tile,
                 int64_t stride);
  // NULL, or what packs a panel of B instead of the kernel's own: packed[k * panel + j], 0 for
  // columns past n.
  void (*pack_b)(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                 float* packed);
  const void* context;  // of both
} hy__gemm;

// Returns false when there is no memory for the packed blocks.
bool hy__gemm_run(const hy__gemm_kernel* kernel, const hy__gemm* g);

#endif  // HALYARD_CPU_GEMM_H_
