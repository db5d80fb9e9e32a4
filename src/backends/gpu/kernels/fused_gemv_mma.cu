// fused_linear of quantised weights for few rows of x in bf16, on tensor cores: unpacked to pairs of
// halves, a weight costs two instructions, where by multiply-adds it costs ten and memory waits.
//
// A block has tiles of TILE rows, whose lines its warps share. CHUNK steps of a warp are under way at
// once, the first before the kernel waits for the one that makes x (see dependent.cuh), and the next
// ones where there are more.
//
// needs: mma.sync
// options: -DW=i8 -DDEPTH=896 -DROWS=1 -DGATED=1 -DNORM=1 -DGROUP=128 -DTILE=16 -DWARPS=4 -DCHUNK=4
// options: -DW=i4 -DDEPTH=896 -DROWS=1 -DGATED=1 -DNORM=1 -DGROUP=32 -DTILE=16 -DWARPS=4 -DCHUNK=2
// options: -DW=i8 -DDEPTH=4864 -DROWS=4 -DGATED=0 -DNORM=0 -DGROUP=128 -DTILE=8 -DWARPS=8 -DCHUNK=10
#include "fused_pairs.cuh"

enum {
  MINE = (STEPS + WARPS - 1) / WARPS,  // steps of a tile that are this warp's
  CHUNKS = (MINE + CHUNK - 1) / CHUNK,
  HALVES = TILE / 8,                   // lines of a lane in a step: rows g, and g + 8
  OUTS = GATED ? TILE / 2 : TILE,
  AT_ONCE = ROWS == 1 ? 5 : ROWS == 2 ? 3 : 2,  // steps whose sums do not wait for each other
};

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
  return mine >= MINE ? STEPS : mine * WARPS + warp;
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

// ---- The kernel ----

KERNEL void __launch_bounds__(THREADS, WARPS == 4 ? 6 : 2) fused_gemv_mma(hy_fused_linear p) {
  extern __shared__ line shared[];
  __shared__ f32 squares[ROWS][WARPS];
  __shared__ f32 sums[WARPS][TILE][ROWS];
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP, g = lane / 4, t = lane % 4;
  const int tiles = (p.n + OUTS - 1) / OUTS;
  int tile = blockIdx.x;
  launch_dependents();
  if (!p.early) wait_for_previous();
  held now;
  if (tile < tiles) load(p, tile, 0, warp, lane, &now);
  spread norm;
  if (NORM) norm.load((const T*)p.norm);
  if (p.early) wait_for_previous();
  f32 factor[ROWS];
  share_x(p, norm, shared, squares, factor);

  const slots x(shared);
  const int o = threadIdx.x / ROWS, m_own = threadIdx.x % ROWS;  // what this thread finishes
  f32 total[HALVES][ROWS];
  int part = 0;
  for (; tile < tiles;) {
    const bool ends = part + 1 == CHUNKS;
    const int next_tile = ends ? tile + gridDim.x : tile, next_part = ends ? 0 : part + 1;
    held next;
    if (CHUNKS > 1 && next_tile < tiles) load(p, next_tile, next_part, warp, lane, &next);
    epilogue meets;
    if (threadIdx.x < OUTS * ROWS) meets = read_epilogue(p, (i64)tile * OUTS + o, m_own);
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
          u32 upper[4], lower[4] = {0, 0, 0, 0};
          unpack((const W*)0, now.w[begin + i][0], q, upper);
          if (HALVES == 2) unpack((const W*)0, now.w[begin + i][HALVES - 1], q, lower);
#pragma unroll
          for (int m = 0; m < ROWS; m++)
            if (m < p.m) multiply(sum[i][m], upper, lower, x.of(m, at)[q]);
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
        if (t == 0) sums[warp][i / ROWS * 8 + g][i % ROWS] = v;
      }
      __syncthreads();
      // Thread `o * ROWS + m` adds the warps' parts in order.
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
    }
    tile = next_tile;
    part = next_part;
    if (CHUNKS > 1)
      now = next;
    else if (tile < tiles)
      load(p, tile, part, warp, lane, &now);
  }
}
