// GEMV without tensor cores: up to ROWS rows of a against b, whose rows run along k, at the speed
// of memory. WARPS warps of a block share a row of b (all 4 where rows are few and long): lanes
// read 16 bytes at a time, AHEAD loads in flight, and add their sums at the end, in a fixed order.
//
// options: -DT=f32 -DROWS=1 -DWARPS=1 -DWIDE=1
// options: -DT=f64 -DROWS=8 -DWARPS=1 -DWIDE=0
// options: -DT=bf16 -DROWS=4 -DWARPS=4 -DWIDE=1
// options: -DT=f16 -DROWS=1 -DWARPS=4 -DWIDE=1
// WIDE: 1 where every row begins at a multiple of 16 bytes.
#include "params.h"

typedef traits<T>::math acc;
#define LANES (WIDE ? 16 / (int)sizeof(T) : 1)
#define AHEAD 4

// Grid: rows of b, 4 / WARPS to a block of 4 warps, then the batch.
KERNEL void __launch_bounds__(4 * HY_WARP) gemv(hy_gemm g) {
  typedef vec<T, LANES> line;
  __shared__ acc parts[4][ROWS];
  const int warp = threadIdx.x / HY_WARP, share = warp % WARPS;
  const int n = blockIdx.x * (4 / WARPS) + warp / WARPS;
  const int lane = share * HY_WARP + threadIdx.x % HY_WARP, step = WARPS * HY_WARP;
  const i64 batch = blockIdx.y;
  const T* a = (const T*)g.a + batch * g.a_batch;
  const T* b = (const T*)g.b + batch * g.b_batch + min(n, g.n - 1) * g.b_step;
  acc sum[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; m++) sum[m] = 0;
  const int lines = g.k / LANES;
  for (int i = lane; i < lines; i += step * AHEAD) {
    line y[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (i + u * step < lines) y[u] = ((const line*)b)[i + u * step];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int at = i + u * step;
      if (at >= lines) break;
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        if (m >= g.m) break;
        line x = ((const line*)(a + m * g.a_step))[at];
#pragma unroll
        for (int e = 0; e < LANES; e++) sum[m] += to<acc>(x.at[e]) * to<acc>(y[u].at[e]);
      }
    }
  }
  for (int k = lines * LANES + lane; k < g.k; k += step)
    for (int m = 0; m < ROWS && m < g.m; m++)
      sum[m] += to<acc>(a[m * g.a_step + k]) * to<acc>(b[k]);
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    sum[m] = warp_reduce<add_op>(sum[m]);
    if (threadIdx.x % HY_WARP == 0) parts[warp][m] = sum[m];
  }
  __syncthreads();
  const int m = threadIdx.x % HY_WARP;
  if (share != 0 || m >= ROWS || m >= g.m || n >= g.n) return;
  acc value = parts[warp][m];
#pragma unroll
  for (int w = 1; w < WARPS; w++) value += parts[warp + w][m];
  value *= (acc)g.alpha;
  if (g.addend)
    value += (acc)g.beta * to<acc>(((const T*)g.addend)[batch * g.addend_batch +
                                                        m * g.addend_row + n * g.addend_column]);
  ((T*)g.out)[batch * g.out_batch + m * g.out_row + n * g.out_column] = from<T>(value);
}
