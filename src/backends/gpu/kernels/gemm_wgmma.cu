// GEMM on Hopper: TMA and wgmma, warp-specialised and persistent. One warpgroup's first thread
// keeps a ring of STAGES filled by the copy engine; two others multiply, each 64 of the tile's 128
// rows by BN columns, and hand a stage back as soon as the products that read it are done. A block
// goes through tiles until there are none: while one tile is stored, the next is being loaded. f32
// accumulators and epilogue. Options: T (f16, bf16), A_K and B_K (1 where the operand's neighbours
// in memory are along k), BN (128 or 256), STAGES.
//
// needs: mma.sync
// options: -DT=bf16 -DA_K=1 -DB_K=1 -DBN=256 -DSTAGES=4
// options: -DT=f16 -DA_K=1 -DB_K=0 -DBN=128 -DSTAGES=6
// options: -DT=bf16 -DA_K=0 -DB_K=0 -DBN=256 -DSTAGES=4
#include "params.h"
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets have none of these instructions

#define BM 128
#define BK 64
#define CONSUMERS 2
#define THREADS ((CONSUMERS + 1) * 128)
#define A_BYTES (BM * BK * 2)
#define B_BYTES (BN * BK * 2)
#define BOX (64 * BK * 2)  // of 64 rows, where an operand runs along its rows

// Blocks that run together share rows of a and columns of b: 8 tiles of m for each step of n.
struct tile_place {
  int m, n, batch;
};
DEVICE tile_place tile_of(const hy_gemm& g, int id) {
  const int group = 8, tiles_m = (g.m + BM - 1) / BM, tiles_n = (g.n + BN - 1) / BN;
  const int batch = id / (tiles_m * tiles_n);
  id -= batch * tiles_m * tiles_n;
  int wide = group * tiles_n, first = id / wide * group;
  int high = min(tiles_m - first, group);
  tile_place p = {(first + id % wide % high) * BM, id % wide / high * BN, batch};
  return p;
}

// ---- epilogue ----

struct epilogue {
  const hy_gemm& g;
  const T* addend;
  T* out;
  __device__ __forceinline__ f32 value(int m, int n, f32 sum) const {
    sum *= (f32)g.alpha;
    if (addend && m < g.m && n < g.n)
      sum += (f32)g.beta * to<f32>(addend[m * g.addend_row + n * g.addend_column]);
    return sum;
  }
  __device__ __forceinline__ void put(int m, int n, u32 pair) const {
    if (m >= g.m) return;
    T* at = out + m * g.out_row + n * g.out_column;
    if (n < g.n) *(u16*)at = (u16)pair;
    if (n + 1 < g.n) *(u16*)(at + g.out_column) = (u16)(pair >> 16);
  }
};

// 64 rows by 128 columns of one warpgroup.
DEVICE void store_tile(const epilogue& e, f32 (&d)[64], int m0, int n0, bool wide) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int m = m0 + warp * 16 + lane / 4 + 8 * h;
#pragma unroll
    for (int q = 0; q < 4; q++) {
      u32 v[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        int n = n0 + 8 * (4 * q + j) + lane % 4 * 2, at = 4 * (4 * q + j) + 2 * h;
        v[j] = pack_pair(T(), e.value(m, n, d[at]), e.value(m, n + 1, d[at + 1]));
      }
      if (!wide) {
#pragma unroll
        for (int j = 0; j < 4; j++) e.put(m, n0 + 8 * (4 * q + j) + lane % 4 * 2, v[j]);
        continue;
      }
      transpose_quad(v);
      int n = n0 + 8 * (4 * q + lane % 4);
      if (m < e.g.m && n < e.g.n)
        *(vec<u32, 4>*)(e.out + m * e.g.out_row + n) = vec<u32, 4>{{v[0], v[1], v[2], v[3]}};
    }
  }
}

// ---- the two roles ----

struct ring {
  char* tiles;
  mbarrier *full, *empty;
  __device__ __forceinline__ char* a(int s) const { return tiles + s * (A_BYTES + B_BYTES); }
  __device__ __forceinline__ char* b(int s) const { return a(s) + A_BYTES; }
};

