// Batch norm over contiguous [outer, channels, inner], channel by channel: statistics by Welford's
// recurrence in parts that meet in a fixed order, then one elementwise pass.
//
// types: f32 f64 f16 bf16

typedef traits<T>::math M;

// Mean, sum of squares around it, and number of elements.
struct moments {
  M mean, squares, n;
};
DEVICE moments joined(moments a, moments b) {
  if (b.n == 0) return a;
  M n = a.n + b.n, delta = b.mean - a.mean;
  return moments{a.mean + delta * (b.n / n), a.squares + b.squares + delta * delta * (a.n * b.n / n),
                 n};
}

DEVICE moments joined_in_block(moments m) {
  __shared__ M parts[32][3];
  for (int delta = HY_WARP / 2; delta > 0; delta /= 2)
    m = joined(m, moments{SHFL_DOWN(m.mean, delta), SHFL_DOWN(m.squares, delta),
                          SHFL_DOWN(m.n, delta)});
  int warp = threadIdx.x / HY_WARP, warps = blockDim.x / HY_WARP;
  if (threadIdx.x % HY_WARP == 0) {
    parts[warp][0] = m.mean;
    parts[warp][1] = m.squares;
    parts[warp][2] = m.n;
  }
  __syncthreads();
  m = moments{parts[0][0], parts[0][1], parts[0][2]};
  for (int w = 1; w < warps; w++) m = joined(m, moments{parts[w][0], parts[w][1], parts[w][2]});
  __syncthreads();
  return m;
}

// The part of a channel that block (split, channel) has.
struct part {
  i64 first, last;
};
DEVICE part part_of(const hy_gpu_batch_norm& p) {
  i64 n = p.outer * p.inner, size = (n + p.splits - 1) / p.splits, first = blockIdx.x * size;
  return part{first, first + size < n ? first + size : n};
}
// Element i of channel c.
DEVICE i64 element(const hy_gpu_batch_norm& p, i64 c, i64 i) {
  i64 o = (u64)i < 0x100000000ull ? (i64)((u32)i / (u32)p.inner) : i / p.inner;
  return (o * p.channels + c) * p.inner + (i - o * p.inner);
}
DEVICE M vector(const hy_gpu_view& v, i64 c, M otherwise) {
  return v.data ? load_any<M>(v.dtype, v.data, c * v.stride[0]) : otherwise;
}
DEVICE void put(const hy_gpu_view& v, i64 c, M value) {
  if (v.data) store_any(v.dtype, v.data, c * v.stride[0], value);
}

KERNEL void batch_moments(const hy_gpu_batch_norm p) {
  for (i64 c = blockIdx.y; c < p.channels; c += gridDim.y) {
    part a = part_of(p);
    moments m = {0, 0, 0};
    for (i64 i = a.first + threadIdx.x; i < a.last; i += blockDim.x) {
      M x = to<M>(((const T*)p.x)[element(p, c, i)]), delta = x - m.mean;
      m.n += 1;
      m.mean += delta / m.n;
      m.squares += delta * (x - m.mean);
    }
    m = joined_in_block(m);
    M* to_part = (M*)p.partial + (c * p.splits + blockIdx.x) * 3;
    if (threadIdx.x == 0) {
      to_part[0] = m.mean;
      to_part[1] = m.squares;
      to_part[2] = m.n;
    }
  }
}

DEVICE moments channel_moments(const hy_gpu_batch_norm& p, i64 c) {
  moments m = {0, 0, 0};
  for (i64 s = 0; s < p.splits; s++) {
    const M* a = (const M*)p.partial + (c * p.splits + s) * 3;
    m = s == 0 ? moments{a[0], a[1], a[2]} : joined(m, moments{a[0], a[1], a[2]});
  }
  return m;
}

