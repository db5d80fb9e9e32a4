// One decoding step of attention in one kernel: rotary positions, the write to the paged cache, and
// attention of one new token a sequence. A block has HEADS query heads of one key head, and its WARPS
// share out heads and keys: one head a block where sequences are few, so that a context of TILE keys
// needs one pass; eight where they are many, so that keys are read once. A longer context is split
// among blocks (split-K); the last of them to finish joins the parts.
//
// Keys and values of earlier tokens come into shared memory before the kernel waits for the one that
// makes q, k and v (see dependent.cuh).
//
// options: -DT=bf16 -DHEAD=64 -DTILE=256 -DWIDE=1 -DHEADS=1 -DWARPS=8
// options: -DT=bf16 -DHEAD=64 -DTILE=256 -DWIDE=1 -DHEADS=8 -DWARPS=16
// options: -DT=f16 -DHEAD=128 -DTILE=256 -DWIDE=0 -DHEADS=1 -DWARPS=8
// options: -DT=f32 -DHEAD=32 -DTILE=256 -DWIDE=1 -DHEADS=8 -DWARPS=16
// options: -DT=f64 -DHEAD=256 -DTILE=32 -DWIDE=0 -DHEADS=1 -DWARPS=8
// HEAD: a multiple of 32 that holds a head. WIDE: heads are HEAD long and aligned to 16 bytes.
#include "params.h"
#include "dependent.cuh"
#include "rope_paged.cuh"
#include "tensor_core.cuh"

typedef traits<T>::math acc;
enum {
  PER_HEAD = WARPS / HEADS,    // warps of a head
  EACH = 16 / (int)sizeof(T),  // numbers of 16 bytes
  STRIDE = HEAD + EACH,        // of a row in shared memory: rows begin in different banks
  SHARE = TILE / PER_HEAD,     // keys of a warp, at most
  KEYS = (SHARE + HY_WARP - 1) / HY_WARP,  // of a lane
  DIMS = HEAD / HY_WARP,       // that a lane sums, side by side
};
typedef vec<T, EACH> line;
typedef vec<T, DIMS> pair;

DEVICE acc exp_of(f32 x) { return __expf(x); }
DEVICE acc exp_of(f64 x) { return exp(x); }

struct largest_op {  // NaN never wins
  template <class M>
  static __device__ __forceinline__ M of(M a, M b) {
    return b > a ? b : a;
  }
};

struct tile {
  T k[TILE * STRIDE], v[TILE * STRIDE];
  T fresh[2][HEAD];                // k and v of the new token
  acc angle[2][HEAD / 2];          // cosines and sines of its position
  acc q[HEADS][HEAD];              // turned and scaled
  acc share[WARPS][KEYS * HY_WARP];  // exp of the scores
  acc sum[WARPS][HEAD], top[WARPS], total[WARPS];  // of the warps of one head
};

// Keys and values first .. end - 1 of the cache; there after copy_async_wait<0>() and a barrier.
DEVICE void load_tile(const hy_decode& p, const faults& f, int b, int kv_head, int first, int end,
                      tile* s) {
  const int each = WIDE ? EACH : 1, pieces = WIDE ? HEAD / EACH : p.size;
  for (int i = threadIdx.x; i < (end - first) * pieces; i += WARPS * HY_WARP) {
    int row = i / pieces, column = i % pieces * each;
    i64 at = place_of(p, f, b, kv_head, first + row);
    if (at < 0) continue;
    if (WIDE) {
      copy_async_16(&s->k[row * STRIDE + column], (const T*)p.k + at + column, 16);
      copy_async_16(&s->v[row * STRIDE + column], (const T*)p.v + at + column, 16);
    } else {
      s->k[row * STRIDE + column] = ((const T*)p.k)[at + column];
      s->v[row * STRIDE + column] = ((const T*)p.v)[at + column];
    }
  }
}

