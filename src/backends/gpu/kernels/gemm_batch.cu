// Skinny GEMM with an epilogue, for batches of up to TM rows of x (decoding of many sequences):
// weights of halves, bytes or nibbles stream once, 16 * WN of their rows to a block, and become the
// left operand in registers; x is the right one. Both are in a ring of stages, by cp.async. The scale
// of a group multiplies its sum in f32. Products are by mma.sync, or with WARPGROUP by wgmma, for
// which the copy engine (TMA) brings x; x lies in the same swizzle either way.
//
// Warps: WN along the weight's rows, and 8 / WN that share a stage's k. Where tiles do not fill the
// device, blocks split k too. The CLUSTER blocks of a tile then add up a share of it each, from one
// another's shared memory; without clusters (0), sums go through memory, and the last block to
// arrive adds them in order. A lane's four sums of an mma are rows g and g + 8 of the weight by two
// rows of x; GATED: row g is a gate's and g + 8 belongs to the same output's other half, so that a
// lane has both.
//
// k is a multiple of KS. Rows past the end are read as the last one, and never written.
// Options: T (f16, bf16), W (T, i8, i4), TM (16, 32, 64), WN (4, 8), GATED, STAGES, GROUP (numbers
// that share a scale: 0 none, 32, 64, or 128 for 128 and its multiples), WARPGROUP (TM is
// 64), CLUSTER.
//
// needs: mma.sync
// options: -DT=bf16 -DW=i8 -DTM=64 -DWN=4 -DGATED=1 -DSTAGES=4 -DGROUP=128 -DWARPGROUP=1 -DCLUSTER=0
// options: -DT=bf16 -DW=i4 -DTM=64 -DWN=4 -DGATED=1 -DSTAGES=4 -DGROUP=32 -DWARPGROUP=1 -DCLUSTER=0
// options: -DT=bf16 -DW=i8 -DTM=64 -DWN=4 -DGATED=0 -DSTAGES=4 -DGROUP=128 -DWARPGROUP=1 -DCLUSTER=7
// options: -DT=bf16 -DW=i4 -DTM=64 -DWN=4 -DGATED=0 -DSTAGES=4 -DGROUP=32 -DWARPGROUP=1 -DCLUSTER=8
// options: -DT=bf16 -DW=i8 -DTM=64 -DWN=8 -DGATED=0 -DSTAGES=3 -DGROUP=128 -DWARPGROUP=1 -DCLUSTER=0
// options: -DT=bf16 -DW=i8 -DTM=64 -DWN=4 -DGATED=0 -DSTAGES=3 -DGROUP=128 -DWARPGROUP=0 -DCLUSTER=0
// options: -DT=f16 -DW=f16 -DTM=32 -DWN=4 -DGATED=0 -DSTAGES=3 -DGROUP=0 -DWARPGROUP=0 -DCLUSTER=3
#include "params.h"
#include "dependent.cuh"
#include "hopper.cuh"
#include "weight_pairs.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define BY_WGMMA WARPGROUP
#define IN_CLUSTER CLUSTER
#else
#define BY_WGMMA 0
#define IN_CLUSTER 0
#endif

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
  // Of x, boxes of 64 numbers of k: lines of 128 bytes, in the swizzle of hopper.cuh.
  X_BOX = TM * 128,
  X_TILE = KS / 64 * X_BOX,
  X_LINE = KS * 2,
  // Of the weight, lines padded so that the eights of 8 lines meet no bank conflict.
  W_LINE = KS / 8 * eight<W>::BYTES,
  W_PITCH = W_LINE + (eight<W>::BYTES == 16 ? 16 : 4 * eight<W>::BYTES),
  W_TILE = BN * W_PITCH,
  SCALE_TILE = BN * SCALES * 4,
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
  // Chunk c of line l goes to place(l, c); the next copy is `further` bytes on.
  template <class Place>
  __device__ __forceinline__ void copy(const Place& place, int further) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      if (LINES * CHUNKS % THREADS != 0 && line(i) >= LINES) break;
      copy_async_16(place(line(i), (int)threadIdx.x % CHUNKS), from[i], 16);
      from[i] += further;
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

// Eight halves of row `row` of a stage's x.
DEVICE char* x_place(char* tile, int row, int eighth) {
  return tile + eighth / 8 * X_BOX + row * 128 + (eighth % 8 ^ row % 8) * 16;
}

