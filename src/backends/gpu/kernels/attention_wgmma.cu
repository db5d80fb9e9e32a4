// FlashAttention forward on Hopper: TMA and wgmma, warp-specialised and persistent. One thread
// keeps rings of queries, keys and values filled by the copy engine; each consumer warpgroup owns
// 64 queries of one head. The scores of the next tile of keys are computed while the probabilities
// of this one multiply its values, and the softmax runs beside both. A block goes through tiles of
// queries until there are none: while one is stored, the next is being loaded. Options: T (f16,
// bf16), HEAD (64 or 128, the padded head size), CONSUMERS.
//
// needs: mma.sync
// options: -DT=bf16 -DHEAD=64 -DCONSUMERS=3
// options: -DT=bf16 -DHEAD=64 -DCONSUMERS=1
// options: -DT=f16 -DHEAD=128 -DCONSUMERS=2
#include "attention_rows.cuh"
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL  // other targets have none of these instructions

#define LOG2_E 1.44269504f
#define LN_2 0.69314718f
#define KEYS 128
#define STAGES 2
#define ROWS (64 * CONSUMERS)
#define THREADS ((CONSUMERS + 1) * 128)
#define PARTS (HEAD / 64)  // boxes of 64 columns
#define Q_BYTES (64 * HEAD * 2)
#define KV_BYTES (KEYS * HEAD * 2)
#define Q_BOX (64 * 128)
#define KV_BOX (KEYS * 128)

#define L2_BYTES (24 << 20)  // of keys and values that are gone through at a time

struct pipeline {
  char *q, *k, *v;  // rings: q of all consumers, keys, values
  mbarrier *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty;
};

// A tile of queries. As many heads go together as the second cache has room for; of these, tiles
// that see many keys go first, so that short ones fill the end.
struct tile_place {
  int row0, head, batch, tiles;
};
DEVICE int tile_count(const hy_attention& a) {
  return (a.queries + ROWS - 1) / ROWS * a.heads * a.batches;
}
DEVICE int tiles_before(const hy_attention& a, int end_row) {
  return (visible_keys(a, min(end_row, a.queries) - 1) + KEYS - 1) / KEYS;
}
DEVICE tile_place place_of(const hy_attention& a, int id) {
  const int each = (a.queries + ROWS - 1) / ROWS, all = a.heads * a.batches;
  const int together = (int)min(max(L2_BYTES / ((i64)a.keys * HEAD * 4), (i64)1), (i64)all);
  const int wide = together * each;
  const int first = id / wide * together, heads = min(together, all - first), in = id % wide;
  const int of = first + in % heads;
  tile_place t = {(each - 1 - in / heads) * ROWS, of % a.heads, of / a.heads, 0};
  t.tiles = tiles_before(a, t.row0 + ROWS);
  return t;
}

DEVICE void produce(const pipeline& p, const tensor_map* q, const tensor_map* k,
                    const tensor_map* v, const hy_attention& a) {
  int turn = 0, step = 0;  // of all tiles that see keys, and of all their keys
  for (int id = blockIdx.x; id < tile_count(a); id += gridDim.x) {
    const tile_place t = place_of(a, id);
    const int kv_head = t.head / (a.heads / a.kv_heads), of = turn % STAGES;
    if (t.tiles == 0) continue;
    mbarrier_wait(&p.q_empty[of], turn++ / STAGES % 2 ^ 1);
    mbarrier_expect(&p.q_full[of], CONSUMERS * Q_BYTES);
    for (int c = 0; c < CONSUMERS; c++)
      for (int i = 0; i < PARTS; i++)
        tensor_load(p.q + (of * CONSUMERS + c) * Q_BYTES + i * Q_BOX, q, 64 * i, t.row0 + 64 * c,
                    t.head, t.batch, &p.q_full[of]);
    for (int j = 0; j < t.tiles; j++, step++) {
      int s = step % STAGES, parity = step / STAGES % 2 ^ 1;
      mbarrier_wait(&p.k_empty[s], parity);
      mbarrier_expect(&p.k_full[s], KV_BYTES);
      for (int i = 0; i < PARTS; i++)
        tensor_load(p.k + s * KV_BYTES + i * KV_BOX, k, 64 * i, j * KEYS, kv_head, t.batch,
                    &p.k_full[s]);
      mbarrier_wait(&p.v_empty[s], parity);
      mbarrier_expect(&p.v_full[s], KV_BYTES);
      for (int i = 0; i < PARTS; i++)
        tensor_load(p.v + s * KV_BYTES + i * KV_BOX, v, 64 * i, j * KEYS, kv_head, t.batch,
                    &p.v_full[s]);
    }
  }
}

