// Skinny GEMM with an epilogue, for batches of up to TM rows of x (decoding of many sequences):
// weights of halves, bytes or nibbles stream once, 16 * WN of their rows to a block, and become the
// left operand of mma.sync in registers; x is the right one. Both are in a ring of cp.async stages.
// The scale of a group multiplies its sum in f32.
//
// Warps: WN along the weight's rows, and 8 / WN that share a stage's k. Where tiles do not fill the
// device, blocks split k too, and the last to arrive adds their parts in order. A lane's four sums
// of an mma are rows g and g + 8 of the weight by two rows of x; GATED: row g is a gate's and g + 8
// belongs to the same output's other half, so that a lane has both.
//
// k is a multiple of KS. Rows past the end are read as the last one, and never written.
// Options: T (f16, bf16), W (T, i8, i4), TM (16, 32, 64), WN (4, 8), GATED, STAGES, GROUP (numbers
// that share a scale: 0 none, 32, 64, or 128 for 128 and its multiples).
//
// needs: mma.sync
// options: -DT=bf16 -DW=i8 -DTM=64 -DWN=4 -DGATED=1 -DSTAGES=3 -DGROUP=128
// options: -DT=bf16 -DW=i4 -DTM=64 -DWN=4 -DGATED=1 -DSTAGES=3 -DGROUP=32
// options: -DT=bf16 -DW=i8 -DTM=64 -DWN=4 -DGATED=0 -DSTAGES=3 -DGROUP=128
// options: -DT=bf16 -DW=i4 -DTM=64 -DWN=4 -DGATED=0 -DSTAGES=3 -DGROUP=32
// options: -DT=bf16 -DW=i8 -DTM=64 -DWN=8 -DGATED=0 -DSTAGES=2 -DGROUP=128
// options: -DT=f16 -DW=f16 -DTM=32 -DWN=4 -DGATED=0 -DSTAGES=3 -DGROUP=0
#include "params.h"
#include "dependent.cuh"
#include "weight_pairs.cuh"

enum {
  KS = 128,  // k of a stage
  WARPS = 8,
  WK = WARPS / WN,
  THREADS = WARPS * HY_WARP,
  BN = 16 * WN,
  JOIN = TM / 8,    // mma tiles of x
  OWN = JOIN / WK,  // of them a warp finishes
  RUN = KS / WK,    // k of a warp in a stage
  SCALES = GROUP == 0 ? 0 : KS / GROUP,  // of a row in a stage
  // Lines are padded so that lanes, 8 lines by 4 times 8 numbers, meet no bank conflict.
  X_LINE = KS * 2,
  X_PITCH = X_LINE + 64,
  W_LINE = KS / 8 * eight<W>::BYTES,
  W_PITCH = W_LINE + 4 * eight<W>::BYTES,
  STAGE_BYTES = TM * X_PITCH + BN * W_PITCH + BN * SCALES * 4,
};
typedef vec<f32, 4> quad;

// The weight's row that line `line` of tile `tile` is.
DEVICE int row_of(const hy_fused_linear& p, int tile, int line) {
  int row = tile * BN + line;
  if (GATED) {
    row = tile * (BN / 2) + line / 16 * 8 + line % 8;
    row = min(row, p.n - 1) + (line % 16 < 8 ? 0 : p.n);
  }
  return min(row, p.rows - 1);
}

// A thread's share of the lines of LINE bytes that a stage has of one operand.
template <int LINES, int LINE>
struct copies {
  enum { CHUNKS = LINE / 16, EACH = (LINES * CHUNKS + THREADS - 1) / THREADS };
  const char* from[EACH];

  static __device__ __forceinline__ int line(int i) {
    return ((int)threadIdx.x + i * THREADS) / CHUNKS;
  }
  // Line l begins at row_start(l).
  template <class Start>
  __device__ __forceinline__ void begin(const Start& row_start) {
#pragma unroll
    for (int i = 0; i < EACH; i++)
      from[i] = row_start(min(line(i), LINES - 1)) + threadIdx.x % CHUNKS * 16;
  }
  __device__ __forceinline__ void copy(char* tile, int pitch) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      if (LINES * CHUNKS % THREADS != 0 && line(i) >= LINES) break;
      copy_async_16(tile + line(i) * pitch + threadIdx.x % CHUNKS * 16, from[i], 16);
      from[i] += LINE;
    }
  }
};

struct x_start {
  const hy_fused_linear& p;
  int k0;
  __device__ __forceinline__ const char* operator()(int line) const {
    return (const char*)p.x + ((i64)min(line, p.m - 1) * p.x_row + k0) * 2;
  }
};
struct weight_start {
  const hy_fused_linear& p;
  int tile, k0;
  __device__ __forceinline__ const char* operator()(int line) const {
    return (const char*)p.weight + ((i64)row_of(p, tile, line) * p.k + k0) / 8 * eight<W>::BYTES;
  }
};

