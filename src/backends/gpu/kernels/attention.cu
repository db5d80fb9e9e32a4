// Scaled dot product attention of f16 and bf16: FlashAttention forward. Of few queries the keys are
// split among blocks; attention_combine joins the parts. Options: T, HEAD, BQ, BKV, MASKED (0 or 1).
//
// needs: mma
// options: -DT=bf16 -DHEAD=32 -DBQ=64 -DBKV=64 -DMASKED=0
// options: -DT=bf16 -DHEAD=64 -DBQ=128 -DBKV=64 -DMASKED=0
// options: -DT=f16 -DHEAD=128 -DBQ=128 -DBKV=64 -DMASKED=0
// options: -DT=bf16 -DHEAD=128 -DBQ=64 -DBKV=64 -DMASKED=1
// options: -DT=bf16 -DHEAD=256 -DBQ=64 -DBKV=32 -DMASKED=1
// options: -DT=bf16 -DHEAD=64 -DBQ=16 -DBKV=64 -DMASKED=0
#include "attention_rows.cuh"
#include "flash.cuh"
#include "split_keys.cuh"

struct dense_rows {
  const hy_attention& a;
  i64 batch;
  int kv_head, group, split;

  __device__ __forceinline__ int query(int row) const { return row / group; }
  __device__ __forceinline__ int head(int row) const { return kv_head * group + row % group; }
  __device__ __forceinline__ const u16* q_row(int r) const {
    return head_row<u16>(a.q, batch, head(r), query(r));
  }
  __device__ __forceinline__ const u16* k_row(int key) const {
    return head_row<u16>(a.k, batch, kv_head, key);
  }
  __device__ __forceinline__ const u16* v_row(int key) const {
    return head_row<u16>(a.v, batch, kv_head, key);
  }
  __device__ __forceinline__ int size() const { return a.size; }
  __device__ __forceinline__ int value_size() const { return a.value_size; }
  __device__ __forceinline__ f32 scale() const { return (f32)a.scale; }
  __device__ __forceinline__ int visible(int r) const { return visible_keys(a, query(r)); }
  __device__ __forceinline__ f32 mask(int r, int key) const {
    return mask_at<f32>(a, batch, head(r), query(r), key);
  }
  // The row's place among those of all parts.
  __device__ __forceinline__ i64 part(int r) const {
    return (i64)split * a.batches * a.heads * a.queries + query_index(a, batch, head(r), query(r));
  }
  __device__ __forceinline__ void put(int r, int column, f32 first, f32 second) const {
    if (a.splits > 1) {
      f32* out = a.partial + part(r) * a.value_size + column;
      out[0] = first;
      if (column + 1 < a.value_size) out[1] = second;
      return;
    }
    u16* out = head_row<u16>(a.out, batch, head(r), query(r)) + column;
    if (column + 1 < a.value_size)
      *(u32*)out = pack_pair(T(), first, second);
    else
      *(T*)out = from<T>(first);
  }
  __device__ __forceinline__ void put_lse(int r, f32 value) const {
    if (a.splits > 1)
      a.partial_lse[part(r)] = value;
    else if (a.lse)
      ((f32*)a.lse)[query_index(a, batch, head(r), query(r))] = value;
  }
};

KERNEL void __launch_bounds__(FLASH_THREADS) attention(hy_attention a) {
  extern __shared__ __align__(128) char shared[];
  // The grid's x: parts of the keys of one tile, or tiles. Those that see many keys go first, so
  // that short ones fill the end.
  const int split = a.splits > 1 ? (int)blockIdx.x : 0;
  const int row0 = a.splits > 1 ? 0 : (int)(gridDim.x - 1 - blockIdx.x) * BQ;
  const key_part part = part_of(a.keys, a.splits, split);
  dense_rows p = {a, (i64)blockIdx.z, (int)blockIdx.y, a.heads / a.kv_heads, split};
  flash_forward<T, MASKED>(p, shared, row0, a.queries * p.group, part.begin, part.end);
}

// A warp for each query of a head.
KERNEL void attention_combine(hy_attention a) {
  const i64 row = (i64)blockIdx.x * (blockDim.x / HY_WARP) + threadIdx.x / HY_WARP;
  const i64 rows = (i64)a.batches * a.heads * a.queries, of_batch = (i64)a.heads * a.queries;
  if (row >= rows) return;
  T* out = head_row<T>(a.out, row / of_batch, row / a.queries % a.heads, row % a.queries);
  f32 lse = meet_parts(out, a.partial, a.partial_lse, row, rows, a.splits, a.value_size);
  if (a.lse && threadIdx.x % HY_WARP == 0) ((f32*)a.lse)[row] = lse;
}
