// fused_linear of quantised weights for one row of x, on the integer tensor cores: the weight's bytes
// go there as they are, and x as fixed point, three signed digits of base 256 under one exponent. Sums
// of a group are integers without rounding; x keeps 22 bits below its largest magnitude, as many as
// f32 sums are good for. A row of x that is not finite gives NaN.
//
// All rows of a block are on their way to shared memory before it waits for the kernel that makes x (see
// dependent.cuh), and registers are few, so that blocks of several kernels to come are on a
// multiprocessor at once: memory does not idle while those before them hand over.
//
// A product has 16 rows of the weight, or 8 and as many zeros, and columns 0, 1, 2 are the digits of x,
// the lowest first.
//
// needs: mma.sync
// options: -DT=bf16 -DW=i8 -DDEPTH=896 -DGROUP=128 -DGATED=1 -DNORM=1 -DHALVES=2 -DTILES=5 -DSPLIT=2
// options: -DT=bf16 -DW=i4 -DDEPTH=896 -DGROUP=32 -DGATED=1 -DNORM=1 -DHALVES=2 -DTILES=5 -DSPLIT=2
// options: -DT=bf16 -DW=i4 -DDEPTH=4864 -DGROUP=32 -DGATED=0 -DNORM=0 -DHALVES=1 -DTILES=1 -DSPLIT=13
// options: -DT=f16 -DW=i8 -DDEPTH=896 -DGROUP=64 -DGATED=0 -DNORM=1 -DHALVES=1 -DTILES=1 -DSPLIT=7
// HALVES: times 8 rows of a tile (gated: the second half is that of the gate's other factor). TILES of a
// block have SPLIT warps each, which share out the k of its rows.
#include "params.h"
#include "dependent.cuh"
#include "quantized_types.cuh"
#include "tensor_core.cuh"

enum {
  WARPS = TILES * SPLIT,
  THREADS = WARPS * HY_WARP,
  NIBBLES = same<W, i4>::value,
  OUTS = GATED ? 8 : 8 * HALVES,  // of a tile
  WORDS = DEPTH / (NIBBLES ? 8 : 4),  // 32 bits of a row
  // Words of 32 k. Rows are an odd number of them apart, so that they begin in different banks.
  BANKS = NIBBLES ? 4 : 8,
  ROW = ((WORDS + BANKS - 1) / BANKS | 1) * BANKS,
  ROWS = TILES * HALVES * 8,
  GROUPS = DEPTH / GROUP,
  CHUNK = GROUP < 128 ? GROUP : 128,  // k whose integers cannot leave 22 bits
  CHUNKS = DEPTH / CHUNK,
  PLANE = DEPTH + 32,  // bytes of a digit of x
  DIGITS = 3,
  OWN = (DEPTH / 8 + THREADS - 1) / THREADS,  // eights of x that a thread has
};
typedef vec<T, 8> eight;

// ---- The weight ----

// Row r of the block's: tile by tile.
DEVICE i64 row_of(const hy_fused_linear& p, int r) {
  int in_tile = r % (8 * HALVES), tile = blockIdx.x * TILES + r / (8 * HALVES);
  int out = tile * OUTS + (GATED ? in_tile % 8 : in_tile);
  if (out >= p.n) out = p.n - 1;
  return GATED && in_tile >= 8 ? (i64)out + p.n : out;
}

DEVICE void load(const hy_fused_linear& p, u32* words, f32* scales) {
#pragma unroll 4
  for (int i = threadIdx.x; i < ROWS * (WORDS / 4); i += THREADS) {
    int r = i / (WORDS / 4), word = i % (WORDS / 4) * 4;
    copy_async_16(words + r * ROW + word, (const u32*)p.weight + row_of(p, r) * WORDS + word, 16);
  }
  const int each = GROUPS % 4 ? 1 : 4;
  for (int i = threadIdx.x; i < ROWS * (GROUPS / each); i += THREADS) {
    int r = i / (GROUPS / each), group = i % (GROUPS / each) * each;
    const f32* from_scale = p.scale + row_of(p, r) * GROUPS + group;
    if (each == 4)
      copy_async_16(scales + r * GROUPS + group, from_scale, 16);
    else
      copy_async_4(scales + r * GROUPS + group, from_scale, 4);
  }
  copy_async_commit();
}

