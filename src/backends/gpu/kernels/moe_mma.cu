// Mixture of experts of f16 and bf16 on tensor cores: the two products of moe.cu, whose grouping
// and sum are used with them. A block takes 64 choices of one expert; rows of x are gathered as
// they are copied. The gate and its partner are computed side by side and multiplied in registers,
// so that what is between the layers is written once, in T. Option: T. Rows begin at multiples of
// 16 bytes.
//
// needs: mma
// types: f16 bf16
#include "params.h"
#include "mma_tile.cuh"
#include "moe_tiles.cuh"

#define BK 64
#define STAGES (HY_HIP ? 2 : 3)
#define THREADS (4 * MMA_LANES)  // warps of 32 x 32
typedef mma_tile<TILE, BK, true> tile;

// Starts the copy of 64 rows of `width` from k0 on; row_of(line) gives an address, or NULL for
// zeros.
template <class RowOf>
DEVICE void copy_tile(char* to_tile, int k0, int width, const RowOf& row_of) {
#pragma unroll
  for (int i = 0; i < TILE * BK / 8 / THREADS; i++) {
    int at = (int)threadIdx.x + i * THREADS, line = at / (BK / 8), chunk = at % (BK / 8);
    int column = k0 + chunk * 8, left = width - column;
    const u16* row = left > 0 ? row_of(line) : 0;
    left = !row ? 0 : left > 8 ? 8 : left;
    copy_async_16(to_tile + tile::offset(line, chunk), row ? row + column : (const u16*)to_tile,
                  left * 2);
  }
}

// PRODUCTS products of the same 64 rows with 64 columns each: sums[p] of this warp's 32 x 32.
template <int PRODUCTS, class RowOf, class WeightOf>
DEVICE void multiply(f32 (&sum)[PRODUCTS][2][4][2 * MMA_ROWS], char* shared, int k, const RowOf& row_of,
                     const WeightOf& weight_of) {
  const int warp = threadIdx.x / MMA_LANES, warp_m = warp / 2 * 32, warp_n = warp % 2 * 32;
  const int steps = (k + BK - 1) / BK;
#pragma unroll
  for (int p = 0; p < PRODUCTS; p++)
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 2 * MMA_ROWS; e++) sum[p][i][j][e] = 0;
  auto stage = [&](int s) { return shared + s % STAGES * (1 + PRODUCTS) * tile::BYTES; };
  auto copy = [&](int s) {
    if (s < steps) {
      copy_tile(stage(s), s * BK, k, row_of);
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++)
        copy_tile(stage(s) + (1 + p) * tile::BYTES, s * BK, k,
                  [&](int line) { return weight_of(p, line); });
    }
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) copy(s);
  for (int s = 0; s < steps; s++) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    copy(s + STAGES - 1);
#pragma unroll
    for (int d = 0; d < BK; d += 16) {
      unsigned x[2][MMA_REGISTERS];
#pragma unroll
      for (int i = 0; i < 2; i++) tile::load(x[i], stage(s), warp_m + 16 * i, d);
#pragma unroll
      for (int p = 0; p < PRODUCTS; p++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
          unsigned y[MMA_REGISTERS];
          tile::load(y, stage(s) + (1 + p) * tile::BYTES, warp_n + 16 * j, d);
#pragma unroll
          for (int i = 0; i < 2; i++)
            mma_16x16(T(), sum[p][i][2 * j], sum[p][i][2 * j + 1], x[i], y);
        }
    }
  }
  copy_async_wait<0>();
}

// Each pair of neighbours of a warp's 32 x 32: put(row, column, i, j, e), e being 0 or 2.
template <class Put>
DEVICE void each_pair(const Put& put) {
  const int warp = threadIdx.x / MMA_LANES, lane = threadIdx.x % MMA_LANES;
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 2 * MMA_ROWS; e += 2)
        put(warp / 2 * 32 + 16 * i + mma_row(lane) + e / 2 * 8,
            warp % 2 * 32 + mma_column(lane, j), i, j, e);
}

DEVICE f32 gated(f32 gate, f32 up) { return gate / (1 + expf(-gate)) * up; }

KERNEL void __launch_bounds__(THREADS) moe_gate_up_mma(hy_moe p) {
  extern __shared__ __align__(128) char shared[];
  int expert, row0, rows;
  if (!moe_tile(p, blockIdx.x, &expert, &row0, &rows)) return;
  const int* choice = p.order + p.first[expert];
  const u16* weight = (const u16*)p.gate_up + (i64)expert * 2 * p.hidden * p.size;
  const int column0 = blockIdx.y * TILE;
  f32 sum[2][2][4][2 * MMA_ROWS];
  multiply<2>(
      sum, shared, p.size,
      [&](int line) {
        return row0 + line < rows
                   ? (const u16*)p.x + (i64)(choice[row0 + line] / p.chosen) * p.size
                   : (const u16*)0;
      },
      [&](int half, int line) {
        int column = column0 + line;
        return column < p.hidden ? weight + ((i64)half * p.hidden + column) * p.size
                                 : (const u16*)0;
      });
  each_pair([&](int row, int column, int i, int j, int e) {
    if (row0 + row >= rows) return;
    T* out = (T*)p.inner + (i64)choice[row0 + row] * p.hidden;
#pragma unroll
    for (int c = 0; c < 2; c++)
      if (column0 + column + c < p.hidden)
        out[column0 + column + c] = from<T>(gated(sum[0][i][j][e + c], sum[1][i][j][e + c]));
  });
}

KERNEL void __launch_bounds__(THREADS) moe_down_mma(hy_moe p) {
  extern __shared__ __align__(128) char shared[];
  int expert, row0, rows;
  if (!moe_tile(p, blockIdx.x, &expert, &row0, &rows)) return;
  const int* choice = p.order + p.first[expert];
  const u16* weight = (const u16*)p.down + (i64)expert * p.size * p.hidden;
  const int column0 = blockIdx.y * TILE;
  f32 sum[1][2][4][2 * MMA_ROWS];
  multiply<1>(
      sum, shared, p.hidden,
      [&](int line) {
        return row0 + line < rows ? (const u16*)p.inner + (i64)choice[row0 + line] * p.hidden
                                  : (const u16*)0;
      },
      [&](int, int line) {
        int column = column0 + line;
        return column < p.size ? weight + (i64)column * p.hidden : (const u16*)0;
      });
  each_pair([&](int row, int column, int i, int j, int e) {
    if (row0 + row >= rows) return;
    i64 at = choice[row0 + row];
    f32 by = load_any<f32>(p.weight_dtype, (const char*)p.weight, at);
#pragma unroll
    for (int c = 0; c < 2; c++)
      if (column0 + column + c < p.size)
        ((f32*)p.partial)[at * p.size + column0 + column + c] = by * sum[0][i][j][e + c];
  });
}
