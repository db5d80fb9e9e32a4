// GEMM on tensor cores by mma.sync, for f16 and bf16 on every GPU since sm_80, and by MFMA: tiles of
// BM x BN x BK, a ring of STAGES filled by cp.async, 8 warps (4 for tiles of 64), accumulators and
// epilogue in f32. Where the output alone does not fill the device, blocks split k and gemm_mma_sum adds
// their parts in order. Options: T, A_K and B_K (1 where the operand's neighbours in memory are
// along k), BM, BN. Lines of both operands begin at multiples of 16 bytes.
//
// needs: mma
// options: -DT=bf16 -DA_K=1 -DB_K=1 -DBM=128 -DBN=128
// options: -DT=f16 -DA_K=1 -DB_K=0 -DBM=128 -DBN=128
// options: -DT=bf16 -DA_K=0 -DB_K=0 -DBM=64 -DBN=64
// options: -DT=bf16 -DA_K=0 -DB_K=1 -DBM=64 -DBN=64
#include "mma_tile.cuh"
#include "params.h"

#define BK 64
#define STAGES (HY_HIP ? 2 : 3)
#define WARPS_M 2
#define WARPS_N (BN / 32)
#define THREADS (WARPS_M * WARPS_N * MMA_LANES)
#define WM (BM / WARPS_M)
#define WN (BN / WARPS_N)

typedef mma_tile<BM, BK, A_K> a_tile;
typedef mma_tile<BN, BK, B_K> b_tile;

// Blocks that run together share rows of a and columns of b: 8 tiles of m for each step of n.
DEVICE void tile_of(int tiles_m, int tiles_n, int* m, int* n) {
  const int group = 8;
  int id = blockIdx.x, wide = group * tiles_n, first = id / wide * group;
  int high = tiles_m - first < group ? tiles_m - first : group;
  *m = first + id % wide % high;
  *n = id % wide / high;
}

struct epilogue {
  const hy_gemm& g;
  const T* addend;
  T* out;
  __device__ __forceinline__ f32 value(int m, int n, f32 sum) const {
    sum *= (f32)g.alpha;
    if (addend) sum += (f32)g.beta * to<f32>(addend[m * g.addend_row + n * g.addend_column]);
    return sum;
  }
  // Two neighbours of a row.
  __device__ __forceinline__ void put(int m, int n, f32 first, f32 second) const {
    if (m >= g.m || n >= g.n) return;
    first = value(m, n, first);
    i64 at = m * g.out_row + n * g.out_column;
    if (n + 1 < g.n) {
      second = value(m, n + 1, second);
      if (g.out_column == 1 && ((u64)(out + at) & 3) == 0) {
        *(u32*)(out + at) = pack_pair(T(), first, second);
        return;
      }
      out[at + g.out_column] = from<T>(second);
    }
    out[at] = from<T>(first);
  }
};

KERNEL void __launch_bounds__(THREADS, 2) gemm_mma(hy_gemm g) {
  extern __shared__ __align__(128) char shared[];
  const i64 batch = blockIdx.z;
  const u16* a = (const u16*)g.a + batch * g.a_batch;
  const u16* b = (const u16*)g.b + batch * g.b_batch;
  int tile_m, tile_n;
  tile_of((g.m + BM - 1) / BM, (g.n + BN - 1) / BN, &tile_m, &tile_n);
  const int row0 = tile_m * BM, column0 = tile_n * BN, all = (g.k + BK - 1) / BK;
  const int part = (all + g.splits - 1) / g.splits, first = min((int)blockIdx.y * part, all);
  const int steps = min(first + part, all) - first;
  const int warp = threadIdx.x / MMA_LANES, lane = threadIdx.x % MMA_LANES;
  const int warp_m = warp / WARPS_N * WM, warp_n = warp % WARPS_N * WN;

  f32 sum[WM / 16][WN / 8][2 * MMA_ROWS];
#pragma unroll
  for (int i = 0; i < WM / 16; i++)
#pragma unroll
    for (int j = 0; j < WN / 8; j++)
#pragma unroll
      for (int e = 0; e < 2 * MMA_ROWS; e++) sum[i][j][e] = 0;

  auto stage = [&](int s) { return shared + s % STAGES * (a_tile::BYTES + b_tile::BYTES); };
  auto copy = [&](int s) {
    if (s < steps) {
      int k = (first + s) * BK;
      a_tile::copy<THREADS>(stage(s), a, g.a_step, row0, g.m, k, g.k);
      b_tile::copy<THREADS>(stage(s) + a_tile::BYTES, b, g.b_step, column0, g.n, k, g.k);
    }
    copy_async_commit();  // an empty group too, so that counts stay in step
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) copy(s);

  for (int s = 0; s < steps; s++) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();  // stage s is there, and all have left the one that is filled next
    copy(s + STAGES - 1);
    const char *at_a = stage(s), *at_b = stage(s) + a_tile::BYTES;
#pragma unroll
    for (int k = 0; k < BK; k += 16) {
      unsigned x[WM / 16][MMA_REGISTERS], y[WN / 16][MMA_REGISTERS];
#pragma unroll
      for (int i = 0; i < WM / 16; i++) a_tile::load(x[i], at_a, warp_m + 16 * i, k);
#pragma unroll
      for (int j = 0; j < WN / 16; j++) b_tile::load(y[j], at_b, warp_n + 16 * j, k);
#pragma unroll
      for (int i = 0; i < WM / 16; i++)
#pragma unroll
        for (int j = 0; j < WN / 16; j++)
          mma_16x16(T(), sum[i][2 * j], sum[i][2 * j + 1], x[i], y[j]);
    }
  }
  copy_async_wait<0>();

  if (g.splits > 1) {
    f32* partial = (f32*)g.partial + ((i64)blockIdx.y * gridDim.z + batch) * g.m * g.n;
#pragma unroll
    for (int i = 0; i < WM / 16; i++)
#pragma unroll
      for (int j = 0; j < WN / 8; j++)
#pragma unroll
        for (int e = 0; e < 2 * MMA_ROWS; e++) {
          int m = row0 + warp_m + 16 * i + mma_row(lane) + e / 2 * 8;
          int n = column0 + warp_n + mma_column(lane, j) + e % 2;
          if (m < g.m && n < g.n) partial[(i64)m * g.n + n] = sum[i][j][e];
        }
    return;
  }
  epilogue e = {g, g.addend ? (const T*)g.addend + batch * g.addend_batch : 0,
                (T*)g.out + batch * g.out_batch};
#pragma unroll
  for (int i = 0; i < WM / 16; i++)
#pragma unroll
    for (int j = 0; j < WN / 8; j++) {
      int m = row0 + warp_m + 16 * i + mma_row(lane), n = column0 + warp_n + mma_column(lane, j);
#pragma unroll
      for (int h = 0; h < MMA_ROWS; h++)
        e.put(m + 8 * h, n, sum[i][j][2 * h], sum[i][j][2 * h + 1]);
    }
}

KERNEL void gemm_mma_sum(hy_gemm g) {
  const i64 each = (i64)g.m * g.n, all = each * g.batch;
  GRID_STRIDE(i, all) {
    f32 sum = 0;
    for (int s = 0; s < g.splits; s++) sum += ((const f32*)g.partial)[s * all + i];
    i64 batch = i / each;
    int m = (int)(i % each / g.n), n = (int)(i % g.n);
    epilogue e = {g, g.addend ? (const T*)g.addend + batch * g.addend_batch : 0,
                  (T*)g.out + batch * g.out_batch};
    e.out[m * g.out_row + n * g.out_column] = from<T>(e.value(m, n, sum));
  }
}
