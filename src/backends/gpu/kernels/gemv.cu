// GEMV without tensor cores, for f32 and f64: up to ROWS rows of a against b, whose rows lie along k. A
// warp for each row of b: lanes read 16 bytes at a time, several loads in flight, and add their sums at
// the end. Options: T, ROWS, WIDE (1 where every row begins at a multiple of 16 bytes).
#include "params.h"

typedef traits<T>::math acc;
#define LANES (WIDE ? 16 / (int)sizeof(T) : 1)
#define AHEAD 4

// Grid: rows of b in blocks of 4 warps, then the batch.
KERNEL void __launch_bounds__(128) gemv(hy_gemm g) {
  typedef vec<T, LANES> line;
  const int n = blockIdx.x * (blockDim.x / HY_WARP) + threadIdx.x / HY_WARP;
  const int lane = threadIdx.x % HY_WARP;
  if (n >= g.n) return;
  const i64 batch = blockIdx.y;
  const T* a = (const T*)g.a + batch * g.a_batch;
  const T* b = (const T*)g.b + batch * g.b_batch + n * g.b_step;
  acc sum[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; m++) sum[m] = 0;
  const int lines = g.k / LANES;
  for (int i = lane; i < lines; i += HY_WARP * AHEAD) {
    line y[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (i + u * HY_WARP < lines) y[u] = ((const line*)b)[i + u * HY_WARP];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int at = i + u * HY_WARP;
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
  for (int k = lines * LANES + lane; k < g.k; k += HY_WARP)
    for (int m = 0; m < ROWS && m < g.m; m++)
      sum[m] += to<acc>(a[m * g.a_step + k]) * to<acc>(b[k]);
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    if (m >= g.m) break;
    acc value = warp_reduce<add_op>(sum[m]) * (acc)g.alpha;
    if (lane != 0) continue;
    if (g.addend)
      value += (acc)g.beta * to<acc>(((const T*)g.addend)[batch * g.addend_batch +
                                                          m * g.addend_row + n * g.addend_column]);
    ((T*)g.out)[batch * g.out_batch + m * g.out_row + n * g.out_column] = from<T>(value);
  }
}
