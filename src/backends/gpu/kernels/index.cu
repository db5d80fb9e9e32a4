// Indexing: gathering by index, and scattering in an order that does not depend on timing.
//
// Elements move as words of their size; W is the word where nothing is added.
#include "dependent.cuh"

// ---- Gathering ----

// out[i, r] = x[places of i, r]: i over the broadcast indices, r over the other dimensions.
template <class W>
DEVICE void gather_words(const hy_gpu_index& g) {
  GRID_STRIDE(e, g.n_indexed * g.rest.n) {
    i64 i = g.rest_inner ? e / g.rest.n : e % g.n_indexed;
    i64 r = g.rest_inner ? e % g.rest.n : e / g.n_indexed;
    i64 at[2], from = 0;
    walk_offsets<2>(g.rest, r, at);
    bool inside = true;
    i64 out_at = at[0];
    i64 left = i, position[HY_GPU_DIMS];
    for (int d = g.ndim - 1; d >= 0; d--) {
      position[d] = left % g.shape[d];
      left /= g.shape[d];
      out_at += position[d] * g.out_stride[d];
      from += position[d] * g.src_stride[d];
    }
    for (int k = 0; k < g.count; k++) {
      i64 offset = 0;
      for (int d = 0; d < g.ndim; d++) offset += position[d] * g.index_stride[k][d];
      i64 index = load_index(g.index_dtype[k], g.index[k], offset);
      inside = inside && check_index(g.fault, g.op, &index, g.dim[k], g.size[k], g.wraps);
      from += index * g.x_stride[k];
    }
    if (inside) ((W*)g.out)[out_at] = ((const W*)g.x)[at[1] + from];
  }
}

#define AS_KERNEL(name, type)                          \
  KERNEL void gather_##name(const hy_gpu_index g) {    \
    gather_words<type>(g);                             \
  }
AS_KERNEL(1, u8)
AS_KERNEL(2, u16)
AS_KERNEL(4, u32)
AS_KERNEL(8, u64)
#undef AS_KERNEL

// Rows of a table, as words of 16 bytes where they are such (row_words of them) or of one byte.
template <class W>
DEVICE void take_rows(char* out, const char* table, const char* ids, int id_dtype, i64 n, i64 words,
                      i64 rows, hy_gpu_fault* where, int op) {
  launch_dependents();
  wait_for_previous();
  for (i64 i = blockIdx.x; i < n; i += gridDim.x) {
    i64 id = load_index(id_dtype, ids, i);
    if (id < 0 || id >= rows) {
      if (threadIdx.x == 0) fault(where, HY_GPU_FAULT_INDEX, op, id, 0, rows);
      continue;
    }
    for (i64 w = threadIdx.x; w < words; w += blockDim.x)
      ((W*)out)[i * words + w] = ((const W*)table)[id * words + w];
  }
}
KERNEL void rows_16(char* out, const char* table, const char* ids, int id_dtype, i64 n, i64 words,
                    i64 rows, hy_gpu_fault* where, int op) {
  take_rows<vec<u64, 2> >(out, table, ids, id_dtype, n, words, rows, where, op);
}
KERNEL void rows_1(char* out, const char* table, const char* ids, int id_dtype, i64 n, i64 words,
                   i64 rows, hy_gpu_fault* where, int op) {
  take_rows<u8>(out, table, ids, id_dtype, n, words, rows, where, op);
}

// ---- Scattering ----

// Where each of the indexed positions goes, in elements of the output, as keys to sort by; `skip`
// (~0) for one that is out of bounds or names the padding.
DEVICE u64 scatter_key(const hy_gpu_index& g, i64 i) {
  i64 left = i, position[HY_GPU_DIMS], to_at = 0;
  bool inside = true;
  for (int d = g.ndim - 1; d >= 0; d--) {
    position[d] = left % g.shape[d];
    left /= g.shape[d];
    to_at += position[d] * g.out_stride[d];
  }
  for (int k = 0; k < g.count; k++) {
    i64 offset = 0;
    for (int d = 0; d < g.ndim; d++) offset += position[d] * g.index_stride[k][d];
    i64 index = load_index(g.index_dtype[k], g.index[k], offset);
    inside = inside && check_index(g.fault, g.op, &index, g.dim[k], g.size[k], g.wraps);
    if (index == g.padding) inside = false;
    to_at += index * g.x_stride[k];
  }
  return inside ? (u64)(to_at + g.bias) : ~0ull;
}

