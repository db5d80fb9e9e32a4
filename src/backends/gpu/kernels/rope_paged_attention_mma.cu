// rope_paged_attention on tensor cores, for few sequences: a cluster of small blocks has a key head
// with all of its query heads (up to 8, the columns of mma.sync), and each of its warps 16 keys at a
// time. A context beyond one pass of all warps is split among clusters (split-K); the last of them to
// finish joins the parts. Shares of keys meet the values as the sum of two halves, so that they lose
// no bits that count.
//
// Keys and values of earlier tokens come into shared memory before the kernel waits for the one
// that makes q, k and v (see dependent.cuh). Small blocks find room beside those of the kernels
// before and behind, where one large block would wait for a multiprocessor of its own.
//
// Types are the kernel's own, not looked up at run time: what a switch over them adds to its code costs
// more than the loads, since every block runs through it once.
//
// needs: mma.sync
// options: -DT=bf16 -DHEAD=64 -DBLOCK=16 -DINDEX=i64 -DANGLE=f32 -DCLUSTER=8 -DWARPS=4
// options: -DT=f16 -DHEAD=128 -DBLOCK=16 -DINDEX=i32 -DANGLE=f16 -DCLUSTER=8 -DWARPS=4
// options: -DT=bf16 -DHEAD=64 -DBLOCK=16 -DINDEX=i64 -DANGLE=f32 -DCLUSTER=1 -DWARPS=16
// options: -DT=f16 -DHEAD=128 -DBLOCK=5 -DINDEX=i64 -DANGLE=f32 -DCLUSTER=1 -DWARPS=16
// BLOCK: tokens of a block of the cache. INDEX: of the block table and the lengths. ANGLE: of cosines and
// sines. CLUSTER: blocks of a cluster, 1 where the GPU has none. WARPS of a block.
#include "params.h"
#include "dependent.cuh"
#include "rope_paged.cuh"
#include "hopper.cuh"

#if CLUSTER > 1 && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CLUSTER_SHAPE __cluster_dims__(CLUSTER, 1, 1)
#define IN_CLUSTER 1
#else
#define CLUSTER_SHAPE
#define IN_CLUSTER 0
#endif

enum {
  THREADS = WARPS * HY_WARP,
  HEADS = 8,                   // columns of a product
  OWN = 16,                    // keys of a warp in a pass
  TILES = CLUSTER * WARPS,     // of OWN keys, in a pass: up to one for each lane
  PASS = TILES * OWN,          // keys
  EACH = 16 / (int)sizeof(T),  // numbers of 16 bytes
  STRIDE = HEAD + EACH,        // of a row in shared memory: rows begin in different banks
  STEPS = HEAD / 16,
  SHARES = OWN + 2,            // of a row of shares
  COPIES = OWN * (HEAD / EACH) / HY_WARP,    // of 16 bytes, by each lane, of its warp's keys
  QUADS = HEAD / 2 / 4,                      // of four dimensions, in half a head
  TURNS = ((HEADS + 2) * QUADS + THREADS - 1) / THREADS,
  JOINED = (HEADS + CLUSTER - 1) / CLUSTER,  // heads that a block joins
};

// What a warp's keys have of a head.
struct share_of_head {
  f32 top, total, sum[HEAD];
};

struct tile {
  T k[WARPS * OWN * STRIDE], v[WARPS * OWN * STRIDE];
  T q[HEADS * STRIDE];                // turned
  T fresh[2][HEAD];                   // k and v of the new token
  T share[WARPS][2][HEADS * SHARES];  // of keys: exp of the scores, and what rounding took off
  share_of_head part[JOINED][TILES];  // from all warps of the cluster, of the heads of this block
};

DEVICE u32 pair_at(const T* at) { return *(const u32*)at; }
DEVICE f32 largest(f32 a, f32 b) { return b > a ? b : a; }  // NaN never wins

// ---- The cluster ----