DEVICE void produce(const ring& r, const tensor_map* a, const tensor_map* b, const hy_gemm& g,
                    int tiles) {
  const int steps = (g.k + BK - 1) / BK;
  int s = 0, parity = 1;  // the first round finds every stage empty
  for (int id = blockIdx.x; id < tiles; id += gridDim.x) {
    tile_place p = tile_of(g, id);
    for (int k = 0; k < steps * BK; k += BK) {
      mbarrier_wait(&r.empty[s], parity);
      mbarrier_expect(&r.full[s], A_BYTES + B_BYTES);
      if (A_K)
        tensor_load(r.a(s), a, k, p.m, p.batch, &r.full[s]);
      else
        for (int i = 0; i < BM / 64; i++)
          tensor_load(r.a(s) + i * BOX, a, p.m + 64 * i, k, p.batch, &r.full[s]);
      if (B_K)
        tensor_load(r.b(s), b, k, p.n, p.batch, &r.full[s]);
      else
        for (int i = 0; i < BN / 64; i++)
          tensor_load(r.b(s) + i * BOX, b, p.n + 64 * i, k, p.batch, &r.full[s]);
      if (++s == STAGES) {
        s = 0;
        parity ^= 1;
      }
    }
  }
}

DEVICE void consume(const ring& r, const hy_gemm& g, int tiles, int consumer) {
  const int steps = (g.k + BK - 1) / BK;
  const bool leader = threadIdx.x % 32 == 0;
  int s = 0, parity = 0;
  for (int id = blockIdx.x; id < tiles; id += gridDim.x) {
    tile_place p = tile_of(g, id);
    f32 d[BN / 128][64];
    int before = 0;
    for (int step = 0; step < steps; step++) {
      mbarrier_wait(&r.full[s], parity);
      wgmma_fence();
      // 64 rows along k are 64 lines of 128 bytes; along rows they are one box.
      const char *at_a = r.a(s) + consumer * (A_K ? 64 * BK * 2 : BOX), *at_b = r.b(s);
#pragma unroll
      for (int k = 0; k < BK; k += 16) {
        u64 a = tile_descriptor(at_a + (A_K ? k * 2 : k * 128), BOX);
#pragma unroll
        for (int n = 0; n < BN / 128; n++) {
          const char* half = at_b + (B_K ? n * 128 * BK * 2 : n * 2 * BOX);
          u64 b = tile_descriptor(half + (B_K ? k * 2 : k * 128), BOX);
          wgmma_n128<!A_K, !B_K>(T(), d[n], a, b, step > 0 || k > 0);
        }
      }
      wgmma_commit();
      wgmma_wait<1>();  // the products of the stage before are done
      if (step > 0 && leader) mbarrier_arrive(&r.empty[before]);
      before = s;
      if (++s == STAGES) {
        s = 0;
        parity ^= 1;
      }
    }
    wgmma_wait<0>();
    if (leader) mbarrier_arrive(&r.empty[before]);

    epilogue e = {g, g.addend ? (const T*)g.addend + p.batch * g.addend_batch : 0,
                  (T*)g.out + p.batch * g.out_batch};
    // 16 bytes at a time where rows begin at multiples of them and end at one.
    bool wide = g.out_column == 1 && ((u64)e.out | (u64)(g.out_row * 2)) % 16 == 0 && g.n % 8 == 0;
#pragma unroll
    for (int n = 0; n < BN / 128; n++)
      store_tile(e, d[n], p.m + 64 * consumer, p.n + 128 * n, wide);
  }
}

KERNEL void __launch_bounds__(THREADS, 1)
    gemm_wgmma(const __grid_constant__ tensor_map a, const __grid_constant__ tensor_map b,
               hy_gemm g) {
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(8) mbarrier full[STAGES], empty[STAGES];
  char* tiles_at = shared + (1024 - shared_address(shared) % 1024) % 1024;
  ring r = {tiles_at, full, empty};
  if (threadIdx.x == 0) {
    tensor_prefetch(&a);
    tensor_prefetch(&b);
    for (int s = 0; s < STAGES; s++) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], CONSUMERS * 4);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const int tiles = (g.m + BM - 1) / BM * ((g.n + BN - 1) / BN) * g.batch;
  const int group = threadIdx.x / 128;
  if (group == 0) {
    fewer_registers<40>();
    if (threadIdx.x == 0) produce(r, &a, &b, g, tiles);
  } else {
    more_registers<232>();
    consume(r, g, tiles, group - 1);
  }
}

#endif
