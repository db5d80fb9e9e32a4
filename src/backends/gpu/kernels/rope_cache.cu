// New tokens of a prompt: q and k turned by their positions, k and v into their slots of a paged
// cache. A thread turns a pair of elements, or with rope_cache_vectors a pair of vectors of 16
// bytes. T is the type of the elements.
//
// types: f32 f64 f16 bf16
#include "params.h"

typedef traits<T>::math M;

// Where a row of k or v goes in its cache.
DEVICE T* cached_row(const hy_rope_cache& p, int head, i64 slot) {
  const bool is_key = head < p.heads + p.kv_heads;
  const int own = head - p.heads - (is_key ? 0 : p.kv_heads);
  return (T*)(is_key ? p.k : p.v) + (slot * p.kv_heads + own) * p.size;
}

// The thread's pair of vectors of a row.
template <class V>
DEVICE void put(T* row, const V& a, const V& b, int half) {
  *(V*)row = a;
  *(V*)(row + half) = b;
}

// N numbers of a table of angles.
template <int N>
DEVICE void load_angles(M (&to)[N], int dtype, const void* table, i64 at) {
  if (N % 4 == 0) {  // f32, in vectors
#pragma unroll
    for (int k = 0; k < N; k += 4) {
      vec<f32, 4> four = *(const vec<f32, 4>*)((const f32*)table + at + k);
#pragma unroll
      for (int j = 0; j < 4; j++) to[(k + j) % N] = four.at[j];
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; k++) to[k] = load_any<M>(dtype, (const char*)table, at + k);
  }
}

// Indices of type I: divisions of 32 bits are faster.
template <int N, class I>
DEVICE void keep(const hy_rope_cache& p, hy_gpu_fault* where, int op) {
  typedef vec<T, N> V;
  const int half = p.size / 2, turned = p.heads + p.kv_heads;
  const I vectors = half / N, all = turned + p.kv_heads;
  GRID_STRIDE(i, p.tokens * all * vectors) {
    const I row = (I)i / vectors, token = row / all;
    const int head = (int)(row - token * all), at = (int)((I)i - row * vectors) * N;
    const i64 position = load_index(p.position_dtype, (const char*)p.position, token);
    const i64 slot = load_index(p.slot_dtype, (const char*)p.slot, token);
    const T* x = (const T*)p.qkv + (i64)row * p.size + at;
    V a = *(const V*)x, b = *(const V*)(x + half);
    if (position < 0 || position >= p.positions || slot < -1 || slot >= p.slots) {
      bool turns = position >= 0 && position < p.positions;
      fault(where, HY_GPU_FAULT_INDEX, op, turns ? slot : position, 0,
            turns ? p.slots : p.positions);
      continue;
    }
    if (head < turned) {
      M c[N], s[N];
      load_angles(c, p.angle_dtype, p.cosine, position * half + at);
      load_angles(s, p.angle_dtype, p.sine, position * half + at);
#pragma unroll
      for (int k = 0; k < N; k++) {
        M first = to<M>(a.at[k]), second = to<M>(b.at[k]);
        a.at[k] = from<T>(first * c[k] - second * s[k]);
        b.at[k] = from<T>(second * c[k] + first * s[k]);
      }
      put((T*)p.qk + ((i64)token * turned + head) * p.size + at, a, b, half);
    }
    if (head >= p.heads && slot >= 0) put(cached_row(p, head, slot) + at, a, b, half);
  }
}

template <int N>
DEVICE void keep_all(const hy_rope_cache& p, hy_gpu_fault* where, int op) {
  if (p.tokens * (p.heads + 2 * p.kv_heads) * (p.size / 2) < 0x80000000ll)
    keep<N, u32>(p, where, op);
  else
    keep<N, i64>(p, where, op);
}

KERNEL void rope_cache(const hy_rope_cache p, hy_gpu_fault* where, int op) {
  keep_all<1>(p, where, op);
}

// Angles are f32.
KERNEL void rope_cache_vectors(const hy_rope_cache p, hy_gpu_fault* where, int op) {
  keep_all<lanes16<T>::n>(p, where, op);
}
