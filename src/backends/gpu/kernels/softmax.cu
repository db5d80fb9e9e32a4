// Softmax, its logarithm and their gradients, over contiguous [outer, length, inner]; cross entropy.
//
// A lane is kept in registers by a block or a warp, belongs to a block (long ones, by the online
// recurrence of maximum and sum, so that x is read twice), or, where neighbours of a lane are apart,
// to a thread, so that threads read neighbouring lanes.
//
// types: f32 f64 f16 bf16

#include "dependent.cuh"
#include "rows.cuh"
#include "tensor_core.cuh"

DEVICE M lowest() {
  return -(M)INF_F32;
}

// The maximum so far, and the sum of exp(x - maximum).
struct online {
  M most, sum;
};
DEVICE online with(online s, M x) {
  if (x <= s.most) {
    s.sum += m_exp(x - s.most);
  } else if (is_nan(x) || is_nan(s.most)) {
    s.most = x + s.most;
    s.sum = s.most;
  } else {
    s.sum = (s.most == lowest() ? (M)0 : s.sum * m_exp(s.most - x)) + 1;
    s.most = x;
  }
  return s;
}
// An infinite maximum subtracted from itself is no number, and so is the sum.
DEVICE online settled(online s) {
  return online{s.most, s.sum + (s.most - s.most)};
}

// What all threads of a block have: the maximum first, so that each scales its sum once.
DEVICE online joined_in_block(online s) {
  __shared__ M partial[2][32];
  const M most = block_reduce<max_op>(s.most, partial[0]);  // NaN wins
  const M scaled = s.most == lowest() ? (M)0 : s.sum * m_exp(s.most - most);
  const M sum = block_reduce<add_op>(most == lowest() ? s.sum : scaled, partial[1]);
  return online{most, is_nan(most) ? most : sum};
}

// exp where the result is rounded to half a float anyway.
DEVICE M quick_exp(M x) { return sizeof(T) == 2 ? (M)__expf((f32)x) : m_exp(x); }

// The maximum where NaN loses: it turns up again in the sum of exponentials.
struct number_max {
  DEVICE_MEMBER f32 of(f32 a, f32 b) { return fmaxf(a, b); }
  DEVICE_MEMBER f64 of(f64 a, f64 b) { return fmax(a, b); }
};

// A batch of a lane's vectors, those that `there` says: the sum is scaled once for all.
template <int AHEAD>
DEVICE online with_batch(online s, const V (&v)[AHEAD], const bool (&there)[AHEAD]) {
  M most = s.most;
#pragma unroll
  for (int u = 0; u < AHEAD; u++)
    if (there[u])
#pragma unroll
      for (int k = 0; k < N; k++) most = number_max::of(most, to<M>(v[u].at[k]));
  if (most > s.most) {
    if (s.most != lowest()) s.sum *= m_exp(s.most - most);
    s.most = most;
  }
  const M shift = most == lowest() ? (M)0 : most;
  M sum[2] = {s.sum, 0};
#pragma unroll
  for (int u = 0; u < AHEAD; u++)
    if (there[u])
#pragma unroll
      for (int k = 0; k < N; k++) sum[k % 2] += quick_exp(to<M>(v[u].at[k]) - shift);
  s.sum = sum[0] + sum[1];
  return s;
}

// With vectors first, first + blockDim.x, ... below n, AHEAD of them in flight.
template <int AHEAD>
DEVICE online with_vectors(online s, const V* x, int first, int n) {
  const int step = (int)blockDim.x;
  for (; first < n; first += AHEAD * step) {
    V v[AHEAD];
    bool there[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      there[u] = first + u * step < n;
      if (there[u]) v[u] = x[first + u * step];
    }
    s = with_batch<AHEAD>(s, v, there);
  }
  return s;
}
// What a block has of a lane that its threads have the vectors of.
DEVICE online joined_vectors(online s) {
  if (is_nan(s.sum)) s.most = s.sum;
  return settled(joined_in_block(s));
}

// Maximum and sum of a lane that a whole block has; vectors where they fit.
template <int AHEAD>
DEVICE online measure(const T* x, i64 length, i64 inner, bool vectors) {
  online s = {lowest(), 0};
  if (vectors)
    return joined_vectors(
        with_vectors<AHEAD>(s, (const V*)x, (int)threadIdx.x, (int)(length / N)));
  for (i64 i = threadIdx.x; i < length; i += blockDim.x) s = with(s, to<M>(x[i * inner]));
  return settled(joined_in_block(s));
}

