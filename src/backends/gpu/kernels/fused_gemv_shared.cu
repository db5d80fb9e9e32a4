// fused_linear of 4-bit weights for one row of x, by multiply-adds: a block has all of its rows on
// their way to shared memory before it waits for the kernel that makes x (see dependent.cuh), and needs
// few registers, so that blocks of several kernels to come are on a multiprocessor at once and memory
// does not idle while those before them hand over.
//
// Warps copy what they read themselves: there is no barrier but where SPLIT warps share rows. A lane has
// the same words of every row, so that its part of x is in registers, and the factor of RMSNorm is that
// of its own warp's sums.
//
// needs: mma.sync
// options: -DT=bf16 -DDEPTH=896 -DGROUP=32 -DGATED=1 -DNORM=1 -DWARPS=10 -DSPLIT=0 -DOWN=4
// options: -DT=bf16 -DDEPTH=896 -DGROUP=32 -DGATED=0 -DNORM=1 -DWARPS=9 -DSPLIT=0 -DOWN=1
// options: -DT=f16 -DDEPTH=4864 -DGROUP=32 -DGATED=0 -DNORM=0 -DWARPS=10 -DSPLIT=1 -DOWN=7
// options: -DT=bf16 -DDEPTH=1792 -DGROUP=256 -DGATED=0 -DNORM=0 -DWARPS=7 -DSPLIT=0 -DOWN=1
// OWN: outputs of a warp, or with SPLIT of a block.
#include "params.h"
#include "dependent.cuh"
#include "tensor_core.cuh"

enum {
  PER_WORD = 8,              // weights of 32 bits
  WORDS = DEPTH / PER_WORD,  // of a row
  STEPS = (WORDS + HY_WARP * (SPLIT ? WARPS : 1) - 1) / (HY_WARP * (SPLIT ? WARPS : 1)),
  STRIDE = STEPS * HY_WARP,  // words of a row that a warp may have
  ROWS = GATED ? 2 * OWN : OWN,
  LINES = (STRIDE < WORDS ? STRIDE : WORDS) / 4,
  GROUPS = DEPTH / GROUP,
  WHOLE = STRIDE * PER_WORD % GROUP == 0,  // groups do not go on in the next warp
  IN_STRIDE = STRIDE * PER_WORD / GROUP + (WHOLE ? 0 : 2),
  SCALES = IN_STRIDE < GROUPS ? IN_STRIDE : GROUPS,
  AT_ONCE = WHOLE && GROUPS % 4 == 0 && SCALES % 4 == 0 ? 4 : 1,  // scales of a copy
  PADDED = OWN > 16 ? 32 : OWN > 8 ? 16 : OWN > 4 ? 8 : OWN > 2 ? 4 : OWN,
  SHARE = HY_WARP / PADDED,  // lanes that have the same sum
};
typedef vec<T, PER_WORD> x_word;

// ---- Numbers of a word ----

// (x ^ signs) & mask in one instruction: with two constants the compiler makes it two.
DEVICE u32 flip_and(u32 x, u32 mask) {
  const u32 signs = 0x88888888u;
#if HY_PTX
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0x28;" : "=r"(y) : "r"(x), "r"(signs), "r"(mask));
  return y;
#else
  return (x ^ signs) & mask;
#endif
}

// A number's bits, where they stand in the word, are a subnormal f32: 2^-149 times the number times the
// power of 2 of its place, by which x is divided. All below bit 24 are so, exactly.
DEVICE int place_of(int i) { return 4 * i < 24 ? 4 * i : 4 * i - 8; }
DEVICE f32 number(u32 word, int i) {
  return __uint_as_float(flip_and(4 * i < 24 ? word : word >> 8, 15u << place_of(i)));
}
// 2^80 over the number's place: x is far from overflow, and products from where f32 loses bits.
DEVICE f32 place_factor(int i) { return __uint_as_float((127 + 80 - (u32)place_of(i)) << 23); }
// What the flipped sign, 8, adds to every number, times 2^-149 2^80; and what undoes those.
#define SIGN_BIAS (8 * 1.6940658945086007e-21f)
#define UNIT 590295810358705651712.0f  // 2^69

// ---- What a warp has in shared memory ----

struct warp_weights {
  u32 word[ROWS][STRIDE];
  f32 scale[ROWS][(SCALES + 3) / 4 * 4];
};

DEVICE i64 row_of(const hy_fused_linear& p, int first, int i) {
  int out = first + (GATED ? i / 2 : i);
  if (out >= p.n) out = p.n - 1;
  return GATED && i % 2 ? (i64)out + p.n : out;
}

