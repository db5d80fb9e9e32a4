// fused_linear for few rows of x, as fast as its weight can be read: RMSNorm computed again by every
// block, a row or two of the weight for each warp, bias, SiLU gate and residual in the epilogue.
//
// The weight's first lines come into registers before the kernel waits for the one that makes x (see
// dependent.cuh): memory does not idle between kernels. The norm's factor is applied to the sums, so
// that x passes through shared memory once.
//
// options: -DT=bf16 -DW=bf16 -DDEPTH=896 -DROWS=1 -DPER=2 -DGATED=0 -DHELD=1 -DLOOP=1 -DNORM=1
// options: -DT=bf16 -DW=bf16 -DDEPTH=896 -DROWS=1 -DPER=2 -DGATED=1 -DHELD=2 -DLOOP=0 -DNORM=1
// options: -DT=bf16 -DW=bf16 -DDEPTH=4864 -DROWS=4 -DPER=1 -DGATED=0 -DHELD=1 -DLOOP=0 -DNORM=0
// options: -DT=f32 -DW=f32 -DDEPTH=896 -DROWS=2 -DPER=1 -DGATED=0 -DHELD=1 -DLOOP=0 -DNORM=1
// options: -DT=bf16 -DW=i8 -DDEPTH=4864 -DROWS=1 -DPER=1 -DGATED=0 -DHELD=1 -DLOOP=1 -DNORM=0
// options: -DT=f16 -DW=i4 -DDEPTH=896 -DROWS=1 -DPER=2 -DGATED=1 -DHELD=2 -DLOOP=0 -DNORM=1
// PER: rows of the weight in a group (gated: row n of either half). HELD: groups that a warp takes at
// once, which meet the same x out of shared memory. LOOP: warps take several times as many, and load
// the next while they compute.
#include "params.h"
#include "dependent.cuh"
#include "quantized_types.cuh"

typedef vec<u32, 4> line;
enum {
  WARPS = 4,
  EACH = same<W, i4>::value ? 32 : 16 / (int)sizeof(W),  // weights of a line
  LINES = DEPTH / EACH,                                      // of a row
  STEPS = (PER * LINES + HY_WARP - 1) / HY_WARP,         // lines that a lane holds
  QUADS = EACH / 4,                                      // float4 of x that a line meets
  SCALED = !same<W, T>::value,
};

// ---- A line of the weight times x ----

DEVICE f32 dot(const bf16*, const line& w, const float4* x) {
  f32 sum = 0;
#pragma unroll
  for (int q = 0; q < 2; q++) {
    float4 v = x[q * LINES];
    u32 a = w.at[2 * q], b = w.at[2 * q + 1];
    sum += __uint_as_float(a << 16) * v.x;
    sum += __uint_as_float(a & 0xffff0000u) * v.y;
    sum += __uint_as_float(b << 16) * v.z;
    sum += __uint_as_float(b & 0xffff0000u) * v.w;
  }
  return sum;
}
DEVICE f32 dot(const f16*, const line& w, const float4* x) {
  f32 sum = 0;
#pragma unroll
  for (int q = 0; q < 2; q++) {
    float4 v = x[q * LINES];
    u32 a = w.at[2 * q], b = w.at[2 * q + 1];
    sum += f16_to_f32((u16)a) * v.x;
    sum += f16_to_f32((u16)(a >> 16)) * v.y;
    sum += f16_to_f32((u16)b) * v.z;
    sum += f16_to_f32((u16)(b >> 16)) * v.w;
  }
  return sum;
}
DEVICE f32 dot(const f32*, const line& w, const float4* x) {
  float4 v = x[0];
  return __uint_as_float(w.at[0]) * v.x + __uint_as_float(w.at[1]) * v.y +
         __uint_as_float(w.at[2]) * v.z + __uint_as_float(w.at[3]) * v.w;
}
// A byte in the mantissa of 2^23 is that number plus itself, exactly.
DEVICE f32 byte_of(u32 biased, u32 which) {
  return __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7440u | which)) - 8388736.0f;
}
DEVICE f32 dot(const i8*, const line& w, const float4* x) {
  f32 sum = 0;
#pragma unroll
  for (int q = 0; q < 4; q++) {
    float4 v = x[q * LINES];
    u32 biased = w.at[q] ^ 0x80808080u;
    sum += byte_of(biased, 0) * v.x;
    sum += byte_of(biased, 1) * v.y;
    sum += byte_of(biased, 2) * v.z;
    sum += byte_of(biased, 3) * v.w;
  }
  return sum;
}
// A nibble in the first bits of the mantissa of 1 is 1 + itself / 16; biased by 8 it is 1.5 + itself
// / 16, so that the sum of x is taken off once.
DEVICE f32 dot(const i4*, const line& w, const float4* x) {
  f32 sum = 0, all = 0;
#pragma unroll
  for (int q = 0; q < 8; q++) {
    float4 v = x[q * LINES];
    u32 biased = w.at[q / 2] >> (q % 2 * 16) ^ 0x8888u;
    sum += __uint_as_float((biased << 19 & 0x780000u) | 0x3f800000u) * v.x;
    sum += __uint_as_float((biased << 15 & 0x780000u) | 0x3f800000u) * v.y;
    sum += __uint_as_float((biased << 11 & 0x780000u) | 0x3f800000u) * v.z;
    sum += __uint_as_float((biased << 7 & 0x780000u) | 0x3f800000u) * v.w;
    all += (v.x + v.y) + (v.z + v.w);
  }
  return 16 * (sum - 1.5f * all);
}

