// Skinny GEMM: a few rows of x (decoding, small batches) against a weight [n, k] of halves, bytes,
// nibbles or 8-bit floats, at the speed of memory. The weight streams through a ring of cp.async
// stages and becomes the left operand of mma.sync in registers, 16 of its rows a warp; x is the
// right operand, 8 of its rows a time. Warps of a block split k (WK), blocks may do so too
// (split-K: the last block to arrive adds the parts in order). The scale of a group multiplies its
// sum in f32.
//
// Options: X (f16, bf16), Q (X, i8, i4, f8e4m3, f8e5m2), TM (rows of x in a tile, a multiple of 8),
// WN and WK (warps along n and k), KS (k of a stage, a multiple of 32 WK), STAGES, GROUPED (0: at
// most one scale for a row; 1: groups of a power of 2, 32 or more).
//
// needs: mma.sync
// options: -DX=bf16 -DQ=bf16 -DTM=8 -DWN=1 -DWK=4 -DKS=256 -DSTAGES=4 -DGROUPED=0
// options: -DX=f16 -DQ=i4 -DTM=16 -DWN=2 -DWK=2 -DKS=256 -DSTAGES=4 -DGROUPED=1
// options: -DX=bf16 -DQ=i8 -DTM=64 -DWN=4 -DWK=1 -DKS=64 -DSTAGES=4 -DGROUPED=1
// options: -DX=bf16 -DQ=f8e4m3 -DTM=64 -DWN=1 -DWK=4 -DKS=256 -DSTAGES=3 -DGROUPED=0
// options: -DX=f16 -DQ=f8e5m2 -DTM=128 -DWN=8 -DWK=1 -DKS=64 -DSTAGES=3 -DGROUPED=1
#include "skinny.cuh"
#include "weight_pairs.cuh"

#define RUN (KS / WK)  // k of a warp in a stage
// Lines are padded so that the lanes of a warp, 8 lines by 4 times 8 numbers, meet no bank
// conflict.
#define X_PITCH (KS * 2 + 64)
#define Q_PITCH (KS * eight<Q>::BYTES / 8 + 4 * eight<Q>::BYTES)
#define STAGE_BYTES (TM * X_PITCH + BN * Q_PITCH + (GROUPED ? BN * KS / 32 * 4 : 0))

KERNEL void __launch_bounds__(THREADS) gemm_skinny(hy_quantized_linear p) {
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_n = warp / WK, warp_k = warp % WK;
  const int n0 = blockIdx.x * BN, m0 = blockIdx.z * TM, split = blockIdx.y;
  const int all = (p.k + KS - 1) / KS, part = (all + p.splits - 1) / p.splits;
  const int first = min(split * part, all), steps = min(first + part, all) - first;
  const char* x = (const char*)p.x + m0 * p.x_row * 2;
  const char* q = (const char*)p.q + n0 * p.q_row * eight<Q>::BYTES / 8;
  const int shift = __ffs(p.group) - 1;  // groups are powers of 2
  const int per_stage = GROUPED ? (KS > p.group ? KS >> shift : 1) : 0;  // scales of a line

  auto stage = [&](int s) { return shared + s % STAGES * STAGE_BYTES; };
  auto copy = [&](int s) {
    if (s < steps) {
      int k0 = (first + s) * KS;
      char* at = stage(s);
      copy_lines<TM, KS * 2>(at, X_PITCH, x, p.x_row * 2, p.m - m0, (i64)k0 * 2, (i64)p.k * 2);
      at += TM * X_PITCH;
      copy_lines<BN, KS * eight<Q>::BYTES / 8>(at, Q_PITCH, q, p.q_row * eight<Q>::BYTES / 8,
                                               p.n - n0, (i64)k0 * eight<Q>::BYTES / 8,
                                               (i64)p.k * eight<Q>::BYTES / 8);
      at += BN * Q_PITCH;
      if (GROUPED)
        copy_scales<BN>((f32*)at, per_stage, p.scale + n0 * p.scale_row, p.scale_row, p.n - n0,
                        k0 >> shift, (int)p.scale_row);
    }
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) copy(s);

  f32 sum[TM / 8][4], group_sum[GROUPED ? TM / 8 : 1][4];
#pragma unroll
  for (int j = 0; j < TM / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) sum[j][e] = group_sum[GROUPED ? j : 0][e] = 0;

  for (int s = 0; s < steps; s++) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    copy(s + STAGES - 1);
    const char *at_x = stage(s), *at_q = at_x + TM * X_PITCH;
    const f32* scales = (const f32*)(at_q + BN * Q_PITCH);
    const int row = warp_n * 16 + g;
#pragma unroll
    for (int k = warp_k * RUN; k < (warp_k + 1) * RUN; k += 32) {
      u32 low[4], high[4];
      weight_pairs<X>(low, (const Q*)(at_q + row * Q_PITCH + (k / 8 + t) * eight<Q>::BYTES));
      weight_pairs<X>(high,
                      (const Q*)(at_q + (row + 8) * Q_PITCH + (k / 8 + t) * eight<Q>::BYTES));
      u32 a[4] = {low[0], high[0], low[1], high[1]}, b[4] = {low[2], high[2], low[3], high[3]};
#pragma unroll
      for (int j = 0; j < TM / 8; j++) {
        vec<u32, 4> y = *(const vec<u32, 4>*)(at_x + (8 * j + g) * X_PITCH + (k + 8 * t) * 2);
        f32(&to_sum)[4] = GROUPED ? group_sum[GROUPED ? j : 0] : sum[j];
        mma(X(), to_sum, a, y.at[0], y.at[1]);
        mma(X(), to_sum, b, y.at[2], y.at[3]);
      }
      if (GROUPED && (((k + 32) & (p.group - 1)) == 0 || k + 32 == (warp_k + 1) * RUN)) {
        int at = k >> shift;  // 0 where a group is longer than a stage
        f32 scale_low = scales[row * per_stage + at];
        f32 scale_high = scales[(row + 8) * per_stage + at];
#pragma unroll
        for (int j = 0; j < TM / 8; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            sum[j][e] += group_sum[GROUPED ? j : 0][e] * (e < 2 ? scale_low : scale_high);
            group_sum[GROUPED ? j : 0][e] = 0;
          }
      }
    }
  }
  copy_async_wait<0>();
  __syncthreads();

  finish_tile(p, (f32*)shared, sum, m0, n0, split, [&](int m, int n, f32 value) {
    if (!GROUPED && p.scale) value *= p.scale[n * p.scale_row];
    if (p.bias) value += to<f32>(((const X*)p.bias)[n * p.bias_step]);
    ((X*)p.out)[m * p.out_row + n * p.out_column] = from<X>(value);
  });
}