DEVICE M softmax_value(M x, online s, M log_sum, bool log_form) {
  return log_form ? x - s.most - log_sum : m_exp(x - s.most) / s.sum;
}

KERNEL void __launch_bounds__(1024) softmax_block(T* out, const T* x, i64 lanes, i64 length,
                                                  i64 inner, int log_form, int vectors) {
  for (i64 lane = blockIdx.x; lane < lanes; lane += gridDim.x) {
    i64 base = lane / inner * length * inner + lane % inner;
    online s = measure<4>(x + base, length, inner, vectors);
    M log_sum = log_form ? m_log(s.sum) : (M)0;
    if (vectors) {
      for (i64 i = threadIdx.x; i < length / N; i += blockDim.x) {
        V a = ((const V*)(x + base))[i];
#pragma unroll
        for (int k = 0; k < N; k++)
          a.at[k] = from<T>(softmax_value(to<M>(a.at[k]), s, log_sum, log_form));
        ((V*)(out + base))[i] = a;
      }
    } else {
      for (i64 i = threadIdx.x; i < length; i += blockDim.x)
        out[base + i * inner] =
            from<T>(softmax_value(to<M>(x[base + i * inner]), s, log_sum, log_form));
    }
  }
}

enum { HELD = 4 };
KERNEL void __launch_bounds__(1024) softmax_held(T* out, const T* x, i64 lanes, i64 length,
                                                 int log_form) {
  __shared__ M partial[2][32];
  const i64 lane = row_of_line();
  if (lane >= lanes) return;
  const int vectors = (int)(length / N);
  V held[HELD];
  load_row(held, x + lane * length, vectors);
  M most = lowest(), sum = 0;
  each_held(held, vectors, [&](M v) { most = number_max::of(most, v); });
  most = row_reduce<number_max>(most, partial[0]);
  const bool keeps = sizeof(T) == sizeof(M) && !log_form;  // the exponentials, in place
  each_vector<HELD>(vectors, [&](int h, int) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      M e = quick_exp(to<M>(held[h].at[k]) - most);
      if (keeps) held[h].at[k] = from<T>(e);
      sum += e;
    }
  });
  sum = row_reduce<add_op>(sum, partial[1]);
  const M by = log_form ? m_log(sum) : 1 / sum;
  each_vector<HELD>(vectors, [&](int h, int i) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      M v = to<M>(held[h].at[k]);
      v = log_form ? v - most - by : (keeps ? v : quick_exp(v - most)) * by;
      held[h].at[k] = from<T>(v);
    }
    ((V*)(out + lane * length))[i] = held[h];
  });
}

// Lanes of at most 1024 elements that are together: each warp has one in registers.
enum { WARP_LANE = 1024 / HY_WARP };
KERNEL void __launch_bounds__(128) softmax_warp(T* out, const T* x, i64 lanes, i64 length, int log_form) {
  int in_warp = threadIdx.x % HY_WARP;
  i64 warps = (i64)gridDim.x * (blockDim.x / HY_WARP);
  for (i64 lane = (i64)blockIdx.x * (blockDim.x / HY_WARP) + threadIdx.x / HY_WARP; lane < lanes;
       lane += warps) {
    const T* from_lane = x + lane * length;
    M value[WARP_LANE], most = lowest(), sum = 0;
#pragma unroll
    for (int k = 0; k < WARP_LANE; k++) {
      int i = in_warp + k * HY_WARP;
      value[k] = i < length ? to<M>(from_lane[i]) : lowest();
      most = max_op::of(most, value[k]);
    }
    most = warp_reduce<max_op>(most);
#pragma unroll
    for (int k = 0; k < WARP_LANE; k++)
      if (in_warp + k * HY_WARP < length) sum += m_exp(value[k] - most);
    sum = warp_reduce<add_op>(sum);
    M log_sum = log_form ? m_log(sum) : (M)0;
#pragma unroll
    for (int k = 0; k < WARP_LANE; k++) {
      int i = in_warp + k * HY_WARP;
      if (i < length)
        out[lane * length + i] =
            from<T>(softmax_value(value[k], online{most, sum}, log_sum, log_form));
    }
  }
}

