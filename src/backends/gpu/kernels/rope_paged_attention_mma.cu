// rope_paged_attention on tensor cores, for few sequences: a block has a key head with all of its
// query heads (up to 8, the columns of mma.sync), and each of its warps 16 keys at a time. A context
// beyond one pass of all warps is split among blocks (split-K); the last of them to finish joins
// the parts. Shares of keys meet the values as the sum of two halves, so that they lose no bits
// that count.
//
// Keys and values of earlier tokens come into shared memory before the kernel waits for the one
// that makes q, k and v (see dependent.cuh).
//
// needs: mma.sync
// options: -DT=bf16 -DHEAD=64
// options: -DT=f16 -DHEAD=128
#include "params.h"
#include "dependent.cuh"
#include "rope_paged.cuh"
#include "tensor_core.cuh"

enum {
  WARPS = 16,
  THREADS = WARPS * HY_WARP,
  HEADS = 8,                   // columns of a product
  OWN = 16,                    // keys of a warp in a pass
  TILE = WARPS * OWN,          // keys of a pass
  EACH = 16 / (int)sizeof(T),  // numbers of 16 bytes
  STRIDE = HEAD + EACH,        // of a row in shared memory: rows begin in different banks
  STEPS = HEAD / 16,
  SHARES = OWN + 2,            // of a row of shares
};

struct tile {
  T k[TILE * STRIDE], v[TILE * STRIDE];
  T q[HEADS * STRIDE];                // turned
  T fresh[2][HEAD];                   // k and v of the new token
  T share[WARPS][2][HEADS * SHARES];  // of keys: exp of the scores, and what rounding took off
  f32 angle[2][HEAD / 2];             // cosines and sines of its position
  f32 top[WARPS][HEADS], total[WARPS][HEADS], sum[WARPS][HEADS][HEAD + 4];
};

DEVICE u32 pair_at(const T* at) { return *(const u32*)at; }
DEVICE f32 largest(f32 a, f32 b) { return b > a ? b : a; }  // NaN never wins

// Keys first .. end - 1 of the cache as rows of this warp, those from `end` on as zeros; there after
// copy_async_wait<0>().
DEVICE void load_own(const hy_decode& p, const faults& f, int b, int kv_head, int first, int end,
                     int lane, T* k, T* v) {
#pragma unroll
  for (int i = lane; i < OWN * (HEAD / EACH); i += HY_WARP) {
    const int row = i / (HEAD / EACH), column = i % (HEAD / EACH) * EACH;
    const i64 at = first + row < end ? place_of(p, f, b, kv_head, first + row) : -1;
    const int bytes = at < 0 ? 0 : 16;
    const i64 from = at < 0 ? 0 : at + column;
    copy_async_16(k + row * STRIDE + column, (const T*)p.k + from, bytes);
    copy_async_16(v + row * STRIDE + column, (const T*)p.v + from, bytes);
  }
}