#if IN_CLUSTER
DEVICE void put_at(f32* at, int rank, f32 value) {
  asm volatile(
      "{\n"
      ".reg .u32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.f32 [there], %2;\n"
      "}\n" ::"r"(shared_address(at)),
      "r"(rank), "f"(value)
      : "memory");
}
DEVICE void all_arrive() { cluster_arrive(); }
DEVICE void all_wait() { cluster_wait(); }
#else
DEVICE void put_at(f32* at, int, f32 value) { *at = value; }
DEVICE void all_arrive() {}
DEVICE void all_wait() { __syncthreads(); }
#endif

// ---- What comes before the wait ----

DEVICE i64 entry_of(const hy_decode& p, int b, int key) {
  return ((const INDEX*)p.table)[(i64)b * p.most_blocks + key / BLOCK];
}

// Where a key is in a cache, in elements; -1 where the table's entry is no block of it.
DEVICE i64 place_in(const hy_decode& p, const faults& f, i64 entry, int kv_head, int key) {
  if (entry < 0 || entry >= p.blocks) {
    f.say(entry, p.blocks);
    return -1;
  }
  return ((entry * BLOCK + key % BLOCK) * p.kv_heads + kv_head) * HEAD;
}

// The table's entries for the keys that a lane copies.
struct entries {
  i64 at[COPIES];
};
DEVICE entries look_up(const hy_decode& p, int b, int first, int lane) {
  entries e;
#pragma unroll
  for (int u = 0; u < COPIES; u++) {
    const int key = first + (u * HY_WARP + lane) / (HEAD / EACH);
    e.at[u] = key < p.most_blocks * BLOCK ? entry_of(p, b, key) : -1;
  }
  return e;
}

// Keys first .. end - 1 of the cache as rows of this warp, those from `end` on as zeros; there after
// copy_async_wait<0>().
DEVICE void load_own(const hy_decode& p, const faults& f, const entries& e, int kv_head, int first,
                     int end, int lane, T* k, T* v) {
#pragma unroll
  for (int u = 0; u < COPIES; u++) {
    const int i = u * HY_WARP + lane, row = i / (HEAD / EACH), column = i % (HEAD / EACH) * EACH;
    const int key = first + row;
    const i64 at = key < end ? place_in(p, f, e.at[u], kv_head, key) : -1;
    const i64 from = at < 0 ? 0 : at + column;
    copy_async_16(k + row * STRIDE + column, (const T*)p.k + from, at < 0 ? 0 : 16);
    copy_async_16(v + row * STRIDE + column, (const T*)p.v + from, at < 0 ? 0 : 16);
  }
  copy_async_commit();
}

// ---- What comes after it ----

typedef vec<T, 4> quad;

// The new token's query heads, and where `writes` its key and value. A thread has the same four
// dimensions of either half in all heads.
DEVICE void load_new(const hy_decode& p, int b, int kv_head, int heads, bool writes, i64 place,
                     const f32 (&cosine)[4], const f32 (&sine)[4], tile* s, T* new_k, T* new_v) {
  const int half = HEAD / 2, d = threadIdx.x % QUADS * 4, n = (heads + (writes ? 2 : 0)) * QUADS;
  const T* all = (const T*)p.qkv + (i64)b * (p.heads + 2 * p.kv_heads) * HEAD + d;
  quad first[TURNS], second[TURNS];
#pragma unroll
  for (int u = 0; u < TURNS; u++) {
    const int i = u * THREADS + threadIdx.x, h = i / QUADS;
    if (i >= n) break;
    const T* x = all + (i64)(h < heads ? kv_head * heads + h
                                       : p.heads + kv_head + (h - heads) * p.kv_heads) * HEAD;
    first[u] = *(const quad*)x;
    second[u] = *(const quad*)(x + half);
  }
#pragma unroll
  for (int u = 0; u < TURNS; u++) {
    const int i = u * THREADS + threadIdx.x, h = i / QUADS;
    if (i >= n) break;
    quad low = first[u], high = second[u];
#pragma unroll
    for (int e = 0; h <= heads && e < 4; e++) {  // values do not turn
      const f32 a = to<f32>(first[u].at[e]), c = to<f32>(second[u].at[e]);
      low.at[e] = from<T>(a * cosine[e] - c * sine[e]);
      high.at[e] = from<T>(c * cosine[e] + a * sine[e]);
    }
    T* here = h < heads ? s->q + h * STRIDE : h == heads ? new_k : new_v;
    *(quad*)(here + d) = low;
    *(quad*)(here + d + half) = high;
    if (h < heads) continue;
    T* cached = (T*)(h == heads ? p.k : p.v) + place;
    *(quad*)(cached + d) = low;
    *(quad*)(cached + d + half) = high;
  }
}

