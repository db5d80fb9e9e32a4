// Attention over a paged cache without tensor cores, for f32 and f64 and heads of any size: a warp for
// each token and head. Option: T.
#include "attend_row.cuh"
#include "paged_rows.cuh"

typedef traits<T>::math acc;

KERNEL void paged_attention_rows(hy_paged p, hy_gpu_fault* where, int op) {
  extern __shared__ __align__(16) char shared[];
  const paged_faults faults = {where, op};
  const i64 index = warp_index();
  if (index >= (i64)p.tokens * p.heads) return;
  const int token = (int)(index / p.heads), head = (int)(index % p.heads);
  const int kv_head = head / (p.heads / p.kv_heads);
  paged_sequence s = {0, 0, 0, 0};
  for (int b = 0; b < p.sequences; b++) {
    s = sequence_at(p, faults, b);
    if (token >= s.first && token < s.first + s.queries) break;
    s.queries = 0;
  }
  if (s.queries == 0) return;
  acc* q = (acc*)shared + (threadIdx.x / HY_WARP) * (p.size + p.value_size);
  acc *out = q + p.size, total;
  load_row(q, (const T*)p.q + token * p.q_token + head * p.q_head, p.size);
  __syncwarp();
  const T *k = (const T*)p.k + kv_head * p.k_head, *v = (const T*)p.v + kv_head * p.v_head;
  attend_row(
      out, p.value_size, s.keys - s.queries + token - s.first + 1, &total,
      [&](int key) {
        const T* row = cached_row<T>(p, faults, s.number, key, k, p.k_block, p.k_row);
        return row ? dot(q, row, p.size) * (acc)p.scale : (acc)-INF_F32;
      },
      [&](int key) {
        const T* row = cached_row<T>(p, faults, s.number, key, v, p.v_block, p.v_row);
        return row ? row : v;  // reported; any row will do
      });
  store_row((T*)p.out + token * p.out_token + head * p.out_head, out,
            total == 0 ? (acc)0 : 1 / total, p.value_size);
}