DEVICE void load(const hy_fused_linear& p, int first, int first_word, int lane, warp_weights* to) {
#pragma unroll 4
  for (int i = lane; i < ROWS * LINES; i += HY_WARP) {
    int r = i / LINES, word = i % LINES * 4;
    if (first_word + word >= WORDS) continue;
    copy_async_16(&to->word[r][word],
                  (const u32*)p.weight + row_of(p, first, r) * WORDS + first_word + word, 16);
  }
  for (int i = lane; i < ROWS * SCALES / AT_ONCE; i += HY_WARP) {
    int r = i / (SCALES / AT_ONCE), at = i % (SCALES / AT_ONCE) * AT_ONCE;
    int group = first_word * PER_WORD / GROUP + at;
    if (group >= GROUPS) continue;
    const f32* scale = p.scale + row_of(p, first, r) * GROUPS + group;
    if (AT_ONCE == 4)
      copy_async_16(&to->scale[r][at], scale, 16);
    else
      copy_async_4(&to->scale[r][at], scale, 4);
  }
  copy_async_commit();
}

// ---- The kernel ----

// Grid: blocks of OWN outputs a warp, or OWN outputs with SPLIT.
KERNEL void __launch_bounds__(WARPS* HY_WARP) fused_gemv_shared(hy_fused_linear p) {
  extern __shared__ __align__(16) char shared[];  // warp_weights of each warp
  __shared__ f32 parts[SPLIT ? WARPS : 1][PADDED];
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP;
  warp_weights* weights = (warp_weights*)shared + warp;
  const int first = (SPLIT ? blockIdx.x : blockIdx.x * WARPS + warp) * OWN;
  const int first_word = SPLIT ? warp * STRIDE : 0;
  if (!p.early) wait_for_previous();
  load(p, first, first_word, lane, weights);
  launch_dependents();
  x_word x_raw[STEPS], norm[NORM ? STEPS : 1];
#pragma unroll
  for (int j = 0; NORM && j < STEPS; j++) {
    int word = first_word + j * HY_WARP + lane;
    if (word < WORDS) norm[j] = ((const x_word*)p.norm)[word];
  }
  if (p.early) wait_for_previous();

#pragma unroll
  for (int j = 0; j < STEPS; j++) {
    int word = first_word + j * HY_WARP + lane;
    if (word < WORDS) x_raw[j] = ((const x_word*)p.x)[word];
  }
  // What this lane finishes.
  const i64 n = first + (SPLIT ? (int)threadIdx.x : lane / SHARE);
  const bool mine = n < p.n && (SPLIT ? threadIdx.x < OWN : lane % SHARE == 0 && lane / SHARE < OWN);
  f32 bias = 0, bias_up = 0, residual = 0;
  if (mine && p.bias) bias = to<f32>(((const T*)p.bias)[n]);
  if (mine && p.bias && GATED) bias_up = to<f32>(((const T*)p.bias)[p.n + n]);
  if (mine && p.residual) residual = to<f32>(((const T*)p.residual)[n]);

  f32 x[STEPS][PER_WORD], off[STEPS], square = 0;
#pragma unroll
  for (int j = 0; j < STEPS; j++) {
    off[j] = 0;
    const bool there = first_word + j * HY_WARP + lane < WORDS;
#pragma unroll
    for (int e = 0; e < PER_WORD; e++) {
      f32 v = there ? to<f32>(x_raw[j].at[e]) : 0;
      square += v * v;
      if (NORM) v *= there ? to<f32>(norm[j].at[e]) : 0;
      off[j] -= v;
      x[j][e] = v * place_factor(e);
    }
    off[j] *= SIGN_BIAS;
  }
  const f32 factor = UNIT * (NORM ? rsqrtf(warp_reduce<add_op>(square) / DEPTH + (f32)p.eps) : 1);
  copy_async_wait<0>();
  __syncwarp();

  f32 sum[PADDED], up[PADDED];
#pragma unroll
  for (int i = 0; i < PADDED; i++) sum[i] = up[i] = 0;
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    f32 total = 0;
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
      const int at = j * HY_WARP + lane, word = first_word + at;
      if (word >= WORDS) continue;
      const u32 w = weights->word[r][at];
      f32 dot = off[j];
#pragma unroll
      for (int e = 0; e < PER_WORD; e++) dot += number(w, e) * x[j][e];
      total += dot * weights->scale[r][word * PER_WORD / GROUP - first_word * PER_WORD / GROUP];
    }
    if (GATED && r % 2)
      up[r / 2] = total;
    else
      sum[GATED ? r / 2 : r] = total;
  }
  f32 value = warp_reduce_each<add_op>(sum);
  if (SPLIT) {
    if (lane % SHARE == 0) parts[warp][lane / SHARE] = value;
    __syncthreads();
    if (!mine) return;
    value = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) value += parts[w][threadIdx.x];
  }
  value = value * factor + bias;
  if (GATED) {
    f32 other = warp_reduce_each<add_op>(up) * factor + bias_up;
    value = value / (1 + __expf(-value)) * other;
  }
  value += residual;
  if (mine && p.wide)
    ((f32*)p.out)[n] = value;
  else if (mine)
    ((T*)p.out)[n] = from<T>(value);
}
