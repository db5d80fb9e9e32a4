// FlashAttention backward on Hopper: TMA and wgmma, warp-specialised. The mathematics and the two
// kernels are those of attention_backward.cu: each owns what it writes, so that the result is the
// same every time. attention_backward_key keeps 128 keys and goes through the queries,
// attention_backward_query keeps 128 queries and goes through the keys, 64 lines a step; a
// warpgroup has 64 of the 128. Scores are computed transposed for the keys, so that probabilities
// and their gradients are left operands as they lie in registers, and none goes through shared
// memory. While the softmax of a step runs, the products of the step before and after it do.
// Options: T (f16, bf16), HEAD (64 or 128, the padded head size).
//
// needs: mma.sync
// options: -DT=bf16 -DHEAD=64
// options: -DT=f16 -DHEAD=128
#include "attention_rows.cuh"
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets have none of these instructions

#define LOG2_E 1.44269504f
#define CONSUMERS 2
#define THREADS ((CONSUMERS + 1) * 128)
#define OWN (64 * CONSUMERS)  // lines that a block keeps
#define STEP 64               // lines of a step
#define STAGES 4
#define BOX (64 * 128)  // of 64 lines and 64 columns
#define TILE (HEAD / 64 * BOX)
#define LINE_BYTES (STEP * (int)sizeof(f32))  // a number for each line
#define STAGE (2 * TILE + 2 * LINE_BYTES)     // two tiles; lse and delta where lines are queries

// What both kernels have in shared memory: two tiles of each warpgroup's own lines, a ring of
// steps.
struct pipeline {
  char *own, *ring;
  mbarrier *own_full, *full, *empty;
  __device__ __forceinline__ char* stage(int step) const { return ring + step % STAGES * STAGE; }
  __device__ __forceinline__ void wait(int step) const {
    mbarrier_wait(&full[step % STAGES], step / STAGES % 2);
  }
  __device__ __forceinline__ void release(int step) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(&empty[step % STAGES]);
  }
  // The producer's: a stage to be filled with `bytes`.
  __device__ __forceinline__ mbarrier* fill(int step, int bytes) const {
    mbarrier_wait(&empty[step % STAGES], step / STAGES % 2 ^ 1);
    mbarrier_expect(&full[step % STAGES], bytes);
    return &full[step % STAGES];
  }
};

