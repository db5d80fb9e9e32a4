// fused_linear of an int8 weight of very many rows (a language model's head) for one row of x, by
// dp4a.
//
// x becomes fixed point (see fixed_point.cuh), 16 numbers for a line (16 bytes) of the weight. A warp has the lines of UNIT rows at once, as they follow each other in
// memory, so that all its lanes have the same number of them, and the next UNIT's on their way. A
// lane meets the same parts of x in every unit and has them in registers.
//
// Blocks stay, and take units warp by warp, so that the last ones are spread over the device. The
// first is under way before the kernel waits for the one that makes x (see dependent.cuh).
//
// needs: mma.sync
// options: -DT=bf16 -DDEPTH=896 -DGROUP=128 -DUNIT=4 -DNORM=1
// options: -DT=f16 -DDEPTH=2048 -DGROUP=128 -DUNIT=1 -DNORM=1
// options: -DT=bf16 -DDEPTH=1024 -DGROUP=64 -DUNIT=2 -DNORM=0
#include "params.h"
#include "dependent.cuh"
#include "fixed_point.cuh"

typedef vec<u32, 4> line;
enum {
  WARPS = 4,
  THREADS = WARPS * HY_WARP,
  EACH = 16,                     // weights of a line
  LINES = DEPTH / EACH,          // of a row, at least HY_WARP
  OWN = UNIT * LINES / HY_WARP,  // lines of a lane in a unit
  GROUPS = DEPTH / GROUP,        // UNIT * GROUPS is at most HY_WARP
};

// ---- x ----

// The row's i-th 16 numbers, times the norm's. Adds to their squares (before the norm), and NaN to
// `poison` where one is not finite.
DEVICE fixed_sixteen read_fixed(const T* x, const T* norm, int i, f32& square, f32& poison) {
  f32 v[2][8];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int at = i * EACH + half * 8;
    vec<T, 8> part = *(const vec<T, 8>*)(x + at), by;
    if (NORM) by = *(const vec<T, 8>*)(norm + at);
#pragma unroll
    for (int e = 0; e < 8; e++) {
      f32 value = to<f32>(part.at[e]);
      square += value * value;
      if (NORM) value *= to<f32>(by.at[e]);
      poison += value * 0;
      v[half][e] = value;
    }
  }
  return fix<i8>(v);
}

// ---- The weight ----

struct unit {
  line w[OWN];
  f32 scale;  // lane i has that of the unit's i-th group
};

DEVICE i64 first_row(const hy_fused_linear& p, int at) {
  const i64 first = (i64)at * UNIT;
  return first < p.n - UNIT ? first : p.n - UNIT;  // the last one may compute rows again
}

DEVICE void load(const hy_fused_linear& p, int at, int lane, unit* u) {
  const i64 first = first_row(p, at);
  const char* lines = (const char*)p.weight + (first * LINES + lane) * 16;
#pragma unroll
  for (int i = 0; i < OWN; i++) u->w[i] = load_once(lines + i * HY_WARP * 16);
  u->scale = p.scale[first * GROUPS + (lane < UNIT * GROUPS ? lane : 0)];
}

// The unit's sums: lane r * HY_WARP / UNIT has that of row r.
DEVICE f32 multiply(const unit& u, const fixed_sixteen (&x)[OWN], int lane) {
  f32 sum[UNIT];
#pragma unroll
  for (int r = 0; r < UNIT; r++) sum[r] = 0;
#pragma unroll
  for (int i = 0; i < OWN; i++) {
    const int dot = fixed_dot(sixteen<i8>{u.w[i]}, x[i]);
    // Group of the unit: rows are whole groups.
    const int at = i * HY_WARP + lane;
    const f32 value = (f32)dot * (x[i].factor * SHFL(u.scale, at * EACH / GROUP));
    const int row = i * HY_WARP / LINES, next = (i * HY_WARP + HY_WARP - 1) / LINES;
    if (row == next) {
      sum[row] += value;
    } else {
      const bool is_next = at >= next * LINES;
      sum[row] += is_next ? 0 : value;
      sum[next] += is_next ? value : 0;
    }
  }
  return warp_reduce_each<add_op>(sum);
}

// ---- The kernel ----

KERNEL void __launch_bounds__(THREADS, 3) fused_gemv_int8(hy_fused_linear p) {
  __shared__ fixed_sixteen shared[LINES];
  __shared__ f32 squares[WARPS], poisons[WARPS];
  const int lane = threadIdx.x % HY_WARP, warp = threadIdx.x / HY_WARP;
  const int units = (int)((p.n + UNIT - 1) / UNIT), stride = gridDim.x * WARPS;
  int at = warp * gridDim.x + blockIdx.x;
  launch_dependents();
  if (!p.early) wait_for_previous();
  unit now, next;
  load(p, at, lane, &now);
  if (NORM)
    for (int i = threadIdx.x; i < DEPTH * (int)sizeof(T) / 128; i += THREADS)
      prefetch((const char*)p.norm + i * 128);
  if (p.early) wait_for_previous();

  f32 square = 0, poison = 0;
  for (int i = threadIdx.x; i < LINES; i += THREADS)
    shared[i] = read_fixed((const T*)p.x, (const T*)p.norm, i, square, poison);
  square = warp_reduce<add_op>(square);
  poison = warp_reduce<add_op>(poison);
  if (lane == 0) squares[warp] = square, poisons[warp] = poison;
  __syncthreads();
  square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
  poison = (poisons[0] + poisons[1]) + (poisons[2] + poisons[3]);
  const f32 factor = NORM ? rsqrtf(square / DEPTH + (f32)p.eps) : 1;
  fixed_sixteen x[OWN];
#pragma unroll
  for (int i = 0; i < OWN; i++) x[i] = shared[(i * HY_WARP + lane) % LINES];

  for (; at < units; at += stride) {
    load(p, at + stride, lane, &next);
    f32 value = multiply(now, x, lane) * factor + poison;
    if (lane % (HY_WARP / UNIT) == 0) {
      const i64 n = first_row(p, at) + lane / (HY_WARP / UNIT);
      if (p.bias) value += to<f32>(((const T*)p.bias)[n]);
      if (p.residual) value += to<f32>(((const T*)p.residual)[n]);
      if (p.wide)
        ((f32*)p.out)[n] = value;
      else
        ((T*)p.out)[n] = from<T>(value);
    }
    now = next;
  }
}