// The new token's query heads from `head` on, and where `writes` its key and value, also to `new_k`
// and `new_v` in shared memory; chunks of the same key head write the same.
DEVICE void load_new(const hy_decode& p, int b, int head, int heads, int kv_head, bool writes,
                     i64 place, tile* s, T* new_k, T* new_v) {
  const int half = p.size / 2;
  const T* all = (const T*)p.qkv + (i64)b * (p.heads + 2 * p.kv_heads) * p.size;
  for (int i = threadIdx.x; i < (heads + (writes ? 2 : 0)) * half; i += WARPS * HY_WARP) {
    int h = i / half, d = i % half;
    int from_head = h < heads ? head + h : p.heads + kv_head + (h - heads) * p.kv_heads;
    const T* x = all + (i64)from_head * p.size;
    acc a = to<acc>(x[d]), c = to<acc>(x[d + half]), cosine = s->angle[0][d], sine = s->angle[1][d];
    T low = from<T>(a * cosine - c * sine), high = from<T>(c * cosine + a * sine);
    if (h < heads) {
      s->q[h][d] = to<acc>(low) * (acc)p.scale;
      s->q[h][d + half] = to<acc>(high) * (acc)p.scale;
      continue;
    }
    bool value = h > heads;  // values do not turn
    T *to_cache = (T*)(value ? p.v : p.k) + place, *fresh = value ? new_v : new_k;
    fresh[d] = to_cache[d] = value ? x[d] : low;
    fresh[d + half] = to_cache[d + half] = value ? x[d + half] : high;
  }
}

// Scores of a lane's keys, a warp's step apart; q is read once for all of them. Four sums of each do
// not wait for one another.
DEVICE void score(const acc* q, const T* k, int lane, int keys, int size, acc* mine) {
  enum { SUMS = 4 };
#pragma unroll
  for (int u = 0; u < KEYS; u++) mine[u] = 0;
  if (WIDE) {
    acc sums[KEYS][SUMS];
#pragma unroll
    for (int i = 0; i < KEYS * SUMS; i++) sums[i / SUMS][i % SUMS] = 0;
#pragma unroll
    for (int d = 0; d < HEAD; d += EACH) {
      vec<acc, EACH> by;
#pragma unroll
      for (int e = 0; e < EACH; e += 2) *(vec<acc, 2>*)&by.at[e] = *(const vec<acc, 2>*)(q + d + e);
#pragma unroll
      for (int u = 0; u < KEYS; u++) {
        int key = u * HY_WARP + lane;
        if (key >= keys) break;
        line y = *(const line*)(k + key * STRIDE + d);
#pragma unroll
        for (int e = 0; e < EACH; e++) sums[u][e % SUMS] += by.at[e] * to<acc>(y.at[e]);
      }
    }
#pragma unroll
    for (int u = 0; u < KEYS; u++)
      mine[u] = (sums[u][0] + sums[u][1]) + (sums[u][2] + sums[u][3]);
  } else {
    for (int u = 0; u < KEYS && u * HY_WARP + lane < keys; u++)
      for (int d = 0; d < size; d++)
        mine[u] += q[d] * to<acc>(k[(u * HY_WARP + lane) * STRIDE + d]);
  }
}

// What a warp has of its head so far: online softmax.
struct mixture {
  acc top, total, sum[DIMS];
};

// The keys first .. first + keys - 1 of the tile, for head h of the block.
DEVICE void attend(const hy_decode& p, tile* s, int h, int warp, int lane, int first, int keys,
                   mixture* m) {
  acc mine[KEYS], high = m->top;
  score(s->q[h], s->k + first * STRIDE, lane, keys, p.size, mine);
#pragma unroll
  for (int u = 0; u < KEYS; u++) {
    if (u * HY_WARP + lane >= keys) mine[u] = (acc)-INF_F32;
    high = largest_op::of(high, mine[u]);
  }
  high = warp_reduce<largest_op>(high);
  const acc base = high == (acc)-INF_F32 ? (acc)0 : high, keep = exp_of(m->top - base);
  acc total = 0;
#pragma unroll
  for (int u = 0; u < KEYS; u++) {
    acc share = exp_of(mine[u] - base);
    s->share[warp][u * HY_WARP + lane] = share;
    total += share;
  }
  m->top = high;
  m->total = m->total * keep + warp_reduce<add_op>(total);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < DIMS; i++) m->sum[i] *= keep;