// Barriers of a block, which is then ready.
DEVICE pipeline make_pipeline(char* shared, mbarrier* barriers) {
  char* at = shared + (1024 - shared_address(shared) % 1024) % 1024;
  pipeline p = {at, at + 2 * CONSUMERS * TILE, barriers, barriers + 1, barriers + 1 + STAGES};
  if (threadIdx.x == 0) {
    mbarrier_init(p.own_full, 1);
    for (int s = 0; s < STAGES; s++) {
      mbarrier_init(&p.full[s], 1);
      mbarrier_init(&p.empty[s], CONSUMERS * 4);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  return p;
}

DEVICE void load_tile(char* to, const tensor_map* map, int row, int head, int batch, mbarrier* b) {
#pragma unroll
  for (int i = 0; i < HEAD / 64; i++) tensor_load(to + i * BOX, map, 64 * i, row, head, batch, b);
}

DEVICE void load_own(const pipeline& p, const tensor_map* first, const tensor_map* second, int row0,
                     int head, int batch) {
  mbarrier_expect(p.own_full, 2 * CONSUMERS * TILE);
  for (int c = 0; c < CONSUMERS; c++) {
    load_tile(p.own + 2 * c * TILE, first, row0 + 64 * c, head, batch, p.own_full);
    load_tile(p.own + (2 * c + 1) * TILE, second, row0 + 64 * c, head, batch, p.own_full);
  }
}

// ---- products ----

// A warpgroup's own tile as a left operand: in registers where heads are small, which leaves shared
// memory's bandwidth to the right one.
struct left_tile {
  const char* at;
  u32 part[HEAD == 64 ? HEAD / 16 : 1][4];

  __device__ __forceinline__ void load(const char* tile) {
    at = tile;
    if (HEAD != 64) return;
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) {
      int chunk = 2 * k + lane / 16;
      load_matrices<false>(part[k], tile + line * 128 + (chunk ^ line % 8) * 16);
    }
  }
};

// Starts s[64, STEP] = left right^T.
DEVICE void start_product(f32 (&s)[32], const left_tile& left, const char* right) {
#pragma unroll
  for (int d = 0; d < HEAD; d += 16) {
    const int at = d / 64 * BOX + d % 64 * 2;
    const u64 b = tile_descriptor(right + at, BOX);
    if (HEAD == 64 && d == 0)
      wgmma_left_set<0>(T(), s, left.part[0], b);
    else if (HEAD == 64)
      wgmma_left_add<0>(T(), s, left.part[d / 16], b);
    else if (d == 0)
      wgmma_set<0, 0>(T(), s, tile_descriptor(left.at, BOX), b);
    else
      wgmma_add<0, 0>(T(), s, tile_descriptor(left.at + at, BOX), b);
  }
}

// Starts sum[64, HEAD] += p[64, STEP] right.
DEVICE void start_sum(f32 (&sum)[HEAD / 2], const u32 (&p)[STEP / 16][4], const char* right) {
#pragma unroll
  for (int k = 0; k < STEP / 16; k++)
    wgmma_left<1>(T(), sum, p[k], tile_descriptor(right + k * 16 * 128, BOX));
}

DEVICE void pack(u32 (&p)[STEP / 16][4], const f32 (&s)[32]) {
#pragma unroll
  for (int k = 0; k < STEP / 16; k++)
#pragma unroll
    for (int e = 0; e < 4; e++) p[k][e] = pack_pair(T(), s[8 * k + 2 * e], s[8 * k + 2 * e + 1]);
}

// Zeros, made here and now: later ones would be moved between products that are under way.
DEVICE void clear(f32 (&sum)[HEAD / 2]) {
#pragma unroll
  for (int i = 0; i < HEAD / 2; i++) asm volatile("mov.f32 %0, 0f00000000;" : "=f"(sum[i]));
}

// ---- lse and delta, in rows padded to STEP ----

// [lse, delta][batch, heads, padded queries]: lse in units of log 2, and infinite where a row sees
// no key or is not there, so that its probabilities are 0.
DEVICE i64 padded_queries(const hy_attention& a) {
  return (a.queries + STEP - 1) / STEP * (i64)STEP;
}
DEVICE const f32* lse_of(const hy_attention& a, const f32* stats, i64 batch, i64 head) {
  return stats + (batch * a.heads + head) * padded_queries(a);
}
DEVICE i64 delta_offset(const hy_attention& a) {
  return (i64)a.batches * a.heads * padded_queries(a);
}

// A row for each 8 columns' threads. Grid: padded rows of all heads.
KERNEL void __launch_bounds__(256) attention_backward_stats(hy_attention a, f32* stats) {
  const int lanes = HEAD / 8, column = (int)threadIdx.x % lanes * 8;
  const i64 index = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / lanes,
            of = index / padded_queries(a);
  const i64 batch = of / a.heads;
  const int head = (int)(of % a.heads), query = (int)(index % padded_queries(a));
  const bool there = query < a.queries;
  f32 sum = 0;
  if (batch < a.batches && there && column < a.value_size) {
    vec<T, 8> x = *(const vec<T, 8>*)(head_row<u16>(a.dout, batch, head, query) + column);
    vec<T, 8> y = *(const vec<T, 8>*)(head_row<u16>(a.out, batch, head, query) + column);
#pragma unroll
    for (int k = 0; k < 8; k++) sum += to<f32>(x.at[k]) * to<f32>(y.at[k]);
  }
#pragma unroll
  for (int mask = lanes / 2; mask > 0; mask /= 2) sum += SHFL_XOR(sum, mask);
  if (batch >= a.batches || column != 0) return;
  f32 lse = there ? ((const f32*)a.lse)[query_index(a, batch, head, query)] : -INF_F32;
  stats[index] = lse == -INF_F32 ? INF_F32 : lse * LOG2_E;
  stats[delta_offset(a) + index] = sum;
}

// ---- dk and dv ----

DEVICE f32* partial_row(const hy_attention& a, int which, i64 batch, int head, int key) {
  i64 row = (batch * a.heads + head) * a.keys + key;
  return a.partial + (which * (i64)a.batches * a.heads * a.keys + row) * HEAD;
}

// A block's keys, and the steps through the queries of all query heads that share them.
struct key_place {
  int key0, kv_head, batch, first_head, heads;
  int row0, each;  // the first query of a head that any key is seen by, steps of a head
  __device__ __forceinline__ int steps() const { return heads * each; }
  __device__ __forceinline__ int head(int step) const { return first_head + step / each; }
  __device__ __forceinline__ int row(int step) const { return row0 + step % each * STEP; }
};

DEVICE key_place key_place_of(const hy_attention& a) {
  const int group = a.heads / a.kv_heads, y = (int)blockIdx.y;
  key_place at = {(int)blockIdx.x * OWN, y, (int)blockIdx.z, y * group, group, 0, 0};
  if (a.partial) at.kv_head = y / group, at.first_head = y, at.heads = 1;
  at.row0 = first_query(a, at.key0) / STEP * STEP;
  at.each = at.row0 < a.queries ? (a.queries - at.row0 + STEP - 1) / STEP : 0;
  return at;
}

DEVICE void produce_queries(const pipeline& p, const key_place& at, const tensor_map* q,
                            const tensor_map* k, const tensor_map* v, const tensor_map* dout,
                            const hy_attention& a, const f32* stats) {
  load_own(p, k, v, at.key0, at.kv_head, at.batch);
  for (int j = 0; j < at.steps(); j++) {
    const f32* lse = lse_of(a, stats, at.batch, at.head(j)) + at.row(j);
    mbarrier* full = p.fill(j, STAGE);
    char* to = p.stage(j);
    load_tile(to, q, at.row(j), at.head(j), at.batch, full);
    load_tile(to + TILE, dout, at.row(j), at.head(j), at.batch, full);
    bulk_load(to + 2 * TILE, lse, LINE_BYTES, full);
    bulk_load(to + 2 * TILE + LINE_BYTES, lse + delta_offset(a), LINE_BYTES, full);
  }
}

struct key_consumer {
  const pipeline& p;
  const hy_attention& a;
  const key_place& at;
  f32 scale;
  int first[2];  // queries that see the thread's keys
  int every;     // the first query that sees all keys of the warpgroup
  int any;       // and the first that sees one

  // Whether the first step of a head, in which the warpgroup's keys are not seen, is passed by.
  __device__ __forceinline__ int skipped() const { return at.each > 1 && at.row0 + STEP <= any; }
  // The i-th step of the warpgroup.
  __device__ __forceinline__ int step(int i) const {
    const int each = at.each - skipped();
    return i / each * at.each + skipped() + i % each;
  }
  __device__ __forceinline__ int steps() const { return at.heads * (at.each - skipped()); }
  __device__ __forceinline__ void wait(int step) const {
    if (skipped() && step % at.each == 1) {
      p.wait(step - 1);
      p.release(step - 1);
    }
    p.wait(step);
  }

  // Scores of keys and queries become probabilities.
  __device__ __forceinline__ void soften(f32 (&s)[32], int step) const {
    const f32* lse = (const f32*)(p.stage(step) + 2 * TILE) + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const vec<f32, 2> own = *(const vec<f32, 2>*)(lse + 8 * i);
#pragma unroll
      for (int e = 0; e < 4; e++) s[4 * i + e] = exp2_approx(s[4 * i + e] * scale - own.at[e % 2]);
    }
    const int row = at.row(step);
    if (row >= every) return;
#pragma unroll
    for (int i = 0; i < 32; i++)
      if (row + i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2 < first[i / 2 % 2]) s[i] = 0;
  }

  // Gradients of probabilities become gradients of scores.
  __device__ __forceinline__ void differentiate(f32 (&ds)[32], const f32 (&s)[32], int step) const {
    const f32* delta = (const f32*)(p.stage(step) + 2 * TILE + LINE_BYTES) + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const vec<f32, 2> own = *(const vec<f32, 2>*)(delta + 8 * i);
#pragma unroll
      for (int e = 0; e < 4; e++) ds[4 * i + e] = s[4 * i + e] * (ds[4 * i + e] - own.at[e % 2]);
    }
  }
};

