// Sampling the next token: repetition penalty, temperature, top-k, top-p, min-p, and one draw. The
// tokens of a row are sorted, likeliest first; a block then walks along the row's weights. In f64, as
// the reference.
#include "dependent.cuh"

enum { THREADS = 256 };

// Settings, as the op's second input has them.
enum { PENALTY, TEMPERATURE, TOP_K, TOP_P, MIN_P };

DEVICE f64 logit_of(const hy_gpu_sample& s, i64 row, i64 id) {
  f64 logit = load_any<f64>(s.logits.dtype, s.logits.data,
                            row * s.logits.stride[0] + id * s.logits.stride[1]);
  if (s.seen.data && s.seen.data[row * s.seen.stride[0] + id * s.seen.stride[1]]) {
    f64 penalty = load_any<f64>(s.settings.dtype, s.settings.data, row * s.settings.stride[0]);
    logit = logit < 0 ? logit * penalty : logit / penalty;
  }
  return logit;
}

// What can be chosen comes first, the largest before all others; the rest has the greatest key.
DEVICE u64 key_of(f64 logit) {
  if (!(logit > -(f64)INF_F32)) return ~0ull;
  u64 bits = (u64)__double_as_longlong(logit == 0 ? 0.0 : logit);
  return ~(bits >> 63 ? ~bits : bits | 1ull << 63);
}

KERNEL void sample_keys(const hy_gpu_sample s, u64* keys, u32* places) {
  GRID_STRIDE(i, s.rows * s.tokens) {
    i64 row = i / s.tokens, id = i % s.tokens;
    keys[i] = key_of(logit_of(s, row, id));
    places[i] = (u32)id;
  }
}

// ---- Greedy ----

struct best_token {
  u64 key;
  i64 id;
};

DEVICE best_token better(best_token a, best_token b) {
  return b.key < a.key || (b.key == a.key && b.id < a.id) ? b : a;
}

DEVICE best_token best_of_block(best_token mine) {
  __shared__ best_token held[THREADS / HY_WARP];
#pragma unroll
  for (int mask = HY_WARP / 2; mask > 0; mask /= 2)
    mine = better(mine, best_token{SHFL_XOR(mine.key, mask), SHFL_XOR(mine.id, mask)});
  if (threadIdx.x % HY_WARP == 0) held[threadIdx.x / HY_WARP] = mine;
  __syncthreads();
  best_token all = held[0];
  for (int w = 1; w < THREADS / HY_WARP; w++) all = better(all, held[w]);
  __syncthreads();
  return all;
}

// Whether a row is whole vectors of 16 bytes.
template <class L>
DEVICE bool takes_vectors(const hy_gpu_sample& s) {
  enum { N = lanes16<L>::n };
  return s.logits.stride[1] == 1 && s.tokens % N == 0 && s.logits.stride[0] % N == 0 &&
         ((u64)s.logits.data & 15) == 0 && s.tokens < (1ll << 31);
}

// The largest of this thread's logits, as f32, AHEAD vectors of 16 bytes in flight; it alone gets a
// key. NaN and what is infinitely small are never larger.
template <class L>
DEVICE best_token best_of_vectors(const hy_gpu_sample& s, i64 row) {
  enum { N = lanes16<L>::n, AHEAD = 4 };
  const vec<L, N>* x = (const vec<L, N>*)((const L*)s.logits.data + row * s.logits.stride[0]);
  const int n = (int)s.tokens / N, step = (int)gridDim.x * THREADS;
  f32 most = -INF_F32;
  int at = -1;
  for (int first = (int)blockIdx.x * THREADS + (int)threadIdx.x; first < n; first += AHEAD * step) {
    vec<L, N> v[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (first + u * step < n) v[u] = x[first + u * step];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      if (first + u * step >= n) break;
#pragma unroll
      for (int k = 0; k < N; k++) {
        f32 logit = to<f32>(v[u].at[k]);
        if (logit > most) {
          most = logit;
          at = (first + u * step) * N + k;
        }
      }
    }
  }
  return at < 0 ? best_token{~0ull, I64_HIGH} : best_token{key_of((f64)most), at};
}