// The two registers of a product's 32 k that a lane has of a row. A nibble is the upper half of a
// byte: 16 times itself.
DEVICE void bytes_of(const i8*, const u32* at, int t, u32* first, u32* second) {
  vec<u32, 2> both = *(const vec<u32, 2>*)(at + 2 * t);
  *first = both.at[0];
  *second = both.at[1];
}
DEVICE void bytes_of(const i4*, const u32* at, int t, u32* first, u32* second) {
  u32 word = at[t];
  *first = word << 4 & 0xf0f0f0f0u;
  *second = word & 0xf0f0f0f0u;
}
// Which of eight numbers of x stands at place i, so that it meets its weight.
DEVICE int number_at(int i) { return NIBBLES ? i % 4 * 2 + i / 4 : i; }

// ---- x ----

// An integer of 22 bits and a sign as three digits: with half of the base added to each they are not
// negative, and so they are bytes.
DEVICE u32 digits_of(f32 v) {
  return (__float_as_uint(v + 12582912.0f) - 0x4b400000u + 0x808080u) ^ 0x808080u;
}

// Byte `digit` of four words.
DEVICE u32 gather(const u32* word, int digit) {
  u32 low = __byte_perm(word[0], word[1], digit | (digit + 4) << 4);
  u32 high = __byte_perm(word[2], word[3], digit | (digit + 4) << 4);
  return __byte_perm(low, high, 0x5410);
}

// ---- The kernel ----