DEVICE void consume_queries(const pipeline& p, const key_place& at, const hy_attention& a,
                            int consumer) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, key0 = at.key0 + 64 * consumer;
  const int mine = key0 + warp * 16 + lane / 4;  // and 8 below
  const key_consumer c = {p,
                          a,
                          at,
                          (f32)a.scale * LOG2_E,
                          {first_query(a, mine), first_query(a, mine + 8)},
                          first_query(a, key0 + 63),
                          first_query(a, key0)};
  f32 s[32], ds[32], dk[HEAD / 2], dv[HEAD / 2];
  u32 share[STEP / 16][4], change[STEP / 16][4];
  left_tile k, v;
  clear(dk);
  clear(dv);
  mbarrier_wait(p.own_full, 0);
  k.load(p.own + 2 * consumer * TILE);
  v.load(p.own + (2 * consumer + 1) * TILE);
  const int steps = c.steps();
  if (steps > 0) {
    int step = c.step(0);
    c.wait(step);
    wgmma_fence();
    start_product(s, k, p.stage(step));
    wgmma_commit();
    start_product(ds, v, p.stage(step) + TILE);
    wgmma_commit();
    wgmma_wait<1>();
    for (int i = 1; i < steps; i++) {  // the scores of `step` are there
      const int next = c.step(i);
      c.soften(s, step);
      wgmma_wait<0>();  // ds, and the sums of the step before
      if (i > 1) p.release(c.step(i - 2));
      pack(share, s);
      c.differentiate(ds, s, step);
      pack(change, ds);
      c.wait(next);
      wgmma_fence();
      if (HEAD == 128) {  // registers do not suffice for all at once
        start_sum(dv, share, p.stage(step) + TILE);
        start_sum(dk, change, p.stage(step));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_fence();
      }
      start_product(s, k, p.stage(next));
      wgmma_commit();
      if (HEAD == 64) {
        start_sum(dv, share, p.stage(step) + TILE);
        start_sum(dk, change, p.stage(step));
      }
      start_product(ds, v, p.stage(next) + TILE);
      wgmma_commit();
      wgmma_wait<1>();  // s
      step = next;
    }
    c.soften(s, step);
    wgmma_wait<0>();
    pack(share, s);
    c.differentiate(ds, s, step);
    pack(change, ds);
    wgmma_fence();
    start_sum(dv, share, p.stage(step) + TILE);
    start_sum(dk, change, p.stage(step));
    wgmma_commit();
    wgmma_wait<0>();
  }