// Starts s[64, KEYS] = q k^T.
DEVICE void start_scores(f32 (&s)[64], const char* q, const char* k) {
  wgmma_fence();
#pragma unroll
  for (int d = 0; d < HEAD; d += 16)
    wgmma_n128<0, 0>(T(), s, tile_descriptor(q + d / 64 * Q_BOX + d % 64 * 2, Q_BOX),
                     tile_descriptor(k + d / 64 * KV_BOX + d % 64 * 2, KV_BOX), d > 0);
  wgmma_commit();
}

// Starts out += p v.
DEVICE void start_values(f32 (&out)[HEAD / 2], const u32 (&p)[KEYS / 16][4], const char* v) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < KEYS / 16; k++)
    wgmma_left<1>(T(), out, p[k], tile_descriptor(v + k * 16 * 128, KV_BOX));
  wgmma_commit();
}

// Two rows of a thread: the largest score so far, in units of log 2, and the sum of exponentials.
struct softmax {
  f32 top[2], total[2];

  // Scores become probabilities; `keep` is what sums before them are to be multiplied by.
  __device__ __forceinline__ void next(f32 (&s)[64], f32 scale, f32 (&keep)[2]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      f32 high = -INF_F32;
#pragma unroll
      for (int i = 2 * h; i < 64; i += 4) high = fmaxf(high, fmaxf(s[i], s[i + 1]));
      high = fmaxf(high, SHFL_XOR(high, 1));
      high = fmaxf(high, SHFL_XOR(high, 2));
      high = fmaxf(high * scale, top[h]);
      f32 base = high == -INF_F32 ? 0 : high, sum = 0;
      keep[h] = exp2_approx(top[h] - base);
      top[h] = high;
#pragma unroll
      for (int i = 2 * h; i < 64; i += 4)
#pragma unroll
        for (int e = i; e < i + 2; e++) {
          s[e] = exp2_approx(s[e] * scale - base);
          sum += s[e];
        }
      total[h] = total[h] * keep[h] + sum;
    }
  }
};

DEVICE void hide(f32 (&s)[64], int key0, const int (&limit)[2]) {
#pragma unroll
  for (int i = 0; i < 64; i++) {
    int key = key0 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
    if (key >= limit[i / 2 % 2]) s[i] = -INF_F32;
  }
}

DEVICE void pack(u32 (&p)[KEYS / 16][4], const f32 (&s)[64]) {
#pragma unroll
  for (int k = 0; k < KEYS / 16; k++)
#pragma unroll
    for (int e = 0; e < 4; e++) p[k][e] = pack_pair(T(), s[8 * k + 2 * e], s[8 * k + 2 * e + 1]);
}

// One tile, the turn-th of the block; its keys begin at `step` of all.
DEVICE void consume(const pipeline& p, const hy_attention& a, const tile_place& t, int consumer,
                    int turn, int step) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int first = t.row0 + 64 * consumer, mine = first + warp * 16 + lane / 4;  // and 8 below
  const bool any = first < a.queries;
  const int tiles = any ? tiles_before(a, first + 64) : 0;  // that this warpgroup sees
  const int every = any ? visible_keys(a, first) : 0;       // keys that all rows see
  const f32 scale = (f32)a.scale * LOG2_E;
  const char* q = p.q + (turn % STAGES * CONSUMERS + consumer) * Q_BYTES;
  int limit[2];
#pragma unroll
  for (int h = 0; h < 2; h++)
    limit[h] = mine + 8 * h < a.queries ? visible_keys(a, mine + 8 * h) : 0;
  softmax state = {{-INF_F32, -INF_F32}, {0, 0}};
  f32 s[64], out[HEAD / 2], keep[2];
  u32 probability[KEYS / 16][4];