KERNEL void softmax_thread(T* out, const T* x, i64 lanes, i64 length, i64 inner, int log_form) {
  GRID_STRIDE(lane, lanes) {
    i64 base = lane / inner * length * inner + lane % inner;
    online s = {lowest(), 0};
    for (i64 i = 0; i < length; i++) s = with(s, to<M>(x[base + i * inner]));
    s = settled(s);
    M log_sum = log_form ? m_log(s.sum) : (M)0;
    for (i64 i = 0; i < length; i++)
      out[base + i * inner] =
          from<T>(softmax_value(to<M>(x[base + i * inner]), s, log_sum, log_form));
  }
}

// dx = y (dy - sum(dy y)), or dy - exp(y) sum(dy) for the logarithm.
KERNEL void softmax_backward(T* dx, const T* dy, const T* y, i64 lanes, i64 length, i64 inner,
                             int log_form) {
  __shared__ M partial[32];
  for (i64 lane = blockIdx.x; lane < lanes; lane += gridDim.x) {
    i64 base = lane / inner * length * inner + lane % inner;
    M total = 0;
    for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
      M g = to<M>(dy[base + i * inner]);
      total += log_form ? g : g * to<M>(y[base + i * inner]);
    }
    total = block_reduce<add_op>(total, partial);
    for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
      M g = to<M>(dy[base + i * inner]), v = to<M>(y[base + i * inner]);
      dx[base + i * inner] = from<T>(log_form ? g - m_exp(v) * total : v * (g - total));
    }
  }
}

enum { HELD_BACKWARD = 2 };  // of y and of dy each
KERNEL void __launch_bounds__(1024) softmax_backward_held(T* dx, const T* dy, const T* y, i64 lanes,
                                                          i64 length, int log_form) {
  __shared__ M partial[32];
  const i64 lane = row_of_line();
  if (lane >= lanes) return;
  const int vectors = (int)(length / N);
  V held[HELD_BACKWARD], held_dy[HELD_BACKWARD];
  load_row(held, y + lane * length, vectors);
  load_row(held_dy, dy + lane * length, vectors);
  M total = 0;
  each_vector<HELD_BACKWARD>(vectors, [&](int h, int) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      M g = to<M>(held_dy[h].at[k]);
      total += log_form ? g : g * to<M>(held[h].at[k]);
    }
  });
  total = row_reduce<add_op>(total, partial);
  each_vector<HELD_BACKWARD>(vectors, [&](int h, int i) {
#pragma unroll
    for (int k = 0; k < N; k++) {
      M g = to<M>(held_dy[h].at[k]), v = to<M>(held[h].at[k]);
      held[h].at[k] = from<T>(log_form ? g - quick_exp(v) * total : v * (g - total));
    }
    ((V*)(dx + lane * length))[i] = held[h];
  });
}

// ---- Cross entropy ----

struct lane_target {
  i64 target;  // -1: ignored, or none of the classes
  M weight;
};
DEVICE lane_target target_of(const hy_gpu_cross_entropy& e, i64 lane, bool tells) {
  i64 t = load_index(e.target_dtype, e.target, lane);
  if (t == e.ignore_index) return lane_target{-1, 0};
  if (t < 0 || t >= e.classes) {
    if (tells) fault(e.fault, HY_GPU_FAULT_TARGET, e.op, t, 0, e.classes);
    return lane_target{-1, 0};
  }
  return lane_target{t, e.weight ? to<M>(((const T*)e.weight)[t]) : (M)1};
}
DEVICE M class_weight(const hy_gpu_cross_entropy& e, i64 c) {
  return e.weight ? to<M>(((const T*)e.weight)[c]) : (M)1;
}

// The weight of each lane, whose sum a mean divides by.
KERNEL void cross_entropy_weights(const hy_gpu_cross_entropy e) {
  GRID_STRIDE(lane, e.lanes) ((M*)e.lane_weight)[lane] = target_of(e, lane, true).weight;
}

