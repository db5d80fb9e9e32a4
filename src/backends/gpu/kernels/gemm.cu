// GEMM without tensor cores: mm, bmm, addmm, linear and int_mm in f32 (true f32, no TF32), f64 and
// integers. Where the output alone does not fill the device, blocks split k and gemm_sum adds their
// parts in order. Options: T, TO (element types in and out), A_K and B_K (1 where the operand's
// neighbours in memory are along k), TILE (64 or 128).
//
// options: -DT=f32 -DTO=f32 -DA_K=1 -DB_K=1 -DTILE=128
// options: -DT=f64 -DTO=f64 -DA_K=0 -DB_K=1 -DTILE=64
// options: -DT=i8 -DTO=i32 -DA_K=1 -DB_K=0 -DTILE=64
// options: -DT=i64 -DTO=i64 -DA_K=1 -DB_K=1 -DTILE=64
// options: -DT=u8 -DTO=u8 -DA_K=1 -DB_K=1 -DTILE=64
#include "params.h"
#include "simt_gemm.cuh"

#define DEPTH 16  // of a tile

typedef accumulator<T>::type acc;

template <bool k_first>
struct strided_operand {
  const T* data;
  i64 step;
  __device__ __forceinline__ acc operator()(int row, int k) const {
    return accumulate<acc>::load(k_first ? data[row * step + k] : data[k * step + row]);
  }
};

DEVICE acc factor(double real, i64 integer, f32) {
  return (f32)real;
}
DEVICE acc factor(double real, i64 integer, f64) {
  return (acc)real;
}
DEVICE acc factor(double real, i64 integer, u32) {
  return (acc)integer;
}
DEVICE acc factor(double real, i64 integer, u64) {
  return (acc)integer;
}

struct epilogue {
  const hy_gemm& g;
  const TO* addend;
  TO* out;
  __device__ __forceinline__ epilogue(const hy_gemm& g, i64 batch)
      : g(g),
        addend(g.addend ? (const TO*)g.addend + batch * g.addend_batch : 0),
        out((TO*)g.out + batch * g.out_batch) {}
  __device__ __forceinline__ void put(int m, int n, acc sum) const {
    sum *= factor(g.alpha, g.alpha_int, acc());
    if (addend)
      sum += factor(g.beta, g.beta_int, acc()) *
             accumulate<acc>::load(addend[m * g.addend_row + n * g.addend_column]);
    out[m * g.out_row + n * g.out_column] = accumulate<acc>::template store<TO>(sum);
  }
};

// Grid: tiles of m x splits, tiles of n, batch.
KERNEL void __launch_bounds__(SIMT_THREADS) gemm(hy_gemm g) {
  const i64 batch = blockIdx.z;
  strided_operand<A_K> a = {(const T*)g.a + batch * g.a_batch, g.a_step};
  strided_operand<B_K> b = {(const T*)g.b + batch * g.b_batch, g.b_step};
  const int split = blockIdx.x % g.splits, row0 = (int)(blockIdx.x / g.splits) * TILE;
  const int part = ((g.k + DEPTH - 1) / DEPTH + g.splits - 1) / g.splits * DEPTH;
  acc* partial = (acc*)g.partial + ((i64)split * gridDim.z + batch) * g.m * g.n;
  epilogue e(g, batch);
  simt_gemm<acc, TILE, TILE, DEPTH, A_K, B_K>(row0, g.m, (int)blockIdx.y * TILE, g.n, split * part,
                                              min((split + 1) * part, g.k), a, b,
                                              [&](int m, int n, acc sum) {
                                                if (g.splits > 1)
                                                  partial[(i64)m * g.n + n] = sum;
                                                else
                                                  e.put(m, n, sum);
                                              });
}

KERNEL void gemm_sum(hy_gemm g) {
  const i64 each = (i64)g.m * g.n, all = each * g.batch;
  GRID_STRIDE(i, all) {
    acc sum = (acc)0;
    for (int s = 0; s < g.splits; s++) sum += ((const acc*)g.partial)[s * all + i];
    epilogue(g, i / each).put((int)(i % each / g.n), (int)(i % g.n), sum);
  }
}
