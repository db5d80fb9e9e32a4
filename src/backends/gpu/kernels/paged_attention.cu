// Attention over a paged cache on tensor cores, for prompts and decoding alike: a tile holds rows
// of one sequence and key head, all query heads of the group together. A long context is split
// among blocks (split-K); paged_combine joins the parts. Options: T, HEAD, BQ, BKV, BLOCK.
//
// needs: mma
// options: -DT=bf16 -DHEAD=64 -DBQ=16 -DBKV=64
// options: -DT=bf16 -DHEAD=64 -DBQ=64 -DBKV=64 -DBLOCK=16
// options: -DT=f16 -DHEAD=128 -DBQ=64 -DBKV=64
// options: -DT=bf16 -DHEAD=256 -DBQ=16 -DBKV=32
// options: -DT=bf16 -DHEAD=32 -DBQ=64 -DBKV=64
#include "paged_rows.cuh"
#include "flash.cuh"
#include "split_keys.cuh"

struct paged_tile {
  const hy_paged& p;
  const paged_faults& faults;
  paged_sequence sequence;
  int kv_head, group, split;

  __device__ __forceinline__ i64 token(int row) const { return sequence.first + row / group; }
  __device__ __forceinline__ int head(int row) const { return kv_head * group + row % group; }
  __device__ __forceinline__ const u16* q_row(int r) const {
    return (const u16*)p.q + token(r) * p.q_token + head(r) * p.q_head;
  }
  __device__ __forceinline__ const u16* k_row(int key) const {
    return cached_row<u16>(p, faults, sequence.number, key, (const u16*)p.k + kv_head * p.k_head,
                           p.k_block, p.k_row);
  }
  __device__ __forceinline__ const u16* v_row(int key) const {
    return cached_row<u16>(p, faults, sequence.number, key, (const u16*)p.v + kv_head * p.v_head,
                           p.v_block, p.v_row);
  }
  __device__ __forceinline__ int size() const { return p.size; }
  __device__ __forceinline__ int value_size() const { return p.value_size; }
  __device__ __forceinline__ f32 scale() const { return (f32)p.scale; }
  __device__ __forceinline__ int visible(int r) const {
    return sequence.keys - sequence.queries + r / group + 1;
  }
  __device__ __forceinline__ f32 mask(int, int) const { return 0; }
  __device__ __forceinline__ i64 part(int r) const {
    return ((i64)split * p.tokens + token(r)) * p.heads + head(r);
  }
  __device__ __forceinline__ void put(int r, int column, f32 first, f32 second) const {
    bool both = column + 1 < p.value_size;
    if (p.splits > 1) {
      f32* out = p.partial + part(r) * p.value_size + column;
      out[0] = first;
      if (both) out[1] = second;
      return;
    }
    u16* out = (u16*)p.out + token(r) * p.out_token + head(r) * p.out_head + column;
    if (both)
      *(u32*)out = pack_pair(T(), first, second);
    else
      *(T*)out = from<T>(first);
  }
  __device__ __forceinline__ void put_lse(int r, f32 value) const {
    if (p.splits > 1) p.partial_lse[part(r)] = value;
  }
};

// Tile `tile` of all sequences' tiles; queries 0 past the end.
DEVICE paged_sequence find_tile(const hy_paged& p, const paged_faults& faults, int tile, int group,
                                int* row0) {
  for (int b = 0; b < p.sequences; b++) {
    paged_sequence s = sequence_at(p, faults, b);
    int own = (s.queries * group + BQ - 1) / BQ;
    if (tile < own) {
      *row0 = tile * BQ;
      return s;
    }
    tile -= own;
  }
  return paged_sequence{0, 0, 0, 0};
}

// Grid: tiles of all sequences, key heads, splits.
KERNEL void __launch_bounds__(FLASH_THREADS)
    paged_attention(hy_paged p, hy_gpu_fault* where, int op) {
  extern __shared__ __align__(128) char shared[];
  const paged_faults faults = {where, op};
  const int group = p.heads / p.kv_heads;
  int row0 = 0;
  paged_sequence s = find_tile(p, faults, blockIdx.x, group, &row0);
  if (s.queries == 0) return;
  const key_part part = part_of(s.keys, p.splits, (int)blockIdx.z);
  paged_tile tile = {p, faults, s, (int)blockIdx.y, group, (int)blockIdx.z};
  flash_forward<T, false>(tile, shared, row0, s.queries * group, part.begin, part.end);
}

// A warp for each token and head.
KERNEL void paged_combine(hy_paged p) {
  const i64 row = (i64)blockIdx.x * (blockDim.x / HY_WARP) + threadIdx.x / HY_WARP;
  const i64 rows = (i64)p.tokens * p.heads;
  if (row >= rows) return;
  T* out = (T*)p.out + row / p.heads * p.out_token + row % p.heads * p.out_head;
  meet_parts(out, p.partial, p.partial_lse, row, rows, p.splits, p.value_size);
}
