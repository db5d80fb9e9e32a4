// Layer norm and rms norm over rows, and their gradients. A block has a row; what it reads again comes
// from the caches. T is the type of x; statistics have the type of computation.
//
// types: f32 f64 f16 bf16

typedef traits<T>::math M;
enum { N = lanes16<T>::n };
typedef vec<T, N> V;

DEVICE M parameter(const char* p, bool wide, i64 i) {
  return wide ? ((const M*)p)[i] : to<M>(((const T*)p)[i]);
}

// Calls f(index, value) for each element of the row that this thread has.
template <class F>
DEVICE void each(const T* row, i64 columns, bool vectors, F f) {
  if (vectors) {
    for (i64 i = threadIdx.x; i < columns / N; i += blockDim.x) {
      V a = ((const V*)row)[i];
#pragma unroll
      for (int k = 0; k < N; k++) f(i * N + k, to<M>(a.at[k]));
    }
  } else {
    for (i64 i = threadIdx.x; i < columns; i += blockDim.x) f(i, to<M>(row[i]));
  }
}
// The same, and writes what f gives.
template <class F>
DEVICE void each_to(T* out, const T* row, i64 columns, bool vectors, F f) {
  if (vectors) {
    for (i64 i = threadIdx.x; i < columns / N; i += blockDim.x) {
      V a = ((const V*)row)[i];
#pragma unroll
      for (int k = 0; k < N; k++) a.at[k] = from<T>(f(i * N + k, to<M>(a.at[k])));
      ((V*)out)[i] = a;
    }
  } else {
    for (i64 i = threadIdx.x; i < columns; i += blockDim.x) out[i] = from<T>(f(i, to<M>(row[i])));
  }
}

KERNEL void norm_forward(const hy_gpu_norm p) {
  __shared__ M partial[32];
  for (i64 r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const T* x = (const T*)p.x + r * p.columns;
    M mean = 0, squares = 0;
    if (p.centred) {
      each(x, p.columns, p.vectors, [&](i64, M v) { mean += v; });
      mean = block_reduce<add_op>(mean, partial) / (M)p.columns;
    }
    each(x, p.columns, p.vectors, [&](i64, M v) { squares += (v - mean) * (v - mean); });
    M scale = 1 / m_sqrt(block_reduce<add_op>(squares, partial) / (M)p.columns + (M)p.eps);
    each_to((T*)p.out + r * p.columns, x, p.columns, p.vectors, [&](i64 i, M v) {
      M w = p.weight ? parameter(p.weight, p.wide & 1, i) : (M)1;
      M b = p.bias ? parameter(p.bias, p.wide & 2, i) : (M)0;
      return (v - mean) * scale * w + b;
    });
    if (threadIdx.x == 0) {
      if (p.mean) ((M*)p.mean)[r] = mean;
      if (p.rstd) ((M*)p.rstd)[r] = scale;
    }
  }
}

