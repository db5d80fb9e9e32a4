// C = A B of any strides: float32, bfloat16 or float16 in float32 arithmetic, int8 in int32.
//
// B is cut into panels of columns and A into panels of rows, both in blocks of the inner dimension.
// A is multiplied where it lies if the kernel can, or packed once by all threads, or by each task
// the rows that it needs; each task packs a few panels of B at a time and multiplies them with A. A
// panel of A stays near while the panels of B pass by from the second cache. Every element of C is
// summed in one order, k ascending within a block and blocks ascending, whatever the number of
// threads.
#ifndef HALYARD_CPU_GEMM_GEMM_H_
#define HALYARD_CPU_GEMM_GEMM_H_

#include "halyard/tensor.h"

enum { HY__GEMM_MAX_DEPTH = 512, HY__GEMM_MAX_ROWS = 32, HY__GEMM_MAX_PANEL = 64 };

// A matrix in memory: element (i, j) lies at data + i * row + j * column, in elements.
typedef struct hy__matrix {
  void* data;
  hy_dtype dtype;  // f32, bf16, f16, i8
  int64_t row, column;
} hy__matrix;

static inline char* hy__matrix_at(const hy__matrix* m, int64_t i, int64_t j) {
  int64_t size = m->dtype == HY_F32 ? 4 : m->dtype == HY_I8 ? 1 : 2;
  return (char*)m->data + (i * m->row + j * m->column) * size;
}

struct hy__gemm;

// What an instruction set gives the driver. Packed numbers are lanes of 32 bits, each of one f32,
// two bf16 or four i8 that follow one another along k; sums are f32, or i32 for i8.
typedef struct hy__gemm_kernel {
  int rows, panel;
  int depth;  // lanes of a block of k, HY__GEMM_MAX_DEPTH at most
  int unit;   // numbers in a lane
  int align;  // lanes along k are a multiple of this
  int extra;  // lanes that a column of packed B has beyond those, for the kernel's own use
  // packed[k / unit * rows + i], or any order of as many lanes, for a block of `depth`; rows past
  // `m` and numbers past `depth` are zero.
  void (*pack_a)(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed);
  // packed[k / unit * panel + j] likewise for columns.
  void (*pack_b)(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed);
  // NULL, or what a thread does before its first `multiply` of a task and after its last.
  void (*begin)(void);
  void (*end)(void);
  // c[i * stride + j] = (accumulate ? c : 0) + sum over k, for m x n of the tile.
  void (*multiply)(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                   int n, bool accumulate);
  // NULL, or whether `multiply_in_place` can, which does the same with rows of A where they lie.
  bool (*in_place)(const struct hy__gemm* g);
  void (*multiply_in_place)(const hy__matrix* a, int64_t i, int64_t k, int depth, const float* b,
                            float* c, int64_t stride, int m, int n, bool accumulate);
  // NULL, or out[line * out_line + r] = line of x times row first + r of w, whose column stride is
  // 1 and which is read where it lies; x is packed as columns of B, to all of its depth, and has 16
  // lines at most. Between `begin` and `end`.
  void (*dot)(const hy__matrix* w, int64_t first, int rows, int64_t k, const float* x, int lines,
              float* out, int64_t out_line);
} hy__gemm_kernel;

// Lanes along k of a packed block.
static inline int hy__gemm_lanes(const hy__gemm_kernel* kernel, int depth) {
  int lanes = (depth + kernel->unit - 1) / kernel->unit;
  return (lanes + kernel->align - 1) / kernel->align * kernel->align;
}

// A product. The sums go to `c`, with column stride 1, or to `finish`, which is given each part of
// C once it is complete, from several threads at once, and may overwrite it.
typedef struct hy__gemm {
  int64_t m, n, k;
  hy__matrix a, b;
  float* c;
  int64_t c_row;
  bool accumulate;  // adds to what c holds
  void (*finish)(const void* context, int64_t i, int64_t j, int m, int n, float* sums,
                 int64_t stride);
  // NULL, or what packs a panel of B instead of the kernel's own: packed[k * panel + j], 0 for
  // columns past n.
  void (*pack_b)(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                 float* packed);
  const void* context;  // of both
} hy__gemm;

// Returns false when there is no memory for the packed blocks.
bool hy__gemm_run(const hy__gemm_kernel* kernel, const hy__gemm* g);

#endif  // HALYARD_CPU_GEMM_GEMM_H_
