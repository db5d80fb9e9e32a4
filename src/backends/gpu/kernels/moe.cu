// Mixture of experts, token-grouped: choices are put in order of their expert, so that each expert's
// weights meet all of its tokens in one matrix product. Four steps: group, gate_up with SiLU, down
// with the choice's weight, and a sum over each token's choices in a fixed order. Option: T.
#include "params.h"
#include "moe_tiles.cuh"
#include "simt_gemm.cuh"

typedef accumulator<T>::type acc;

// ---- grouping, by one block an expert ----

DEVICE int expert_of(const hy_moe& p, int choice) {
  i64 e = load_index(p.id_dtype, (const char*)p.id, choice);
  return e >= 0 && e < p.experts ? (int)e : -1;
}

// How many choices each expert has, in first[expert + 1].
KERNEL void moe_count(hy_moe p, hy_gpu_fault* where, int op) {
  __shared__ int partial[32];
  int count = 0;
  for (int c = threadIdx.x; c < p.tokens * p.chosen; c += blockDim.x) {
    int e = expert_of(p, c);
    if (e < 0)
      fault(where, HY_GPU_FAULT_INDEX, op, load_index(p.id_dtype, (const char*)p.id, c), 0,
            p.experts);
    count += e == (int)blockIdx.x;
  }
  count = block_reduce<add_op>(count, partial);
  if (threadIdx.x == 0) p.first[blockIdx.x + 1] = count;
}

// Counts become places, by one thread: experts are few.
KERNEL void moe_scan(hy_moe p) {
  p.first[0] = 0;
  for (int e = 0; e < p.experts; e++) p.first[e + 1] += p.first[e];
}

// Each expert's choices in ascending order, by a warp that goes through all of them.
KERNEL void moe_order(hy_moe p) {
  const int lane = threadIdx.x;
  int at = p.first[blockIdx.x];
  for (int c0 = 0; c0 < p.tokens * p.chosen; c0 += HY_WARP) {
    int c = c0 + lane;
    int mine = c < p.tokens * p.chosen && expert_of(p, c) == (int)blockIdx.x;
    int before = mine;
#pragma unroll
    for (int d = 1; d < HY_WARP; d *= 2) {
      int up = SHFL_UP(before, d);
      if (lane >= d) before += up;
    }
    if (mine) p.order[at + before - 1] = c;
    at += SHFL(before, HY_WARP - 1);
  }
}

// ---- products ----

struct token_rows {
  const hy_moe& p;
  const int* choice;
  __device__ __forceinline__ acc operator()(int row, int k) const {
    return accumulate<acc>::load(((const T*)p.x)[(i64)(choice[row] / p.chosen) * p.size + k]);
  }
};

struct inner_rows {
  const hy_moe& p;
  const int* choice;
  __device__ __forceinline__ acc operator()(int row, int k) const {
    return ((const acc*)p.inner)[(i64)choice[row] * p.hidden + k];
  }
};

struct weight_rows {
  const T* data;
  int k;
  __device__ __forceinline__ acc operator()(int row, int at) const {
    return accumulate<acc>::load(data[(i64)row * k + at]);
  }
};

// The gate, in the order of products that the reference has: silu(gate) up.
DEVICE f32 gated(f32 gate, f32 up) { return gate / (1 + expf(-gate)) * up; }
DEVICE f64 gated(f64 gate, f64 up) { return gate / (1 + exp(-gate)) * up; }

// Rows of `gate` to inner, then rows of `up` on top: two products of one tile.
KERNEL void __launch_bounds__(SIMT_THREADS) moe_gate_up(hy_moe p) {
  int expert, row0, rows;
  if (!moe_tile(p, blockIdx.x, &expert, &row0, &rows)) return;
  const int* choice = p.order + p.first[expert];
  const T* gate = (const T*)p.gate_up + (i64)expert * 2 * p.hidden * p.size;
  acc* inner = (acc*)p.inner;
  token_rows a = {p, choice};
  weight_rows b = {gate, p.size}, c = {gate + (i64)p.hidden * p.size, p.size};
  const int column0 = blockIdx.y * TILE;
  simt_gemm<acc, TILE, TILE, 16, true, true>(
      row0, rows, column0, p.hidden, 0, p.size, a, b,
      [&](int m, int n, acc sum) { inner[(i64)choice[m] * p.hidden + n] = sum; });
  __syncthreads();
  simt_gemm<acc, TILE, TILE, 16, true, true>(
      row0, rows, column0, p.hidden, 0, p.size, a, c, [&](int m, int n, acc sum) {
        acc* at = &inner[(i64)choice[m] * p.hidden + n];  // written by this very thread
        *at = gated(*at, sum);
      });
}

KERNEL void __launch_bounds__(SIMT_THREADS) moe_down(hy_moe p) {
  int expert, row0, rows;
  if (!moe_tile(p, blockIdx.x, &expert, &row0, &rows)) return;
  const int* choice = p.order + p.first[expert];
  inner_rows a = {p, choice};
  weight_rows b = {(const T*)p.down + (i64)expert * p.size * p.hidden, p.hidden};
  simt_gemm<acc, TILE, TILE, 16, true, true>(
      row0, rows, (int)blockIdx.y * TILE, p.size, 0, p.hidden, a, b,
      [&](int m, int n, acc sum) {
        acc w = load_any<acc>(p.weight_dtype, (const char*)p.weight, choice[m]);
        ((acc*)p.partial)[(i64)choice[m] * p.size + n] = w * sum;
      });
}

KERNEL void moe_sum(hy_moe p) {
  GRID_STRIDE(i, (i64)p.tokens * p.size) {
    i64 token = i / p.size, at = i % p.size;
    acc sum = 0;
    for (int c = 0; c < p.chosen; c++)
      if (expert_of(p, (int)(token * p.chosen + c)) >= 0)
        sum += ((const acc*)p.partial)[(token * p.chosen + c) * p.size + at];
    ((T*)p.out)[i] = from<T>(sum);
  }
}