// What a warp has so far: online softmax. Lane l has heads 2 (l % 4) and the next.
struct mixture {
  f32 top[2], total[2];  // the total of this lane's keys alone
  f32 sum[STEPS][4];     // [16 dimensions, 8 heads], as mma has them
};

DEVICE void attend(const hy_decode& p, tile* s, int warp, int lane, int keys, mixture* m) {
  const int g = lane / 4, t = lane % 4;
  const T *k = s->k + warp * OWN * STRIDE, *v = s->v + warp * OWN * STRIDE;
  f32 score[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
  for (int i = 0; i < STEPS; i++) {
    u32 a[4];
    load_matrices<false>(a, k + lane % 16 * STRIDE + i * 16 + lane / 16 * 8);
    const T* q = s->q + g * STRIDE + i * 16 + 2 * t;
    mma(T(), score[i % 2], a, pair_at(q), pair_at(q + 8));
  }
  T* share = s->share[warp][0];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    f32 low = (score[0][h] + score[1][h]) * (f32)p.scale;
    f32 high = (score[0][2 + h] + score[1][2 + h]) * (f32)p.scale;
    if (g >= keys) low = -INF_F32;
    if (g + 8 >= keys) high = -INF_F32;
    f32 top = largest(largest(m->top[h], low), high);
#pragma unroll
    for (int bit = 4; bit < HY_WARP; bit *= 2) top = largest(top, SHFL_XOR(top, bit));
    const f32 base = top == -INF_F32 ? 0 : top, keep = __expf(m->top[h] - base);
    m->top[h] = top;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      m->sum[i][h] *= keep;
      m->sum[i][2 + h] *= keep;
    }
    const f32 both[2] = {__expf(low - base), __expf(high - base)};
    m->total[h] = m->total[h] * keep + (both[0] + both[1]);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const T rounded = from<T>(both[i]);
      const int at = (2 * t + h) * SHARES + g + 8 * i;
      share[at] = rounded;
      share[HEADS * SHARES + at] = from<T>(both[i] - to<f32>(rounded));
    }
  }
  __syncwarp();
  u32 by[2][2];
#pragma unroll
  for (int i = 0; i < 4; i++)
    by[i / 2][i % 2] = pair_at(share + i / 2 * HEADS * SHARES + g * SHARES + 2 * t + i % 2 * 8);
#pragma unroll
  for (int i = 0; i < STEPS; i++) {
    u32 a[4];
    load_matrices<true>(a, v + (lane / 16 * 8 + lane % 8) * STRIDE + i * 16 + lane / 8 % 2 * 8);
    mma(T(), m->sum[i], a, by[0][0], by[0][1]);
    mma(T(), m->sum[i], a, by[1][0], by[1][1]);
  }
  __syncwarp();
}

// Of head h, this warp's share goes to the block that joins it.
DEVICE void leave(tile* s, int number, int lane, int heads, mixture* m) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; h++) {
#pragma unroll
    for (int bit = 4; bit < HY_WARP; bit *= 2) m->total[h] += SHFL_XOR(m->total[h], bit);
    const int head = 2 * t + h, rank = head % CLUSTER;
    if (head >= heads) continue;
    share_of_head* to_part = &s->part[head / CLUSTER][number];
    if (g == 0) {
      put_at(&to_part->top, rank, m->top[h]);
      put_at(&to_part->total, rank, m->total[h]);
    }
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      put_at(&to_part->sum[i * 16 + g], rank, m->sum[i][h]);
      put_at(&to_part->sum[i * 16 + g + 8], rank, m->sum[i][2 + h]);
    }
  }
}

