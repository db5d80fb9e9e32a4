// Rows in registers, as kernels/rows.cuh has them: which threads a row gets.
#ifndef HALYARD_BACKENDS_GPU_OPS_ROWS_H_
#define HALYARD_BACKENDS_GPU_OPS_ROWS_H_

#include "backends/gpu/gpu.h"

typedef struct hy__gpu_lines {
  hy__gpu_dim3 grid, block;
} hy__gpu_lines;

// Lines of threads for `rows` rows of `vectors` vectors of 16 bytes, at most `held` a thread and
// fewer where rows are too few to keep the device busy; false where a row is too long for a block.
static inline bool hy__gpu_hold_rows(const hy__gpu_task* task, long long rows, long long vectors,
                                     int held, hy__gpu_lines* lines) {
  enum { SHORT_BLOCK = 128 };             // threads of a block that has several rows
  enum { MOST_SHARE = 256, BUSY = 512 };  // threads of a row; of a multiprocessor
  long long warp = task->device->warp_size, threads = (vectors + held - 1) / held;
  threads = threads > 0 ? (threads + warp - 1) / warp * warp : warp;
  if (threads > 1024 || rows > INT32_MAX) return false;
  while (threads < vectors && 2 * threads <= MOST_SHARE &&
         rows * threads < BUSY * (long long)task->device->multiprocessors)
    threads *= 2;
  long long at_once = threads == warp ? SHORT_BLOCK / warp : 1;
  lines->block = (hy__gpu_dim3){(unsigned)threads, (unsigned)at_once, 1};
  lines->grid = hy__gpu_1d((unsigned)((rows + at_once - 1) / at_once));
  return true;
}

#endif  // HALYARD_BACKENDS_GPU_OPS_ROWS_H_
