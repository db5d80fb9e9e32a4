// GEMV of bytes by dp4a (linear_int8 with few rows): x of bytes and a weight of bytes or nibbles,
// each with a scale for a group of k. WARPS warps of a block share a row of the weight; a lane
// reads 16 bytes of it at a time, which are in one group of either side, so that its integer sum is
// exact.
//
// options: -DT=bf16 -DQ=i8 -DROWS=1 -DWARPS=1
// options: -DT=f32 -DQ=i4 -DROWS=4 -DWARPS=4
#include "params.h"
#include "quantized_types.cuh"

#define EACH (same<Q, i4>::value ? 32 : 16)  // numbers of 16 bytes
#define AHEAD 4

// The sum of 16 bytes of weight times the x they meet.
DEVICE int dot16(const i8*, const vec<u32, 4>& w, const char* x) {
  vec<u32, 4> y = *(const vec<u32, 4>*)x;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) sum = __dp4a((int)w.at[i], (int)y.at[i], sum);
  return sum;
}
// Nibbles are bytes of 16 times their value: the even ones, then the odd ones.
DEVICE int dot16(const i4*, const vec<u32, 4>& w, const char* x) {
  int sum = 0;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    vec<u32, 4> y = ((const vec<u32, 4>*)x)[h];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      u32 word = w.at[2 * h + i], low = y.at[2 * i], high = y.at[2 * i + 1];
      sum = __dp4a((int)(word << 4 & 0xf0f0f0f0u), (int)__byte_perm(low, high, 0x6420), sum);
      sum = __dp4a((int)(word & 0xf0f0f0f0u), (int)__byte_perm(low, high, 0x7531), sum);
    }
  }
  return sum;
}

// Grid: rows of the weight, 4 / WARPS to a block of 4 warps.
KERNEL void __launch_bounds__(4 * HY_WARP) gemv_int8(hy_quantized_linear p) {
  __shared__ f32 parts[4][ROWS];
  const int warp = threadIdx.x / HY_WARP, share = warp % WARPS;
  const int n = blockIdx.x * (4 / WARPS) + warp / WARPS, row = min(n, p.n - 1);
  const int lane = share * HY_WARP + threadIdx.x % HY_WARP, step = WARPS * HY_WARP;
  const vec<u32, 4>* q = (const vec<u32, 4>*)quantized_row((const Q*)p.q, row, p.q_row);
  const f32 unit = same<Q, i4>::value ? 0.0625f : 1.0f;
  f32 sum[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; m++) sum[m] = 0;
  const int lines = p.k / EACH;
  for (int i = lane; i < lines; i += step * AHEAD) {
    vec<u32, 4> w[AHEAD];
    f32 scale[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int at = i + u * step;
      if (at >= lines) break;
      w[u] = q[at];
      scale[u] = p.scale[row * p.scale_row + at * EACH / p.group];
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int at = i + u * step;
      if (at >= lines) break;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        if (m >= p.m) break;
        int whole = dot16((const Q*)0, w[u], (const char*)p.x + m * p.x_row + at * EACH);
        f32 by = p.x_scale[m * p.x_scale_row + at * EACH / p.x_group];
        sum[m] += (f32)whole * (scale[u] * unit * by);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    sum[m] = warp_reduce<add_op>(sum[m]);
    if (threadIdx.x % HY_WARP == 0) parts[warp][m] = sum[m];
  }
  __syncthreads();
  const int m = threadIdx.x % HY_WARP;
  if (share != 0 || m >= ROWS || m >= p.m || n >= p.n) return;
  f32 value = parts[warp][m];
#pragma unroll
  for (int w = 1; w < WARPS; w++) value += parts[warp + w][m];
  if (p.bias) value += to<f32>(((const T*)p.bias)[n * p.bias_step]);
  ((T*)p.out)[m * p.out_row + n * p.out_column] = from<T>(value);
}