#pragma unroll 8
  for (int key = 0; key < keys; key++) {
    acc share = s->share[warp][key];
    const T* v = s->v + (first + key) * STRIDE + lane * DIMS;
    // A key without weight has no influence, not even by NaN.
    const bool heard = share != 0;
    if (WIDE) {
      pair all = *(const pair*)v;
#pragma unroll
      for (int i = 0; i < DIMS; i++) m->sum[i] += share * (heard ? to<acc>(all.at[i]) : (acc)0);
    } else {
#pragma unroll
      for (int i = 0; i < DIMS; i++)
        if (heard && lane * DIMS + i < p.size) m->sum[i] += share * to<acc>(v[i]);
    }
  }
  __syncwarp();
}

// Warp `warp` of a head's gets what all of them have; the others nothing.
DEVICE void meet(tile* s, int warp, int lane, mixture* m) {
  if (PER_HEAD == 1) return;
  if (lane == 0) {
    s->top[warp] = m->top;
    s->total[warp] = m->total;
  }
#pragma unroll
  for (int i = 0; i < DIMS; i++) s->sum[warp][lane * DIMS + i] = m->sum[i];
  __syncthreads();
  if (warp % PER_HEAD != 0) return;
  acc top = (acc)-INF_F32;
#pragma unroll
  for (int w = 0; w < PER_HEAD; w++) top = largest_op::of(top, s->top[warp + w]);
  const acc base = top == (acc)-INF_F32 ? (acc)0 : top;
  m->top = top;
  m->total = 0;
#pragma unroll
  for (int i = 0; i < DIMS; i++) m->sum[i] = 0;
#pragma unroll
  for (int w = 0; w < PER_HEAD; w++) {
    acc by = exp_of(s->top[warp + w] - base);
    if (by == 0) continue;
    m->total += by * s->total[warp + w];
#pragma unroll
    for (int i = 0; i < DIMS; i++) m->sum[i] += by * s->sum[warp + w][lane * DIMS + i];
  }
}

DEVICE void put(const hy_decode& p, int b, int head, int lane, const mixture& m) {
  T* out = (T*)p.out + ((i64)b * p.heads + head) * p.size + lane * DIMS;
#pragma unroll
  for (int i = 0; i < DIMS; i++)
    if (WIDE || lane * DIMS + i < p.size)
      out[i] = from<T>(m.total == 0 ? (acc)0 : m.sum[i] / m.total);
}

// The parts of a head, by a lane each, then by dimension.
DEVICE void join(const hy_decode& p, int b, int head, int lane, int parts, mixture* m) {
  const f32* mine = part_of(p, b, head, lane < parts ? lane : 0);
  f32 top = lane < parts ? mine[p.size] : -INF_F32, high = warp_reduce<largest_op>(top);
  f32 share = expf(top - (high == -INF_F32 ? 0 : high));
  f32 total = lane < parts ? share * mine[p.size + 1] : 0;
  m->total = warp_reduce<add_op>(total);
#pragma unroll
  for (int i = 0; i < DIMS; i++) m->sum[i] = 0;
#pragma unroll 4
  for (int s = 0; s < parts; s++) {
    const f32* part = part_of(p, b, head, s) + lane * DIMS;
    f32 by = SHFL(share, s);
#pragma unroll
    for (int i = 0; i < DIMS; i++)
      if (by != 0 && (WIDE || lane * DIMS + i < p.size)) m->sum[i] += by * part[i];
  }
}