// ---- What a warp holds ----

struct held {
  line w[STEPS];
  f32 scale[SCALED ? STEPS : 1];
};

// Lane's line i: of the first row, or of the second.
DEVICE bool of_second(int at) { return PER == 2 && at >= LINES; }

DEVICE i64 row_of(const hy_fused_linear& p, int group, bool second) {
  i64 row = GATED ? (i64)group + (second ? p.n : 0) : (i64)group * PER + second;
  return row < p.rows ? row : p.rows - 1;
}

DEVICE void load(const hy_fused_linear& p, int group, int lane, held* h) {
  const i64 bytes = (i64)LINES * 16;
#pragma unroll
  for (int i = 0; i < STEPS; i++) {
    int at = i * HY_WARP + lane;
    if (at >= PER * LINES) break;
    bool second = of_second(at);
    i64 row = row_of(p, group, second);
    int in_row = second ? at - LINES : at;
    h->w[i] = load_once((const char*)p.weight + row * bytes + in_row * 16);
    if (SCALED) h->scale[i] = p.scale[row * p.groups + in_row * EACH / p.group];
  }
}

// ---- x ----

// Rows of x and of the norm in lines of 16 bytes, each thread's in registers: all of them are under
// way at once.
struct spread {
  enum { X_EACH = 16 / (int)sizeof(T), X_LINES = DEPTH / X_EACH, THREADS = WARPS * HY_WARP };
  typedef vec<T, X_EACH> x_line;
  x_line at[(X_LINES + THREADS - 1) / THREADS];

  __device__ __forceinline__ void load(const T* row) {
#pragma unroll
    for (int u = 0; u * THREADS < X_LINES; u++) {
      int i = u * THREADS + threadIdx.x;
      if (i < X_LINES) at[u] = ((const x_line*)row)[i];
    }
  }
  // To shared memory as weights meet it, times `by` where there is a norm; gives the sum of squares
  // of this thread's.
  __device__ __forceinline__ f32 store(float4* to_shared, const spread& by) const {
    f32 square = 0;
#pragma unroll
    for (int u = 0; u * THREADS < X_LINES; u++) {
      int i = u * THREADS + threadIdx.x;
      if (i >= X_LINES) break;
#pragma unroll
      for (int q = 0; q < X_EACH; q += 4) {
        f32 v[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          v[e] = to<f32>(at[u].at[q + e]);
          square += v[e] * v[e];
          if (NORM) v[e] *= to<f32>(by.at[u].at[q + e]);
        }
        int k = i * X_EACH + q;
        to_shared[k % EACH / 4 * LINES + k / EACH] = make_float4(v[0], v[1], v[2], v[3]);
      }
    }
    return square;
  }
};

// ---- The kernel ----

// What a lane adds to the sums that it finishes.
struct addends {
  f32 bias, bias_up, residual;
};
DEVICE addends read_addends(const hy_fused_linear& p, i64 n, int m, bool mine) {
  addends a = {0, 0, 0};
  if (mine && p.bias) {
    a.bias = to<f32>(((const T*)p.bias)[n]);
    if (GATED) a.bias_up = to<f32>(((const T*)p.bias)[p.n + n]);
  }
  if (mine && p.residual) a.residual = to<f32>(((const T*)p.residual)[m * p.residual_row + n]);
  return a;
}

