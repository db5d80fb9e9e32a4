// fused_linear of quantised weights of very many rows (a language model's head) for few rows of x in
// bf16, on tensor cores: each warp has tiles of 32 rows of its own, and two steps of them under way at
// once. What bounds it beside memory is instructions, of which unpacking should be nearly all: a lane's
// addresses are a base for each step and constants.
//
// Blocks stay: they take tiles warp by warp, so that the last ones are spread over the device. The
// first steps are under way before the kernel waits for the one that makes x (see dependent.cuh).
//
// needs: mma.sync
// options: -DW=i8 -DDEPTH=896 -DROWS=1 -DGATED=0 -DNORM=1 -DGROUP=128 -DWARPS=8
// options: -DW=i8 -DDEPTH=896 -DROWS=4 -DGATED=1 -DNORM=1 -DGROUP=64 -DWARPS=8
// options: -DW=i4 -DDEPTH=896 -DROWS=2 -DGATED=0 -DNORM=0 -DGROUP=32 -DWARPS=8
#include "fused_pairs.cuh"

enum {
  LINES_OF_LANE = 4,  // in a step: rows g, g + 8, g + 16, g + 24; of a gate two, and two of up
  OUTS = GATED ? 16 : 32,
  TURNS = (STEPS + 1) / 2,  // of a tile
  GROUPS = DEPTH / GROUP,
  // Two steps have one scale for a row.
  SCALES_ONCE = GROUP % (2 * 4 * EACH) == 0,
};

struct held {
  line w[LINES_OF_LANE];
  f32 scale[LINES_OF_LANE];
};

// Where a lane's weights and scales begin; `first` is the first row of a tile, among the rows of up
// too.
struct source {
  const char *weight, *weight_up;
  const f32 *scale, *scale_up;

  __device__ __forceinline__ source(const hy_fused_linear& p) {
    const int g = threadIdx.x % HY_WARP / 4, t = threadIdx.x % 4;
    const i64 up = GATED ? p.n : 0;
    weight = (const char*)p.weight + (g * LINES + t) * 16;
    weight_up = weight + up * LINES * 16;
    scale = p.scale + g * GROUPS;
    scale_up = scale + up * GROUPS;
  }
  __device__ __forceinline__ void load(i64 first, int step, held* h) const {
    const int group = SCALES_ONCE ? step * 4 * EACH / GROUP
                                  : (step * 4 + (int)threadIdx.x % 4) * EACH / GROUP;
    const i64 in_weight = first * LINES * 16 + step * 64, in_scale = first * GROUPS + group;
#pragma unroll
    for (int i = 0; i < LINES_OF_LANE; i++) {
      const bool is_up = GATED && i >= 2;
      const int rows = (GATED ? i % 2 : i) * 8;
      h->w[i] = load_once((is_up ? weight_up : weight) + in_weight + rows * LINES * 16);
      if (!SCALES_ONCE || step % 2 == 0)
        h->scale[i] = (is_up ? scale_up : scale)[in_scale + rows * GROUPS];
    }
  }
};

// A tile at the weight's end begins earlier, and computes its first rows twice.
DEVICE i64 first_row(const hy_fused_linear& p, int tile) {
  i64 first = (i64)tile * OUTS;
  return first < p.n - OUTS ? first : p.n - OUTS;
}

typedef f32 tile_sums[LINES_OF_LANE / 2][ROWS][4];

DEVICE void clear(tile_sums& sum) {
#pragma unroll
  for (int i = 0; i < LINES_OF_LANE / 2 * ROWS * 4; i++)
    sum[i / 4 / ROWS][i / 4 % ROWS][i % 4] = 0;
}

// `x` is what meets the step, of each row.
DEVICE void multiply_step(const hy_fused_linear& p, const held& h, const line* const (&x)[ROWS],
                          int offset, tile_sums& sum) {
#pragma unroll
  for (int q = 0; q < QUADS; q++)
#pragma unroll
    for (int two = 0; two < LINES_OF_LANE / 2; two++) {
      u32 upper[4], lower[4];
      unpack((const W*)0, h.w[2 * two], q, upper);
      unpack((const W*)0, h.w[2 * two + 1], q, lower);
#pragma unroll
      for (int m = 0; m < ROWS; m++)
        if (m == 0 || m < p.m) multiply(sum[two][m], upper, lower, x[m][offset + q]);
    }
}