// 16 rows of the weight from `rows` on by 32 numbers from k on, as the left operands of two mma.
template <class Half>
DEVICE void left_operands(u32 (&a)[2][4], const Half*, const char* rows, int k, int lane) {
#pragma unroll
  for (int h = 0; h < 2; h++)
    load_matrices<false>(a[h], rows + lane % 16 * W_PITCH + (k / 8 + 2 * h + lane / 16) * 16);
}
template <class Packed>
DEVICE void packed_operands(u32 (&a)[2][4], const Packed*, const char* rows, int k, int lane) {
  u32 low[4], high[4];
  const char* at = rows + lane / 4 * W_PITCH + (k / 8 + lane % 4) * eight<Packed>::BYTES;
  quad_pairs<T>(low, (const Packed*)at);
  quad_pairs<T>(high, (const Packed*)(at + 8 * W_PITCH));
#pragma unroll
  for (int h = 0; h < 2; h++) {
    a[h][0] = low[2 * h];
    a[h][1] = high[2 * h];
    a[h][2] = low[2 * h + 1];
    a[h][3] = high[2 * h + 1];
  }
}
DEVICE void left_operands(u32 (&a)[2][4], const i8* w, const char* rows, int k, int lane) {
  packed_operands(a, w, rows, k, lane);
}
DEVICE void left_operands(u32 (&a)[2][4], const i4* w, const char* rows, int k, int lane) {
  packed_operands(a, w, rows, k, lane);
}

// sum += a by 32 numbers of x from k on. By wgmma, sums are there after finish_products.
DEVICE void add_products(f32 (&sum)[4 * JOIN], const u32 (&a)[2][4], char* at_x, int k, int lane) {
#if BY_WGMMA
  wgmma_fence();
#pragma unroll
  for (int h = 0; h < 2; h++)
    wgmma_left<0>(T(), sum, a[h],
                  tile_descriptor(at_x + k / 64 * X_BOX + (k % 64 + 16 * h) * 2, X_BOX));
  wgmma_commit();
#else
  enum { AT_ONCE = JOIN < 4 ? JOIN : 4 };  // tiles of x whose products follow one another
#pragma unroll
  for (int first = 0; first < JOIN; first += AT_ONCE) {
    u32 y[AT_ONCE][4];
    f32 c[AT_ONCE][4];
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
      load_matrices<false>(y[j], x_place(at_x, 8 * (first + j) + lane % 8, k / 8 + lane / 8));
#pragma unroll
      for (int e = 0; e < 4; e++) c[j][e] = sum[4 * (first + j) + e];
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
      for (int j = 0; j < AT_ONCE; j++) mma(T(), c[j], a[h], y[j][2 * h], y[j][2 * h + 1]);
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) sum[4 * (first + j) + e] = c[j][e];
  }
#endif
}
DEVICE void finish_products(f32 (&sum)[4 * JOIN]) {
#if BY_WGMMA
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 4 * JOIN; i++) asm volatile("" : "+f"(sum[i])::"memory");
#endif
}

// sum += a stage's share of this warp.
DEVICE void multiply(f32 (&sum)[4 * JOIN], char* at_x, const char* at_w, const f32* scales,
                     int warp_n, int warp_k, int lane) {
#if GROUP
  const f32* const scale = scales + (warp_n * 16 + lane / 4) * SCALES;
  f32 part[4 * JOIN];
#endif
  const char* const rows = at_w + warp_n * 16 * W_PITCH;
  u32 a[2][2][4];  // the next is unpacked while products of one are under way
  left_operands(a[0], (const W*)nullptr, rows, warp_k * RUN, lane);
#pragma unroll
  for (int step = 0; step < RUN; step += 32) {
    const int k = warp_k * RUN + step, now = step / 32 % 2;
#if GROUP
    if (step % GROUP == 0)
#pragma unroll
      for (int i = 0; i < 4 * JOIN; i++) part[i] = 0;
    add_products(part, a[now], at_x, k, lane);
    if (step + 32 < RUN) left_operands(a[1 - now], (const W*)nullptr, rows, k + 32, lane);
    if ((step + 32) % GROUP == 0 || step + 32 == RUN) {
      const f32 low = scale[k / GROUP], high = scale[8 * SCALES + k / GROUP];
      finish_products(part);
#pragma unroll
      for (int i = 0; i < 4 * JOIN; i++) sum[i] += part[i] * (i % 4 < 2 ? low : high);
    }
#else
    add_products(sum, a[now], at_x, k, lane);
    if (step + 32 < RUN) left_operands(a[1 - now], (const W*)nullptr, rows, k + 32, lane);
    if (step + 32 == RUN) finish_products(sum);
#endif
  }
}

