// FlashAttention forward on Hopper: TMA and wgmma, warp-specialised. One thread keeps rings of keys
// and values filled by the copy engine; each consumer warpgroup owns 64 queries of one head. The
// scores of the next tile of keys are computed while the probabilities of this one multiply its
// values, and the softmax runs beside both. Options: T (f16, bf16), HEAD (64 or 128, the padded
// head size), CONSUMERS.
//
// needs: mma.sync
// options: -DT=bf16 -DHEAD=64 -DCONSUMERS=3
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

struct pipeline {
  char *q, *k, *v;  // q of all consumers, rings of keys and values
  mbarrier *q_full, *k_full, *k_empty, *v_full, *v_empty;
};

DEVICE int tiles_for(const hy_attention& a, int row0) {
  int last = min(row0 + ROWS, a.queries) - 1, visible = visible_keys(a, last);
  return (visible + KEYS - 1) / KEYS;
}

DEVICE void produce(const pipeline& p, const tensor_map* q, const tensor_map* k,
                    const tensor_map* v, const hy_attention& a, int row0, int head, int batch) {
  const int tiles = tiles_for(a, row0), kv_head = head / (a.heads / a.kv_heads);
  if (tiles == 0) return;
  mbarrier_expect(p.q_full, CONSUMERS * Q_BYTES);
  for (int c = 0; c < CONSUMERS; c++)
    for (int i = 0; i < PARTS; i++)
      tensor_load(p.q + c * Q_BYTES + i * Q_BOX, q, 64 * i, row0 + 64 * c, head, batch, p.q_full);
  for (int j = 0; j < tiles; j++) {
    int s = j % STAGES, parity = j / STAGES % 2 ^ 1;
    mbarrier_wait(&p.k_empty[s], parity);
    mbarrier_expect(&p.k_full[s], KV_BYTES);
    for (int i = 0; i < PARTS; i++)
      tensor_load(p.k + s * KV_BYTES + i * KV_BOX, k, 64 * i, j * KEYS, kv_head, batch,
                  &p.k_full[s]);
    mbarrier_wait(&p.v_empty[s], parity);
    mbarrier_expect(&p.v_full[s], KV_BYTES);
    for (int i = 0; i < PARTS; i++)
      tensor_load(p.v + s * KV_BYTES + i * KV_BOX, v, 64 * i, j * KEYS, kv_head, batch,
                  &p.v_full[s]);
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

DEVICE void consume(const pipeline& p, const hy_attention& a, int row0, int head, int batch,
                    int consumer) {
  const int tiles = tiles_for(a, row0), warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int first = row0 + 64 * consumer, mine = first + warp * 16 + lane / 4;  // and 8 below
  const int every = first < a.queries ? visible_keys(a, first) : 0;  // keys that all rows see
  const f32 scale = (f32)a.scale * LOG2_E;
  const char* q = p.q + consumer * Q_BYTES;
  int limit[2];
#pragma unroll
  for (int h = 0; h < 2; h++)
    limit[h] = mine + 8 * h < a.queries ? visible_keys(a, mine + 8 * h) : 0;
  softmax state = {{-INF_F32, -INF_F32}, {0, 0}};
  f32 s[64], out[HEAD / 2], keep[2];
  u32 probability[KEYS / 16][4];
#pragma unroll
  for (int i = 0; i < HEAD / 2; i++) out[i] = 0;

  if (tiles > 0) {
    mbarrier_wait(p.q_full, 0);
    mbarrier_wait(&p.k_full[0], 0);
    start_scores(s, q, p.k);
    wgmma_wait<0>();
    if (lane == 0) mbarrier_arrive(&p.k_empty[0]);
    if (KEYS > every) hide(s, 0, limit);
    state.next(s, scale, keep);
    pack(probability, s);
  }
  for (int j = 1; j < tiles; j++) {
    int now = j % STAGES, before = (j - 1) % STAGES;
    mbarrier_wait(&p.k_full[now], j / STAGES % 2);
    start_scores(s, q, p.k + now * KV_BYTES);
    mbarrier_wait(&p.v_full[before], (j - 1) / STAGES % 2);
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
  if (tiles > 0) {
    int before = (tiles - 1) % STAGES;
    mbarrier_wait(&p.v_full[before], (tiles - 1) / STAGES % 2);
    start_values(out, probability, p.v + before * KV_BYTES);
    wgmma_wait<0>();
  }

#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = mine + 8 * h;
    f32 sum = state.total[h] + SHFL_XOR(state.total[h], 1);
    sum += SHFL_XOR(sum, 2);
    f32 share = sum == 0 ? 0 : 1 / sum;
    store_row(T(), head_row<u16>(a.out, batch, head, row), row < a.queries, a.value_size, out, h,
              share);
    if (a.lse && lane % 4 == 0 && row < a.queries)
      ((f32*)a.lse)[query_index(a, batch, head, row)] =
          sum == 0 ? -INF_F32 : (state.top[h] + log2f(sum)) * LN_2;
  }
}

// Grid: query tiles, heads, batch.
KERNEL void __launch_bounds__(THREADS, 1)
    attention_wgmma(const __grid_constant__ tensor_map q, const __grid_constant__ tensor_map k,
                    const __grid_constant__ tensor_map v, hy_attention a) {
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(8) mbarrier q_full, k_full[STAGES], k_empty[STAGES], v_full[STAGES],
      v_empty[STAGES];
  char* at = shared + (1024 - shared_address(shared) % 1024) % 1024;
  pipeline p = {at,      at + CONSUMERS * Q_BYTES, at + CONSUMERS * Q_BYTES + STAGES * KV_BYTES,
                &q_full, k_full,                   k_empty,
                v_full,  v_empty};
  if (threadIdx.x == 0) {
    mbarrier_init(&q_full, 1);
    for (int s = 0; s < STAGES; s++) {
      mbarrier_init(&k_full[s], 1);
      mbarrier_init(&v_full[s], 1);
      mbarrier_init(&k_empty[s], CONSUMERS * 4);
      mbarrier_init(&v_empty[s], CONSUMERS * 4);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  // Tiles that see many keys go first, so that short ones fill the end.
  const int row0 = (int)(gridDim.x - 1 - blockIdx.x) * ROWS, head = blockIdx.y, batch = blockIdx.z;
  const int group = threadIdx.x / 128;
  if (group == 0) {
    fewer_registers<CONSUMERS == 2 ? 24 : 32>();
    if (threadIdx.x == 0) produce(p, &q, &k, &v, a, row0, head, batch);
  } else {
    more_registers<CONSUMERS == 2 ? 240 : 160>();
    consume(p, a, row0, head, batch, group - 1);
  }
}

#endif