#pragma unroll
  for (int i = 0; i < HEAD / 2; i++) out[i] = 0;

  if (t.tiles > 0) mbarrier_wait(&p.q_full[turn % STAGES], turn / STAGES % 2);
  if (tiles > 0) {
    mbarrier_wait(&p.k_full[step % STAGES], step / STAGES % 2);
    start_scores(s, q, p.k + step % STAGES * KV_BYTES);
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(&p.k_empty[step % STAGES]);
    if (KEYS > every) hide(s, 0, limit);
    state.next(s, scale, keep);
    pack(probability, s);
  }
  for (int j = 1; j < tiles; j++) {
    int now = (step + j) % STAGES, before = (step + j - 1) % STAGES;
    mbarrier_wait(&p.k_full[now], (step + j) / STAGES % 2);
    start_scores(s, q, p.k + now * KV_BYTES);
    mbarrier_wait(&p.v_full[before], (step + j - 1) / STAGES % 2);
    start_values(out, probability, p.v + before * KV_BYTES);
    wgmma_wait<1>();  // scores are there
    if (lane == 0) mbarrier_arrive(&p.k_empty[now]);
    if ((j + 1) * KEYS > every) hide(s, j * KEYS, limit);
    state.next(s, scale, keep);
    wgmma_wait<0>();  // values are added
    if (lane == 0) mbarrier_arrive(&p.v_empty[before]);
#pragma unroll
    for (int i = 0; i < HEAD / 2; i++) out[i] *= keep[i / 2 % 2];
    pack(probability, s);
  }
  if (t.tiles > 0 && lane == 0) mbarrier_arrive(&p.q_empty[turn % STAGES]);
  if (tiles > 0) {
    int last = step + tiles - 1, before = last % STAGES;
    mbarrier_wait(&p.v_full[before], last / STAGES % 2);
    start_values(out, probability, p.v + before * KV_BYTES);
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(&p.v_empty[before]);
  }
  for (int j = step + tiles; j < step + t.tiles; j++) {  // keys that others see
    mbarrier_wait(&p.k_full[j % STAGES], j / STAGES % 2);
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&p.k_empty[j % STAGES]);
    mbarrier_wait(&p.v_full[j % STAGES], j / STAGES % 2);
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&p.v_empty[j % STAGES]);
  }

#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = mine + 8 * h;
    f32 sum = state.total[h] + SHFL_XOR(state.total[h], 1);
    sum += SHFL_XOR(sum, 2);
    f32 share = sum == 0 ? 0 : 1 / sum;
    store_row(T(), head_row<u16>(a.out, t.batch, t.head, row), row < a.queries, a.value_size, out,
              h, share);
    if (a.lse && lane % 4 == 0 && row < a.queries)
      ((f32*)a.lse)[query_index(a, t.batch, t.head, row)] =
          sum == 0 ? -INF_F32 : (state.top[h] + log2f(sum)) * LN_2;
  }
}

// Grid: as many blocks as the device holds.
KERNEL void __launch_bounds__(THREADS, 1)
    attention_wgmma(const __grid_constant__ tensor_map q, const __grid_constant__ tensor_map k,
                    const __grid_constant__ tensor_map v, hy_attention a) {
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(8) mbarrier q_full[STAGES], q_empty[STAGES], k_full[STAGES], k_empty[STAGES],
      v_full[STAGES], v_empty[STAGES];
  char *q_at = shared + (1024 - shared_address(shared) % 1024) % 1024,
       *k_at = q_at + STAGES * CONSUMERS * Q_BYTES;
  pipeline p = {q_at,   k_at,   k_at + STAGES * KV_BYTES, q_full, q_empty, k_full, k_empty,
                v_full, v_empty};
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      mbarrier_init(&q_full[s], 1);
      mbarrier_init(&k_full[s], 1);
      mbarrier_init(&v_full[s], 1);
      mbarrier_init(&q_empty[s], CONSUMERS * 4);
      mbarrier_init(&k_empty[s], CONSUMERS * 4);
      mbarrier_init(&v_empty[s], CONSUMERS * 4);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const int group = SHFL((int)threadIdx.x / 128, 0);  // known to be the same for a warp
  if (group == 0) {
    if (CONSUMERS > 1) fewer_registers<CONSUMERS == 2 ? 24 : 32>();
    if (threadIdx.x == 0) produce(p, &q, &k, &v, a);
  } else {
    if (CONSUMERS > 1) more_registers<CONSUMERS == 2 ? 240 : 160>();
    for (int id = blockIdx.x, turn = 0, step = 0; id < tile_count(a); id += gridDim.x) {
      const tile_place t = place_of(a, id);
      consume(p, a, t, group - 1, turn, step);
      turn += t.tiles > 0;
      step += t.tiles;
    }
  }
}

#endif
