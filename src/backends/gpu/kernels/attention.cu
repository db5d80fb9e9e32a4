// Scaled dot product attention of f16 and bf16: FlashAttention forward. Options: T, HEAD, BQ, BKV,
// MASKED (0 or 1).
//
// needs: mma
// options: -DT=bf16 -DHEAD=32 -DBQ=64 -DBKV=64 -DMASKED=0
// options: -DT=bf16 -DHEAD=64 -DBQ=128 -DBKV=64 -DMASKED=0
// options: -DT=f16 -DHEAD=128 -DBQ=128 -DBKV=64 -DMASKED=0
// options: -DT=bf16 -DHEAD=128 -DBQ=64 -DBKV=64 -DMASKED=1
// options: -DT=bf16 -DHEAD=256 -DBQ=64 -DBKV=32 -DMASKED=1
#include "attention_rows.cuh"
#include "flash.cuh"

struct dense_rows {
  const hy_attention& a;
  i64 batch;
  int kv_head, group;

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
  __device__ __forceinline__ void put(int r, int column, f32 first, f32 second) const {
    u16* out = head_row<u16>(a.out, batch, head(r), query(r)) + column;
    if (column + 1 < a.value_size)
      *(u32*)out = pack_pair(T(), first, second);
    else
      *(T*)out = from<T>(first);
  }
  __device__ __forceinline__ void put_lse(int r, f32 value) const {
    if (a.lse) ((f32*)a.lse)[query_index(a, batch, head(r), query(r))] = value;
  }
};

KERNEL void __launch_bounds__(FLASH_THREADS) attention(hy_attention a) {
  extern __shared__ __align__(128) char shared[];
  // Tiles that see many keys go first, so that short ones fill the end.
  const int row0 = (int)(gridDim.x - 1 - blockIdx.x) * BQ;
  dense_rows p = {a, (i64)blockIdx.z, (int)blockIdx.y, a.heads / a.kv_heads};
  flash_forward<T, MASKED>(p, shared, row0, a.queries * p.group, 0, a.keys);
}
