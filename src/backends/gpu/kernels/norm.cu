// Layer norm and rms norm over rows, and their gradients. T is the type of x; statistics have the type
// of computation. The _held kernels keep a row in registers, and norm_of_warp gives many short rows a
// warp each, which waits for no other. The rest are for rows that are too long or do not fall into
// vectors: a block has a row, and what it reads again comes from the caches.
//
// types: f32 f64 f16 bf16

#include "dependent.cuh"
#include "rows.cuh"

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

// Where all of a row is far from 0, f64 shows how its mean was rounded: what that left off is kept.
enum { CORRECTS = same<M, f64>::value };

KERNEL void norm_forward(const hy_gpu_norm p) {
  __shared__ M partial[32];
  for (i64 r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const T* x = (const T*)p.x + r * p.columns;
    M mean = 0, rest = 0, squares = 0;
    if (p.centred) {
      each(x, p.columns, p.vectors, [&](i64, M v) { mean += v; });
      mean = block_reduce<add_op>(mean, partial) / (M)p.columns;
      if (CORRECTS) {
        each(x, p.columns, p.vectors, [&](i64, M v) { rest += v - mean; });
        rest = block_reduce<add_op>(rest, partial) / (M)p.columns;
      }
    }
    each(x, p.columns, p.vectors, [&](i64, M v) {
      M h = v - mean - rest;
      squares += h * h;
    });
    M scale = 1 / m_sqrt(block_reduce<add_op>(squares, partial) / (M)p.columns + (M)p.eps);
    each_to((T*)p.out + r * p.columns, x, p.columns, p.vectors, [&](i64 i, M v) {
      M w = p.weight ? parameter(p.weight, p.wide & 1, i) : (M)1;
      M b = p.bias ? parameter(p.bias, p.wide & 2, i) : (M)0;
      return (v - mean - rest) * scale * w + b;
    });
    if (threadIdx.x == 0) {
      if (p.mean) ((M*)p.mean)[r] = mean + rest;
      if (p.rstd) ((M*)p.rstd)[r] = scale;
    }
  }
}

// N parameters as numbers to compute with, the row's i-th vector of them.
struct numbers {
  M at[N];
};
DEVICE numbers as_numbers(const words& w) {
  numbers n;
#pragma unroll
  for (int k = 0; k < N; k++) n.at[k] = element(w, k);
  return n;
}
DEVICE numbers parameters(const char* p, bool wide, int i, M absent) {
  numbers n;
  if (!p) {
#pragma unroll
    for (int k = 0; k < N; k++) n.at[k] = absent;
  } else if (wide) {
    enum { NM = lanes16<M>::n };
#pragma unroll
    for (int k = 0; k < N; k += NM) {
      vec<M, NM> v = ((const vec<M, NM>*)p)[(i * N + k) / NM];
#pragma unroll
      for (int j = 0; j < NM; j++) n.at[k + j] = v.at[j];
    }
  } else {
    n = as_numbers(load_words(p, i));
  }
  return n;
}

struct moments {
  M mean, rest, scale;
};
// Of the row that the line holds; `partial` is for lines of several warps.
template <int HELD>
DEVICE moments moments_of(const hy_gpu_norm& p, const words (&held)[HELD], int vectors,
                          M (*partial)[32]) {
  M mean = 0, rest = 0, squares = 0;
  if (p.centred) {
    each_held(held, vectors, [&](M v) { mean += v; });
    mean = row_reduce<add_op>(mean, partial[0]) / (M)p.columns;
    if (CORRECTS) {
      each_held(held, vectors, [&](M v) { rest += v - mean; });
      rest = row_reduce<add_op>(rest, partial[2]) / (M)p.columns;
    }
  }
  each_held(held, vectors, [&](M v) {
    M h = v - mean - rest;
    squares += h * h;
  });
  squares = row_reduce<add_op>(squares, partial[1]);
  return moments{mean, rest, 1 / m_sqrt(squares / (M)p.columns + (M)p.eps)};
}

// Row r normalised, where of(h, i, w, b) gives the parameters of the thread's h-th vector.
template <int HELD, class F>
DEVICE void write_row(const hy_gpu_norm& p, i64 r, const words (&held)[HELD], int vectors,
                      const moments& m, F of) {
  V* out = (V*)((T*)p.out + r * p.columns);
  each_vector<HELD>(vectors, [&](int h, int i) {
    numbers w, b;
    V y;
    of(h, i, w, b);
#pragma unroll
    for (int k = 0; k < N; k++)
      y.at[k] = from<T>((element(held[h], k) - m.mean - m.rest) * m.scale * w.at[k] + b.at[k]);
    out[i] = y;
  });
  if (threadIdx.x == 0) {
    if (p.mean) ((M*)p.mean)[r] = m.mean + m.rest;
    if (p.rstd) ((M*)p.rstd)[r] = m.scale;
  }
}

enum { HELD = 4 };
KERNEL void __launch_bounds__(1024) norm_forward_held(const hy_gpu_norm p) {
  __shared__ M partial[3][32];
  const i64 r = row_of_line();
  const int vectors = (int)(p.columns / N);
  launch_dependents();
  // For a decoding step; of many rows the first brings the weights into the caches for all.
  if (p.weight && p.rows <= 64 && (int)threadIdx.x < vectors)
    prefetch(p.weight + threadIdx.x * (p.wide & 1 ? N * sizeof(M) : sizeof(V)));
  wait_for_previous();
  if (r >= p.rows) return;
  words held[HELD];
  load_row(held, (const T*)p.x + r * p.columns, vectors);
  const moments m = moments_of(p, held, vectors, partial);
  const bool has_weight = p.weight && !(p.wide & 1), has_bias = p.bias && !(p.wide & 2);
  write_row(p, r, held, vectors, m, [&](int, int i, numbers& w, numbers& b) {
    // Both under way before either is unpacked.
    words weight, bias;
    if (has_weight) weight = load_words(p.weight, i);
    if (has_bias) bias = load_words(p.bias, i);
    w = has_weight ? as_numbers(weight) : parameters(p.weight, p.wide & 1, i, 1);
    b = has_bias ? as_numbers(bias) : parameters(p.bias, p.wide & 2, i, 0);
  });
}