// A dimension of a head: what `n` parts have of it together.
struct joined {
  f32 top, total, sum;
};
template <class Part>
DEVICE joined join(int n, const Part& part) {
  joined all = {-INF_F32, 0, 0};
#pragma unroll 1
  for (int i = 0; i < n; i++) all.top = largest(all.top, part(i).top);
  const f32 base = all.top == -INF_F32 ? 0 : all.top;
#pragma unroll 1
  for (int i = 0; i < n; i++) {
    const joined one = part(i);
    const f32 by = __expf(one.top - base);
    if (by == 0) continue;
    all.total += by * one.total;
    all.sum += by * one.sum;
  }
  return all;
}

// The same of a head's shares, with a lane for each of them. Lanes l and l + 16 have dimension
// `first` + l % 16, and an even or odd half of the shares each.
DEVICE joined join_shares(const share_of_head* part, int n, int first, int lane) {
  joined all = {lane < n ? part[lane].top : -INF_F32, lane < n ? part[lane].total : 0, 0};
  const f32 own = all.top;
  all.top = warp_reduce<max_op>(own);
  const f32 by = lane < n && own != -INF_F32 ? __expf(own - all.top) : 0;
  all.total = warp_reduce<add_op>(by == 0 ? 0 : by * all.total);
  const int odd = lane / 16, d = first + lane % 16;
#pragma unroll 4
  for (int i = 0; i < n; i += 2) {
    const f32 times = SHFL(by, (i + odd) % HY_WARP);
    if (i + odd < n && times != 0) all.sum += times * part[i + odd].sum[d];
  }
  all.sum += SHFL_XOR(all.sum, 16);
  return all;
}

DEVICE void put(const hy_decode& p, int b, int head, int d, const joined& all) {
  ((T*)p.out)[((i64)b * p.heads + head) * HEAD + d] =
      from<T>(all.total == 0 ? 0 : __fdividef(all.sum, all.total));
}

