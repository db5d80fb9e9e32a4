// GEMM in the BLIS manner: C = A B of any strides; f32, bf16 or f16 in f32 arithmetic, i8 in i32.
//
// A microkernel of MR x NR per instruction set, blocks of KC along k. A is read in place where the
// microkernel can, or packed once and shared, or packed per task; each task packs a few panels of B
// at a time, which stay in its L2 while panels of A pass through L1. Deterministic: every element
// of C is summed with k ascending, within a block and from block to block, whatever the thread
// count.
#ifndef HALYARD_CPU_GEMM_GEMM_H_
#define HALYARD_CPU_GEMM_GEMM_H_

#include "halyard/tensor.h"

enum { HY__GEMM_MAX_KC = 512, HY__GEMM_MAX_MR = 32, HY__GEMM_MAX_NR = 64 };

// A matrix in memory: element (i, j) is at data + i * row + j * column, in elements.
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

// A microkernel and how it wants its operands packed. Packed numbers are words of 32 bits, each of
// one f32, two bf16 or four i8 that follow one another along k; sums are f32, or i32 for i8.
typedef struct hy__gemm_kernel {
  int mr, nr;
  int kc;     // words of a block of k, HY__GEMM_MAX_KC at most
  int unit;   // numbers in a word
  int align;  // words along k are a multiple of this
  int extra;  // words that a column of packed B has beyond those, for the kernel's own use
  // packed[k / unit * mr + i], or any order of as many words, for a block of `depth` numbers; rows
  // past `m` and numbers past `depth` are zero.
  void (*pack_a)(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed);
  // packed[k / unit * nr + j] likewise for columns.
  void (*pack_b)(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed);
  // NULL, or what a thread does before its first `multiply` of a task and after its last.
  void (*begin)(void);
  void (*end)(void);
  // The microkernel: c[i * ldc + j] = (accumulate ? c : 0) + sum over k, for m x n of the tile.
  void (*multiply)(int depth, const float* a, const float* b, float* c, int64_t ldc, int m, int n,
                   bool accumulate);
  // NULL, or whether `multiply_in_place` can, which does the same with rows of A unpacked.
  bool (*in_place)(const struct hy__gemm* g);
  void (*multiply_in_place)(const hy__matrix* a, int64_t i, int64_t k, int depth, const float* b,
                            float* c, int64_t ldc, int m, int n, bool accumulate);
  // NULL, or a skinny GEMM: out[i * ldo + j] = row i of x times row first + j of w, whose column
  // stride is 1 and which is read in place; x is packed as columns of B over the whole of k and has
  // m <= 16 rows. Between `begin` and `end`.
  void (*skinny)(const hy__matrix* w, int64_t first, int n, int64_t k, const float* x, int m,
                 float* out, int64_t ldo);
} hy__gemm_kernel;

// Words along k of a packed block.
static inline int hy__gemm_words(const hy__gemm_kernel* kernel, int depth) {
  int words = (depth + kernel->unit - 1) / kernel->unit;
  return (words + kernel->align - 1) / kernel->align * kernel->align;
}

// A product. The sums go to `c`, with column stride 1, or to `epilogue`, which is given each part
// of C once it is complete, from several threads at once, and may overwrite it.
typedef struct hy__gemm {
  int64_t m, n, k;
  hy__matrix a, b;
  float* c;
  int64_t ldc;
  bool accumulate;  // adds to what c holds
  void (*epilogue)(const void* context, int64_t i, int64_t j, int m, int n, float* sums,
                   int64_t ld);
  // NULL, or what packs a panel of B instead of the kernel's own: packed[k * nr + j], 0 for columns
  // past n.
  void (*pack_b)(const void* context, int64_t k, int depth, int64_t j, int n, int nr,
                 float* packed);
  const void* context;  // of both
  // NULL, or all of B as hy__gemm_pack_b packs it; `b` is not read then.
  const float* packed_b;
  int tiles;  // 0 .. HY__GEMM_TILES - 1: how the work is cut; 0 suits most shapes
} hy__gemm;
enum { HY__GEMM_TILES = 4 };

// B packed once, for many products: what it takes, and packing it on all threads. Panels of columns
// one after another, each over the whole of k. Not for kernels with `extra` words.
size_t hy__gemm_packed_bytes(const hy__gemm_kernel* kernel, int64_t k, int64_t n);
void hy__gemm_pack_b(const hy__gemm_kernel* kernel, const hy__matrix* b, int64_t k, int64_t n,
                     float* packed);

// Returns false when there is no memory for the packed blocks.
bool hy__gemm_run(const hy__gemm_kernel* kernel, const hy__gemm* g);

#endif  // HALYARD_CPU_GEMM_GEMM_H_