// Short rows, a warp each, with the weight under way beside x.
KERNEL void __launch_bounds__(128, 7) norm_of_warp(const hy_gpu_norm p) {
  const i64 r = row_of_line();
  const int vectors = (int)(p.columns / N);
  launch_dependents();
  if (r >= p.rows) return;
  words held[HELD], weight[HELD];
  const bool has_weight = p.weight && !(p.wide & 1);
  load_row(held, (const T*)p.x + r * p.columns, vectors);
  if (has_weight) load_row(weight, p.weight, vectors);
  const moments m = moments_of(p, held, vectors, (M(*)[32])0);
  write_row(p, r, held, vectors, m, [&](int h, int i, numbers& w, numbers& b) {
    w = has_weight ? as_numbers(weight[h]) : parameters(p.weight, p.wide & 1, i, 1);
    b = parameters(p.bias, p.wide & 2, i, 0);
  });
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

// All of x, dy and the weight is under way at once, and both sums meet at one barrier. 768 threads leave
// a thread 80 registers: six blocks of 128 on a multiprocessor.
enum { BACKWARD_THREADS = 768 };
KERNEL void __launch_bounds__(BACKWARD_THREADS) norm_backward_held(const hy_gpu_norm p) {
  __shared__ M partial[2][32];
  const i64 r = row_of_line();
  if (r >= p.rows) return;
  const int vectors = (int)(p.columns / N);
  words x[HELD], dy[HELD], weight[HELD];
  const bool has_weight = p.weight && !(p.wide & 1);
  load_row(x, (const T*)p.x + r * p.columns, vectors);
  load_row(dy, (const T*)p.dy + r * p.columns, vectors);
  if (has_weight) load_row(weight, p.weight, vectors);
  const M mean = p.centred ? ((const M*)p.mean)[r] : (M)0, scale = ((const M*)p.rstd)[r];
  auto of = [&](int h, int i) {
    return has_weight ? as_numbers(weight[h]) : parameters(p.weight, p.wide & 1, i, 1);
  };
  M sum_g = 0, sum_gh = 0;
  each_vector<HELD>(vectors, [&](int h, int i) {
    const numbers w = of(h, i);
#pragma unroll
    for (int k = 0; k < N; k++) {
      M g = element(dy[h], k) * w.at[k];
      sum_g += g;
      sum_gh += g * ((element(x[h], k) - mean) * scale);
    }
  });
  row_reduce_two<add_op>(&sum_g, &sum_gh, partial);
  sum_g = p.centred ? sum_g / (M)p.columns : (M)0;
  sum_gh /= (M)p.columns;
  V* out = (V*)((T*)p.out + r * p.columns);
  each_vector<HELD>(vectors, [&](int h, int i) {
    const numbers w = of(h, i);
    V dx;
#pragma unroll
    for (int k = 0; k < N; k++) {
      M g = element(dy[h], k) * w.at[k];
      dx.at[k] = from<T>(scale * (g - sum_g - (element(x[h], k) - mean) * scale * sum_gh));
    }
    out[i] = dx;
  });
}

// dw = sum(dy h) and db = sum(dy) over the rows of a split, a thread for each W columns; AHEAD rows are
// in flight.
template <int W>
DEVICE void sum_parameters(const hy_gpu_norm& p) {
  enum { AHEAD = 4 };
  typedef vec<T, W> VW;
  const i64 part = (p.rows + p.splits - 1) / p.splits, first = blockIdx.y * part;
  const i64 last = first + part < p.rows ? first + part : p.rows, step = p.columns / W;
  GRID_STRIDE(i, step) {
    M dw[W], db[W];
#pragma unroll
    for (int k = 0; k < W; k++) dw[k] = db[k] = 0;
    for (i64 r = first; r < last; r += AHEAD) {
      VW x[AHEAD], dy[AHEAD];
      M mean[AHEAD], scale[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        if (r + u >= last) break;
        x[u] = ((const VW*)p.x)[(r + u) * step + i];
        dy[u] = ((const VW*)p.dy)[(r + u) * step + i];
        mean[u] = p.centred ? ((const M*)p.mean)[r + u] : (M)0;
        scale[u] = ((const M*)p.rstd)[r + u];
      }
#pragma unroll
      for (int u = 0; u < AHEAD; u++) {
        if (r + u >= last) break;
#pragma unroll
        for (int k = 0; k < W; k++) {
          M g = to<M>(dy[u].at[k]);
          dw[k] += g * ((to<M>(x[u].at[k]) - mean[u]) * scale[u]);
          db[k] += g;
        }
      }
    }
    const i64 at = (i64)blockIdx.y * p.columns + i * W;
#pragma unroll
    for (int k = 0; k < W; k++) {
      if (p.partial_weight) ((M*)p.partial_weight)[at + k] = dw[k];
      if (p.partial_bias) ((M*)p.partial_bias)[at + k] = db[k];
    }
  }
}
KERNEL void norm_parameters(const hy_gpu_norm p) { sum_parameters<1>(p); }
KERNEL void norm_parameters_vectors(const hy_gpu_norm p) { sum_parameters<N>(p); }