DEVICE void load_all(const hy_fused_linear& p, int group, int groups, int step, int lane, held* h) {
#pragma unroll
  for (int i = 0; i < HELD; i++)
    if (group + i * step < groups) load(p, group + i * step, lane, h + i);
}

// Grid: blocks of 4 warps, which take HELD groups of PER rows in turn.
KERNEL void __launch_bounds__(WARPS* HY_WARP, STEPS > 12 ? 4 : 5) fused_gemv(hy_fused_linear p) {
  extern __shared__ float4 shared[];  // [ROWS][QUADS][LINES]
  __shared__ f32 squares[ROWS][WARPS];
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP;
  const int groups = GATED ? p.n : (p.rows + PER - 1) / PER, step = gridDim.x * WARPS;
  int group = blockIdx.x * WARPS + warp;
  if (!p.early) wait_for_previous();
  held now[HELD];
  load_all(p, group, groups, step, lane, now);
  launch_dependents();
  spread norm;
  if (NORM) norm.load((const T*)p.norm);
  if (p.early) wait_for_previous();

  f32 square[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    square[m] = 0;
    if (m >= p.m) break;
    spread x;
    x.load((const T*)p.x + m * p.x_row);
    square[m] = x.store(shared + m * QUADS * LINES, norm);
  }
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    square[m] = warp_reduce<add_op>(square[m]);
    if (lane == 0) squares[m][warp] = square[m];
  }
  __syncthreads();
  f32 factor[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    f32 sum = (squares[m][0] + squares[m][1]) + (squares[m][2] + squares[m][3]);
    factor[m] = NORM ? rsqrtf(sum * (1.0f / DEPTH) + (f32)p.eps) : 1;
  }

  const int outs = GATED ? 1 : PER;
  const int r = lane / ROWS, m = lane % ROWS;  // what this lane finishes
  for (; group < groups; group += HELD * step) {
    held next[HELD];
    if (LOOP) load_all(p, group + HELD * step, groups, step, lane, next);
    addends add[HELD];
    bool mine[HELD];
#pragma unroll
    for (int h = 0; h < HELD; h++) {
      const i64 n = (i64)(group + h * step) * outs + r;
      mine[h] = r < outs && m < p.m && n < p.n;
      add[h] = read_addends(p, n, m, mine[h]);
    }
    f32 sum[HELD][PER][ROWS];
#pragma unroll
    for (int i = 0; i < HELD * PER * ROWS; i++) sum[i / ROWS / PER][i / ROWS % PER][i % ROWS] = 0;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      int at = i * HY_WARP + lane;
      if (at >= PER * LINES) break;
      bool second = of_second(at);
      const float4* x = shared + (second ? at - LINES : at);
#pragma unroll
      for (int k = 0; k < ROWS; k++) {
        if (k >= p.m) break;
#pragma unroll
        for (int h = 0; h < HELD; h++) {
          f32 value = dot((const W*)0, now[h].w[i], x + k * QUADS * LINES);
          if (SCALED) value *= now[h].scale[i];
          if (second)
            sum[h][PER - 1][k] += value;
          else
            sum[h][0][k] += value;
        }
      }
    }
#pragma unroll
    for (int h = 0; h < HELD; h++) {
      f32 first = 0, up = 0;
#pragma unroll
      for (int i = 0; i < PER * ROWS; i++) {
        f32 all = warp_reduce<add_op>(sum[h][i / ROWS][i % ROWS]) * factor[i % ROWS];
        if (GATED && i / ROWS == 1 && i % ROWS == m) up = all;
        if ((GATED ? 0 : r) == i / ROWS && i % ROWS == m) first = all;
      }
      first += add[h].bias;
      if (GATED) first = __fdividef(first, 1 + __expf(-first)) * (up + add[h].bias_up);
      first += add[h].residual;
      const i64 n = (i64)(group + h * step) * outs + r;
      if (mine[h] && p.wide)
        ((f32*)p.out)[m * p.out_row + n] = first;
      else if (mine[h])
        ((T*)p.out)[m * p.out_row + n] = from<T>(first);
    }
    if (LOOP) {
#pragma unroll
      for (int h = 0; h < HELD; h++) now[h] = next[h];
    } else {
      load_all(p, group + HELD * step, groups, step, lane, now);
    }
  }
}