// Two blocks of a multiprocessor: one reads while the other adds up.
enum { LOSS_THREADS = 512 };
KERNEL void __launch_bounds__(LOSS_THREADS, 2) cross_entropy_lanes(const hy_gpu_cross_entropy e) {
  __shared__ M partial[32];
  for (i64 lane = blockIdx.x; lane < e.lanes; lane += gridDim.x) {
    lane_target t = target_of(e, lane, threadIdx.x == 0);
    M loss = 0;
    if (t.target >= 0) {
      const T* x = (const T*)e.logits + lane / e.inner * e.classes * e.inner + lane % e.inner;
      online s = measure<4>(x, e.classes, e.inner, e.vectors);
      M log_sum = m_log(s.sum);
      loss = -t.weight * (to<M>(x[t.target * e.inner]) - s.most - log_sum);
      if (e.smoothing > 0) {
        M smooth = 0;
        for (i64 c = threadIdx.x; c < e.classes; c += blockDim.x)
          smooth -= class_weight(e, c) * (to<M>(x[c * e.inner]) - s.most - log_sum);
        smooth = block_reduce<add_op>(smooth, partial);
        loss = (M)(1 - e.smoothing) * loss + (M)(e.smoothing / (f64)e.classes) * smooth;
      }
    }
    if (threadIdx.x == 0) {
      ((M*)e.lane_loss)[lane] = loss;
      ((M*)e.lane_weight)[lane] = t.weight;
    }
  }
}

// The same without smoothing, for lanes that are kept in registers: the target and its logit come
// along with them.
KERNEL void __launch_bounds__(1024) cross_entropy_held(const hy_gpu_cross_entropy e) {
  __shared__ M partial[2][32];
  const i64 lane = row_of_line();
  if (lane >= e.lanes) return;
  const int vectors = (int)(e.classes / N);
  const T* x = (const T*)e.logits + lane * e.classes;
  V held[HELD];
  load_row(held, x, vectors);
  lane_target t = {-1, 0};
  M logit = 0, most = lowest(), sum = 0;
  if (threadIdx.x == 0) {
    t = target_of(e, lane, true);
    if (t.target >= 0) logit = to<M>(x[t.target]);
  }
  each_held(held, vectors, [&](M v) { most = number_max::of(most, v); });
  most = row_reduce<number_max>(most, partial[0]);
  each_held(held, vectors, [&](M v) { sum += quick_exp(v - most); });
  sum = row_reduce<add_op>(sum, partial[1]);
  if (threadIdx.x == 0) {
    ((M*)e.lane_loss)[lane] = t.target < 0 ? (M)0 : -t.weight * (logit - most - m_log(sum));
    ((M*)e.lane_weight)[lane] = t.weight;
  }
}

// The sum of losses, over that of weights for a mean. The last block to finish adds up what all left
// in `parts`; the counter is 0 before and after.
KERNEL void __launch_bounds__(HY_GPU_TOTAL_THREADS)
    cross_entropy_total(char* loss, int dtype, const M* losses, const M* weights, i64 lanes, int mean,
                        M* parts, u32* counter) {
  __shared__ M partial[32];
  __shared__ u32 arrived;
  launch_dependents();
  wait_for_previous();
  M sum = 0, weight = 0;
  const i64 first = (i64)blockIdx.x * HY_GPU_TOTAL_LANES;
  const i64 last = first + HY_GPU_TOTAL_LANES < lanes ? first + HY_GPU_TOTAL_LANES : lanes;
#pragma unroll 4
  for (i64 i = first + threadIdx.x; i < last; i += HY_GPU_TOTAL_THREADS) {
    sum += losses[i];
    weight += weights[i];
  }
  sum = block_reduce<add_op>(sum, partial);
  weight = block_reduce<add_op>(weight, partial);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) {
      parts[2 * blockIdx.x] = sum;
      parts[2 * blockIdx.x + 1] = weight;
      __threadfence();
      arrived = atomicAdd(counter, 1u);
    }
    __syncthreads();
    if (arrived != gridDim.x - 1) return;
    __threadfence();
    sum = weight = 0;
    for (u32 i = threadIdx.x; i < gridDim.x; i += HY_GPU_TOTAL_THREADS) {
      sum += parts[2 * i];
      weight += parts[2 * i + 1];
    }
    sum = block_reduce<add_op>(sum, partial);
    weight = block_reduce<add_op>(weight, partial);
    if (threadIdx.x == 0) *counter = 0;
  }
  if (threadIdx.x == 0) store_any(dtype, loss, 0, mean ? sum / weight : sum);
}

