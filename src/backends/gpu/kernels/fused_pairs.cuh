// What kernels of fused_linear on tensor cores share: a lane's 16 bytes of the weight ("a line") as
// pairs of halves, x beside them in shared memory, the epilogue.
//
// A line belongs to one row and one scale, so products of different lanes must not meet. They do not:
// for rows g of a warp's tile, lane 4 g + t has the k of slots t, and column 2 t + h of the other
// operand holds x in the slots of t alone (h = 0), or what rounding x times its norm to bf16 left over
// (h = 1). Accumulators of lane 4 g + t are columns 2 t and 2 t + 1: its own two sums.
//
// Options of the kernel that includes it: W, DEPTH, ROWS, GATED, NORM, WARPS.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_FUSED_PAIRS_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_FUSED_PAIRS_CUH_

#include "params.h"
#include "dependent.cuh"
#include "quantized_types.cuh"
#include "tensor_core.cuh"

typedef bf16 T;
typedef vec<u32, 4> line;
enum {
  THREADS = WARPS * HY_WARP,
  EACH = same<W, i4>::value ? 32 : 16,  // weights of a line
  LINES = DEPTH / EACH,                 // of a row
  STEPS = LINES / 4,                    // of a tile: four lanes have a line of each row
  QUADS = EACH / 8,                     // 16 bytes of halves of x that a line meets
  ROW = DEPTH / 8,                      // of them in a row of x
  PARTS = NORM ? 2 : 1,                 // of x: rounded, and what that left over
  ZEROS = 8 * QUADS,                    // as 16 bytes, behind x: what two steps read
};

// ---- Weights as pairs of halves, in the order that x is stored in ----

// (x & mask) | bits in one instruction: with two constants the compiler makes it two.
DEVICE u32 and_or(u32 x, u32 mask, u32 bits) {
#if HY_PTX
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
  return y;
#else
  return (x & mask) | bits;
#endif
}

// Eight bytes or nibbles at `at` of the line: pairs (0, 1) (2, 3) (4, 5) (6, 7) of bytes, (0, 4) (1, 5)
// (2, 6) (3, 7) of nibbles. In the mantissa of 128 a number of 7 bits is itself plus that, exactly; a
// byte's sign takes another 128.
DEVICE void unpack(const i8*, const line& w, int at, u32 (&pair)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 two = __byte_perm(w.at[2 * at + i / 2], 0, i % 2 ? 0x4342 : 0x4140);
    pair[i] = fma_pair(bf16(), and_or(two, 0x007f007fu, 0x43004300u), 0x3f803f80u,
                       and_or(two, 0x00800080u, 0xc300c300u));
  }
}
DEVICE void unpack(const i4*, const line& w, int at, u32 (&pair)[4]) {
  u32 word = w.at[at] ^ 0x88888888u;
#pragma unroll
  for (int i = 0; i < 4; i++)
    pair[i] = fma_pair(bf16(), and_or(word >> (4 * i), 0x000f000fu, 0x43004300u), 0x3f803f80u,
                       0xc308c308u);
}
// Which of eight numbers of x stands at place i, so that it meets its weight.
DEVICE int number_at(int i) { return same<W, i4>::value ? i / 2 + i % 2 * 4 : i; }

// ---- x ----

// Rows of x and of the norm, eight numbers at once.
struct spread {
  enum { OWN = (ROW + THREADS - 1) / THREADS };
  vec<bf16, 8> at[OWN];

  __device__ __forceinline__ void load(const bf16* row) {
#pragma unroll
    for (int u = 0; u < OWN; u++) {
      int i = u * THREADS + threadIdx.x;
      if (i < ROW) at[u] = ((const vec<bf16, 8>*)row)[i];
    }
  }
  // To shared memory as weights meet it, times `by` where there is a norm; gives the sum of squares
  // of this thread's.
  __device__ __forceinline__ f32 store(line* to_shared, const spread& by) const {
    f32 square = 0;
#pragma unroll
    for (int u = 0; u < OWN; u++) {
      int i = u * THREADS + threadIdx.x;
      if (i >= ROW) break;
      line whole, rest;
#pragma unroll
      for (int pair = 0; pair < 4; pair++) {
        f32 v[2], left[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
          int k = number_at(2 * pair + e);
          v[e] = to<f32>(at[u].at[k]);
          square += v[e] * v[e];
          if (NORM) v[e] *= to<f32>(by.at[u].at[k]);
        }
        u32 both = pack_pair(bf16(), v[0], v[1]);
        left[0] = v[0] - __uint_as_float(both << 16);
        left[1] = v[1] - __uint_as_float(both & 0xffff0000u);
        whole.at[pair] = both;
        // Infinity leaves nothing.
        rest.at[pair] = pack_pair(bf16(), left[0] == left[0] ? left[0] : 0,
                                  left[1] == left[1] ? left[1] : 0);
      }
      to_shared[i] = whole;
      if (PARTS == 2) to_shared[ROW + i] = rest;
    }
    return square;
  }
};