KERNEL void __launch_bounds__(THREADS) fused_gemv_digits(hy_fused_linear p) {
  extern __shared__ __align__(16) u32 words[];  // [ROWS][ROW], scales, digits of x
  __shared__ f32 squares[WARPS], tops[WARPS], parts[SPLIT][ROWS];
  f32* scales = (f32*)(words + ROWS * ROW);
  u8* digits = (u8*)(scales + (ROWS * GROUPS + 3) / 4 * 4);
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP, g = lane / 4, t = lane % 4;
  launch_dependents();
  if (!p.early) wait_for_previous();
  load(p, words, scales);
  eight x[OWN], norm[NORM ? OWN : 1];
#pragma unroll
  for (int u = 0; NORM && u < OWN; u++) {
    int i = u * THREADS + threadIdx.x;
    if (i < DEPTH / 8) norm[u] = ((const eight*)p.norm)[i];
  }
  if (p.early) wait_for_previous();

#pragma unroll
  for (int u = 0; u < OWN; u++) {
    int i = u * THREADS + threadIdx.x;
    if (i < DEPTH / 8) x[u] = ((const eight*)p.x)[i];
  }
  // What this thread finishes.
  const int out = threadIdx.x;
  const i64 n = (i64)blockIdx.x * TILES * OUTS + out;
  const bool mine = out < TILES * OUTS && n < p.n;
  f32 bias = 0, bias_up = 0, residual = 0;
  if (mine && p.bias) bias = to<f32>(((const T*)p.bias)[n]);
  if (mine && p.bias && GATED) bias_up = to<f32>(((const T*)p.bias)[p.n + n]);
  if (mine && p.residual) residual = to<f32>(((const T*)p.residual)[n]);

  f32 v[OWN][8], square = 0, top = 0;
#pragma unroll
  for (int u = 0; u < OWN; u++) {
    const bool there = u * THREADS + (int)threadIdx.x < DEPTH / 8;
#pragma unroll
    for (int e = 0; e < 8; e++) {
      f32 value = there ? to<f32>(x[u].at[e]) : 0;
      square += value * value;
      if (NORM) value *= there ? to<f32>(norm[u].at[e]) : 0;
      v[u][e] = value;
      f32 size = fabsf(value);
      top = size <= top ? top : size < INF_F32 ? size : INF_F32;  // NaN is as infinity
    }
  }
#pragma unroll
  for (int mask = HY_WARP / 2; mask > 0; mask /= 2) {
    f32 other = SHFL_XOR(top, mask);
    top = other > top ? other : top;
    if (NORM) square += SHFL_XOR(square, mask);
  }
  if (lane == 0) {
    squares[warp] = square;
    tops[warp] = top;
  }
  __syncthreads();
  square = 0;
#pragma unroll
  for (int w = 0; w < WARPS; w++) {
    top = tops[w] > top ? tops[w] : top;
    square += squares[w];
  }
  // 2^22 is above x by `up`, a power of 2; `down` takes that off again.
  u32 exponent = __float_as_uint(top) >> 23;
  exponent = exponent < 22 ? 22 : exponent;
  const f32 up = __uint_as_float((275 - exponent) << 23);
  const f32 down = top < INF_F32 ? __uint_as_float((exponent - 21) << 23) : NAN_F32;
  const f32 factor =
      (NIBBLES ? 0.0625f : 1) * down * (NORM ? rsqrtf(square / DEPTH + (f32)p.eps) : 1);
#pragma unroll
  for (int u = 0; u < OWN; u++) {
    int i = u * THREADS + threadIdx.x;
    if (i >= DEPTH / 8) break;
    u32 three[8];
#pragma unroll
    for (int e = 0; e < 8; e++) three[e] = digits_of(v[u][number_at(e)] * up);
#pragma unroll
    for (int d = 0; d < DIGITS; d++)
      *(vec<u32, 2>*)(digits + d * PLANE + i * 8) =
          vec<u32, 2>{{gather(three, d), gather(three + 4, d)}};
  }
  copy_async_wait<0>();
  __syncthreads();

  const int tile = warp / SPLIT, part = warp % SPLIT;
  const u32* rows = words + (tile * HALVES * 8 + g) * ROW;
  const f32* row_scales = scales + (tile * HALVES * 8 + g) * GROUPS;
  f32 total[HALVES][2];
#pragma unroll
  for (int i = 0; i < HALVES * 2; i++) total[i / 2][i % 2] = 0;
#pragma unroll 4
  for (int chunk = part; chunk < CHUNKS; chunk += SPLIT) {
    const int magic = 0x4b400000;  // 1.5 2^23: an integer of 22 bits added to it is one to the float
    int sum[4] = {magic, magic, magic, magic};
#pragma unroll
    for (int i = 0; i < CHUNK / 32; i++) {
      const int unit = chunk * (CHUNK / 32) + i;
      u32 a[4] = {0, 0, 0, 0};
      bytes_of((const W*)0, rows + unit * BANKS, t, &a[0], &a[2]);
      if (HALVES == 2) bytes_of((const W*)0, rows + 8 * ROW + unit * BANKS, t, &a[1], &a[3]);
      vec<u32, 2> b = {{0, 0}};
      if (g < DIGITS) b = *(const vec<u32, 2>*)(digits + g * PLANE + unit * 32 + t * 8);
      mma(i8(), sum, a, b.at[0], b.at[1]);
    }
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
      f32 scale = row_scales[half * 8 * GROUPS + chunk * CHUNK / GROUP];
#pragma unroll
      for (int c = 0; c < 2; c++)
        total[half][c] += (__uint_as_float((u32)sum[half * 2 + c]) - 12582912.0f) * scale;
    }
  }
  // Lane 4 g has digits 0 and 1 of row g, lane 4 g + 1 digit 2.
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    f32 value = t == 0 ? total[half][0] + 256 * total[half][1] : 65536 * total[half][0];
    value += SHFL_XOR(value, 1);
    if (t == 0) parts[part][(tile * HALVES + half) * 8 + g] = value;
  }
  __syncthreads();
  if (!mine) return;
  const int at = GATED ? out / 8 * 16 + out % 8 : out;
  f32 value = 0, other = 0;
#pragma unroll
  for (int s = 0; s < SPLIT; s++) {
    value += parts[s][at];
    if (GATED) other += parts[s][at + 8];
  }
  value = value * factor + bias;
  if (GATED) value = value / (1 + __expf(-value)) * (other * factor + bias_up);
  value += residual;
  if (p.wide)
    ((f32*)p.out)[n] = value;
  else
    ((T*)p.out)[n] = from<T>(value);
}