// A block for each lane. The first `kept` vectors are in shared memory, each in the hands of one
// thread: once it has written what becomes of one, that of the block's next lane is on its way there,
// so that reading and writing go on at once. The others come from the cache the second time. `kept`
// is all of a lane or a multiple of the block's threads.
enum { BACKWARD_AHEAD = 8 };
KERNEL void __launch_bounds__(LOSS_THREADS) cross_entropy_backward(const hy_gpu_cross_entropy e) {
  enum { AHEAD = BACKWARD_AHEAD };
  extern __shared__ __align__(16) char kept_memory[];
  V* const kept = (V*)kept_memory;
  const int n = e.vectors ? (int)(e.classes / N) : 0, step = (int)blockDim.x;
  M total = e.total_weight ? *(const M*)e.total_weight : (M)1;
  M weight_sum = e.weight_sum ? *(const M*)e.weight_sum : (M)e.classes;
  M hard = (M)(1 - e.smoothing), soft = (M)(e.smoothing / (f64)e.classes);
  auto target_at = [&](i64 lane) {
    return lane < e.lanes ? target_of(e, lane, threadIdx.x == 0) : lane_target{-1, 0};
  };
  auto fetch = [&](i64 lane, int i) {
    copy_async_16(&kept[i], (const V*)((const T*)e.logits + lane * e.classes) + i, 16);
  };
  auto fetch_all = [&](i64 lane) {
    for (int i = (int)threadIdx.x; i < e.kept; i += step) fetch(lane, i);
    copy_async_commit();
  };
  lane_target t = target_at(blockIdx.x), t_next;
  if (t.target >= 0) fetch_all(blockIdx.x);
  for (i64 lane = blockIdx.x; lane < e.lanes; lane += gridDim.x, t = t_next) {
    const i64 next = lane + gridDim.x;
    t_next = target_at(next);
    i64 base = lane / e.inner * e.classes * e.inner + lane % e.inner;
    const T* x = (const T*)e.logits + base;
    T* dx = (T*)e.dlogits + base;
    if (t.target < 0) {
      if (t_next.target >= 0) fetch_all(next);
      V zeros;
#pragma unroll
      for (int k = 0; k < N; k++) zeros.at[k] = from<T>((M)0);
      for (int i = (int)threadIdx.x; i < n; i += step) ((V*)dx)[i] = zeros;
      if (!e.vectors)
        for (i64 c = threadIdx.x; c < e.classes; c += blockDim.x) dx[c * e.inner] = zeros.at[0];
      continue;
    }
    M g = load_any<M>(e.dloss_dtype, e.dloss, e.dloss_step * lane) / total;
    online s = {lowest(), 0};
    if (e.vectors) {
      s = with_vectors<AHEAD>(s, (const V*)x, e.kept + (int)threadIdx.x, n);
      copy_async_wait<0>();
      s = joined_vectors(with_vectors<AHEAD>(s, kept, (int)threadIdx.x, e.kept));
    } else {
      s = measure<AHEAD>(x, e.classes, e.inner, false);
    }
    // all p(c) - less, and for the target less still: the thread that writes there does it last, with
    // a logit that it has read before.
    const bool smooth = e.smoothing > 0, by_class = smooth && e.weight;
    const M own = g * hard * t.weight, all = (own + (smooth ? g * soft * weight_sum : (M)0)) / s.sum;
    const M less = smooth && !by_class ? g * soft : (M)0;
    auto gradient = [&](M v) { return all * quick_exp(v - s.most) - less; };
    auto class_share = [&](i64 c) { return by_class ? g * soft * class_weight(e, c) : (M)0; };
    const bool owns = t.target / (e.vectors ? N : 1) % blockDim.x == threadIdx.x;
    const M logit = owns ? to<M>(x[t.target * e.inner]) : (M)0;
    if (!e.vectors) {
      for (i64 c = threadIdx.x; c < e.classes; c += blockDim.x)
        dx[c * e.inner] = from<T>(gradient(to<M>(x[c * e.inner])) - class_share(c));
    }
    // Vectors from the thread's first on, of shared memory or of x.
    auto write = [&](const V* vectors, int first, int end, bool fetches) {
      for (; first < end; first += AHEAD * step) {
        V v[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
          if (first + u * step < end) v[u] = vectors[first + u * step];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
          int i = first + u * step;
          if (i >= end) break;
#pragma unroll
          for (int k = 0; k < N; k++) v[u].at[k] = from<T>(gradient(to<M>(v[u].at[k])));
          ((V*)dx)[i] = v[u];
          if (fetches) fetch(next, i);
        }
      }
    };
    write((const V*)x, e.kept + (int)threadIdx.x, n, false);
    write(kept, (int)threadIdx.x, e.kept, t_next.target >= 0);
    copy_async_commit();
    if (owns) dx[t.target * e.inner] = from<T>(gradient(logit) - class_share(t.target) - own);
  }
}
