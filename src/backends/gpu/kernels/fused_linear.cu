// fused_linear of any sizes, types and alignment: a warp for each output. fused_gemv.cu is the fast
// one.
//
// options: -DT=f64 -DW=f64
// options: -DT=bf16 -DW=bf16
// options: -DT=f32 -DW=i4
// options: -DT=f16 -DW=f8e4m3
#include "params.h"
#include "quantized_types.cuh"

typedef traits<T>::math acc;

DEVICE acc silu(acc x) { return x / (1 + m_exp(-x)); }

// The product of row `row` of the weight with the normed x, without the norm's factor.
DEVICE acc product(const hy_fused_linear& p, const T* x, i64 row) {
  const W* w = quantized_row((const W*)p.weight, row, p.k);
  acc sum = 0;
  for (i64 k = threadIdx.x % HY_WARP; k < p.k; k += HY_WARP) {
    acc value = to<acc>(x[k]) * quantized_at<acc>(w, k);
    if (p.norm) value *= to<acc>(((const T*)p.norm)[k]);
    if (p.scale) value *= (acc)p.scale[row * p.groups + k / p.group];
    sum += value;
  }
  return warp_reduce<add_op>(sum);
}

// Grid: outputs of a row, 4 to a block; rows of x.
KERNEL void fused_linear(hy_fused_linear p) {
  const i64 n = (i64)blockIdx.x * (blockDim.x / HY_WARP) + threadIdx.x / HY_WARP, m = blockIdx.y;
  if (n >= p.n) return;
  const T* x = (const T*)p.x + m * p.x_row;
  acc square = 0, factor = 1;
  for (i64 k = threadIdx.x % HY_WARP; p.norm && k < p.k; k += HY_WARP)
    square += to<acc>(x[k]) * to<acc>(x[k]);
  square = warp_reduce<add_op>(square);
  if (p.norm) factor = 1 / m_sqrt(square / p.k + (acc)p.eps);
  acc value = product(p, x, n) * factor;
  if (p.bias) value += to<acc>(((const T*)p.bias)[n]);
  if (p.gated) {
    acc up = product(p, x, p.n + n) * factor;
    if (p.bias) up += to<acc>(((const T*)p.bias)[p.n + n]);
    value = silu(value) * up;
  }
  if (p.residual) value += to<acc>(((const T*)p.residual)[m * p.residual_row + n]);
  if (threadIdx.x % HY_WARP != 0) return;
  if (p.wide)
    ((f32*)p.out)[m * p.out_row + n] = (f32)value;
  else
    ((T*)p.out)[m * p.out_row + n] = from<T>(value);
}
