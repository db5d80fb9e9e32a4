// Skinny GEMM of bytes: x of bytes with a scale for each group, against a weight [n, k] of bytes or
// nibbles with scales of its own (linear_int8). As gemm_skinny.cu, with mma of bytes: 32 of k are
// summed exactly in integers, then multiplied by both scales. A nibble becomes a byte of 16 times
// its value.
//
// Options: T (of the result), Q (i8, i4), TM, WN, WK, KS, STAGES as gemm_skinny.cu says. Groups of
// both sides are multiples of 32.
//
// needs: mma.sync
// options: -DT=bf16 -DQ=i8 -DTM=8 -DWN=1 -DWK=4 -DKS=256 -DSTAGES=4
// options: -DT=f16 -DQ=i4 -DTM=16 -DWN=2 -DWK=2 -DKS=256 -DSTAGES=4
// options: -DT=f32 -DQ=i8 -DTM=64 -DWN=4 -DWK=1 -DKS=128 -DSTAGES=4
// options: -DT=bf16 -DQ=i4 -DTM=64 -DWN=1 -DWK=4 -DKS=256 -DSTAGES=3
// options: -DT=bf16 -DQ=i8 -DTM=128 -DWN=8 -DWK=1 -DKS=128 -DSTAGES=3
#include "skinny.cuh"
#include "quantized_types.cuh"

#define RUN (KS / WK)
#define CHUNKS (KS / 32)
#define Q_EIGHT (same<Q, i4>::value ? 4 : 8)  // bytes of eight numbers
#define X_PITCH (KS + 32)
#define Q_PITCH (KS * Q_EIGHT / 8 + 4 * Q_EIGHT)
#define STAGE_BYTES (TM * X_PITCH + BN * Q_PITCH + (TM + BN) * CHUNKS * 4)

// Eight numbers in two words, and eight bytes of x in the same order.
DEVICE void load_weight(u32 (&w)[2], const i8* at) {
  vec<u32, 2> words = *(const vec<u32, 2>*)at;
  w[0] = words.at[0];
  w[1] = words.at[1];
}
DEVICE void load_weight(u32 (&w)[2], const i4* at) {
  u32 word = *(const u32*)at;
  w[0] = word << 4 & 0xf0f0f0f0u;  // 0, 2, 4, 6
  w[1] = word & 0xf0f0f0f0u;       // 1, 3, 5, 7
}
DEVICE void load_x(u32 (&x)[2], const char* at) {
  vec<u32, 2> words = *(const vec<u32, 2>*)at;
  x[0] = same<Q, i4>::value ? __byte_perm(words.at[0], words.at[1], 0x6420) : words.at[0];
  x[1] = same<Q, i4>::value ? __byte_perm(words.at[0], words.at[1], 0x7531) : words.at[1];
}

// The scales of a stage's chunks of 32, one for each whatever the group.
template <int LINES>
DEVICE void copy_chunk_scales(f32* to_stage, const f32* scale, i64 step, int lines, int group,
                              int k0, int k) {
  for (int i = threadIdx.x; i < LINES * CHUNKS; i += THREADS) {
    int line = i / CHUNKS, at = k0 + i % CHUNKS * 32;
    bool there = line < lines && at < k;
    copy_async_4(to_stage + i, there ? scale + line * step + at / group : scale, there ? 4 : 0);
  }
}

KERNEL void __launch_bounds__(THREADS) gemm_skinny_int8(hy_quantized_linear p) {
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_n = warp / WK, warp_k = warp % WK;
  const int n0 = blockIdx.x * BN, m0 = blockIdx.z * TM, split = blockIdx.y;
  const int all = (p.k + KS - 1) / KS, part = (all + p.splits - 1) / p.splits;
  const int first = min(split * part, all), steps = min(first + part, all) - first;
  const char* x = (const char*)p.x + m0 * p.x_row;
  const char* q = (const char*)p.q + n0 * p.q_row * Q_EIGHT / 8;

  auto stage = [&](int s) { return shared + s % STAGES * STAGE_BYTES; };
  auto copy = [&](int s) {
    if (s < steps) {
      int k0 = (first + s) * KS;
      char *at_x = stage(s), *at_q = at_x + TM * X_PITCH;
      f32* scales = (f32*)(at_q + BN * Q_PITCH);
      copy_lines<TM, KS>(at_x, X_PITCH, x, p.x_row, p.m - m0, k0, p.k);
      copy_lines<BN, KS * Q_EIGHT / 8>(at_q, Q_PITCH, q, p.q_row * Q_EIGHT / 8, p.n - n0,
                                       (i64)k0 * Q_EIGHT / 8, (i64)p.k * Q_EIGHT / 8);
      copy_chunk_scales<TM>(scales, p.x_scale + m0 * p.x_scale_row, p.x_scale_row, p.m - m0,
                            p.x_group, k0, p.k);
      copy_chunk_scales<BN>(scales + TM * CHUNKS, p.scale + n0 * p.scale_row, p.scale_row,
                            p.n - n0, p.group, k0, p.k);
    }
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) copy(s);

  f32 sum[TM / 8][4];
#pragma unroll
  for (int j = 0; j < TM / 8; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) sum[j][e] = 0;

  for (int s = 0; s < steps; s++) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();
    copy(s + STAGES - 1);
    const char *at_x = stage(s), *at_q = at_x + TM * X_PITCH;
    const f32 *x_scales = (const f32*)(at_q + BN * Q_PITCH), *q_scales = x_scales + TM * CHUNKS;
    const int row = warp_n * 16 + g;
#pragma unroll
    for (int k = warp_k * RUN; k < (warp_k + 1) * RUN; k += 32) {
      u32 low[2], high[2];
      load_weight(low, (const Q*)(at_q + row * Q_PITCH + (k / 8 + t) * Q_EIGHT));
      load_weight(high, (const Q*)(at_q + (row + 8) * Q_PITCH + (k / 8 + t) * Q_EIGHT));
      const u32 a[4] = {low[0], high[0], low[1], high[1]};
      const f32 unit = same<Q, i4>::value ? 0.0625f : 1.0f;
      const f32 scale_low = q_scales[row * CHUNKS + k / 32] * unit;
      const f32 scale_high = q_scales[(row + 8) * CHUNKS + k / 32] * unit;
#pragma unroll
      for (int j = 0; j < TM / 8; j++) {
        u32 b[2];
        load_x(b, at_x + (8 * j + g) * X_PITCH + k + 8 * t);
        int whole[4] = {0, 0, 0, 0};
        mma(i8(), whole, a, b[0], b[1]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
          f32 by = x_scales[(8 * j + 2 * t + e % 2) * CHUNKS + k / 32];
          sum[j][e] += (f32)whole[e] * (by * (e < 2 ? scale_low : scale_high));
        }
      }
    }
  }
  copy_async_wait<0>();
  __syncthreads();
  finish_tile(p, (f32*)shared, sum, m0, n0, split, [&](int m, int n, f32 value) {
    if (p.bias) value += to<f32>(((const T*)p.bias)[n * p.bias_step]);
    ((T*)p.out)[m * p.out_row + n * p.out_column] = from<T>(value);
  });
}