// A thread's share of a stage's scales.
struct scale_copies {
  enum {
    ALL = BN * SCALES,
    EACH = ALL ? (ALL + THREADS - 1) / THREADS : 1,
    IN_ROW = SCALES ? SCALES : 1
  };
  const f32* from[EACH];

  __device__ __forceinline__ void begin(const hy_fused_linear& p, int tile) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int at = (int)threadIdx.x + i * THREADS;
      from[i] = p.scale + (i64)row_of(p, tile, min(at / IN_ROW, BN - 1)) * p.groups + at % IN_ROW;
    }
  }
  // `group`: the first of the stage in its row.
  __device__ __forceinline__ void copy(f32* to_stage, int group) const {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int at = (int)threadIdx.x + i * THREADS;
      if (ALL % THREADS == 0 || at < ALL) copy_async_4(to_stage + at, from[i] + group, 4);
    }
  }
};

// sum += a stage's share of this warp.
DEVICE void multiply(f32 (&sum)[JOIN][4], const char* at_x, const char* at_w, const f32* scales,
                     int warp_n, int warp_k, int g, int t) {
  const int row = warp_n * 16 + g;
  f32 part[GROUP ? JOIN : 1][4];
#pragma unroll
  for (int step = 0; step < RUN; step += 32) {
    const int k = warp_k * RUN + step;
    u32 low[4], high[4];
    weight_pairs<T>(low, (const W*)(at_w + row * W_PITCH + (k / 8 + t) * eight<W>::BYTES));
    weight_pairs<T>(high, (const W*)(at_w + (row + 8) * W_PITCH + (k / 8 + t) * eight<W>::BYTES));
    const u32 a[4] = {low[0], high[0], low[1], high[1]}, b[4] = {low[2], high[2], low[3], high[3]};
    const int width = GROUP ? GROUP : KS;
    const bool first = step % width == 0, last = (step + 32) % width == 0 || step + 32 == RUN;
#pragma unroll
    for (int j = 0; j < JOIN; j++) {
      vec<u32, 4> y = *(const vec<u32, 4>*)(at_x + (8 * j + g) * X_PITCH + (k + 8 * t) * 2);
      f32(&to_sum)[4] = GROUP ? part[GROUP ? j : 0] : sum[j];
      if (GROUP && first)
#pragma unroll
        for (int e = 0; e < 4; e++) to_sum[e] = 0;
      mma(T(), to_sum, a, y.at[0], y.at[1]);
      mma(T(), to_sum, b, y.at[2], y.at[3]);
    }
    if (GROUP && last) {
      const f32 scale_low = scales[row * SCALES + k / width];
      const f32 scale_high = scales[(row + 8) * SCALES + k / width];
#pragma unroll
      for (int j = 0; j < JOIN; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          sum[j][e] += part[GROUP ? j : 0][e] * (e < 2 ? scale_low : scale_high);
    }
  }
}

// A warp's own mma tiles: those of all warps that share its k, added.
DEVICE void meet(quad* shared, const f32 (&sum)[JOIN][4], int warp_k, quad (&own)[OWN]) {
#pragma unroll
  for (int j = 0; j < OWN; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) own[j].at[e] = warp_k == 0 ? sum[j][e] : sum[JOIN - OWN + j][e];
  if (WK > 1) {
#pragma unroll
    for (int j = 0; j < OWN; j++) {
      quad other;
#pragma unroll
      for (int e = 0; e < 4; e++) other.at[e] = warp_k == 0 ? sum[JOIN - OWN + j][e] : sum[j][e];
      shared[j * THREADS + threadIdx.x] = other;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < OWN; j++) {
      quad other = shared[j * THREADS + (threadIdx.x ^ (THREADS / 2))];
#pragma unroll
      for (int e = 0; e < 4; e++) own[j].at[e] += other.at[e];
    }
  }
}

// What another block wrote: past this multiprocessor's own cache.
DEVICE quad load_quad(const quad* at) {
#if HY_PTX
  quad v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.at[0]), "=f"(v.at[1]), "=f"(v.at[2]), "=f"(v.at[3])
               : "l"(at)
               : "memory");
  return v;
#else
  return *at;
#endif
}