// ---- Epilogue ----

// What meets output n of row m.
struct epilogue {
  f32 bias, bias_up, residual;
};
DEVICE epilogue read_epilogue(const hy_fused_linear& p, i64 n, int m) {
  epilogue e = {0, 0, 0};
  if (n >= p.n || m >= p.m) return e;
  if (p.bias) e.bias = to<f32>(((const T*)p.bias)[n]);
  if (p.bias && GATED) e.bias_up = to<f32>(((const T*)p.bias)[p.n + n]);
  if (p.residual) e.residual = to<f32>(((const T*)p.residual)[m * p.residual_row + n]);
  return e;
}
DEVICE void write(const hy_fused_linear& p, i64 n, int m, f32 sum, f32 up, const epilogue& e) {
  if (n >= p.n || m >= p.m) return;
  f32 value = sum + e.bias;
  if (GATED) value = value / (1 + __expf(-value)) * (up + e.bias_up);
  value += e.residual;
  if (p.wide)
    ((f32*)p.out)[m * p.out_row + n] = value;
  else
    ((T*)p.out)[m * p.out_row + n] = from<T>(value);
}

// ---- The product ----

// Brings rows of x to shared memory, [ROWS][PARTS][ROW] and zeros behind them, for all threads of the
// block; factor is what the norm multiplies each row's results with.
DEVICE void share_x(const hy_fused_linear& p, const spread& norm, line* shared,
                    f32 (*squares)[WARPS], f32 (&factor)[ROWS]) {
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    if (m >= p.m) break;
    spread x;
    x.load((const T*)p.x + m * p.x_row);
    f32 square = x.store(shared + m * PARTS * ROW, norm);
    if (NORM) square = warp_reduce<add_op>(square);
    if (NORM && threadIdx.x % HY_WARP == 0) squares[m][threadIdx.x / HY_WARP] = square;
  }
  if (threadIdx.x < ZEROS) shared[ROWS * PARTS * ROW + threadIdx.x] = line{{0, 0, 0, 0}};
  __syncthreads();
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    f32 square = 0;
    if (NORM && m < p.m)
#pragma unroll
      for (int w = 0; w < WARPS; w++) square += squares[m][w];
    factor[m] = NORM ? rsqrtf(square / DEPTH + (f32)p.eps) : 1;
  }
}

// Of column lane / 4 this lane's slots hold x, whole or left over, where lane / 8 is lane % 4, else 0.
struct slots {
  const line* at;
  bool has_x;

  __device__ __forceinline__ slots(const line* shared) {
    const int g = threadIdx.x % HY_WARP / 4, t = threadIdx.x % 4;
    has_x = g / 2 == t && g % 2 < PARTS;
    at = shared + (has_x ? g % 2 * ROW + t * QUADS : ROWS * PARTS * ROW);
  }
  // What meets a step's quads; those of the step behind it follow 4 QUADS later.
  __device__ __forceinline__ const line* of(int m, int step) const {
    return at + (has_x ? m * PARTS * ROW + step * 4 * QUADS : 0);
  }
};

// 16 rows of the weight, of which this lane has quad q of two lines, times slots of x.
DEVICE void multiply(f32 (&sum)[4], const u32 (&upper)[4], const u32 (&lower)[4], const line& x) {
  const u32 first[4] = {upper[0], lower[0], upper[1], lower[1]};
  const u32 second[4] = {upper[2], lower[2], upper[3], lower[3]};
  mma(bf16(), sum, first, x.at[0], x.at[1]);
  mma(bf16(), sum, second, x.at[2], x.at[3]);
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_FUSED_PAIRS_CUH_
