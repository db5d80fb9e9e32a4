// GEMM without tensor cores: mm, bmm, addmm, linear and int_mm in f32 (true f32, no TF32), f64 and
// integers. Options: T, TO (element types in and out), A_K and B_K (1 where the operand's neighbours
// in memory are along k), TILE (64 or 128).
#include "params.h"
#include "simt_gemm.cuh"

typedef accumulator<T>::type acc;

template <bool k_first>
struct strided_operand {
  const T* data;
  i64 step;
  __device__ __forceinline__ acc operator()(int row, int k) const {
    return accumulate<acc>::load(k_first ? data[row * step + k] : data[k * step + row]);
  }
};

DEVICE acc factor(double real, i64 integer, f32) { return (f32)real; }
DEVICE acc factor(double real, i64 integer, f64) { return (acc)real; }
DEVICE acc factor(double real, i64 integer, u32) { return (acc)integer; }
DEVICE acc factor(double real, i64 integer, u64) { return (acc)integer; }

KERNEL void __launch_bounds__(SIMT_THREADS) gemm(hy_gemm g) {
  const i64 batch = blockIdx.z;
  strided_operand<A_K> a = {(const T*)g.a + batch * g.a_batch, g.a_step};
  strided_operand<B_K> b = {(const T*)g.b + batch * g.b_batch, g.b_step};
  const TO* addend = g.addend ? (const TO*)g.addend + batch * g.addend_batch : 0;
  TO* out = (TO*)g.out + batch * g.out_batch;
  acc alpha = factor(g.alpha, g.alpha_int, acc()), beta = factor(g.beta, g.beta_int, acc());
  simt_gemm<acc, TILE, TILE, 16, A_K, B_K>(
      (int)blockIdx.x * TILE, g.m, (int)blockIdx.y * TILE, g.n, 0, g.k, a, b,
      [&](int m, int n, acc sum) {
        sum *= alpha;
        if (addend)
          sum += beta *
                 accumulate<acc>::load(addend[m * g.addend_row + n * g.addend_column]);
        out[m * g.out_row + n * g.out_column] = accumulate<acc>::template store<TO>(sum);
      });
}
