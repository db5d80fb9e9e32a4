// 2:4 sparse matrices: two of every four neighbours are kept, `values` holds them and a nibble of
// `codes` their places, the lower in the lower two bits; the even group of a byte has the low nibble.
// Option: T.
#include "params.h"
#include "simt_gemm.cuh"

typedef accumulator<T>::type acc;
typedef traits<T>::math math;

// The size by which a value is kept; NaN counts as infinite.
DEVICE math magnitude(math v) { return v < 0 ? -v : v; }
DEVICE bool larger(math a, math b) {
  if (traits<T>::is_float) {
    bool a_top = a != a || a - a != 0, b_top = b != b || b - b != 0;
    if (a_top || b_top) return a_top && !b_top;
  }
  return a > b;
}

struct pair_of_four {
  int first, second;
};
DEVICE pair_of_four two_largest(const math (&value)[4]) {
  math size[4];
#pragma unroll
  for (int i = 0; i < 4; i++) size[i] = magnitude(value[i]);
  int best = 0, next = -1;
#pragma unroll
  for (int i = 1; i < 4; i++)
    if (larger(size[i], size[best])) best = i;
#pragma unroll
  for (int i = 0; i < 4; i++)
    if (i != best && (next < 0 || larger(size[i], size[next]))) next = i;
  pair_of_four p = {best < next ? best : next, best < next ? next : best};
  return p;
}

// A thread for each byte of codes: two groups of four.
KERNEL void sparsify(const T* weight, T* values, u8* codes, i64 bytes) {
  GRID_STRIDE(i, bytes) {
    u32 code = 0;
#pragma unroll
    for (int g = 0; g < 2; g++) {
      math four[4];
#pragma unroll
      for (int e = 0; e < 4; e++) four[e] = to<math>(weight[i * 8 + g * 4 + e]);
      pair_of_four p = two_largest(four);
      values[i * 4 + g * 2] = weight[i * 8 + g * 4 + p.first];
      values[i * 4 + g * 2 + 1] = weight[i * 8 + g * 4 + p.second];
      code |= (u32)(p.first | p.second << 2) << (4 * g);
    }
    codes[i] = (u8)code;
  }
}

struct dense_rows {
  const T* data;
  int k;
  __device__ __forceinline__ acc operator()(int row, int at) const {
    return accumulate<acc>::load(data[(i64)row * k + at]);
  }
};

// Two equal places add up.
struct sparse_rows {
  const hy_sparse_linear& p;
  __device__ __forceinline__ acc operator()(int row, int k) const {
    i64 group = ((i64)row * p.k + k) / 4;
    int code = p.codes[group / 2] >> (group % 2 * 4) & 15, place = k % 4;
    const T* value = (const T*)p.values + group * 2;
    acc sum = (code & 3) == place ? accumulate<acc>::load(value[0]) : (acc)0;
    if (code >> 2 == place) sum += accumulate<acc>::load(value[1]);
    return sum;
  }
};

KERNEL void __launch_bounds__(SIMT_THREADS) sparse_linear(hy_sparse_linear p) {
  dense_rows a = {(const T*)p.x, p.k};
  sparse_rows b = {p};
  simt_gemm<acc, 64, 64, 16, true, true>(
      (int)blockIdx.y * 64, p.m, (int)blockIdx.x * 64, p.n, 0, p.k, a, b,
      [&](int m, int n, acc sum) {
        if (p.bias) sum += accumulate<acc>::load(((const T*)p.bias)[n]);
        ((T*)p.out)[(i64)m * p.n + n] = accumulate<acc>::template store<T>(sum);
      });
}