// Mean and 1 / sqrt(var + eps) of each channel into the first two of its part's three numbers.
KERNEL void batch_statistics(const hy_gpu_batch_norm p) {
  GRID_STRIDE(c, p.channels) {
    M mean = vector(p.mean, c, 0), var = vector(p.var, c, 1);
    if (p.training) {
      moments m = channel_moments(p, c);
      mean = m.mean;
      var = m.squares / m.n;
    }
    M scale = 1 / m_sqrt(var + (M)p.eps);
    M* a = (M*)p.partial + c * p.splits * 3;
    a[0] = mean;
    a[1] = scale;
    put(p.out_mean, c, mean);
    put(p.out_var, c, scale);
  }
}

KERNEL void batch_normalize(const hy_gpu_batch_norm p) {
  GRID_STRIDE(i, p.outer * p.channels * p.inner) {
    i64 c = i / p.inner % p.channels;
    const M* a = (const M*)p.partial + c * p.splits * 3;
    M x = to<M>(((const T*)p.x)[i]);
    ((T*)p.out)[i] = from<T>((x - a[0]) * a[1] * vector(p.weight, c, 1) + vector(p.bias, c, 0));
  }
}

// Running statistics move towards the batch's; the variance they keep divides by n - 1.
KERNEL void batch_update(const hy_gpu_batch_norm p) {
  GRID_STRIDE(c, p.channels) {
    moments m = channel_moments(p, c);
    M momentum = (M)p.momentum, unbiased = m.squares / m.n * m.n / (m.n - 1);
    M mean = vector(p.mean, c, 0), var = vector(p.var, c, 1);
    put(p.out_mean, c, (1 - momentum) * mean + momentum * m.mean);
    put(p.out_var, c, (1 - momentum) * var + momentum * unbiased);
  }
}

// With h = (x - mean) rstd: dw = sum(dy h), db = sum(dy).
KERNEL void batch_gradient_sums(const hy_gpu_batch_norm p) {
  __shared__ M partial[32];
  for (i64 c = blockIdx.y; c < p.channels; c += gridDim.y) {
    part a = part_of(p);
    M centre = vector(p.mean, c, 0), scale = vector(p.var, c, 1), dw = 0, db = 0;
    for (i64 i = a.first + threadIdx.x; i < a.last; i += blockDim.x) {
      i64 at = element(p, c, i);
      M g = to<M>(((const T*)p.dy)[at]);
      dw += g * ((to<M>(((const T*)p.x)[at]) - centre) * scale);
      db += g;
    }
    dw = block_reduce<add_op>(dw, partial);
    db = block_reduce<add_op>(db, partial);
    M* to_part = (M*)p.partial + (c * p.splits + blockIdx.x) * 3;
    if (threadIdx.x == 0) {
      to_part[0] = dw;
      to_part[1] = db;
    }
  }
}

KERNEL void batch_gradients(const hy_gpu_batch_norm p) {
  GRID_STRIDE(c, p.channels) {
    M dw = 0, db = 0;
    M* a = (M*)p.partial + c * p.splits * 3;
    for (i64 s = 0; s < p.splits; s++) {
      dw += a[s * 3];
      db += a[s * 3 + 1];
    }
    a[0] = dw;
    a[1] = db;
    put(p.out_mean, c, dw);
    put(p.out_var, c, db);
  }
}

// dx = w rstd (dy - (db + h dw) / n) when the statistics were the batch's, w rstd dy otherwise.
KERNEL void batch_backward(const hy_gpu_batch_norm p) {
  M n = (M)(p.outer * p.inner);
  GRID_STRIDE(i, p.outer * p.channels * p.inner) {
    i64 c = i / p.inner % p.channels;
    const M* a = (const M*)p.partial + c * p.splits * 3;
    M scale = vector(p.var, c, 1), g = to<M>(((const T*)p.dy)[i]);
    M h = (to<M>(((const T*)p.x)[i]) - vector(p.mean, c, 0)) * scale;
    M shared_slope = p.training ? (a[1] + h * a[0]) / n : (M)0;
    ((T*)p.out)[i] = from<T>(vector(p.weight, c, 1) * scale * (g - shared_slope));
  }
}
