// GEMM on Hopper: TMA and wgmma, warp-specialised and persistent. One warpgroup's first thread
// keeps a ring of STAGES filled by the copy engine; the others, the consumers, multiply ROWS of a
// tile's rows by BN columns each, and hand a stage back as soon as the products that read it are
// done. A block goes through tiles until there are none: while one tile is stored, by the copy
// engine too, the next is being loaded. f32 accumulators and epilogue.
//
// With TURNS (ping-pong) each of two consumers has every other tile of the block to itself: it
// multiplies while the other stores, and lets the other go on once its last products are under way.
// The order is more than a matter of speed: a barrier tells one phase from the next but not from
// the one after, so that who waits for a stage must know that it has been full for the tile before.
//
// A cluster of CM x CN blocks has as many neighbouring tiles. Blocks of the same columns share
// their tile of b: each loads a part of it into the rings of all, and those of the same rows share
// their tile of a. So
//   - a stage of a block is full when the bytes of all parts are there, whoever loaded them. Bytes
//     may come before the block itself has said how many it expects: the phase waits for both.
//   - a stage may be filled when the consumers of all blocks that the load writes to have left it.
//     A warp therefore hands a stage back to each block that it shares an operand with.
//   - all blocks of a cluster go through the same number of tiles and steps; one that is past the
//     edge loads zeros and stores nothing.
//   - no block is entered before its barriers are there, and none ends before all have: they meet
//     first and last.
// Where tiles are few, a cluster of SPLITS blocks has one tile and each a part of k. Each adds up a
// share of the tile, its own sums and those that it reads from the others' shared memory, in the
// order of the parts: the same bits every time.
//
// Options: T (f16, bf16), A_K and B_K (1 where the operand's neighbours in memory are along k),
// ROWS (64, 128), BN (a multiple of 8 that wgmma_wide knows; of 64 where B_K is 0), TURNS, STAGES,
// CM and CN, or SPLITS.
//
// needs: mma.sync
// options: -DT=bf16 -DA_K=1 -DB_K=1 -DROWS=64 -DBN=256 -DTURNS=0 -DSTAGES=4 -DCM=1 -DCN=1 -DSPLITS=1
// options: -DT=bf16 -DA_K=1 -DB_K=0 -DROWS=64 -DBN=256 -DTURNS=0 -DSTAGES=4 -DCM=1 -DCN=1 -DSPLITS=1
// options: -DT=f16 -DA_K=1 -DB_K=1 -DROWS=64 -DBN=192 -DTURNS=0 -DSTAGES=4 -DCM=1 -DCN=1 -DSPLITS=1
// options: -DT=f16 -DA_K=1 -DB_K=0 -DROWS=64 -DBN=128 -DTURNS=0 -DSTAGES=6 -DCM=1 -DCN=1 -DSPLITS=1
// options: -DT=bf16 -DA_K=0 -DB_K=0 -DROWS=64 -DBN=256 -DTURNS=0 -DSTAGES=4 -DCM=1 -DCN=1 -DSPLITS=1
// options: -DT=f16 -DA_K=0 -DB_K=1 -DROWS=64 -DBN=192 -DTURNS=0 -DSTAGES=4 -DCM=1 -DCN=1 -DSPLITS=1
// options: -DT=bf16 -DA_K=1 -DB_K=1 -DROWS=64 -DBN=128 -DTURNS=0 -DSTAGES=6 -DCM=1 -DCN=1 -DSPLITS=4
// options: -DT=bf16 -DA_K=1 -DB_K=1 -DROWS=64 -DBN=224 -DTURNS=0 -DSTAGES=4 -DCM=1 -DCN=1 -DSPLITS=2
// options: -DT=bf16 -DA_K=1 -DB_K=1 -DROWS=64 -DBN=144 -DTURNS=0 -DSTAGES=5 -DCM=1 -DCN=1 -DSPLITS=1
// options: -DT=f16 -DA_K=1 -DB_K=1 -DROWS=64 -DBN=112 -DTURNS=0 -DSTAGES=6 -DCM=1 -DCN=1 -DSPLITS=3
// options: -DT=bf16 -DA_K=1 -DB_K=1 -DROWS=128 -DBN=152 -DTURNS=1 -DSTAGES=5 -DCM=1 -DCN=1 -DSPLITS=1
// options: -DT=f16 -DA_K=0 -DB_K=1 -DROWS=128 -DBN=144 -DTURNS=1 -DSTAGES=5 -DCM=1 -DCN=1 -DSPLITS=1
// options: -DT=bf16 -DA_K=1 -DB_K=1 -DROWS=64 -DBN=128 -DTURNS=1 -DSTAGES=8 -DCM=2 -DCN=1 -DSPLITS=1
// options: -DT=f16 -DA_K=0 -DB_K=0 -DROWS=64 -DBN=128 -DTURNS=1 -DSTAGES=8 -DCM=2 -DCN=1 -DSPLITS=1
#include "params.h"
#include "dependent.cuh"
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets have none of these instructions

