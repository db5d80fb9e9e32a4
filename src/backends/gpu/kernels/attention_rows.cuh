// Rows of attention's tensors, and which keys a query sees.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_ATTENTION_ROWS_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_ATTENTION_ROWS_CUH_

#include "params.h"

template <class T>
DEVICE T* head_row(const hy_heads& t, i64 batch, i64 head, i64 row) {
  return (T*)t.data + batch * t.batch + head * t.head + row * t.row;
}

// Where a query's place in [batch, heads, queries] is.
DEVICE i64 query_index(const hy_attention& a, i64 batch, i64 head, i64 query) {
  return (batch * a.heads + head) * a.queries + query;
}

DEVICE int visible_keys(const hy_attention& a, int query) {
  int n = a.causal == 0 ? a.keys : a.causal == 1 ? query + 1 : query + 1 + a.keys - a.queries;
  return n < 0 ? 0 : n > a.keys ? a.keys : n;
}

// The first query that sees `key`.
DEVICE int first_query(const hy_attention& a, int key) {
  int q = a.causal == 0 ? 0 : a.causal == 1 ? key : key - a.keys + a.queries;
  return q < 0 ? 0 : q;
}

// What the mask adds to a score: -inf where it hides the key.
template <class M>
DEVICE M mask_at(const hy_attention& a, i64 batch, i64 head, i64 query, i64 key) {
  i64 i = batch * a.mask_batch + head * a.mask_head + query * a.mask_row + key * a.mask_column;
  M value = load_any<M>(a.mask_dtype, (const char*)a.mask, i);
  return a.mask_dtype != DT_BOOL ? value : value != 0 ? (M)0 : (M)-INF_F32;
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_ATTENTION_ROWS_CUH_
