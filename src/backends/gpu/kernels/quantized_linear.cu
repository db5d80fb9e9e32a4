// Layers with quantised weights, of any type, group and shape, without tensor cores:
// linear_quantized (x of floats) and linear_int8 (x of bytes with scales of its own). Options: X, Q
// (element types of x and of the weight), T (of the result and the bias).
#include "params.h"
#include "quantized_types.cuh"
#include "simt_gemm.cuh"

typedef traits<T>::math acc;

struct x_rows {
  const hy_quantized_linear& p;
  __device__ __forceinline__ acc operator()(int row, int k) const {
    acc x = to<acc>(((const X*)p.x)[row * p.x_row + k]);
    return p.x_scale ? x * (acc)p.x_scale[row * p.x_scale_row + k / p.x_group] : x;
  }
};

struct weight_rows {
  const hy_quantized_linear& p;
  __device__ __forceinline__ acc operator()(int row, int k) const {
    acc q = quantized_at<acc>(quantized_row((const Q*)p.q, row, p.q_row), k);
    return q * (acc)p.scale[row * p.scale_row + k / p.group];
  }
};

KERNEL void __launch_bounds__(SIMT_THREADS) quantized_linear(hy_quantized_linear p) {
  x_rows a = {p};
  weight_rows b = {p};
  simt_gemm<acc, 64, 64, 16, true, true>(
      (int)blockIdx.y * 64, p.m, (int)blockIdx.x * 64, p.n, 0, p.k, a, b,
      [&](int m, int n, acc sum) {
        if (p.bias) sum += to<acc>(((const T*)p.bias)[n * p.bias_step]);
        ((T*)p.out)[m * p.out_row + n] = from<T>(sum);
      });
}