#define BK 64
#define CONSUMERS 2
#define PER_TILE (TURNS ? 1 : CONSUMERS)
#define HALVES (ROWS / 64)  // of a consumer, as many as products side by side
#define BM (ROWS * PER_TILE)
#define THREADS ((CONSUMERS + 1) * 128)
#define SHARERS (CM * CN)
#define CLUSTER (SHARERS * SPLITS)
#define A_BYTES (BM * BK * 2)
#define B_BYTES (BN * BK * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define BOX (64 * BK * 2)      // of 64 rows of an operand
#define OUT_BOX (16 * 64 * 2)  // of a warp's 16 rows by 64 columns
#define WHOLE_BOXES (BN / 64)
#define TAIL (BN % 64)  // columns of the last box, where it is less than whole
#define BOXES (WHOLE_BOXES + (TAIL > 0))
#define SHARED (225 * 1024)  // the host gives it all: at least so much from a multiple of 1024 on
#define ALL_OUTS ((SHARED - STAGES * STAGE_BYTES) / (CONSUMERS * 4 * OUT_BOX))
#define OUTS (ALL_OUTS < HALVES * BOXES ? ALL_OUTS : HALVES * BOXES)  // boxes of a warp

// Registers of a thread: the block has 65536, by wholes of 8 for each of 128 threads.
#define MANY (HALVES * BN / 2 > 144)
#define CONSUMER_REGISTERS (MANY ? 232 : 224)
#define PRODUCER_REGISTERS (MANY ? 40 : 56)

static_assert(OUTS >= 1, "the ring leaves no room for what is stored");
static_assert(SPLITS == 1 || (SHARERS == 1 && !TURNS), "blocks share tiles, take turns or split k");
static_assert(SPLITS == 1 || BM * BN * 4 <= STAGES * STAGE_BYTES, "sums lie in the ring");
static_assert(BM / CN % 8 == 0 && BN / CM % 8 == 0, "8 rows are swizzled together");
static_assert(A_K || BM / CN % 64 == 0, "boxes along rows are of 64");
static_assert(B_K || BN / CM % 64 == 0, "boxes along rows are of 64");

struct tile_place {
  int m, n, batch;
};

// Clusters that run together share rows of a and columns of b: 8 clusters of m for each step of n.
DEVICE tile_place tile_of(const hy_gemm& g, int id, int rank) {
  const int group = 8, high = BM * CM, wide = BN * CN;
  const int rows = (g.m + high - 1) / high, columns = (g.n + wide - 1) / wide;
  const int batch = id / (rows * columns);
  id -= batch * rows * columns;
  const int first = id / (group * columns) * group, in_group = min(rows - first, group);
  id -= first * columns;
  tile_place p = {(first + id % in_group) * high + rank % CM * BM,
                  id / in_group * wide + rank / CM % CN * BN, batch};
  return p;
}
DEVICE int tile_count(const hy_gemm& g) {
  return (g.m + BM * CM - 1) / (BM * CM) * ((g.n + BN * CN - 1) / (BN * CN)) * g.batch;
}

struct k_range {
  int first, last;  // steps of BK
};
DEVICE k_range range_of(const hy_gemm& g, int rank) {
  const int steps = (g.k + BK - 1) / BK;
  if (SPLITS == 1) return k_range{0, steps};
  return k_range{steps * rank / SPLITS, steps * (rank + 1) / SPLITS};
}

struct ring {
  char* tiles;
  mbarrier *full, *empty;
  int rank, s, parity;
  __device__ __forceinline__ char* a() const { return tiles + s * STAGE_BYTES; }
  __device__ __forceinline__ char* b() const { return a() + A_BYTES; }
  __device__ __forceinline__ void next() {
    if (++s == STAGES) {
      s = 0;
      parity ^= 1;
    }
  }
  // Past stages that another consumer reads.
  __device__ __forceinline__ void skip(int stages) {
    parity ^= (s + stages) / STAGES & 1;
    s = (s + stages) % STAGES;
  }
  // This warp has left a stage.
  __device__ __forceinline__ void release(int stage) const {
    const int lane = threadIdx.x % 32;
    if (SHARERS == 1 && lane == 0) mbarrier_arrive(&empty[stage]);
    if (SHARERS > 1 && lane < SHARERS && (lane % CM == rank % CM || lane / CM == rank / CM))
      mbarrier_arrive_at(&empty[stage], lane);
  }
};