// Grid: parts of a row, rows. A counter for each row is 0 before and after.
KERNEL void __launch_bounds__(THREADS) sample_greedy(const hy_gpu_sample s, best_token* best,
                                                     u32* counters) {
  __shared__ u32 arrived;
  const i64 row = blockIdx.y;
  launch_dependents();
  wait_for_previous();
  best_token mine = {~0ull, I64_HIGH};
  if (s.logits.dtype == DT_F32 && takes_vectors<f32>(s)) {
    mine = best_of_vectors<f32>(s, row);
  } else if (s.logits.dtype == DT_BF16 && takes_vectors<bf16>(s)) {
    mine = best_of_vectors<bf16>(s, row);
  } else if (s.logits.dtype == DT_F16 && takes_vectors<f16>(s)) {
    mine = best_of_vectors<f16>(s, row);
  } else {
#pragma unroll 4
    for (i64 id = (i64)blockIdx.x * THREADS + threadIdx.x; id < s.tokens;
         id += (i64)gridDim.x * THREADS)
      mine = better(mine, best_token{key_of(logit_of(s, row, id)), id});
  }
  mine = best_of_block(mine);
  best_token* parts = best + row * gridDim.x;
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) {
      parts[blockIdx.x] = mine;
      __threadfence();
      arrived = atomicAdd(&counters[row], 1u);
    }
    __syncthreads();
    if (arrived != gridDim.x - 1) return;
    __threadfence();
    mine = threadIdx.x < gridDim.x ? parts[threadIdx.x] : best_token{~0ull, I64_HIGH};
    mine = best_of_block(mine);
    if (threadIdx.x == 0) counters[row] = 0;
  }
  if (threadIdx.x == 0)
    ((i64*)s.ids)[row * s.ids_stride] = mine.key == ~0ull ? -1 : mine.id;
}

// The sum over a block, and in `before` that of the threads with smaller numbers.
DEVICE f64 scan_block(f64 mine, f64* before) {
  __shared__ f64 held[THREADS];
  held[threadIdx.x] = mine;
  __syncthreads();
  for (int delta = 1; delta < THREADS; delta *= 2) {
    f64 below = threadIdx.x >= delta ? held[threadIdx.x - delta] : 0;
    __syncthreads();
    held[threadIdx.x] += below;
    __syncthreads();
  }
  f64 all = held[THREADS - 1];
  *before = held[threadIdx.x] - mine;
  __syncthreads();
  return all;
}

DEVICE i64 least_of_block(i64 mine) {
  __shared__ i64 held[32];
  return block_reduce<min_op>(mine, held);
}

KERNEL void __launch_bounds__(THREADS) sample_choose(const hy_gpu_sample s, const u64* keys,
                                                     const u32* places) {
  __shared__ f64 partial[32];
  i64 row = blockIdx.x;
  const u64* key = keys + row * s.tokens;
  const u32* place = places + row * s.tokens;
  f64 setting[5];
  for (int k = 0; k < 5; k++)
    setting[k] = load_any<f64>(s.settings.dtype, s.settings.data,
                               row * s.settings.stride[0] + k * s.settings.stride[1]);
  i64* id = (i64*)s.ids + row * s.ids_stride;
  if (key[0] == ~0ull || !(setting[TEMPERATURE] > 0)) {
    if (threadIdx.x == 0) *id = key[0] == ~0ull ? -1 : (i64)place[0];
    return;
  }
  i64 n = s.tokens;
  if (setting[TOP_K] >= 1 && setting[TOP_K] < (f64)n) n = (i64)setting[TOP_K];
  f64 largest = logit_of(s, row, place[0]);
  auto weight = [&](i64 i) {
    if (i >= n || key[i] == ~0ull) return 0.0;
    f64 logit = logit_of(s, row, place[i]);
    return exp((logit == largest ? 0.0 : logit - largest) / setting[TEMPERATURE]);
  };
  f64 total = 0;
  for (i64 i = threadIdx.x; i < n; i += THREADS) total += weight(i);
  total = block_reduce<add_op>(total, partial);

  // The first token that does not stay, and the weight of those that do.
  i64 kept = n;
  f64 sum = 0;
  for (i64 first = 0; first < n; first += THREADS) {
    i64 i = first + threadIdx.x;
    f64 w = weight(i), before, all = scan_block(w, &before);
    bool stays = i < n && key[i] != ~0ull &&
                 (i == 0 || ((setting[TOP_P] >= 1 || sum + before < setting[TOP_P] * total) &&
                             w >= setting[MIN_P]));
    i64 end = least_of_block(stays ? first + THREADS : i);
    f64 inside = block_reduce<add_op>(i < end ? w : 0.0, partial);
    if (end < first + THREADS) {
      kept = end;
      sum += inside;
      break;
    }
    sum += all;
  }
  if (kept > n) kept = n;

  f64 draw = load_any<f64>(s.draw.dtype, s.draw.data, row * s.draw.stride[0]) * sum, passed = 0;
  i64 chosen = kept - 1;
  for (i64 first = 0; first < kept; first += THREADS) {
    i64 i = first + threadIdx.x;
    f64 w = weight(i), before, all = scan_block(w, &before);
    i64 here = least_of_block(i < kept && draw < passed + before + w ? i : I64_HIGH);
    if (here < I64_HIGH) {
      chosen = here;
      break;
    }
    passed += all;
  }
  if (threadIdx.x == 0) *id = place[chosen];
}
