// Skinny GEMM: a few rows of x (decoding, small batches) against a weight [n, k] of halves, bytes,
// nibbles or 8-bit floats, at the speed of memory. The weight streams through a ring of cp.async
// stages and becomes the left operand of mma.sync in registers, 16 of its rows a warp; x is the right
// operand, 8 of its rows a time. Warps of a block split k (WK), blocks may do so too (split-K: the
// last block to arrive adds the parts in order). The scale of a group multiplies its sum in f32.
//
// Options: X (f16, bf16), Q (X, i8, i4, f8e4m3, f8e5m2), TM (rows of x in a tile, a multiple of 8),
// WN and WK (warps along n and k), KS (k of a stage, a multiple of 32 WK), STAGES, GROUPED (0: at
// most one scale for a row; 1: groups of a power of 2, 32 or more).
#include "params.h"
#include "weight_pairs.cuh"

#define THREADS (WN * WK * 32)
#define BN (WN * 16)
#define RUN (KS / WK)  // k of a warp in a stage
// Lines are padded so that the lanes of a warp, 8 lines by 4 times 8 numbers, meet no bank conflict.
#define X_PITCH (KS * 2 + 64)
#define Q_PITCH (KS * eight<Q>::BYTES / 8 + 4 * eight<Q>::BYTES)
#define SCALES (GROUPED ? KS / 32 : 0)  // of a line, at most
#define STAGE_BYTES (TM * X_PITCH + BN * Q_PITCH + BN * SCALES * 4)

// LINES lines of a stage: `bytes` of each line in memory lie from `first` on, `step` apart.
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
      for (int i = threadIdx.x; i < BN * per_stage; i += THREADS) {
        int line = i / per_stage, at_group = (k0 >> shift) + i % per_stage;
        bool there = n0 + line < p.n && at_group < p.scale_row;
        copy_async_4(at + (line * SCALES + i % per_stage) * 4,
                     there ? p.scale + (n0 + line) * p.scale_row + at_group : p.scale,
                     there ? 4 : 0);
      }
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
        f32 scale_low = scales[row * SCALES + at], scale_high = scales[(row + 8) * SCALES + at];
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

  // The warps' parts meet in shared memory: [WK][TM][BN + 1].
  f32* meet = (f32*)shared;
#pragma unroll
  for (int j = 0; j < TM / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      meet[(warp_k * TM + 8 * j + 2 * t + e % 2) * (BN + 1) + warp_n * 16 + g + e / 2 * 8] =
          sum[j][e];
  __syncthreads();
  const int tile = blockIdx.z * gridDim.x + blockIdx.x;
  auto put = [&](int m, int n, f32 value) {
    if (!GROUPED && p.scale) value *= p.scale[n * p.scale_row];
    if (p.bias) value += to<f32>(((const X*)p.bias)[n * p.bias_step]);
    ((X*)p.out)[m * p.out_row + n] = from<X>(value);
  };
  for (int i = threadIdx.x; i < TM * BN; i += THREADS) {
    int m = m0 + i / BN, n = n0 + i % BN;
    if (m >= p.m || n >= p.n) continue;
    f32 value = 0;
#pragma unroll
    for (int w = 0; w < WK; w++) value += meet[(w * TM + i / BN) * (BN + 1) + i % BN];
    if (p.splits == 1)
      put(m, n, value);
    else
      p.partial[((i64)split * p.m + m) * p.n + n] = value;
  }
  if (p.splits == 1) return;

  // The last block of the tile adds the parts, in order, and leaves its counter at 0.
  __shared__ unsigned arrived;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(&p.counters[tile], 1u);
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
  if (threadIdx.x == 0) p.counters[tile] = 0;
}