// Grid: splits; key heads, each with its query heads in chunks of HEADS; sequences.
KERNEL void __launch_bounds__(WARPS* HY_WARP)
    rope_paged_attention(hy_decode p, hy_gpu_fault* where, int op) {
  extern __shared__ __align__(16) char shared[];
  __shared__ unsigned arrived;
  tile* s = (tile*)shared;
  const faults f = {where, op};
  const int warp = threadIdx.x / HY_WARP, lane = threadIdx.x % HY_WARP;
  const int per_key_head = p.heads / p.kv_heads, chunks = (per_key_head + HEADS - 1) / HEADS;
  const int kv_head = blockIdx.y / chunks, chunk = blockIdx.y % chunks, b = blockIdx.z;
  const int head = kv_head * per_key_head + chunk * HEADS;
  const int heads = min((int)HEADS, per_key_head - chunk * HEADS), mine = warp / PER_HEAD;
  if (!p.early) wait_for_previous();

  const i64 length = load_index(p.length_dtype, (const char*)p.length, b);
  const i64 room = (i64)p.most_blocks * p.block;
  bool good = length >= 1 && length <= room && length <= p.positions;
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
  load_tile(p, f, b, kv_head, begin, min(min(begin + TILE, end), now), s);
  copy_async_commit();
  const i64 place = has_new ? place_of(p, f, b, kv_head, now) : -1;
  for (int i = threadIdx.x; i < p.size; i += WARPS * HY_WARP) {
    int half = p.size / 2;
    s->angle[i >= half][i % half] =
        load_any<acc>(p.angle_dtype, (const char*)(i >= half ? p.sine : p.cosine),
                      (i64)now * half + i % half);
  }
  launch_dependents();
  __syncthreads();
  if (p.early) wait_for_previous();
  // Where one tile holds all, the new key and value have their places in it.
  const bool whole = end - begin <= TILE;
  const int at = (now - begin) * STRIDE;
  load_new(p, b, head, heads, kv_head, place >= 0, place, s, whole ? s->k + at : s->fresh[0],
           whole ? s->v + at : s->fresh[1]);

  mixture m;
  m.top = (acc)-INF_F32;
  m.total = 0;
#pragma unroll
  for (int i = 0; i < DIMS; i++) m.sum[i] = 0;
  for (int first = begin; first < end; first += TILE) {
    const int last = min(first + TILE, end), count = last - first;
    if (first > begin) {
      __syncthreads();
      load_tile(p, f, b, kv_head, first, min(last, now), s);
      copy_async_commit();
    }
    copy_async_wait<0>();
    __syncthreads();
    if (has_new && last == end && !whole) {
      for (int i = threadIdx.x; i < p.size; i += WARPS * HY_WARP) {
        s->k[(now - first) * STRIDE + i] = s->fresh[0][i];
        s->v[(now - first) * STRIDE + i] = s->fresh[1][i];
      }
      __syncthreads();
    }
    // Every warp of a head takes as many keys as the others.
    const int share = (count + PER_HEAD - 1) / PER_HEAD, from_key = warp % PER_HEAD * share;
    const int to_key = min(from_key + share, count);
    if (mine < heads && from_key < to_key)
      attend(p, s, mine, warp, lane, from_key, to_key - from_key, &m);
  }
  meet(s, warp, lane, &m);
  const bool speaks = mine < heads && warp % PER_HEAD == 0;
  if (parts == 1) {
    if (speaks) put(p, b, head + mine, lane, m);
    return;
  }
  if (speaks) {
    f32* to_part = part_of(p, b, head + mine, blockIdx.x);
#pragma unroll
    for (int i = 0; i < DIMS; i++)
      if (WIDE || lane * DIMS + i < p.size) to_part[lane * DIMS + i] = (f32)m.sum[i];
    if (lane == 0) {
      to_part[p.size] = (f32)m.top;
      to_part[p.size + 1] = (f32)m.total;
    }
  }
  __threadfence();
  __syncthreads();
  unsigned* counter = p.counters + (i64)b * gridDim.y + blockIdx.y;
  if (threadIdx.x == 0) arrived = atomicAdd(counter, 1u);
  __syncthreads();
  if (arrived != (unsigned)parts - 1) return;
  if (threadIdx.x == 0) *counter = 0;
  __threadfence();
  if (!speaks) return;
  join(p, b, head + mine, lane, parts, &m);
  put(p, b, head + mine, lane, m);
}
