// Copies and conversions: strided words of one size, contiguous conversions between floats of two and
// four bytes, and everything else by types known at run time.

template <class W, class I>
DEVICE void copy_words(const hy_gpu_walk& w) {
  GRID_STRIDE(i, w.n) {
    i64 at[2];
    walk_offsets<2>(w, (I)i, at);
    ((W*)w.data[0])[at[0]] = ((const W*)w.data[1])[at[1]];
  }
}

#define AS_KERNEL(name, type)                    \
  KERNEL void copy_##name(const hy_gpu_walk w) { \
    if (w.n < 0x80000000ll)                      \
      copy_words<type, u32>(w);                  \
    else                                         \
      copy_words<type, i64>(w);                  \
  }
AS_KERNEL(1, u8)
AS_KERNEL(2, u16)
AS_KERNEL(4, u32)
AS_KERNEL(8, u64)
#undef AS_KERNEL

// The matrix w[rows, columns] whose columns are adjacent in one tensor and whose rows are adjacent in the
// other, batch by batch, through tiles of shared memory, so that both sides move whole sectors.
enum { TILE = 32, TILE_ROWS = 8 };
template <class W>
DEVICE void transpose_words(const hy_gpu_walk& w) {
  __shared__ W tile[TILE][TILE + 1];
  i64 rows = w.shape[w.ndim - 2], columns = w.shape[w.ndim - 1], to = 0, from = 0;
  i64 batch = blockIdx.z;
  for (int d = w.ndim - 3; d >= 0; d--) {
    to += batch % w.shape[d] * w.stride[0][d];
    from += batch % w.shape[d] * w.stride[1][d];
    batch /= w.shape[d];
  }
  W* out = (W*)w.data[0] + to;
  const W* x = (const W*)w.data[1] + from;
  i64 row0 = (i64)blockIdx.y * TILE, column0 = (i64)blockIdx.x * TILE;
  // x is close along the rows, the output along the columns.
  for (int k = threadIdx.y; k < TILE; k += TILE_ROWS) {
    i64 r = row0 + threadIdx.x, c = column0 + k;
    if (r < rows && c < columns)
      tile[k][threadIdx.x] = x[r * w.stride[1][w.ndim - 2] + c * w.stride[1][w.ndim - 1]];
  }
  __syncthreads();
  for (int k = threadIdx.y; k < TILE; k += TILE_ROWS) {
    i64 r = row0 + k, c = column0 + threadIdx.x;
    if (r < rows && c < columns)
      out[r * w.stride[0][w.ndim - 2] + c * w.stride[0][w.ndim - 1]] = tile[threadIdx.x][k];
  }
}

#define AS_KERNEL(name, type)                         \
  KERNEL void transpose_##name(const hy_gpu_walk w) { \
    transpose_words<type>(w);                         \
  }
AS_KERNEL(1, u8)
AS_KERNEL(2, u16)
AS_KERNEL(4, u32)
AS_KERNEL(8, u64)
#undef AS_KERNEL

// Four neighbours from either half of the tensor, so that what a warp reads or writes at once has no
// gaps.
template <class To, class From>
DEVICE void convert_linear(To* out, const From* x, i64 n) {
  enum { N = 4 };
  typedef vec<From, N> line;
  const i64 lines = n / N, half = (lines + 1) / 2;
  GRID_STRIDE(i, half) {
    line a[2];
    a[0] = ((const line*)x)[i];
    if (i + half < lines) a[1] = ((const line*)x)[i + half];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      if (i + j * half >= lines) break;
      vec<To, N> b;
#pragma unroll
      for (int k = 0; k < N; k++) b.at[k] = from<To>(to<f32>(a[j].at[k]));
      ((vec<To, N>*)out)[i + j * half] = b;
    }
  }
  const i64 at = lines * N + (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) out[at] = from<To>(to<f32>(x[at]));
}

#define AS_KERNEL(from, to)                                             \
  KERNEL void convert_##from##_##to(to* out, const from* x, i64 n) {    \
    convert_linear<to, from>(out, x, n);                                \
  }
AS_KERNEL(f32, f16)
AS_KERNEL(f32, bf16)
AS_KERNEL(f16, f32)
AS_KERNEL(bf16, f32)
AS_KERNEL(f16, bf16)
AS_KERNEL(bf16, f16)
#undef AS_KERNEL

DEVICE bool is_float(int dtype) {
  return dtype <= DT_BF16 || dtype >= DT_F8E4M3;
}

// From one type to another, `data` to `data`: floats through f64 where one is, f32 otherwise.
DEVICE void convert_one(int to_type, char* out, i64 to_at, int from_type, const char* x, i64 at) {
  if (!is_float(from_type))
    store_any(to_type, out, to_at, load_any<i64>(from_type, x, at));
  else if (from_type == DT_F64)
    store_any(to_type, out, to_at, ((const f64*)x)[at]);
  else
    store_any(to_type, out, to_at, load_any<f32>(from_type, x, at));
}

// By way of the type `via`, which the output's is when it is no other.
KERNEL void convert_any(const hy_gpu_walk w, int via) {
  GRID_STRIDE(i, w.n) {
    i64 at[2];
    if (w.n < 0x80000000ll)
      walk_offsets<2>(w, (u32)i, at);
    else
      walk_offsets<2>(w, i, at);
    if (via == w.dtype[0]) {
      convert_one(via, w.data[0], at[0], w.dtype[1], w.data[1], at[1]);
    } else {
      i64 held = 0;
      convert_one(via, (char*)&held, 0, w.dtype[1], w.data[1], at[1]);
      convert_one(w.dtype[0], w.data[0], at[0], via, (const char*)&held, 0);
    }
  }
}

// ---- Tensors made from a number ----

DEVICE void put_number(int dtype, char* data, i64 at, f64 f, i64 i, bool in_float) {
  if (in_float)
    store_any(dtype, data, at, f);
  else
    store_any(dtype, data, at, i);
}

KERNEL void fill_any(const hy_gpu_walk w, f64 f, i64 i, int in_float) {
  GRID_STRIDE(e, w.n) {
    i64 at[1];
    walk_offsets<1>(w, e, at);
    put_number(w.dtype[0], w.data[0], at[0], f, i, in_float);
  }
}

// Contiguous memory in words of 16 bytes that repeat the element.
KERNEL void fill_linear(vec<u64, 2>* out, i64 words, int dtype, i64 bytes, f64 f, i64 i,
                        int in_float) {
  u64 pattern = 0;
  put_number(dtype, (char*)&pattern, 0, f, i, in_float);
  for (int bits = (int)bytes * 8; bits < 64; bits *= 2) pattern |= pattern << bits;
  vec<u64, 2> both = {{pattern, pattern}};
  GRID_STRIDE(e, words) out[e] = both;
}

KERNEL void arange(const hy_gpu_walk w, f64 start_f, f64 step_f, i64 start_i, i64 step_i) {
  i64 stride = w.stride[0][0];
  GRID_STRIDE(i, w.n) {
    if (is_float(w.dtype[0]))
      store_any(w.dtype[0], w.data[0], i * stride, __dadd_rn(start_f, __dmul_rn((f64)i, step_f)));
    else
      store_any(w.dtype[0], w.data[0], i * stride, (i64)((u64)start_i + (u64)i * (u64)step_i));
  }
}
