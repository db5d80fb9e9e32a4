// Attention without tensor cores, forward and backward, for f32 and f64 and for heads of any size: a
// warp for each query (forward, dq) or each key (dk, dv). Lanes share out the keys of a score and the
// columns of a result. Nothing is added by atomics. Option: T.
#include "attend_row.cuh"
#include "attention_rows.cuh"

typedef traits<T>::math acc;

// A query's place from its number over [batch, heads, queries].
struct query_place {
  i64 batch;
  int head, query;
};
DEVICE query_place place_of(const hy_attention& a, i64 i) {
  query_place p = {i / a.queries / a.heads, (int)(i / a.queries % a.heads), (int)(i % a.queries)};
  return p;
}

// The score of q (in shared memory) and a key, or -inf.
DEVICE acc score(const hy_attention& a, const acc* q, i64 batch, int head, int query, int key) {
  const int group = a.heads / a.kv_heads;
  acc s = dot(q, head_row<T>(a.k, batch, head / group, key), a.size) * (acc)a.scale;
  if (!a.mask) return s;
  acc more = mask_at<acc>(a, batch, head, query, key);
  return more == (acc)-INF_F32 ? more : s + more;
}

KERNEL void attention_rows(hy_attention a) {
  extern __shared__ __align__(16) char shared[];
  const i64 index = warp_index();
  if (index >= (i64)a.batches * a.heads * a.queries) return;
  const query_place p = place_of(a, index);
  const int lane = threadIdx.x % HY_WARP, kv_head = p.head / (a.heads / a.kv_heads);
  acc* q = (acc*)shared + (threadIdx.x / HY_WARP) * (a.size + a.value_size);
  acc *out = q + a.size, total;
  load_row(q, head_row<T>(a.q, p.batch, p.head, p.query), a.size);
  __syncwarp();
  acc top = attend_row(
      out, a.value_size, visible_keys(a, p.query), &total,
      [&](int key) { return score(a, q, p.batch, p.head, p.query, key); },
      [&](int key) { return head_row<T>(a.v, p.batch, kv_head, key); });
  bool none = total == 0;
  store_row(head_row<T>(a.out, p.batch, p.head, p.query), out, none ? (acc)0 : 1 / total,
            a.value_size);
  if (a.lse && lane == 0) ((acc*)a.lse)[index] = none ? (acc)-INF_F32 : top + log_of(total);
}

// ---- backward: with p = exp(score - lse) and delta = dout . out,
// dv += p dout, ds = p (dout . v - delta) scale, dq += ds k, dk += ds q ----

KERNEL void attention_delta(hy_attention a) {
  const i64 index = warp_index();
  if (index >= (i64)a.batches * a.heads * a.queries) return;
  const query_place p = place_of(a, index);
  const T *dout = head_row<T>(a.dout, p.batch, p.head, p.query),
          *out = head_row<T>(a.out, p.batch, p.head, p.query);
  acc sum = 0;
  for (int d = threadIdx.x % HY_WARP; d < a.value_size; d += HY_WARP)
    sum += to<acc>(dout[d]) * to<acc>(out[d]);
  sum = warp_reduce<add_op>(sum);
  if (threadIdx.x % HY_WARP == 0) ((acc*)a.delta)[index] = sum;
}

KERNEL void attention_backward_query(hy_attention a) {
  extern __shared__ __align__(16) char shared[];
  const i64 index = warp_index();
  if (index >= (i64)a.batches * a.heads * a.queries) return;
  const query_place p = place_of(a, index);
  const int lane = threadIdx.x % HY_WARP, kv_head = p.head / (a.heads / a.kv_heads);
  acc* q = (acc*)shared + (threadIdx.x / HY_WARP) * (2 * a.size + a.value_size);
  acc *dq = q + a.size, *dout = dq + a.size;
  load_row(q, head_row<T>(a.q, p.batch, p.head, p.query), a.size);
  load_row(dout, head_row<T>(a.dout, p.batch, p.head, p.query), a.value_size);
  clear_row(dq, a.size);
  __syncwarp();
  const acc lse = ((const acc*)a.lse)[index], delta = ((const acc*)a.delta)[index];
  const int visible = visible_keys(a, p.query);
  for (int key0 = 0; key0 < visible; key0 += HY_WARP) {
    int key = key0 + lane;
    acc s = key < visible ? score(a, q, p.batch, p.head, p.query, key) : (acc)-INF_F32, ds = 0;
    if (s != (acc)-INF_F32) {
      acc dp = dot(dout, head_row<T>(a.v, p.batch, kv_head, key), a.value_size);
      ds = exp_of(s - lse) * (dp - delta) * (acc)a.scale;
    }
    for (int j = 0; j < HY_WARP && key0 + j < visible; j++)
      add_row(dq, SHFL(ds, j), head_row<T>(a.k, p.batch, kv_head, key0 + j), a.size);
  }
  store_row(head_row<T>(a.dq, p.batch, p.head, p.query), dq, (acc)1, a.size);
}

KERNEL void attention_backward_key(hy_attention a) {
  extern __shared__ __align__(16) char shared[];
  const i64 index = warp_index();
  if (index >= (i64)a.batches * a.kv_heads * a.keys) return;
  const i64 batch = index / a.keys / a.kv_heads;
  const int lane = threadIdx.x % HY_WARP, kv_head = (int)(index / a.keys % a.kv_heads);
  const int key = (int)(index % a.keys), group = a.heads / a.kv_heads;
  acc* k = (acc*)shared + (threadIdx.x / HY_WARP) * 2 * (a.size + a.value_size);
  acc *v = k + a.size, *dk = v + a.value_size, *dv = dk + a.size;
  load_row(k, head_row<T>(a.k, batch, kv_head, key), a.size);
  load_row(v, head_row<T>(a.v, batch, kv_head, key), a.value_size);
  clear_row(dk, a.size + a.value_size);
  __syncwarp();
  const int first = first_query(a, key);
  for (int h = kv_head * group; h < (kv_head + 1) * group; h++) {
    for (int query0 = first; query0 < a.queries; query0 += HY_WARP) {
      int query = query0 + lane;
      acc p = 0, ds = 0;
      if (query < a.queries) {
        acc s = dot(k, head_row<T>(a.q, batch, h, query), a.size) * (acc)a.scale;
        if (a.mask) {
          acc more = mask_at<acc>(a, batch, h, query, key);
          s = more == (acc)-INF_F32 ? more : s + more;
        }
        if (s != (acc)-INF_F32) {
          i64 at = query_index(a, batch, h, query);
          p = exp_of(s - ((const acc*)a.lse)[at]);
          acc dp = dot(v, head_row<T>(a.dout, batch, h, query), a.value_size);
          ds = p * (dp - ((const acc*)a.delta)[at]) * (acc)a.scale;
        }
      }
      for (int j = 0; j < HY_WARP && query0 + j < a.queries; j++) {
        add_row(dv, SHFL(p, j), head_row<T>(a.dout, batch, h, query0 + j), a.value_size);
        add_row(dk, SHFL(ds, j), head_row<T>(a.q, batch, h, query0 + j), a.size);
      }
    }
  }
  if (a.dk.data) store_row(head_row<T>(a.dk, batch, kv_head, key), dk, (acc)1, a.size);
  if (a.dv.data) store_row(head_row<T>(a.dv, batch, kv_head, key), dv, (acc)1, a.value_size);
}