// Grid: splits, each of a cluster; key heads; sequences.
KERNEL void CLUSTER_SHAPE __launch_bounds__(THREADS, 512 / THREADS)
    rope_paged_attention_mma(hy_decode p, hy_gpu_fault* where, int op) {
  extern __shared__ __align__(16) char shared[];
  __shared__ unsigned arrived;
  tile* s = (tile*)shared;
  const faults f = {where, op};
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP;
  const int split = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER;
  const int kv_head = blockIdx.y, b = blockIdx.z, heads = p.heads / p.kv_heads;
  const int number = warp * CLUSTER + rank;  // of the warp: its keys in a pass
  all_arrive();                              // the blocks of the cluster are there
  if (!p.early) wait_for_previous();

  // Most contexts are no longer than a pass of each split: their blocks need not wait for the length.
  entries e = look_up(p, b, split * PASS + number * OWN, lane);
  const i64 length = (i64)((const INDEX*)p.length)[b];
  const i64 room = (i64)p.most_blocks * BLOCK;
  const bool good = length >= 1 && length <= room && length <= p.positions;
  if (!good) f.say(length, room < p.positions ? room : p.positions);
  const int keys = good ? (int)length : 0, now = keys - 1;
  const int part = ((keys + p.splits - 1) / p.splits + PASS - 1) / PASS * PASS;
  const int begin = min(split * part, keys), end = min(begin + part, keys);
  if (begin >= end) {
    if (p.early) wait_for_previous();
    all_wait();
    return;
  }
  if (part > PASS) e = look_up(p, b, begin + number * OWN, lane);
  T *own_k = s->k + warp * OWN * STRIDE, *own_v = s->v + warp * OWN * STRIDE;
  load_own(p, f, e, kv_head, begin + number * OWN, min(end, now), lane, own_k, own_v);
  launch_dependents();
  const int parts = (keys + part - 1) / part;
  // Where one pass has all, the new key and value have their places in shared memory.
  const bool whole = end - begin <= PASS;
  const int its_number = (now - begin) % PASS / OWN, its_warp = its_number / CLUSTER;
  const bool has_new = end == keys && its_number % CLUSTER == rank;
  const i64 place = has_new ? place_in(p, f, entry_of(p, b, now), kv_head, now) : -1;
  f32 cosine[4], sine[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const i64 at = (i64)now * (HEAD / 2) + threadIdx.x % QUADS * 4 + i;
    cosine[i] = to<f32>(((const ANGLE*)p.cosine)[at]);
    sine[i] = to<f32>(((const ANGLE*)p.sine)[at]);
  }
  for (int i = threadIdx.x; i < (HEADS - heads) * HEAD; i += THREADS)
    s->q[(heads + i / HEAD) * STRIDE + i % HEAD] = from<T>(0.0f);
  copy_async_wait<0>();
  __syncthreads();
  if (p.early) wait_for_previous();
  const int at = (its_warp * OWN + (now - begin) % OWN) * STRIDE;
  load_new(p, b, kv_head, heads, place >= 0, place, cosine, sine, s, whole ? s->k + at : s->fresh[0],
           whole ? s->v + at : s->fresh[1]);
  __syncthreads();
  mixture m;
#pragma unroll
  for (int i = 0; i < STEPS * 4; i++) m.sum[i / 4][i % 4] = 0;
  m.top[0] = m.top[1] = -INF_F32;
  m.total[0] = m.total[1] = 0;
  for (int first = begin; first < end; first += PASS) {
    const int own = first + number * OWN, count = min((int)OWN, end - own);
    if (first > begin) {
      e = look_up(p, b, own, lane);
      load_own(p, f, e, kv_head, own, min(end, now), lane, own_k, own_v);
      copy_async_wait<0>();
      __syncwarp();
    }
    if (count <= 0) continue;
    if (!whole && place >= 0 && now >= own && now - own < OWN) {
      for (int i = lane; i < HEAD; i += HY_WARP) {
        own_k[(now - own) * STRIDE + i] = s->fresh[0][i];
        own_v[(now - own) * STRIDE + i] = s->fresh[1][i];
      }
      __syncwarp();
    }
    attend(p, s, warp, lane, count, &m);
  }
  const int shares = min((int)TILES, (end - begin + OWN - 1) / OWN);
  if (IN_CLUSTER) all_wait();
  if (number < shares) leave(s, number, lane, heads, &m);
  all_arrive();
  all_wait();
  for (int i = warp; i < JOINED * STEPS; i += WARPS) {
    const int h = i / STEPS * CLUSTER + rank, head = kv_head * heads + h;
    if (h >= heads) break;
    const joined mine = join_shares(s->part[i / STEPS], shares, i % STEPS * 16, lane);
    const int d = i % STEPS * 16 + lane;
    if (lane >= 16) continue;
    if (parts == 1) {
      put(p, b, head, d, mine);
      continue;
    }
    f32* to_part = part_of(p, b, head, split);
    to_part[d] = mine.sum;
    if (d == 0) to_part[HEAD] = mine.top;
    if (d == 0) to_part[HEAD + 1] = mine.total;
  }
  if (parts == 1) return;
  __threadfence();
  __syncthreads();
  unsigned* counter = p.counters + ((i64)b * gridDim.y + blockIdx.y) * CLUSTER + rank;
  if (threadIdx.x == 0) arrived = atomicAdd(counter, 1u);
  __syncthreads();
  if (arrived != (unsigned)parts - 1) return;
  if (threadIdx.x == 0) *counter = 0;
  __threadfence();
  for (int i = threadIdx.x; i < JOINED * HEAD; i += THREADS) {
    const int h = i / HEAD * CLUSTER + rank, d = i % HEAD, head = kv_head * heads + h;
    if (h >= heads) break;
    put(p, b, head, d, join(parts, [=](int one) {
          const f32* from = part_of(p, b, head, one);
          return joined{from[HEAD], from[HEAD + 1], from[d]};
        }));
  }
}