// The new token's query heads, and where `writes` its key and value.
DEVICE void load_new(const hy_decode& p, int b, int kv_head, int heads, bool writes, i64 place,
                     tile* s, T* new_k, T* new_v) {
  const int half = HEAD / 2;
  const T* all = (const T*)p.qkv + (i64)b * (p.heads + 2 * p.kv_heads) * HEAD;
  for (int i = threadIdx.x; i < (heads + (writes ? 2 : 0)) * half; i += THREADS) {
    const int h = i / half, d = i % half;
    const int from_head =
        h < heads ? kv_head * heads + h : p.heads + kv_head + (h - heads) * p.kv_heads;
    const T* x = all + (i64)from_head * HEAD;
    const T first = x[d], second = x[d + half];
    const f32 a = to<f32>(first), c = to<f32>(second);
    const f32 cosine = s->angle[0][d], sine = s->angle[1][d];
    const T low = from<T>(a * cosine - c * sine), high = from<T>(c * cosine + a * sine);
    if (h < heads) {
      s->q[h * STRIDE + d] = low;
      s->q[h * STRIDE + d + half] = high;
      continue;
    }
    const bool value = h > heads;  // values do not turn
    T *to_cache = (T*)(value ? p.v : p.k) + place, *fresh = value ? new_v : new_k;
    fresh[d] = to_cache[d] = value ? first : low;
    fresh[d + half] = to_cache[d + half] = value ? second : high;
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

DEVICE void leave(tile* s, int warp, int lane, mixture* m) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int h = 0; h < 2; h++) {
#pragma unroll
    for (int bit = 4; bit < HY_WARP; bit *= 2) m->total[h] += SHFL_XOR(m->total[h], bit);
    if (g == 0) {
      s->top[warp][2 * t + h] = m->top[h];
      s->total[warp][2 * t + h] = m->total[h];
    }
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
      s->sum[warp][2 * t + h][i * 16 + g] = m->sum[i][h];
      s->sum[warp][2 * t + h][i * 16 + g + 8] = m->sum[i][2 + h];
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
  for (int i = 0; i < n; i++) all.top = largest(all.top, part(i).top);
  const f32 base = all.top == -INF_F32 ? 0 : all.top;
  for (int i = 0; i < n; i++) {
    const joined one = part(i);
    const f32 by = __expf(one.top - base);
    if (by == 0) continue;
    all.total += by * one.total;
    all.sum += by * one.sum;
  }
  return all;
}

DEVICE void put(const hy_decode& p, int b, int head, int d, const joined& all) {
  ((T*)p.out)[((i64)b * p.heads + head) * HEAD + d] =
      from<T>(all.total == 0 ? 0 : all.sum / all.total);
}

// Grid: splits; key heads; sequences.
KERNEL void __launch_bounds__(THREADS)
    rope_paged_attention_mma(hy_decode p, hy_gpu_fault* where, int op) {
  extern __shared__ __align__(16) char shared[];
  __shared__ unsigned arrived;
  tile* s = (tile*)shared;
  const faults f = {where, op};
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP;
  const int kv_head = blockIdx.y, b = blockIdx.z, heads = p.heads / p.kv_heads;
  if (!p.early) wait_for_previous();

  const i64 length = load_index(p.length_dtype, (const char*)p.length, b);
  const i64 room = (i64)p.most_blocks * p.block;
  const bool good = length >= 1 && length <= room && length <= p.positions;
  if (!good) f.say(length, room < p.positions ? room : p.positions);
  const int keys = good ? (int)length : 0, now = keys - 1;
  const int part = ((keys + p.splits - 1) / p.splits + TILE - 1) / TILE * TILE;
  const int begin = min((int)blockIdx.x * part, keys), end = min(begin + part, keys);
  if (begin >= end) {
    if (p.early) wait_for_previous();
    return;
  }
  const int parts = (keys + part - 1) / part;
  const bool has_new = end == keys;
  T *own_k = s->k + warp * OWN * STRIDE, *own_v = s->v + warp * OWN * STRIDE;
  load_own(p, f, b, kv_head, begin + warp * OWN, min(end, now), lane, own_k, own_v);
  copy_async_commit();
  const i64 place = has_new ? place_of(p, f, b, kv_head, now) : -1;
  for (int i = threadIdx.x; i < HEAD; i += THREADS) {
    const int half = HEAD / 2;
    s->angle[i >= half][i % half] =
        load_any<f32>(p.angle_dtype, (const char*)(i >= half ? p.sine : p.cosine),
                      (i64)now * half + i % half);
  }
  for (int i = threadIdx.x; i < (HEADS - heads) * HEAD; i += THREADS)
    s->q[(heads + i / HEAD) * STRIDE + i % HEAD] = from<T>(0.0f);
  launch_dependents();
  copy_async_wait<0>();
  __syncthreads();
  // Where one pass has all, the new key and value have their places in the tile.
  const bool whole = end - begin <= TILE;
  const int at = (now - begin) * STRIDE;
  const int warps = min((int)WARPS, (end - begin + OWN - 1) / OWN);
  if (p.early) wait_for_previous();
  load_new(p, b, kv_head, heads, place >= 0, place, s, whole ? s->k + at : s->fresh[0],
           whole ? s->v + at : s->fresh[1]);
  __syncthreads();
  mixture m;
#pragma unroll
  for (int i = 0; i < STEPS * 4; i++) m.sum[i / 4][i % 4] = 0;
  m.top[0] = m.top[1] = -INF_F32;
  m.total[0] = m.total[1] = 0;
  for (int first = begin; first < end; first += TILE) {
    const int own = first + warp * OWN, count = min((int)OWN, end - own);
    if (first > begin) {
      load_own(p, f, b, kv_head, own, min(end, now), lane, own_k, own_v);
      copy_async_commit();
      copy_async_wait<0>();
      __syncwarp();
    }
    if (count <= 0) continue;
    if (!whole && place >= 0 && now - own < OWN) {
      for (int i = lane; i < HEAD; i += HY_WARP) {
        own_k[(now - own) * STRIDE + i] = s->fresh[0][i];
        own_v[(now - own) * STRIDE + i] = s->fresh[1][i];
      }
      __syncwarp();
    }
    attend(p, s, warp, lane, count, &m);
  }
  leave(s, warp, lane, &m);
  __syncthreads();
  for (int i = threadIdx.x; i < heads * HEAD; i += THREADS) {
    const int h = i / HEAD, d = i % HEAD, head = kv_head * heads + h;
    const joined mine = join(warps, [=](int w) {
      return joined{s->top[w][h], s->total[w][h], s->sum[w][h][d]};
    });
    if (parts == 1) {
      put(p, b, head, d, mine);
      continue;
    }
    f32* to_part = part_of(p, b, head, blockIdx.x);
    to_part[d] = mine.sum;
    if (d == 0) to_part[HEAD] = mine.top;
    if (d == 0) to_part[HEAD + 1] = mine.total;
  }
  if (parts == 1) return;
  __threadfence();
  __syncthreads();
  unsigned* counter = p.counters + (i64)b * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) arrived = atomicAdd(counter, 1u);
  __syncthreads();
  if (arrived != (unsigned)parts - 1) return;
  if (threadIdx.x == 0) *counter = 0;
  __threadfence();
  for (int i = threadIdx.x; i < heads * HEAD; i += THREADS) {
    const int d = i % HEAD, head = kv_head * heads + i / HEAD;
    put(p, b, head, d, join(parts, [=](int split) {
          const f32* one = part_of(p, b, head, split);
          return joined{one[HEAD], one[HEAD + 1], one[d]};
        }));
  }
}
