// Blocking of k and software prefetch for a skinny GEMM, which takes four rows of x with four rows
// of weights at once.
//
// k is cut into pieces such that four rows of weights stay in L1 while all rows of x pass over
// them: with neither operand there, a block waits for L2. Each pass asks for its part of the four
// rows that come next, so that the memory is read all the time and not in a burst.
#ifndef HALYARD_CPU_GEMM_X86_GEMV_PREFETCH_H_
#define HALYARD_CPU_GEMM_X86_GEMV_PREFETCH_H_

#include <immintrin.h>

#include "backends/cpu/runtime/target.h"

enum { HY__GEMV_BLOCK = 4, HY__GEMV_PIECE_BYTES = 4096 };  // the latter of one row

// Numbers of a piece of k: whole cache lines, and pieces of about equal length.
HY__INLINE int64_t hy__gemv_depth(int64_t k, int64_t size) {
  int64_t line = 64 / size, lines = (k + line - 1) / line;
  int64_t pieces = (lines * 64 + HY__GEMV_PIECE_BYTES - 1) / HY__GEMV_PIECE_BYTES;
  return (lines + pieces - 1) / pieces * line;
}

typedef struct hy__gemv_ahead {
  const char* at;
  int64_t row;  // bytes from one row to the next
  int rows;
} hy__gemv_ahead;

// The part of a pass, of those that m rows of x take, of the four rows from `next` on.
HY__INLINE hy__gemv_ahead hy__gemv_ahead_of(const char* next, int64_t row, int pass, int m) {
  int passes = (m + HY__GEMV_BLOCK - 1) / HY__GEMV_BLOCK;
  int each = (HY__GEMV_BLOCK + passes - 1) / passes, left = HY__GEMV_BLOCK - pass * each;
  int rows = left < 0 ? 0 : left < each ? left : each;
  return (hy__gemv_ahead){next + pass * each * row, row, rows};
}

// The next `bytes` of each row, into L2: L1 is full.
HY__INLINE void hy__gemv_prefetch(hy__gemv_ahead* ahead, int64_t bytes) {
  const char* at = ahead->at;
  for (int r = 0; r < ahead->rows; r++, at += ahead->row) _mm_prefetch(at, _MM_HINT_T1);
  ahead->at += bytes;
}

#endif  // HALYARD_CPU_GEMM_X86_GEMV_PREFETCH_H_