// A warp's own mma tiles: those of all warps that share its k, added.
DEVICE void meet(quad* shared, const f32 (&sum)[4 * JOIN], int warp_k, quad (&own)[OWN]) {
  enum { REST = 4 * (JOIN - OWN) };
#pragma unroll
  for (int j = 0; j < OWN; j++)
#pragma unroll
    for (int e = 0; e < 4; e++)
      own[j].at[e] = warp_k == 0 ? sum[4 * j + e] : sum[REST + 4 * j + e];
  if (WK > 1) {
#pragma unroll
    for (int j = 0; j < OWN; j++) {
      quad other;
#pragma unroll
      for (int e = 0; e < 4; e++)
        other.at[e] = warp_k == 0 ? sum[REST + 4 * j + e] : sum[4 * j + e];
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
#pragma unroll 4
  for (int s = 1; s < p.splits; s++)
#pragma unroll
    for (int j = 0; j < OWN; j++) {
      quad other = load_quad(&parts[(s * OWN + j) * THREADS + threadIdx.x]);
#pragma unroll
      for (int e = 0; e < 4; e++) own[j].at[e] += other.at[e];
    }
  return true;
}

// The sums of quad `at` of a tile (of its OWN * THREADS) are outputs (m + e % 2, n + e / 2 * 8), or
// (m + e, n) of the gate, then the same of the other half.
struct output {
  int m, n;
  quad bias, residual;

  output() = default;
  __device__ __forceinline__ output(int tile, int at) {
    const int warp = at % THREADS / HY_WARP, lane = at % HY_WARP, warp_n = warp % WN;
    m = (warp / WN * OWN + at / THREADS) * 8 + lane % 4 * 2;
    n = (GATED ? tile * (BN / 2) + warp_n * 8 : tile * BN + warp_n * 16) + lane / 4;
  }
  __device__ __forceinline__ int column(int e) const { return n + (GATED ? 0 : e / 2 * 8); }
  __device__ __forceinline__ bool there(const hy_fused_linear& p, int e) const {
    return m + e % 2 < p.m && column(e) < p.n && (!GATED || e < 2);
  }
  // Bias and residual, from the last row or column for those past the end.
  __device__ __forceinline__ void load(const hy_fused_linear& p) {
#pragma unroll
    for (int e = 0; e < 4; e++) bias.at[e] = residual.at[e] = 0;
    if (p.bias)
#pragma unroll
      for (int e = 0; e < 4; e++)
        bias.at[e] = to<f32>(
            ((const T*)p.bias)[min(column(e), p.n - 1) + (GATED && e > 1 ? p.n : 0)]);
    if (p.residual)
#pragma unroll
      for (int e = 0; e < (GATED ? 2 : 4); e++)
        residual.at[e] = to<f32>(((const T*)p.residual)[min(m + e % 2, p.m - 1) * p.residual_row +
                                                        min(column(e), p.n - 1)]);
  }
  __device__ __forceinline__ void put(const hy_fused_linear& p, const quad& sum) const {
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if (!there(p, e)) continue;
      f32 value = sum.at[e] + bias.at[e];
      if (GATED) value *= (sum.at[(e + 2) % 4] + bias.at[(e + 2) % 4]) / (1 + __expf(-value));
      value += residual.at[e];
      const i64 at = (m + e % 2) * p.out_row + column(e);
      if (p.wide)
        ((f32*)p.out)[at] = value;
      else
        ((T*)p.out)[at] = from<T>(value);
    }
  }
};

#if IN_CLUSTER
// Each block of the tile's cluster adds up and writes a share of the tile. `shared` is past what
// `meet` uses.
DEVICE void finish_in_cluster(const hy_fused_linear& p, quad* shared, int tile, int rank,
                              const quad (&own)[OWN]) {
  enum { ALL = OWN * THREADS, SHARE = (ALL + CLUSTER - 1) / CLUSTER };
#pragma unroll
  for (int j = 0; j < OWN; j++) shared[j * THREADS + threadIdx.x] = own[j];
  cluster_arrive();
  bool waits = true;
#pragma unroll
  for (int i = 0; i < SHARE; i += THREADS) {
    const int in_share = i + (int)threadIdx.x, at = rank * SHARE + in_share;
    const bool mine = in_share < SHARE && at < ALL;
    output out(tile, min(at, ALL - 1));
    out.load(p);
    if (waits) cluster_wait();
    waits = false;
    if (!mine) continue;
    quad part[CLUSTER];
#pragma unroll
    for (int s = 0; s < CLUSTER; s++) part[s] = cluster_load(&shared[at], s);
#pragma unroll
    for (int s = 1; s < CLUSTER; s++)
#pragma unroll
      for (int e = 0; e < 4; e++) part[0].at[e] += part[s].at[e];
    out.put(p, part[0]);
  }
  cluster_arrive();  // a block's shared memory is there until all have read it
  cluster_wait();
}
#define CLUSTER_SHAPE __cluster_dims__(1, CLUSTER, 1)
#else
#define CLUSTER_SHAPE
#endif

// Grid: tiles of the weight's rows; parts of k.
KERNEL void CLUSTER_SHAPE __launch_bounds__(THREADS, 2) gemm_batch(
#if BY_WGMMA
    const __grid_constant__ tensor_map x_map,
#endif
    hy_fused_linear p) {
  extern __shared__ __align__(128) char dynamic[];
  char* const shared = dynamic + (1024 - (u64)dynamic % 1024) % 1024;
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP;
  const int warp_n = warp % WN, warp_k = warp / WN, tile = blockIdx.x, split = blockIdx.y;
  const int all = p.k / KS, part = (all + p.splits - 1) / p.splits;
  const int first = min(split * part, all), steps = min(first + part, all) - first;
  // Each tile begins elsewhere in k and comes round, so that not all blocks read the same of x at once.
  const int turn = tile % steps;
  auto turned = [&](int s) { return s + turn < steps ? s + turn : s + turn - steps; };
  auto further = [&](int s, int line) { return turned(s) + 1 < steps ? line : line - steps * line; };
  launch_dependents();
#if BY_WGMMA
  __shared__ __align__(8) mbarrier x_there[STAGES];
  if (threadIdx.x == 0) {
    tensor_prefetch(&x_map);
    for (int s = 0; s < STAGES; s++) mbarrier_init(&x_there[s], 1);
    mbarrier_init_fence();
  }
  __syncthreads();
#else
  copies<TM, X_LINE> of_x;
  const x_start x_at = {p, (first + turn) * KS};
  of_x.begin(x_at);
#endif
  if (!p.early) wait_for_previous();

  copies<BN, W_LINE> of_weight;
  const weight_start weight_at = {p, tile, (first + turn) * KS};
  of_weight.begin(weight_at);
  scale_copies of_scales;
  if (GROUP) of_scales.begin(p, tile);
  const int longer = GROUP == 128 ? p.group / KS : 1;  // stages of a group
  auto x_tile = [&](int s) { return shared + s % STAGES * X_TILE; };
  auto weight_tile = [&](int s) { return shared + STAGES * X_TILE + s % STAGES * W_TILE; };
  auto scale_tile = [&](int s) {
    return (f32*)(shared + STAGES * (X_TILE + W_TILE) + s % STAGES * SCALE_TILE);
  };
  auto copy_x = [&](int s) {
    char* at = x_tile(s);
#if BY_WGMMA
    if (threadIdx.x != 0) return;
    mbarrier_expect(&x_there[s % STAGES], X_TILE);
#pragma unroll
    for (int k = 0; k < KS; k += 64)
      tensor_load(at + k / 64 * X_BOX, &x_map, (first + turned(s)) * KS + k, 0, 0,
                  &x_there[s % STAGES]);
#else
    of_x.copy([=](int line, int chunk) { return x_place(at, line, chunk); }, further(s, X_LINE));
#endif
  };
  auto copy_weight = [&](int s) {
    char* at = weight_tile(s);
    of_weight.copy([=](int line, int chunk) { return at + line * W_PITCH + chunk * 16; },
                   further(s, W_LINE));
    const int stage = first + turned(s), group = longer == 1 ? stage * SCALES : stage / longer;
    if (GROUP) of_scales.copy(scale_tile(s), group);
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

  f32 sum[4 * JOIN];
#pragma unroll
  for (int i = 0; i < 4 * JOIN; i++) sum[i] = 0;
  for (int s = 0; s < steps; s++) {
    copy_async_wait<STAGES - 2>();
#if BY_WGMMA
    mbarrier_wait(&x_there[s % STAGES], s / STAGES % 2);
#endif
    __syncthreads();  // stage s is there, and all have left the one that is filled next
    if (s + STAGES - 1 < steps) {
      copy_weight(s + STAGES - 1);
      copy_x(s + STAGES - 1);
    }
    copy_async_commit();
    multiply(sum, x_tile(s), weight_tile(s), scale_tile(s), warp_n, warp_k, lane);
  }
  copy_async_wait<0>();
  __syncthreads();

  quad own[OWN];
  meet((quad*)shared, sum, warp_k, own);
#if IN_CLUSTER
  finish_in_cluster(p, (quad*)shared + OWN * THREADS, tile, split, own);
#else
  if (p.splits > 1 && !add_splits(p, tile, split, own)) return;
  enum { AT_ONCE = OWN < 4 ? OWN : 4 };  // of them bias and residual are under way
#pragma unroll
  for (int j = 0; j < OWN; j += AT_ONCE) {
    output out[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      out[i] = output(tile, (j + i) * THREADS + (int)threadIdx.x);
      out[i].load(p);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) out[i].put(p, own[j + i]);
  }
#endif
}
