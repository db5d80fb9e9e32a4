// Tiles of halves in shared memory, as tensor cores read them. A tile has ROWS rows (of m or n) and
// DEPTH of k; its neighbours in memory run along k (k_first, as in a linear layer's weight) or
// along the rows. Chunks of 16 bytes are swizzled by the line's number, so that neither cp.async
// nor ldmatrix meets a bank conflict.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_MMA_TILE_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_MMA_TILE_CUH_

#include "tensor_core.cuh"

template <int ROWS, int DEPTH, bool k_first>
struct mma_tile {
  static const int LINES = k_first ? ROWS : DEPTH, WIDTH = k_first ? DEPTH : ROWS;
  static const int CHUNKS = WIDTH / 8;  // of a line
  static const int BYTES = ROWS * DEPTH * 2;
  // Lines of 128 bytes or more differ in 8 chunks; shorter ones share 128 bytes.
  static const int SWIZZLE = CHUNKS >= 8 ? 8 : CHUNKS, SHIFT = CHUNKS >= 8 ? 1 : 8 / CHUNKS;

  static __device__ __forceinline__ int offset(int line, int chunk) {
    return (line * CHUNKS + (chunk ^ (line / SHIFT % SWIZZLE))) * 16;
  }

  // Starts the copy of the tile whose first element is at (row0, k0) of data[rows, k]; `step` is
  // between lines. What is outside becomes 0.
  template <int THREADS>
  static __device__ __forceinline__ void copy(char* tile, const u16* data, i64 step, int row0,
                                              int rows, int k0, int k) {
    const int line0 = k_first ? row0 : k0, lines = k_first ? rows : k;
    const int first = k_first ? k0 : row0, width = k_first ? k : rows;
#pragma unroll
    for (int i = 0; i < (LINES * CHUNKS + THREADS - 1) / THREADS; i++) {
      int at = (int)threadIdx.x + i * THREADS;
      if (LINES * CHUNKS % THREADS != 0 && at >= LINES * CHUNKS) break;
      int line = at / CHUNKS, chunk = at % CHUNKS, column = first + chunk * 8;
      int left = line0 + line < lines ? width - column : 0;
      left = left < 0 ? 0 : left > 8 ? 8 : left;
      const u16* from = left > 0 ? data + (line0 + line) * step + column : data;
      copy_async_16(tile + offset(line, chunk), from, left * 2);
    }
  }

#if HY_HIP
  // The 16 x 16 block at (row, k): four elements along k of one row.
  static __device__ __forceinline__ void load(unsigned (&r)[2], const char* tile, int row, int k) {
    int lane = threadIdx.x % MMA_LANES;
    row += lane % 16;
    k += lane / 16 * 4;
    if (k_first) {
      vec<unsigned, 2> four = *(const vec<unsigned, 2>*)(tile + offset(row, k / 8) + k % 8 * 2);
      r[0] = four.at[0];
      r[1] = four.at[1];
      return;
    }
    unsigned h[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
      h[i] = *(const u16*)(tile + offset(k + i, row / 8) + row % 8 * 2);
    r[0] = h[0] | h[1] << 16;
    r[1] = h[2] | h[3] << 16;
  }
#else
  // The 16 x 16 block at (row, k): its 8x8 matrices (0, 0), (8, 0), (0, 8), (8, 8) by (row, k).
  static __device__ __forceinline__ void load(unsigned (&r)[4], const char* tile, int row, int k) {
    int lane = threadIdx.x % 32, half = lane / 8 % 2 * 8, other = lane / 16 * 8;
    if (k_first)
      load_matrices<false>(r, tile + offset(row + half + lane % 8, (k + other) / 8));
    else
      load_matrices<true>(r, tile + offset(k + other + lane % 8, (row + half) / 8));
  }
#endif
};

#endif  // HALYARD_BACKENDS_GPU_KERNELS_MMA_TILE_CUH_
