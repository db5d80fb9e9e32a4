// fused_linear of one row of x with at most 1024 numbers: each warp has all of x in registers, 32
// numbers a lane, and takes R rows of the weight at once; neither shared memory nor a barrier. The
// norm is computed by every warp for itself. The weight's first lines are in registers before the
// kernel waits for the one that makes x (see dependent.cuh), and the next while it computes.
//
// options: -DT=bf16 -DW=bf16 -DDEPTH=896 -DGATED=0 -DLOOP=1 -DNORM=1
// options: -DT=bf16 -DW=bf16 -DDEPTH=896 -DGATED=1 -DLOOP=1 -DNORM=1
// options: -DT=f16 -DW=f16 -DDEPTH=1024 -DGATED=0 -DLOOP=0 -DNORM=0
// options: -DT=bf16 -DW=i8 -DDEPTH=896 -DGATED=1 -DLOOP=1 -DNORM=1
// options: -DT=bf16 -DW=i4 -DDEPTH=896 -DGATED=0 -DLOOP=1 -DNORM=1
// LOOP: warps take several groups of rows.
#include "params.h"
#include "dependent.cuh"
#include "quantized_types.cuh"

typedef vec<u32, 4> line;
enum {
  WARPS = 4,
  EACH = same<W, i4>::value ? 32 : 16 / (int)sizeof(W),  // weights of a line
  LINES = DEPTH / EACH,                                  // of a row
  STEPS = (LINES + HY_WARP - 1) / HY_WARP,               // of a row in a lane
  R = STEPS >= 2 ? 2 : 4,                                // rows of the weight at once
  OUTS = GATED ? R / 2 : R,                              // outputs of those
  SCALED = !same<W, T>::value,
};

// ---- Numbers of a line ----

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
// A nibble in the first bits of the mantissa of 1, biased by 8: 1.5 + itself / 16; see `dot`.
DEVICE f32 number(const i4*, const line& w, int i) {
  u32 biased = w.at[i / 8] ^ 0x88888888u, shift = i % 8 * 4;
  u32 mantissa = shift <= 19 ? biased << (19 - shift) : biased >> (shift - 19);
  return __uint_as_float((mantissa & 0x780000u) | 0x3f800000u);
}

// ---- What a lane holds ----

struct held {
  line w[R][STEPS];
  f32 scale[SCALED ? R : 1][SCALED ? STEPS : 1];
};

DEVICE void load(const hy_fused_linear& p, int group, int lane, held* h) {
#pragma unroll
  for (int r = 0; r < R; r++) {
    i64 row = (i64)group * OUTS + (r < OUTS ? r : r - OUTS);
    if (row >= p.n) row = p.n - 1;
    if (r >= OUTS) row += p.n;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      int at = i * HY_WARP + lane;
      if (at >= LINES) break;
      h->w[r][i] = load_once((const char*)p.weight + (row * LINES + at) * 16);
      if (SCALED) h->scale[r][i] = p.scale[row * p.groups + at * EACH / p.group];
    }
  }
}

// A lane's numbers of a vector, where its lines of the weight meet them.
struct numbers {
  f32 at[STEPS][EACH];

  __device__ __forceinline__ void load(const T* x, int lane) {
    typedef vec<T, 16 / sizeof(T)> x_line;
    const int in_line = 16 / (int)sizeof(T);
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      int line_at = i * HY_WARP + lane;
#pragma unroll
      for (int k = 0; k < EACH; k += in_line) {
        x_line v;
        if (line_at < LINES) v = *(const x_line*)(x + line_at * EACH + k);
#pragma unroll
        for (int e = 0; e < in_line; e++) at[i][k + e] = line_at < LINES ? to<f32>(v.at[e]) : 0.0f;
      }
    }
  }
};

DEVICE f32 dot(const line& w, const f32* x, f32 all) {
  f32 sum = 0;
#pragma unroll
  for (int e = 0; e < EACH; e++) sum += number((const W*)0, w, e) * x[e];
  return same<W, i4>::value ? 16 * (sum - 1.5f * all) : sum;
}

// Grid: blocks of 4 warps, which take groups of rows in turn.
KERNEL void __launch_bounds__(WARPS* HY_WARP, 4) fused_gemv_short(hy_fused_linear p) {
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP;
  const int groups = (p.n + OUTS - 1) / OUTS, step = gridDim.x * WARPS;
  int group = blockIdx.x * WARPS + warp;
  launch_dependents();
  if (!p.early) wait_for_previous();
  held now;
  if (group < groups) load(p, group, lane, &now);
  if (p.early) wait_for_previous();
  numbers x;
  x.load((const T*)p.x, lane);
  f32 factor = 1;
  if (NORM) {
    numbers norm;
    norm.load((const T*)p.norm, lane);
    f32 square = 0;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        square += x.at[i][e] * x.at[i][e];
        x.at[i][e] *= norm.at[i][e];
      }
    }
    factor = rsqrtf(warp_reduce<add_op>(square) / DEPTH + (f32)p.eps);
  }
  f32 all[STEPS];  // for numbers that are biased
#pragma unroll
  for (int i = 0; i < STEPS; i++) {
    all[i] = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) all[i] += x.at[i][e];
  }

  for (; group < groups; group += step) {
    held next;
    if (LOOP && group + step < groups) load(p, group + step, lane, &next);
    const i64 n = (i64)group * OUTS + lane;  // what this lane finishes
    const bool mine = lane < OUTS && n < p.n;
    f32 bias = 0, bias_up = 0, residual = 0;
    if (mine && p.bias) {
      bias = to<f32>(((const T*)p.bias)[n]);
      if (GATED) bias_up = to<f32>(((const T*)p.bias)[p.n + n]);
    }
    if (mine && p.residual) residual = to<f32>(((const T*)p.residual)[n]);
    f32 value = 0, up = 0;
#pragma unroll
    for (int r = 0; r < R; r++) {
      f32 sum = 0;
#pragma unroll
      for (int i = 0; i < STEPS; i++) {
        if (i * HY_WARP + lane >= LINES) break;
        f32 part = dot(now.w[r][i], x.at[i], all[i]);
        sum += SCALED ? part * now.scale[r][i] : part;
      }
      sum = warp_reduce<add_op>(sum) * factor;
      if (r < OUTS && r == lane) value = sum;
      if (r >= OUTS && r - OUTS == lane) up = sum;
    }
    value += bias;
    if (GATED) value = value / (1 + __expf(-value)) * (up + bias_up);
    value += residual;
    if (mine && p.wide)
      ((f32*)p.out)[n] = value;
    else if (mine)
      ((T*)p.out)[n] = from<T>(value);
    if (LOOP) now = next;
  }
}