// ---- epilogue ----

// What becomes of a warp's 16 rows by WIDTH columns, 64 or the tail, at a time. As wgmma leaves
// them, element (h, j, c) of s is 8 h rows below and 8 j + c columns beyond the lane's first.
struct epilogue {
  const hy_gemm& g;
  f32 alpha, beta;
  const tensor_map *map, *tail;  // NULL: out is stored element by element
  char* boxes;                   // this warp's
  int turn;

  static __device__ __forceinline__ int at(int h, int j, int c) { return 4 * j + 2 * h + c; }

  template <int WIDTH>
  __device__ __forceinline__ void add(f32 (&s)[WIDTH / 2], int m, int n, int batch) const {
    const T* first = (const T*)g.addend + batch * g.addend_batch + m * g.addend_row +
                     n * g.addend_column;
    const T none = {};
#pragma unroll
    for (int j = 0; j < WIDTH / 8; j++, first += 8 * g.addend_column) {
#pragma unroll
      for (int c = 0; c < 2; c++) {
        const T* from = first + c * g.addend_column;
        const bool within = n + 8 * j + c < g.n;
        T above = within && m < g.m ? from[0] : none;
        T below = within && m + 8 < g.m ? from[8 * g.addend_row] : none;
        s[at(0, j, c)] += beta * to<f32>(above);
        s[at(1, j, c)] += beta * to<f32>(below);
      }
    }
  }

  template <int WIDTH>
  __device__ __forceinline__ void put(const f32 (&s)[WIDTH / 2], int m, int n, int batch) const {
    T* first = (T*)g.out + batch * g.out_batch + m * g.out_row + n * g.out_column;
#pragma unroll
    for (int h = 0; h < 2; h++, first += 8 * g.out_row) {
#pragma unroll
      for (int j = 0; j < WIDTH / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++)
          if (m + 8 * h < g.m && n + 8 * j + c < g.n)
            first[(8 * j + c) * g.out_column] = from<T>(s[at(h, j, c)]);
    }
  }

  // By the copy engine: whole boxes from shared memory in its swizzle, the tail from rows one after
  // another.
  template <int WIDTH>
  __device__ __forceinline__ void copy(const f32 (&s)[WIDTH / 2], int m0, int n0, int batch) {
    const int lane = threadIdx.x % 32, row = lane % 16;
    char *box = boxes + turn * OUT_BOX, *line = box + row * WIDTH * 2;
    if (++turn == OUTS) turn = 0;
    tensor_store_wait<OUTS - 1>();  // what was stored from this box has been read
    __syncwarp();
#pragma unroll
    for (int j = 0; j < WIDTH / 8; j += 2) {
      u32 v[4];
      const bool pair = j + 1 < WIDTH / 8;
#pragma unroll
      for (int i = 0; i < (pair ? 4 : 2); i++) {
        int first = at(i % 2, j + i / 2, 0);
        v[i] = pack_pair(T(), s[first], s[first + 1]);
      }
      if (pair)
        store_matrices(line + (WIDTH == 64 ? (j + lane / 16) ^ row % 8 : j + lane / 16) * 16, v);
      else
        store_matrices(line + j * 16, v[0], v[1]);
    }
    copy_engine_fence();
    __syncwarp();
    if (lane == 0) {
      tensor_store(WIDTH == 64 ? map : tail, n0, m0, batch, box);
      tensor_store_commit();
    }
  }

  // d from `first` on.
  template <int WIDTH>
  __device__ __forceinline__ void store(const f32 (&d)[BN / 2], int first, int m0, int n0,
                                        int batch) {
    const int lane = threadIdx.x % 32, m = m0 + lane / 4, n = n0 + lane % 4 * 2;
    f32 s[WIDTH / 2];
#pragma unroll
    for (int i = 0; i < WIDTH / 2; i++) s[i] = d[first + i] * alpha;
    if (g.addend) add<WIDTH>(s, m, n, batch);
    if (map)
      copy<WIDTH>(s, m0, n0, batch);
    else
      put<WIDTH>(s, m, n, batch);
  }
};

