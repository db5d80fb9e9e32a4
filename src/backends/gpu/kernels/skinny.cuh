// What skinny GEMMs share: copies of a stage's lines, and how the parts of a tile's sums meet.
// Macros: TM, WN, WK as gemm_skinny.cu says.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_SKINNY_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_SKINNY_CUH_

#include "params.h"
#include "tensor_core.cuh"

#define THREADS (WN * WK * 32)
#define BN (WN * 16)

// LINES lines of a stage: `bytes` of each line in memory are from `first` on, `step` apart.
template <int LINES, int WIDTH>
DEVICE void copy_lines(char* tile, int pitch, const char* data, i64 step, int lines, i64 first,
                       i64 bytes) {
  const int CHUNKS = WIDTH / 16;
#pragma unroll
  for (int i = 0; i < (LINES * CHUNKS + THREADS - 1) / THREADS; i++) {
    int at = (int)threadIdx.x + i * THREADS;
    if (LINES * CHUNKS % THREADS != 0 && at >= LINES * CHUNKS) break;
    int line = at / CHUNKS, chunk = at % CHUNKS;
    i64 from = first + chunk * 16, left = line < lines ? bytes - from : 0;
    left = left < 0 ? 0 : left > 16 ? 16 : left;
    copy_async_16(tile + line * pitch + chunk * 16, left > 0 ? data + line * step + from : data,
                  (int)left);
  }
}

// Starts the copy of one number for each 2^shift of k from k0 on, `count` of them, of LINES lines.
template <int LINES>
DEVICE void copy_scales(f32* to_stage, int count, const f32* scale, i64 step, int lines, int first,
                        int end) {
  for (int i = threadIdx.x; i < LINES * count; i += THREADS) {
    int line = i / count, at = first + i % count;
    bool there = line < lines && at < end;
    copy_async_4(to_stage + i, there ? scale + line * step + at : scale, there ? 4 : 0);
  }
}

// The sums of all warps, and of all blocks of the tile (split-K), to put(m, n, sum): added in a
// fixed order, by the last block to arrive. `shared` is free by now: [WK][TM][BN + 1] numbers.
template <class Put>
DEVICE void finish_tile(const hy_quantized_linear& p, f32* shared, const f32 (&sum)[TM / 8][4],
                        int m0, int n0, int split, const Put& put) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_n = warp / WK, warp_k = warp % WK;
#pragma unroll
  for (int j = 0; j < TM / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      shared[(warp_k * TM + 8 * j + 2 * t + e % 2) * (BN + 1) + warp_n * 16 + g + e / 2 * 8] =
          sum[j][e];
  __syncthreads();
  for (int i = threadIdx.x; i < TM * BN; i += THREADS) {
    int m = m0 + i / BN, n = n0 + i % BN;
    if (m >= p.m || n >= p.n) continue;
    f32 value = 0;
#pragma unroll
    for (int w = 0; w < WK; w++) value += shared[(w * TM + i / BN) * (BN + 1) + i % BN];
    if (p.splits == 1)
      put(m, n, value);
    else
      p.partial[((i64)split * p.m + m) * p.n + n] = value;
  }
  if (p.splits == 1) return;
  __shared__ unsigned arrived;
  unsigned* counter = &p.counters[blockIdx.z * gridDim.x + blockIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(counter, 1u);
  __syncthreads();
  if (arrived + 1 != (unsigned)p.splits) return;
  __threadfence();
  for (int i = threadIdx.x; i < TM * BN; i += THREADS) {
    int m = m0 + i / BN, n = n0 + i % BN;
    if (m >= p.m || n >= p.n) continue;
    f32 value = 0;
    for (int s = 0; s < p.splits; s++) value += __ldcg(&p.partial[((i64)s * p.m + m) * p.n + n]);
    put(m, n, value);
  }
  if (threadIdx.x == 0) *counter = 0;
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_SKINNY_CUH_