// The same for rows that a warp holds in registers, HELD vectors a lane: x is read once, all of a row
// is under way at once, and no warp waits for another.
enum { HELD = 16 };
KERNEL void __launch_bounds__(128) norm_forward_held(const hy_gpu_norm p) {
  const int lane = threadIdx.x % HY_WARP, vectors = (int)(p.columns / N);
  const i64 warps = (i64)gridDim.x * (blockDim.x / HY_WARP);
  for (i64 r = (i64)blockIdx.x * (blockDim.x / HY_WARP) + threadIdx.x / HY_WARP; r < p.rows;
       r += warps) {
    const V* x = (const V*)((const T*)p.x + r * p.columns);
    V* out = (V*)((T*)p.out + r * p.columns);
    V held[HELD];
#pragma unroll
    for (int h = 0; h < HELD; h++)
      if (h * HY_WARP + lane < vectors) held[h] = x[h * HY_WARP + lane];
    M mean = 0, squares = 0;
    if (p.centred) {
#pragma unroll
      for (int h = 0; h < HELD; h++)
        if (h * HY_WARP + lane < vectors)
#pragma unroll
          for (int k = 0; k < N; k++) mean += to<M>(held[h].at[k]);
      mean = warp_reduce<add_op>(mean) / (M)p.columns;
    }
#pragma unroll
    for (int h = 0; h < HELD; h++)
      if (h * HY_WARP + lane < vectors)
#pragma unroll
        for (int k = 0; k < N; k++) {
          M v = to<M>(held[h].at[k]) - mean;
          squares += v * v;
        }
    M scale = 1 / m_sqrt(warp_reduce<add_op>(squares) / (M)p.columns + (M)p.eps);
#pragma unroll
    for (int h = 0; h < HELD; h++) {
      int i = h * HY_WARP + lane;
      if (i >= vectors) break;
      V w, b;
      if (p.weight) w = ((const V*)p.weight)[i];
      if (p.bias) b = ((const V*)p.bias)[i];
#pragma unroll
      for (int k = 0; k < N; k++) {
        M v = (to<M>(held[h].at[k]) - mean) * scale;
        if (p.weight) v *= to<M>(w.at[k]);
        if (p.bias) v += to<M>(b.at[k]);
        held[h].at[k] = from<T>(v);
      }
      out[i] = held[h];
    }
    if (lane == 0) {
      if (p.mean) ((M*)p.mean)[r] = mean;
      if (p.rstd) ((M*)p.rstd)[r] = scale;
    }
  }
}

// With h = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - h mean(g h)), where an rms norm has
// neither mean.
KERNEL void norm_backward(const hy_gpu_norm p) {
  __shared__ M partial[32];
  for (i64 r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const T *x = (const T*)p.x + r * p.columns, *dy = (const T*)p.dy + r * p.columns;
    M mean = p.centred ? ((const M*)p.mean)[r] : (M)0, scale = ((const M*)p.rstd)[r];
    M sum_g = 0, sum_gh = 0;
    each(x, p.columns, p.vectors, [&](i64 i, M v) {
      M g = to<M>(dy[i]) * (p.weight ? parameter(p.weight, p.wide & 1, i) : (M)1);
      if (p.centred) sum_g += g;
      sum_gh += g * ((v - mean) * scale);
    });
    sum_g = p.centred ? block_reduce<add_op>(sum_g, partial) / (M)p.columns : (M)0;
    sum_gh = block_reduce<add_op>(sum_gh, partial) / (M)p.columns;
    each_to((T*)p.out + r * p.columns, x, p.columns, p.vectors, [&](i64 i, M v) {
      M g = to<M>(dy[i]) * (p.weight ? parameter(p.weight, p.wide & 1, i) : (M)1);
      return scale * (g - sum_g - (v - mean) * scale * sum_gh);
    });
  }
}

// dw = sum(dy h) and db = sum(dy) over the rows of a split, a thread for each column.
KERNEL void norm_parameters(const hy_gpu_norm p) {
  i64 part = (p.rows + p.splits - 1) / p.splits, first = blockIdx.y * part;
  i64 last = first + part < p.rows ? first + part : p.rows;
  GRID_STRIDE(i, p.columns) {
    M dw = 0, db = 0;
    for (i64 r = first; r < last; r++) {
      M g = to<M>(((const T*)p.dy)[r * p.columns + i]);
      M v = to<M>(((const T*)p.x)[r * p.columns + i]);
      M mean = p.centred ? ((const M*)p.mean)[r] : (M)0;
      dw += g * ((v - mean) * ((const M*)p.rstd)[r]);
      db += g;
    }
    i64 at = (i64)blockIdx.y * p.columns + i;
    if (p.partial_weight) ((M*)p.partial_weight)[at] = dw;
    if (p.partial_bias) ((M*)p.partial_bias)[at] = db;
  }
}