#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int key = mine + 8 * h;
    const bool there = key < a.keys;
    if (a.partial) {
#pragma unroll
      for (int j = 0; there && j < HEAD / 8; j++) {
        const int column = 8 * j + lane % 4 * 2, i = 4 * j + 2 * h;
        *(vec<f32, 2>*)(partial_row(a, 0, at.batch, at.first_head, key) +
                        column) = {{dk[i], dk[i + 1]}};
        *(vec<f32, 2>*)(partial_row(a, 1, at.batch, at.first_head, key) +
                        column) = {{dv[i], dv[i + 1]}};
      }
      continue;
    }
    store_row(T(), head_row<u16>(a.dk, at.batch, at.kv_head, key), there && a.dk.data, a.size, dk,
              h, (f32)a.scale);
    store_row(T(), head_row<u16>(a.dv, at.batch, at.kv_head, key), there && a.dv.data, a.value_size,
              dv, h, 1.0f);
  }
}

// Grid: key tiles, key heads (query heads where there is `partial`), batch.
KERNEL void __launch_bounds__(THREADS, 1)
    attention_backward_key(const __grid_constant__ tensor_map q,
                           const __grid_constant__ tensor_map k,
                           const __grid_constant__ tensor_map v,
                           const __grid_constant__ tensor_map dout, hy_attention a,
                           const f32* stats) {
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(8) mbarrier barriers[1 + 2 * STAGES];
  const pipeline p = make_pipeline(shared, barriers);
  const key_place at = key_place_of(a);
  const int group = SHFL((int)threadIdx.x / 128, 0);  // known to be the same for a warp
  if (group == 0) {
    fewer_registers<24>();
    if (threadIdx.x == 0) produce_queries(p, at, &q, &k, &v, &dout, a, stats);
  } else {
    more_registers<240>();
    consume_queries(p, at, a, group - 1);
  }
}

