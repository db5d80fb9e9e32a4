// fused_linear of quantised weights for few rows of x in bf16, on tensor cores: unpacked to pairs of
// halves, a weight costs two instructions, where by multiply-adds it costs ten and memory waits.
//
// A lane's 16 bytes of the weight ("a line") belong to one row and one scale, so products of different
// lanes must not meet. They do not: for rows g of a warp's tile, lane 4 g + t has the k of slots t, and
// column 2 t + h of the other operand holds x in the slots of t alone (h = 0), or what rounding x times
// its norm to bf16 left over (h = 1). Accumulators of lane 4 g + t are columns 2 t and 2 t + 1: its own
// two sums.
//
// A block has tiles of TILE rows. SPLIT = WARPS: its warps share the lines of a tile. SPLIT = 1: a warp
// has tiles of its own. CHUNK steps of a warp are under way at once, the first before the kernel waits
// for the one that makes x (see dependent.cuh), and the next ones where there are more.
//
// needs: mma.sync
// options: -DW=i8 -DDEPTH=896 -DROWS=1 -DGATED=1 -DNORM=1 -DGROUP=128 -DTILE=16 -DWARPS=4 -DSPLIT=4 -DCHUNK=4
// options: -DW=i4 -DDEPTH=896 -DROWS=1 -DGATED=1 -DNORM=1 -DGROUP=32 -DTILE=16 -DWARPS=4 -DSPLIT=4 -DCHUNK=2
// options: -DW=i8 -DDEPTH=4864 -DROWS=4 -DGATED=0 -DNORM=0 -DGROUP=128 -DTILE=8 -DWARPS=8 -DSPLIT=8 -DCHUNK=10
// options: -DW=i8 -DDEPTH=896 -DROWS=2 -DGATED=0 -DNORM=1 -DGROUP=128 -DTILE=16 -DWARPS=8 -DSPLIT=1 -DCHUNK=2
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
  MINE = (STEPS + SPLIT - 1) / SPLIT,   // of them this warp's
  CHUNKS = (MINE + CHUNK - 1) / CHUNK,
  PIPELINED = SPLIT == 1 || CHUNKS > 1,
  HALVES = TILE / 8,                    // lines of a lane in a step: rows g, and g + 8
  OUTS = GATED ? TILE / 2 : TILE,
  QUADS = EACH / 8,                     // 16 bytes of halves of x that a line meets
  ROW = DEPTH / 8,                      // of them in a row of x
  PARTS = NORM ? 2 : 1,                 // of x: rounded, and what that left over
  AT_ONCE = ROWS == 1 ? 5 : ROWS == 2 ? 3 : 2,  // steps whose sums do not wait for each other
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

// ---- What a lane holds of a tile ----

struct held {
  line w[CHUNK][HALVES];
  f32 scale[CHUNK][HALVES];
};

DEVICE i64 row_of(const hy_fused_linear& p, int tile, int g, int half) {
  i64 row = GATED ? (i64)tile * 8 + g + (half ? p.n : 0) : (i64)tile * TILE + half * 8 + g;
  return row < p.rows ? row : p.rows - 1;
}
// The step of place i in a warp's list; STEPS and more: none.
DEVICE int step_of(int part, int i, int warp) {
  int mine = part * CHUNK + i;
  return mine >= MINE ? STEPS : SPLIT > 1 ? mine * SPLIT + warp : mine;
}

DEVICE void load(const hy_fused_linear& p, int tile, int part, int warp, int lane, held* h) {
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    i64 row = row_of(p, tile, lane / 4, half);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
      int step = step_of(part, i, warp), in_row = step * 4 + lane % 4;
      if (step >= STEPS) continue;
      h->w[i][half] = load_once((const char*)p.weight + (row * LINES + in_row) * 16);
      h->scale[i][half] = p.scale[row * (DEPTH / GROUP) + in_row * EACH / GROUP];
    }
  }
}

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

// ---- The kernel ----

KERNEL void __launch_bounds__(THREADS, WARPS == 4 ? 6 : SPLIT > 1 ? 2 : 3) fused_gemv_mma(hy_fused_linear p) {
  extern __shared__ line shared[];  // x: [ROWS][PARTS][ROW], and a zero
  __shared__ f32 squares[ROWS][WARPS];
  __shared__ f32 sums[SPLIT > 1 ? WARPS : 1][TILE][ROWS];
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP, g = lane / 4, t = lane % 4;
  const int tiles = (p.n + OUTS - 1) / OUTS, step = SPLIT > 1 ? gridDim.x : gridDim.x * WARPS;
  int tile = SPLIT > 1 ? blockIdx.x : blockIdx.x * WARPS + warp;
  launch_dependents();
  if (!p.early) wait_for_previous();
  held now;
  if (tile < tiles) load(p, tile, 0, warp, lane, &now);
  spread norm;
  if (NORM) norm.load((const T*)p.norm);
  if (p.early) wait_for_previous();

#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    if (m >= p.m) break;
    spread x;
    x.load((const T*)p.x + m * p.x_row);
    f32 square = x.store(shared + m * PARTS * ROW, norm);
    if (NORM) square = warp_reduce<add_op>(square);
    if (NORM && lane == 0) squares[m][warp] = square;
  }
  if (threadIdx.x == 0) shared[ROWS * PARTS * ROW] = line{{0, 0, 0, 0}};
  __syncthreads();
  f32 factor[ROWS];
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    f32 square = 0;
    if (NORM && m < p.m)
