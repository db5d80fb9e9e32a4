// fused_linear of one row of x: a block has a few rows of the weight, its warps a part of k each. A lane
// meets the same numbers of x in all rows and has them in its registers, as floats, or before a weight
// of 8 or 4 bits as fixed point (see fixed_point.cuh). Its weights are in registers before the kernel
// waits (see dependent.cuh), and the block meets once, at the end.
//
// needs: mma.sync
// options: -DT=bf16 -DW=i8 -DDEPTH=896 -DGROUP=128 -DNORM=1 -DGATED=0 -DWARPS=2 -DOWN=5
// options: -DT=bf16 -DW=i8 -DDEPTH=896 -DGROUP=128 -DNORM=1 -DGATED=1 -DWARPS=2 -DOWN=4
// options: -DT=bf16 -DW=i8 -DDEPTH=4864 -DGROUP=128 -DNORM=0 -DGATED=0 -DWARPS=10 -DOWN=7
// options: -DT=bf16 -DW=i4 -DDEPTH=896 -DGROUP=32 -DNORM=1 -DGATED=0 -DWARPS=2 -DOWN=5
// options: -DT=bf16 -DW=i4 -DDEPTH=896 -DGROUP=32 -DNORM=1 -DGATED=1 -DWARPS=2 -DOWN=4
// options: -DT=bf16 -DW=i4 -DDEPTH=4864 -DGROUP=32 -DNORM=0 -DGATED=0 -DWARPS=10 -DOWN=7
// options: -DT=bf16 -DW=bf16 -DDEPTH=896 -DGROUP=1 -DNORM=1 -DGATED=0 -DWARPS=4 -DOWN=5
// options: -DT=bf16 -DW=bf16 -DDEPTH=896 -DGROUP=1 -DNORM=0 -DGATED=0 -DWARPS=4 -DOWN=4
// options: -DT=bf16 -DW=bf16 -DDEPTH=4864 -DGROUP=1 -DNORM=0 -DGATED=0 -DWARPS=10 -DOWN=4
// options: -DT=f16 -DW=i4 -DDEPTH=14336 -DGROUP=256 -DNORM=0 -DGATED=0 -DWARPS=14 -DOWN=4
// options: -DT=f16 -DW=f16 -DDEPTH=2048 -DGROUP=1 -DNORM=1 -DGATED=0 -DWARPS=8 -DOWN=8
// OWN: outputs of a block.
#include "params.h"
#include "dependent.cuh"
#include "fixed_point.cuh"

// ---- What a lane has of a row ----

template <class Weight>
struct unit {
  enum { NUMBERS = 16 };
  typedef sixteen<Weight> weights;
  typedef fixed_sixteen operand;
  static __device__ __forceinline__ operand prepare(const f32 (&v)[2][8]) {
    return fix<Weight>(v);
  }
  static __device__ __forceinline__ f32 dot(const weights& w, const operand& x, f32 scale) {
    return (f32)fixed_dot(w, x) * (x.factor * scale);
  }
};

template <class Half>
struct unit_of_halves {
  enum { NUMBERS = 8 };
  struct weights {
    vec<u32, 4> word;
  };
  struct operand {
    f32 v[8];
  };
  static __device__ __forceinline__ operand prepare(const f32 (&v)[1][8]) {
    operand x;
#pragma unroll
    for (int e = 0; e < 8; e++) x.v[e] = v[0][e];
    return x;
  }
  static __device__ __forceinline__ f32 dot(const weights& w, const operand& x, f32) {
    f32 sum = 0;
#pragma unroll
    for (int e = 0; e < 8; e++) sum += number(Half(), w.word.at[e / 2], e % 2) * x.v[e];
    return sum;
  }
  static __device__ __forceinline__ f32 number(bf16, u32 pair, int second) {
    return __uint_as_float(second ? pair & 0xffff0000u : pair << 16);
  }
  static __device__ __forceinline__ f32 number(f16, u32 pair, int second) {
    return f16_to_f32((u16)(second ? pair >> 16 : pair));
  }
};
template <>
struct unit<bf16> : unit_of_halves<bf16> {};
template <>
struct unit<f16> : unit_of_halves<f16> {};

typedef unit<W> own_unit;
enum {
  THREADS = WARPS * HY_WARP,
  QUANTIZED = !same<W, T>::value,
  EACH = own_unit::NUMBERS,
  UNITS = DEPTH / EACH,  // of a row
  STEPS = (UNITS + THREADS - 1) / THREADS,
  PARTS = EACH / 8,  // of a unit's x, 8 numbers each
  ROWS = GATED ? 2 * OWN : OWN,
  PADDED = ROWS > 16 ? 32 : ROWS > 8 ? 16 : ROWS > 4 ? 8 : ROWS > 2 ? 4 : ROWS,
  SHARE = HY_WARP / PADDED,  // lanes that have the same sum
};
typedef vec<T, 8> x_line;

