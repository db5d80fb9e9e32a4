// One query's attention by one warp, without tensor cores: lanes share out the keys of the scores,
// then the columns of the output. `M` is f32 or f64.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_ATTEND_ROW_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_ATTEND_ROW_CUH_

DEVICE f32 exp_of(f32 x) { return expf(x); }
DEVICE f64 exp_of(f64 x) { return exp(x); }
DEVICE f32 log_of(f32 x) { return logf(x); }
DEVICE f64 log_of(f64 x) { return log(x); }

struct largest_op {  // NaN never wins
  template <class M>
  static __device__ __forceinline__ M of(M a, M b) {
    return b > a ? b : a;
  }
};

// This warp's number over the grid.
DEVICE i64 warp_index() {
  return (i64)blockIdx.x * (blockDim.x / HY_WARP) + threadIdx.x / HY_WARP;
}

template <class M, class T>
DEVICE M dot(const M* x, const T* y, int n) {
  M sum = 0;
  for (int d = 0; d < n; d++) sum += x[d] * to<M>(y[d]);
  return sum;
}

template <class M, class T>
DEVICE void load_row(M* to_row, const T* row, int n) {
  for (int d = threadIdx.x % HY_WARP; d < n; d += HY_WARP) to_row[d] = to<M>(row[d]);
}

template <class M>
DEVICE void clear_row(M* row, int n) {
  for (int d = threadIdx.x % HY_WARP; d < n; d += HY_WARP) row[d] = 0;
}

template <class M, class T>
DEVICE void add_row(M* sum, M factor, const T* row, int n) {
  for (int d = threadIdx.x % HY_WARP; d < n; d += HY_WARP) sum[d] += factor * to<M>(row[d]);
}

template <class M, class T>
DEVICE void store_row(T* row, const M* from_row, M factor, int n) {
  for (int d = threadIdx.x % HY_WARP; d < n; d += HY_WARP) row[d] = from<T>(from_row[d] * factor);
}

// Online softmax over `visible` keys: score(key) is asked by one lane, v_row(key) by all. Leaves the
// sum of exp(score) v in `out` (shared memory, the warp's own), to be divided by *total; returns the
// largest score.
template <class M, class Score, class ValueRow>
DEVICE M attend_row(M* out, int value_size, int visible, M* total, const Score& score,
                    const ValueRow& v_row) {
  const int lane = threadIdx.x % HY_WARP;
  M top = (M)-INF_F32;
  *total = 0;
  clear_row(out, value_size);
  for (int key0 = 0; key0 < visible; key0 += HY_WARP) {
    M s = key0 + lane < visible ? score(key0 + lane) : (M)-INF_F32;
    M high = largest_op::of(top, warp_reduce<largest_op>(s != s ? (M)-INF_F32 : s));
    M base = high == (M)-INF_F32 ? (M)0 : high, keep = exp_of(top - base), share = exp_of(s - base);
    top = high;
    *total = *total * keep + warp_reduce<add_op>(share);
    for (int d = lane; d < value_size; d += HY_WARP) out[d] *= keep;
    for (int j = 0; j < HY_WARP && key0 + j < visible; j++) {
      M one = SHFL(share, j);
      // A key without weight has no influence, not even by NaN.
      if (one != 0) add_row(out, one, v_row(key0 + j), value_size);
    }
  }
  return top;
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_ATTEND_ROW_CUH_