// ---- dq ----

struct query_place {
  int row0, head, batch, steps;
};

DEVICE void produce_keys(const pipeline& p, const query_place& at, const tensor_map* q,
                         const tensor_map* k, const tensor_map* v, const tensor_map* dout,
                         int kv_head) {
  load_own(p, q, dout, at.row0, at.head, at.batch);
  for (int j = 0; j < at.steps; j++) {
    mbarrier* full = p.fill(j, 2 * TILE);
    load_tile(p.stage(j), k, j * STEP, kv_head, at.batch, full);
    load_tile(p.stage(j) + TILE, v, j * STEP, kv_head, at.batch, full);
  }
}

struct query_consumer {
  const pipeline& p;
  f32 scale, lse[2], delta[2];
  int limit[2];  // keys that the thread's rows see
  int every;     // keys that all rows of the warpgroup see
  left_tile q, dout;
  u32 change[STEP / 16][4];

  __device__ __forceinline__ void soften(f32 (&s)[32], int step) const {
#pragma unroll
    for (int i = 0; i < 32; i++) s[i] = exp2_approx(s[i] * scale - lse[i / 2 % 2]);
    if ((step + 1) * STEP <= every) return;
#pragma unroll
    for (int i = 0; i < 32; i++)
      if (step * STEP + i / 4 * 8 + (int)threadIdx.x % 4 * 2 + i % 2 >= limit[i / 2 % 2]) s[i] = 0;
  }

  __device__ __forceinline__ void differentiate(f32 (&ds)[32], const f32 (&s)[32]) const {
#pragma unroll
    for (int i = 0; i < 32; i++) ds[i] = s[i] * (ds[i] - delta[i / 2 % 2]);
  }

  // With the scores of `step` in s and its gradients of probabilities under way to ds: adds to dq,
  // and starts both for the next step, whose scores go to `next`.
  __device__ __forceinline__ void advance(f32 (&dq)[HEAD / 2], f32 (&s)[32], f32 (&next)[32],
                                          f32 (&ds)[32], int step) {
    p.wait(step + 1);
    wgmma_fence();
    start_product(next, q, p.stage(step + 1));
    wgmma_commit();
    soften(s, step);
    wgmma_wait<1>();  // ds, and dq of the step before
    if (step > 0) p.release(step - 1);
    differentiate(ds, s);
    pack(change, ds);
    wgmma_fence();
    start_sum(dq, change, p.stage(step));
    start_product(ds, dout, p.stage(step + 1) + TILE);
    wgmma_commit();
    wgmma_wait<1>();  // next
  }