DEVICE void add_scaled(const f32 (&scale)[LINES_OF_LANE], const tile_sums& sum,
                       f32 (&total)[LINES_OF_LANE][ROWS]) {
#pragma unroll
  for (int i = 0; i < LINES_OF_LANE; i++)
#pragma unroll
    for (int m = 0; m < ROWS; m++)
      total[i][m] += (sum[i / 2][m][i % 2 * 2] + sum[i / 2][m][i % 2 * 2 + 1]) * scale[i];
}

// Adds up the four lanes of a row; lane t of them finishes line t's rows.
DEVICE void finish(const hy_fused_linear& p, int tile, i64 first, f32 (&total)[LINES_OF_LANE][ROWS],
                   const f32 (&factor)[ROWS]) {
  const int lane = threadIdx.x % HY_WARP, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    if (m >= p.m) break;
    f32 mine = 0, up = 0;
#pragma unroll
    for (int i = 0; i < LINES_OF_LANE; i++) {
      f32 v = total[i][m];
      v += SHFL_XOR(v, 1);
      v += SHFL_XOR(v, 2);
      if (i == t) mine = v;
      if (GATED && i == t + 2) up = v;
    }
    const i64 n = first + t * 8 + g;
    if (t * 8 < OUTS && n >= (i64)tile * OUTS)
      write(p, n, m, mine * factor[m], up * factor[m], read_epilogue(p, n, m));
  }
}

KERNEL void __launch_bounds__(THREADS, ROWS == 1 ? 3 : ROWS == 2 ? 2 : 1) fused_gemv_tiles(hy_fused_linear p) {
  extern __shared__ line shared[];
  __shared__ f32 squares[ROWS][WARPS];
  const int tiles = (p.n + OUTS - 1) / OUTS, stride = gridDim.x * WARPS;
  int tile = threadIdx.x / HY_WARP * gridDim.x + blockIdx.x;
  launch_dependents();
  if (!p.early) wait_for_previous();
  const source from(p);
  i64 first = first_row(p, tile);
  held even, odd;
  from.load(first, 0, &even);
  from.load(first, 1, &odd);
  spread norm;
  if (NORM) norm.load((const T*)p.norm);
  if (p.early) wait_for_previous();
  f32 factor[ROWS];
  share_x(p, norm, shared, squares, factor);

  const slots x(shared);
  for (; tile < tiles; tile += stride) {
    // Behind its last tile a warp loads the weight's last one, and does not use it.
    const i64 next = first_row(p, tile + stride);
    f32 total[LINES_OF_LANE][ROWS];
#pragma unroll
    for (int i = 0; i < LINES_OF_LANE * ROWS; i++) total[i / ROWS][i % ROWS] = 0;
#pragma unroll 1
    for (int turn = 0; turn < TURNS; turn++) {
      const int step = 2 * turn;
      const bool last = turn + 1 == TURNS, both = STEPS % 2 == 0 || !last;
      const i64 then = last ? next : first;
      const line* meets[ROWS];
#pragma unroll
      for (int m = 0; m < ROWS; m++) meets[m] = x.of(m, step);
      tile_sums sum;
      clear(sum);
      multiply_step(p, even, meets, 0, sum);
      if (!SCALES_ONCE) add_scaled(even.scale, sum, total), clear(sum);
      f32 scale[LINES_OF_LANE];  // of both steps, where they have one
#pragma unroll
      for (int i = 0; i < LINES_OF_LANE; i++) scale[i] = even.scale[i];
      from.load(then, last ? 0 : step + 2, &even);
      if (both) multiply_step(p, odd, meets, 4 * QUADS, sum);
      if (SCALES_ONCE)
        add_scaled(scale, sum, total);
      else if (both)
        add_scaled(odd.scale, sum, total);
      if (STEPS % 2 == 0 || last || step + 3 < STEPS) from.load(then, last ? 1 : step + 3, &odd);
    }
    finish(p, tile, first, total, factor);
    first = next;
  }
}