// ---- split k ----

typedef vec<f32, 4> quad;

// A warp's sums, those boxes of a tile that this block adds up: each has its share.
struct shares {
  quad* sums;  // in the ring of any block, this lane's of this warp: [HALVES, BN / 8] by 32 lanes
  int rank, first;  // the number of the warp's first box

  __device__ __forceinline__ quad* at(int half, int unit) const {
    return sums + (half * (BN / 8) + unit) * 32;
  }
  __device__ __forceinline__ bool own(int half, int box) const {
    return (first + half * BOXES + box) % SPLITS == rank;
  }
  // To d the sums of all blocks, in the order of the parts.
  template <int WIDTH>
  __device__ __forceinline__ void add_up(f32 (&d)[BN / 2], int half, int box) const {
#pragma unroll
    for (int i = 0; i < WIDTH / 8; i++) {
      quad part[SPLITS];
#pragma unroll
      for (int s = 0; s < SPLITS; s++)
        if (s != rank) part[s] = cluster_load(at(half, 8 * box + i), s);
#pragma unroll
      for (int c = 0; c < 4; c++) {
        const f32 mine = d[4 * (8 * box + i) + c];
        f32 total = rank == 0 ? mine : part[0].at[c];
#pragma unroll
        for (int s = 1; s < SPLITS; s++) total += s == rank ? mine : part[s].at[c];
        d[4 * (8 * box + i) + c] = total;
      }
    }
  }
};

// The sums that others add up are put into the rings, which are empty by then.
DEVICE shares exchange(const ring& r, const f32 (&d)[HALVES][BN / 2]) {
  const int warp = threadIdx.x / 32 - 4, lane = threadIdx.x % 32;
  shares mine = {(quad*)r.tiles + warp * HALVES * (BN / 8) * 32 + lane, r.rank,
                 warp * HALVES * BOXES};
  warps_meet<1, CONSUMERS * 128>();  // the products of both are done
#pragma unroll
  for (int half = 0; half < HALVES; half++)
#pragma unroll
    for (int i = 0; i < BN / 8; i++)
      if (!mine.own(half, i / 8))
        *mine.at(half, i) = quad{{d[half][4 * i], d[half][4 * i + 1], d[half][4 * i + 2],
                                  d[half][4 * i + 3]}};
  cluster_arrive();
  cluster_wait();
  return mine;
}

// ---- the two roles ----

// This block's part of a tile of N rows, for all of BLOCKS blocks that share it.
template <int K_FIRST, int N, int BLOCKS>
DEVICE void load_part(char* to, const tensor_map* map, int row, int k, int batch, mbarrier* full,
                      int part, u16 blocks) {
  const int own = N / BLOCKS;
  to += part * own * BK * 2;
  row += part * own;
#pragma unroll
  for (int i = 0; i < (K_FIRST ? 1 : own / 64); i++) {
    int x = K_FIRST ? k : row + 64 * i, y = K_FIRST ? row : k;
    if (BLOCKS == 1)
      tensor_load(to + i * BOX, map, x, y, batch, full);
    else
      tensor_load_shared(to + i * BOX, map, x, y, batch, full, blocks);
  }
}

DEVICE void produce(ring r, const tensor_map* a, const tensor_map* b, const hy_gemm& g) {
  const int tiles = tile_count(g), row = r.rank % CM, column = r.rank / CM % CN;
  const k_range steps = range_of(g, r.rank);
  u16 same_row = 0, same_column = 0;
  for (int i = 0; i < CN; i++) same_row |= 1 << (row + CM * i);
  for (int i = 0; i < CM; i++) same_column |= 1 << (i + CM * column);
  r.parity = 1;  // the first round finds every stage empty
  for (int id = blockIdx.x / CLUSTER; id < tiles; id += gridDim.x / CLUSTER) {
    tile_place p = tile_of(g, id, r.rank);
    for (int step = steps.first; step < steps.last; step++) {
      mbarrier* full = &r.full[r.s];
      mbarrier_wait(&r.empty[r.s], r.parity);
      mbarrier_expect(full, STAGE_BYTES);
      load_part<A_K, BM, CN>(r.a(), a, p.m, step * BK, p.batch, full, column, same_row);
      load_part<B_K, BN, CM>(r.b(), b, p.n, step * BK, p.batch, full, row, same_column);
      r.next();
    }
  }
}