#pragma unroll
      for (int w = 0; w < WARPS; w++) square += squares[m][w];
    factor[m] = NORM ? rsqrtf(square / DEPTH + (f32)p.eps) : 1;
  }

  // Of column g this lane's slots hold x, whole or left over, where g / 2 is t, else 0.
  const bool has_x = g / 2 == t && g % 2 < PARTS;
  const line* column = shared + (has_x ? g % 2 * ROW : ROWS * PARTS * ROW);
  const int o = threadIdx.x / ROWS, m_own = threadIdx.x % ROWS;  // what this thread finishes
  f32 total[HALVES][ROWS];
  int part = 0;
  for (; tile < tiles;) {
    const bool ends = part + 1 == CHUNKS;
    const int next_tile = ends ? tile + step : tile, next_part = ends ? 0 : part + 1;
    held next;
    if (PIPELINED && next_tile < tiles) load(p, next_tile, next_part, warp, lane, &next);
    epilogue meets;
    if (SPLIT > 1 && threadIdx.x < OUTS * ROWS)
      meets = read_epilogue(p, (i64)tile * OUTS + o, m_own);
    if (part == 0)
#pragma unroll
      for (int i = 0; i < HALVES * ROWS; i++) total[i / ROWS][i % ROWS] = 0;
#pragma unroll
    for (int begin = 0; begin < CHUNK; begin += AT_ONCE) {
      f32 sum[AT_ONCE][ROWS][4];
#pragma unroll
      for (int i = 0; i < AT_ONCE * ROWS * 4; i++) sum[i / 4 / ROWS][i / 4 % ROWS][i % 4] = 0;
#pragma unroll
      for (int q = 0; q < QUADS; q++)
#pragma unroll
        for (int i = 0; i < AT_ONCE && begin + i < CHUNK; i++) {
          const int at = step_of(part, begin + i, warp);
          if (at >= STEPS) break;
          u32 own[4], below[4] = {0, 0, 0, 0};
          unpack((const W*)0, now.w[begin + i][0], q, own);
          if (HALVES == 2) unpack((const W*)0, now.w[begin + i][HALVES - 1], q, below);
          const u32 first[4] = {own[0], below[0], own[1], below[1]};
          const u32 second[4] = {own[2], below[2], own[3], below[3]};
#pragma unroll
          for (int m = 0; m < ROWS; m++) {
            if (m >= p.m) break;
            const line v = column[has_x ? m * PARTS * ROW + (at * 4 + t) * QUADS + q : 0];
            mma(bf16(), sum[i][m], first, v.at[0], v.at[1]);
            mma(bf16(), sum[i][m], second, v.at[2], v.at[3]);
          }
        }
#pragma unroll
      for (int i = 0; i < AT_ONCE && begin + i < CHUNK; i++) {
        if (step_of(part, begin + i, warp) >= STEPS) break;
#pragma unroll
        for (int m = 0; m < ROWS; m++)
#pragma unroll
          for (int half = 0; half < HALVES; half++)
            total[half][m] +=
                (sum[i][m][2 * half] + sum[i][m][2 * half + 1]) * now.scale[begin + i][half];
      }
    }
    if (ends) {
#pragma unroll
      for (int i = 0; i < HALVES * ROWS; i++) {
        f32 v = total[i / ROWS][i % ROWS];
        v += SHFL_XOR(v, 1);
        v += SHFL_XOR(v, 2);
        total[i / ROWS][i % ROWS] = v;
      }
      if (SPLIT > 1) {
        // Thread `o * ROWS + m` adds the warps' parts in order.
        if (t == 0)
#pragma unroll
          for (int i = 0; i < HALVES * ROWS; i++)
            sums[warp][i / ROWS * 8 + g][i % ROWS] = total[i / ROWS][i % ROWS];
        __syncthreads();
        if (threadIdx.x < OUTS * ROWS) {
          f32 sum = 0, up = 0;
#pragma unroll
          for (int w = 0; w < WARPS; w++) sum += sums[w][o][m_own];
          if (GATED)
#pragma unroll
            for (int w = 0; w < WARPS; w++) up += sums[w][o + 8][m_own];
          f32 by = 0;
#pragma unroll
          for (int m = 0; m < ROWS; m++)
            if (m == m_own) by = factor[m];
          write(p, (i64)tile * OUTS + o, m_own, sum * by, up * by, meets);
        }
        __syncthreads();
      } else {
#pragma unroll
        for (int i = 0; i < (GATED ? 1 : HALVES) * ROWS; i++) {
          const int half = i / ROWS, m = i % ROWS;
          const i64 n = (i64)tile * OUTS + half * 8 + g;
          if (t == m)
            write(p, n, m, total[half][m] * factor[m], total[HALVES - 1][m] * factor[m],
                  read_epilogue(p, n, m));
        }
      }
    }
    tile = next_tile;
    part = next_part;
    if (PIPELINED)
      now = next;
    else if (tile < tiles)
      load(p, tile, part, warp, lane, &now);
  }
}