KERNEL void scatter_keys(const hy_gpu_index g, u64* keys, u32* places) {
  GRID_STRIDE(i, g.n_indexed) {
    keys[i] = scatter_key(g, i);
    places[i] = (u32)i;
  }
}

// The sorted keys fall into runs of equal ones. The thread at a run's first key takes one element of
// the rest: the run's last source is what stays, or all of them are added in their order.
DEVICE i64 source_offset(const hy_gpu_index& g, i64 i) {
  i64 offset = 0;
  for (int d = g.ndim - 1; d >= 0; d--) {
    offset += i % g.shape[d] * g.src_stride[d];
    i /= g.shape[d];
  }
  return offset;
}

template <class M>
DEVICE void add_run(const hy_gpu_index& g, const u64* keys, const u32* places, i64 first, i64 to_at,
                    i64 src_rest) {
  M total = g.adds_to_out ? load_any<M>(g.dtype, g.out, to_at) : (M)0;
  for (i64 j = first; j < g.n_indexed && keys[j] == keys[first]; j++)
    total += load_any<M>(g.dtype, g.x, source_offset(g, places[j]) + src_rest);
  store_any(g.dtype, g.out, to_at, total);
}

DEVICE void put_element(const hy_gpu_index& g, i64 to_at, i64 from) {
  switch (g.dtype) {
#define AS_CASE(value, type) \
  case value: ((type*)g.out)[to_at] = ((const type*)g.x)[from]; break;
    EACH_DTYPE(AS_CASE)
#undef AS_CASE
  }
}

KERNEL void scatter_runs(const hy_gpu_index g, const u64* keys, const u32* places, int adds) {
  GRID_STRIDE(e, g.n_indexed * g.rest.n) {
    i64 first = g.rest_inner ? e / g.rest.n : e % g.n_indexed;
    i64 r = g.rest_inner ? e % g.rest.n : e / g.n_indexed;
    u64 key = keys[first];
    if (key == ~0ull || (first > 0 && keys[first - 1] == key)) continue;
    i64 at[2];
    walk_offsets<2>(g.rest, r, at);
    i64 to_at = (i64)key - g.bias + at[0];
    if (adds) {
      if (g.dtype == DT_F64)
        add_run<f64>(g, keys, places, first, to_at, at[1]);
      else if (g.dtype <= DT_BF16)
        add_run<f32>(g, keys, places, first, to_at, at[1]);
      else
        add_run<i64>(g, keys, places, first, to_at, at[1]);
      continue;
    }
    i64 last = first;
    while (last + 1 < g.n_indexed && keys[last + 1] == key) last++;
    put_element(g, to_at, source_offset(g, places[last]) + at[1]);
  }
}

// Few positions, as when a cache takes new tokens: every block finds all keys, and what another
// position after it overwrites is not written.
enum { FEW = 512 };
KERNEL void scatter_few(const hy_gpu_index g) {
  __shared__ u64 keys[FEW];
  for (int i = threadIdx.x; i < g.n_indexed; i += blockDim.x) keys[i] = scatter_key(g, i);
  __syncthreads();
  GRID_STRIDE(e, g.n_indexed * g.rest.n) {
    i64 i = g.rest_inner ? e / g.rest.n : e % g.n_indexed;
    i64 r = g.rest_inner ? e % g.rest.n : e / g.n_indexed;
    bool stays = keys[i] != ~0ull;
    for (i64 j = i + 1; j < g.n_indexed && stays; j++) stays = keys[j] != keys[i];
    if (!stays) continue;
    i64 at[2];
    walk_offsets<2>(g.rest, r, at);
    put_element(g, (i64)keys[i] - g.bias + at[0], source_offset(g, i) + at[1]);
  }
}