// ---- The kernel ----

// Row r of the block's: of either half in turns where the weight is gated.
DEVICE i64 row_of(const hy_fused_linear& p, int first, int r) {
  const int out = first + (GATED ? r / 2 : r);
  return (out < p.n ? out : p.n - 1) + (GATED && r % 2 ? (i64)p.n : 0);
}

// Grid: blocks of OWN outputs.
KERNEL void __launch_bounds__(THREADS) fused_gemv_rows(hy_fused_linear p) {
  __shared__ f32 parts[WARPS][PADDED], squares[WARPS];
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP;
  const int first = blockIdx.x * OWN;
  if (!p.early) wait_for_previous();
  own_unit::weights w[STEPS][ROWS];
  f32 scale[STEPS][ROWS];
  x_line x[STEPS][PARTS], norm[NORM ? STEPS : 1][PARTS];
#pragma unroll
  for (int j = 0; j < STEPS; j++) {
    const int at = j * THREADS + threadIdx.x;
    if (at >= UNITS) break;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const i64 row = row_of(p, first, r);
      load_once((const char*)p.weight + (row * UNITS + at) * sizeof w[j][r], &w[j][r].word);
      if (QUANTIZED) scale[j][r] = p.scale[row * p.groups + at * EACH / GROUP];
    }
  }
  launch_dependents();
#pragma unroll
  for (int j = 0; NORM && j < STEPS; j++) {
    const int at = j * THREADS + threadIdx.x;
    if (at >= UNITS) break;
#pragma unroll
    for (int i = 0; i < PARTS; i++) norm[j][i] = ((const x_line*)p.norm)[PARTS * at + i];
  }
  if (p.early) wait_for_previous();
#pragma unroll
  for (int j = 0; j < STEPS; j++) {
    const int at = j * THREADS + threadIdx.x;
    if (at >= UNITS) break;
#pragma unroll
    for (int i = 0; i < PARTS; i++) x[j][i] = ((const x_line*)p.x)[PARTS * at + i];
  }
  const i64 n = first + (int)threadIdx.x;
  const bool mine = threadIdx.x < OWN && n < p.n;
  f32 bias = 0, bias_up = 0, residual = 0;
  if (mine && p.bias) bias = to<f32>(((const T*)p.bias)[n]);
  if (mine && p.bias && GATED) bias_up = to<f32>(((const T*)p.bias)[p.n + n]);
  if (mine && p.residual) residual = to<f32>(((const T*)p.residual)[n]);

  f32 sum[PADDED], square = 0;
#pragma unroll
  for (int r = 0; r < PADDED; r++) sum[r] = 0;
#pragma unroll
  for (int j = 0; j < STEPS; j++) {
    if (j * THREADS + (int)threadIdx.x >= UNITS) break;
    f32 v[PARTS][8], poison = 0;  // NaN where a number is not finite
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      f32 number = to<f32>(x[j][e / 8].at[e % 8]);
      square += number * number;
      if (NORM) number *= to<f32>(norm[j][e / 8].at[e % 8]);
      if (QUANTIZED) poison += number * 0;
      v[e / 8][e % 8] = number;
    }
    const own_unit::operand operand = own_unit::prepare(v);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      sum[r] += own_unit::dot(w[j][r], operand, QUANTIZED ? scale[j][r] : 1) + poison;
  }
  if (NORM) square = warp_reduce<add_op>(square);
  if (NORM && lane == 0) squares[warp] = square;
  const f32 part = warp_reduce_each<add_op>(sum);
  if (lane % SHARE == 0) parts[warp][lane / SHARE] = part;
  __syncthreads();
  if (!mine) return;
  f32 value = 0, up = 0, all = 0;
#pragma unroll
  for (int i = 0; i < WARPS; i++) {
    value += parts[i][GATED ? 2 * threadIdx.x : threadIdx.x];
    if (GATED) up += parts[i][2 * threadIdx.x + 1];
    if (NORM) all += squares[i];
  }
  const f32 by = NORM ? rsqrtf(all * (1.0f / DEPTH) + (f32)p.eps) : 1;
  value = value * by + bias;
  if (GATED) value = __fdividef(value, 1 + __expf(-value)) * (up * by + bias_up);
  value += residual;
  if (p.wide)
    ((f32*)p.out)[n] = value;
  else
    ((T*)p.out)[n] = from<T>(value);
}