// A box of the tile, where this block adds it up.
template <int WIDTH>
DEVICE void finish(epilogue& e, const shares& mine, f32 (&d)[BN / 2], const tile_place& p, int m,
                   int half, int box) {
  if (SPLITS > 1 && !mine.own(half, box)) return;
  if (SPLITS > 1) mine.add_up<WIDTH>(d, half, box);
  e.store<WIDTH>(d, 32 * box, m + 64 * half, p.n + 64 * box, p.batch);
}

DEVICE void consume(ring r, const hy_gemm& g, epilogue e, int consumer) {
  const int tiles = tile_count(g), part = TURNS ? 0 : consumer * ROWS;
  const int first = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;
  const k_range steps = range_of(g, r.rank);
  const u64 a = tile_descriptor(r.tiles + part * (BOX / 64), BOX);
  const u64 b = tile_descriptor(r.tiles + A_BYTES, BOX);
  if (TURNS && consumer > 0) r.skip(steps.last);
  for (int id = first + (TURNS ? consumer * clusters : 0); id < tiles;
       id += clusters * (CONSUMERS / PER_TILE)) {
    tile_place p = tile_of(g, id, r.rank);
    f32 d[HALVES][BN / 2];
    int before = 0;
    if (TURNS && id != first) turn_wait<256>(1 + consumer);
    for (int step = steps.first; step < steps.last; step++) {
      mbarrier_wait(&r.full[r.s], r.parity);
      wgmma_fence();
      const u64 at = r.s * (STAGE_BYTES / 16);  // descriptors count 16 bytes
#pragma unroll
      for (int k = 0; k < BK; k += 16)
#pragma unroll
        for (int half = 0; half < HALVES; half++)
          wgmma_wide<!A_K, !B_K>(T(), d[half],
                                 a + at + (half * BOX + (A_K ? k * 2 : k * 128)) / 16,
                                 b + at + (B_K ? k * 2 : k * 128) / 16,
                                 step > steps.first || k > 0);
      wgmma_commit();
      wgmma_wait<1>();  // the products of the stage before are done
      if (step > steps.first) r.release(before);
      before = r.s;
      r.next();
    }
    if (TURNS && id + clusters < tiles) turn_pass<256>(2 - consumer);
    wgmma_wait<0>();
    r.release(before);
    if (TURNS) r.skip(steps.last);
    shares mine;
    if (SPLITS > 1) mine = exchange(r, d);
    const int m = p.m + part + threadIdx.x / 32 % 4 * 16;
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
#pragma unroll
      for (int box = 0; box < WHOLE_BOXES; box++) finish<64>(e, mine, d[half], p, m, half, box);
      if (TAIL) finish<TAIL ? TAIL : 64>(e, mine, d[half], p, m, half, WHOLE_BOXES);
    }
    if (SPLITS > 1) break;  // a cluster has one tile
  }
  tensor_store_wait<0>();
}

KERNEL void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    gemm_wgmma(const __grid_constant__ tensor_map a, const __grid_constant__ tensor_map b,
               const __grid_constant__ tensor_map out, const __grid_constant__ tensor_map tail,
               int out_mapped, hy_gemm g) {
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(8) mbarrier full[STAGES], empty[STAGES];
  char* at = shared + (1024 - shared_address(shared) % 1024) % 1024;
  ring r = {at, full, empty, CLUSTER > 1 ? cluster_rank() : 0, 0, 0};
  launch_dependents();
  if (threadIdx.x == 0) {
    tensor_prefetch(&a);
    tensor_prefetch(&b);
    if (out_mapped) tensor_prefetch(&out);
    if (out_mapped && TAIL) tensor_prefetch(&tail);
    for (int s = 0; s < STAGES; s++) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], PER_TILE * 4 * (CM + CN - 1));
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  if (SHARERS > 1) cluster_meet();
  wait_for_previous();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    fewer_registers<PRODUCER_REGISTERS>();
    if (threadIdx.x == 0) produce(r, &a, &b, g);
    __syncwarp();
    if (SPLITS > 1) {
      cluster_arrive();  // with the consumers, in exchange
      cluster_wait();
    }
  } else {
    more_registers<CONSUMER_REGISTERS>();
    const int warp = threadIdx.x / 32 - 4;
    char* boxes = at + STAGES * STAGE_BYTES + warp * OUTS * OUT_BOX;
    epilogue e = {g, (f32)g.alpha, (f32)g.beta, out_mapped ? &out : 0, &tail, boxes, 0};
    consume(r, g, e, group - 1);
  }
  if (CLUSTER > 1) cluster_meet();
}

#endif