// Whether this block is the last of its tile; `own` then has the sums of all.
DEVICE bool add_splits(const hy_fused_linear& p, int tile, int split, quad (&own)[OWN]) {
  __shared__ unsigned arrived;
  quad* parts = (quad*)p.partial + (i64)tile * p.splits * OWN * THREADS;
#pragma unroll
  for (int j = 0; j < OWN; j++) parts[(split * OWN + j) * THREADS + threadIdx.x] = own[j];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(&p.counters[tile], 1u);
  __syncthreads();
  if (arrived + 1 != (unsigned)p.splits) return false;
  if (threadIdx.x == 0) p.counters[tile] = 0;
  __threadfence();
#pragma unroll
  for (int j = 0; j < OWN; j++) own[j] = load_quad(&parts[j * THREADS + threadIdx.x]);
#pragma unroll 2
  for (int s = 1; s < p.splits; s++)
#pragma unroll
    for (int j = 0; j < OWN; j++) {
      quad other = load_quad(&parts[(s * OWN + j) * THREADS + threadIdx.x]);
#pragma unroll
      for (int e = 0; e < 4; e++) own[j].at[e] += other.at[e];
    }
  return true;
}

DEVICE void put(const hy_fused_linear& p, int m, int n, f32 value, f32 up) {
  if (m >= p.m || n >= p.n) return;
  if (p.bias) value += to<f32>(((const T*)p.bias)[n]);
  if (GATED) {
    if (p.bias) up += to<f32>(((const T*)p.bias)[p.n + n]);
    value = value / (1 + __expf(-value)) * up;
  }
  if (p.residual) value += to<f32>(((const T*)p.residual)[m * p.residual_row + n]);
  if (p.wide)
    ((f32*)p.out)[m * p.out_row + n] = value;
  else
    ((T*)p.out)[m * p.out_row + n] = from<T>(value);
}

// Grid: tiles of the weight's rows; parts of k.
KERNEL void __launch_bounds__(THREADS, 2) gemm_batch(hy_fused_linear p) {
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP, g = lane / 4, t = lane % 4;
  const int warp_n = warp % WN, warp_k = warp / WN, tile = blockIdx.x, split = blockIdx.y;
  const int all = p.k / KS, part = (all + p.splits - 1) / p.splits;
  const int first = min(split * part, all), steps = min(first + part, all) - first;
  launch_dependents();
  if (!p.early) wait_for_previous();

  copies<TM, X_LINE> of_x;
  copies<BN, W_LINE> of_weight;
  const x_start x_at = {p, first * KS};
  const weight_start weight_at = {p, tile, first * KS};
  of_x.begin(x_at);
  of_weight.begin(weight_at);
  scale_copies of_scales;
  if (GROUP) of_scales.begin(p, tile);
  const int longer = GROUP == 128 ? p.group / KS : 1;  // stages of a group
  auto copy_x = [&](int s) { of_x.copy(shared + s % STAGES * STAGE_BYTES, X_PITCH); };
  auto copy_weight = [&](int s) {
    char* at = shared + s % STAGES * STAGE_BYTES + TM * X_PITCH;
    of_weight.copy(at, W_PITCH);
    const int group = longer == 1 ? (first + s) * SCALES : (first + s) / longer;
    if (GROUP) of_scales.copy((f32*)(at + BN * W_PITCH), group);
  };
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++)
    if (s < steps) copy_weight(s);
  if (p.early) wait_for_previous();
#pragma unroll
  for (int s = 0; s < STAGES - 1; s++) {
    if (s < steps) copy_x(s);
    copy_async_commit();  // the first takes the weights of all along
  }

  f32 sum[JOIN][4];
#pragma unroll
  for (int j = 0; j < JOIN; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) sum[j][e] = 0;
  for (int s = 0; s < steps; s++) {
    copy_async_wait<STAGES - 2>();
    __syncthreads();  // stage s is there, and all have left the one that is filled next
    if (s + STAGES - 1 < steps) {
      copy_weight(s + STAGES - 1);
      copy_x(s + STAGES - 1);
    }
    copy_async_commit();
    const char *at_x = shared + s % STAGES * STAGE_BYTES, *at_w = at_x + TM * X_PITCH;
    multiply(sum, at_x, at_w, (const f32*)(at_w + BN * W_PITCH), warp_n, warp_k, g, t);
  }
  copy_async_wait<0>();
  __syncthreads();

  quad own[OWN];
  meet((quad*)shared, sum, warp_k, own);
  if (p.splits > 1 && !add_splits(p, tile, split, own)) return;
#pragma unroll
  for (int j = 0; j < OWN; j++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int m = (warp_k * OWN + j) * 8 + 2 * t + e % 2;
      if (!GATED)
        put(p, m, tile * BN + warp_n * 16 + g + e / 2 * 8, own[j].at[e], 0);
      else if (e < 2)
        put(p, m, tile * (BN / 2) + warp_n * 8 + g, own[j].at[e], own[j].at[(e + 2) % 4]);
    }
}