  // The same for the last step.
  __device__ __forceinline__ void finish(f32 (&dq)[HEAD / 2], f32 (&s)[32], f32 (&ds)[32],
                                         int step) {
    soften(s, step);
    wgmma_wait<0>();
    if (step > 0) p.release(step - 1);
    differentiate(ds, s);
    pack(change, ds);
    wgmma_fence();
    start_sum(dq, change, p.stage(step));
    wgmma_commit();
    wgmma_wait<0>();
  }
};

DEVICE void consume_keys(const pipeline& p, const query_place& at, const hy_attention& a,
                         const f32* stats, int consumer) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row0 = at.row0 + 64 * consumer;
  const int mine = row0 + warp * 16 + lane / 4;  // and 8 below
  const bool any = row0 < a.queries;
  const int visible = any ? visible_keys(a, min(row0 + 64, a.queries) - 1) : 0;
  const int steps = (visible + STEP - 1) / STEP;
  query_consumer c = {p, (f32)a.scale * LOG2_E};
  c.every = any ? visible_keys(a, row0) : 0;
  const f32* own = lse_of(a, stats, at.batch, at.head) + mine;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    c.lse[h] = any ? own[8 * h] : 0;
    c.delta[h] = any ? own[delta_offset(a) + 8 * h] : 0;
    c.limit[h] = visible_keys(a, mine + 8 * h);
  }
  f32 even[32], odd[32], ds[32], dq[HEAD / 2];
  clear(dq);
  mbarrier_wait(p.own_full, 0);
  c.q.load(p.own + 2 * consumer * TILE);
  c.dout.load(p.own + (2 * consumer + 1) * TILE);
  if (steps > 0) {
    p.wait(0);
    wgmma_fence();
    start_product(even, c.q, p.stage(0));
    wgmma_commit();
    start_product(ds, c.dout, p.stage(0) + TILE);
    wgmma_commit();
    wgmma_wait<1>();
    int j = 0;
    for (; j + 2 < steps; j += 2) {
      c.advance(dq, even, odd, ds, j);
      c.advance(dq, odd, even, ds, j + 1);
    }
    if (j + 1 < steps) {
      c.advance(dq, even, odd, ds, j);
      c.finish(dq, odd, ds, j + 1);
    } else {
      c.finish(dq, even, ds, j);
    }
  }
  for (int j = steps > 0 ? steps - 1 : 0; j < at.steps; j++) {  // what others go on with
    p.wait(j);
    p.release(j);
  }
#pragma unroll
  for (int h = 0; h < 2; h++)
    store_row(T(), head_row<u16>(a.dq, at.batch, at.head, mine + 8 * h), mine + 8 * h < a.queries,
              a.size, dq, h, (f32)a.scale);
}

// Grid: query tiles, heads, batch.
KERNEL void __launch_bounds__(THREADS, 1)
    attention_backward_query(const __grid_constant__ tensor_map q,
                             const __grid_constant__ tensor_map k,
                             const __grid_constant__ tensor_map v,
                             const __grid_constant__ tensor_map dout, hy_attention a,
                             const f32* stats) {
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(8) mbarrier barriers[1 + 2 * STAGES];
  const pipeline p = make_pipeline(shared, barriers);
  // Tiles that see many keys go first, so that short ones fill the end.
  query_place at = {(int)(gridDim.x - 1 - blockIdx.x) * OWN, (int)blockIdx.y, (int)blockIdx.z, 0};
  at.steps = (visible_keys(a, min(at.row0 + OWN, a.queries) - 1) + STEP - 1) / STEP;
  const int group = SHFL((int)threadIdx.x / 128, 0);  // known to be the same for a warp
  if (group == 0) {
    fewer_registers<24>();
    if (threadIdx.x == 0) produce_keys(p, at, &q, &k, &v, &dout, at.head / (a.heads / a.kv_heads));
  } else {
    more_registers<240>();
    consume_keys(p, at, a, stats, group - 1);
  }
}

#endif
