// fused_linear without norm and gate for few rows of x and long rows of the weight (a transformer's
// down projection): a block has a row, its warps a quarter each. A lane's lines of the weight are in
// registers before the kernel waits (see dependent.cuh); x, which every lane reads where its own lines
// meet it, needs neither shared memory nor a barrier.
//
// options: -DT=bf16 -DW=bf16 -DDEPTH=4864 -DROWS=1
// options: -DT=f16 -DW=i8 -DDEPTH=4864 -DROWS=4
// options: -DT=bf16 -DW=i4 -DDEPTH=14336 -DROWS=1
#include "params.h"
#include "dependent.cuh"
#include "quantized_types.cuh"

typedef vec<u32, 4> line;
enum {
  WARPS = 4,
  THREADS = WARPS * HY_WARP,
  EACH = same<W, i4>::value ? 32 : 16 / (int)sizeof(W),  // weights of a line
  LINES = DEPTH / EACH,
  STEPS = (LINES + THREADS - 1) / THREADS,
  X_LINES = EACH * (int)sizeof(T) / 16,  // lines of x that one of the weight meets
  SCALED = !same<W, T>::value,
};
typedef vec<T, 16 / sizeof(T)> x_line;

// Number i of a line.
DEVICE f32 number(const bf16*, const line& w, int i) {
  return __uint_as_float(i % 2 ? w.at[i / 2] & 0xffff0000u : w.at[i / 2] << 16);
}
DEVICE f32 number(const f16*, const line& w, int i) {
  return f16_to_f32((u16)(w.at[i / 2] >> (i % 2 * 16)));
}
DEVICE f32 number(const i8*, const line& w, int i) {
  u32 biased = w.at[i / 4] ^ 0x80808080u;  // in the mantissa of 2^23: that plus itself, exactly
  return __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7440u | (u32)(i % 4))) - 8388736.0f;
}
DEVICE f32 number(const i4*, const line& w, int i) {
  u32 biased = (w.at[i / 8] >> (i % 8 * 4) & 15u) ^ 8u;
  return __uint_as_float(0x4b000000u | biased) - 8388616.0f;
}

DEVICE f32 dot(const line& w, const x_line* x) {
  f32 sum = 0;
#pragma unroll
  for (int l = 0; l < X_LINES; l++) {
    x_line v = x[l];
#pragma unroll
    for (int e = 0; e < (int)(16 / sizeof(T)); e++)
      sum += number((const W*)0, w, l * (int)(16 / sizeof(T)) + e) * to<f32>(v.at[e]);
  }
  return sum;
}

// Grid: rows of the weight.
KERNEL void __launch_bounds__(THREADS, 8) fused_gemv_split(hy_fused_linear p) {
  __shared__ f32 parts[WARPS][ROWS];
  const i64 n = blockIdx.x;
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP;
  if (!p.early) wait_for_previous();
  line w[STEPS];
  f32 scale[SCALED ? STEPS : 1];
#pragma unroll
  for (int i = 0; i < STEPS; i++) {
    int at = i * THREADS + threadIdx.x;
    if (at >= LINES) break;
    w[i] = load_once((const char*)p.weight + (n * LINES + at) * 16);
    if (SCALED) scale[i] = p.scale[n * p.groups + at * EACH / p.group];
  }
  launch_dependents();
  if (p.early) wait_for_previous();
  f32 sum[ROWS], residual = 0, bias = 0;
  const bool mine = warp == 0 && lane < p.m;
  if (mine && p.bias) bias = to<f32>(((const T*)p.bias)[n]);
  if (mine && p.residual) residual = to<f32>(((const T*)p.residual)[lane * p.residual_row + n]);
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    sum[m] = 0;
    if (m >= p.m) break;
    const x_line* x = (const x_line*)((const T*)p.x + m * p.x_row);
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      int at = i * THREADS + threadIdx.x;
      if (at >= LINES) break;
      f32 value = dot(w[i], x + at * X_LINES);
      sum[m] += SCALED ? value * scale[i] : value;
    }
    sum[m] = warp_reduce<add_op>(sum[m]);
    if (lane == 0) parts[warp][m] = sum[m];
  }
  __syncthreads();
  if (!mine) return;
  f32 value = (parts[0][lane] + parts[1][lane]) + (parts[2][lane] + parts[3][lane]);
  value += bias + residual;
  if (p.wide)
    ((f32*)p.out)[lane * p.out_row + n] = value;
  else
    ((T*)p.out)[lane * p.out_row + n] = from<T>(value);
}
