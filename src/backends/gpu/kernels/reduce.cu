// Reductions over any dimensions. T is the type read. The order of sums is fixed by the shape, so
// that results repeat bit for bit.
//
// An output has `length` elements of x, cut into `splits` parts. run_ and block_ kernels give a part to
// the threads of a line (rows.cuh), for elements that are one run of vectors or are adjacent: of
// several blocks at an output, the last makes one of their results. thread_ kernels give it to a thread, for outputs that are adjacent
// together, and columns_ kernels N such outputs: their partial results, [splits, outputs] of the type
// of computation, meet in a second launch.
//
// types: f32 f64 f16 bf16 i8 i16 i32 i64 u8 b8

#include "rows.cuh"

// Where the elements of an output are.
struct region {
  const T* x;
  i64 first, last;
};
DEVICE i64 element(const hy_gpu_reduce& r, i64 j) {
  if (r.ndim == 1) return j * r.stride[0];
  i64 offset = 0;
  for (int d = r.ndim - 1; d > 0; d--) {
    i64 next = (u64)j < 0x100000000ull ? (i64)((u32)j / (u32)r.shape[d]) : j / r.shape[d];
    offset += (j - next * r.shape[d]) * r.stride[d];
    j = next;
  }
  return offset + j * r.stride[0];
}
DEVICE region region_of(const hy_gpu_reduce& r, i64 output, i64 split, i64* out_at) {
  i64 at[2];
  if ((u64)r.kept.n < 0x100000000ull)
    walk_offsets<2>(r.kept, (u32)output, at);
  else
    walk_offsets<2>(r.kept, output, at);
  *out_at = at[0];
  i64 first = split * r.part;
  i64 last = first + r.part < r.length ? first + r.part : r.length;
  return region{(const T*)r.kept.data[1] + at[1], first, last};
}

// ---- Functions: where they start, how an element enters, how two results meet ----

#ifdef INTEGER
#define LOWEST I64_LOW
#define HIGHEST I64_HIGH
#define ADDED(a, b) (M)((u64)(a) + (u64)(b))
#define MULTIPLIED(a, b) (M)((u64)(a) * (u64)(b))
#else
#define LOWEST (-(M)INF_F32)
#define HIGHEST (M)INF_F32
#define ADDED(a, b) (a) + (b)
#define MULTIPLIED(a, b) (a) * (b)
#endif

// `centre` is what a variance subtracts; `again` says that x holds partial results.
#define FUNCTIONS(X)                                                                      \
  X(sum, 0, x, ADDED(a, b))                                                               \
  X(prod, 1, x, MULTIPLIED(a, b))                                                         \
  X(max, LOWEST, x, max_op::of(a, b))                                                     \
  X(min, HIGHEST, x, min_op::of(a, b))                                                    \
  X(any, 0, x != 0, a != 0 || b != 0)                                                     \
  X(all, 1, x != 0, a != 0 && b != 0)                                                     \
  X(squares, 0, MULTIPLIED(x - centre, x - centre), ADDED(a, b))

#define AS_FUNCTION(name, start, entering, meeting)            \
  struct name##_fn {                                           \
    DEVICE_MEMBER M begin() { return start; }                  \
    DEVICE_MEMBER M enter(M x, M centre) { return entering; }  \
    DEVICE_MEMBER M of(M a, M b) { return meeting; }           \
  };
FUNCTIONS(AS_FUNCTION)
#undef AS_FUNCTION

DEVICE void store_result(const hy_gpu_reduce& r, i64 out_at, M total) {
  store_any(r.kept.dtype[0], r.kept.data[0], out_at, r.divides ? (M)(total / (M)r.divisor) : total);
}

DEVICE M centre_of(const hy_gpu_reduce& r, i64 output) {
  return r.centre ? ((const M*)r.centre)[output] : (M)0;
}

template <class Fn>
struct four {
  M total[4];
  DEVICE four() {
#pragma unroll
    for (int k = 0; k < 4; k++) total[k] = Fn::begin();
  }
  DEVICE void take(int k, M x, M centre) { total[k] = Fn::of(total[k], Fn::enter(x, centre)); }
  DEVICE M all() const { return Fn::of(Fn::of(total[0], total[1]), Fn::of(total[2], total[3])); }
};

// An output's part for the threads of a line: one run of x, AHEAD vectors of a thread in flight.
enum { AHEAD = 8 };
struct of_run {
  template <class Fn>
  DEVICE_MEMBER M part(const hy_gpu_reduce& r, const region& a, M centre) {
    four<Fn> f;
    const V* x = (const V*)(a.x + a.first);
    const int whole = (int)((a.last - a.first) / N), step = (int)blockDim.x;
    for (int i = (int)threadIdx.x; i < whole; i += AHEAD * step) {
      V v[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; u++)
        if (i + u * step < whole) v[u] = x[i + u * step];
#pragma unroll
      for (int u = 0; u < AHEAD; u++)
        if (i + u * step < whole)
#pragma unroll
          for (int k = 0; k < N; k++) f.take(k % 4, to<M>(v[u].at[k]), centre);
    }
    const i64 rest = a.first + (i64)whole * N + threadIdx.x;
    if (rest < a.last) f.take(0, to<M>(a.x[rest]), centre);
    return f.all();
  }
};

// The same for elements anywhere.
struct of_any {
  template <class Fn>
  DEVICE_MEMBER M part(const hy_gpu_reduce& r, const region& a, M centre) {
    four<Fn> f;
    const i64 step = blockDim.x;
    i64 j = a.first + threadIdx.x;
    for (; j + 3 * step < a.last; j += 4 * step) {
      M x[4];
#pragma unroll
      for (int k = 0; k < 4; k++) x[k] = to<M>(a.x[element(r, j + k * step)]);
#pragma unroll
      for (int k = 0; k < 4; k++) f.take(k, x[k], centre);
    }
    for (; j < a.last; j += step) f.take(0, to<M>(a.x[element(r, j)]), centre);
    return f.all();
  }
};

// Leaves a block's part of an output; true in the block that comes last, with what all parts make.
template <class Fn>
DEVICE bool met_in_last(const hy_gpu_reduce& r, i64 output, M* total) {
  __shared__ M partial[32];
  __shared__ u32 arrived;
  M* parts = (M*)r.partial + output * r.splits;
  if (threadIdx.x == 0) {
    parts[blockIdx.y] = *total;
    __threadfence();
    arrived = atomicAdd(&r.counters[output], 1u);
  }
  __syncthreads();
  if (arrived + 1 != (u32)r.splits) return false;
  __threadfence();
  M mine = Fn::begin();
  for (int s = (int)threadIdx.x; s < r.splits; s += (int)blockDim.x)
    mine = Fn::of(mine, ((volatile const M*)parts)[s]);
  *total = row_reduce<Fn>(mine, partial);
  if (threadIdx.x == 0) r.counters[output] = 0;
  return true;
}

template <class Fn, class Elements>
DEVICE void reduce_in_line(const hy_gpu_reduce& r) {
  __shared__ M partial[32];
  const i64 output = row_of_line();
  if (output >= r.kept.n) return;
  i64 out_at;
  region a = region_of(r, output, blockIdx.y, &out_at);
  M total = Elements::template part<Fn>(r, a, centre_of(r, output));
  total = row_reduce<Fn>(total, partial);
  bool whole = r.splits == 1 || met_in_last<Fn>(r, output, &total);
  if (whole && threadIdx.x == 0) store_result(r, out_at, total);
}

template <class Fn>
DEVICE void reduce_in_thread(const hy_gpu_reduce& r) {
  GRID_STRIDE(output, r.kept.n) {
    i64 out_at;
    region a = region_of(r, output, blockIdx.y, &out_at);
    M centre = centre_of(r, output), total = Fn::begin();
    for (i64 j = a.first; j < a.last; j++)
      total = Fn::of(total, Fn::enter(to<M>(a.x[element(r, j)]), centre));
    if (r.splits > 1)
      ((M*)r.partial)[blockIdx.y * r.kept.n + output] = total;
    else
      store_result(r, out_at, total);
  }
}

// N outputs that are adjacent, a thread; ROWS_AHEAD rows of them in flight.
enum { ROWS_AHEAD = 8 };
template <class Fn>
DEVICE void reduce_columns(const hy_gpu_reduce& r) {
  const i64 step = r.stride[0];
  GRID_STRIDE(group, r.kept.n / N) {
    i64 out_at, output = group * N;
    region a = region_of(r, output, blockIdx.y, &out_at);
    M total[N], centre[N];
#pragma unroll
    for (int k = 0; k < N; k++) {
      total[k] = Fn::begin();
      centre[k] = centre_of(r, output + k);
    }
    for (i64 j = a.first; j < a.last; j += ROWS_AHEAD) {
      V v[ROWS_AHEAD];
#pragma unroll
      for (int u = 0; u < ROWS_AHEAD; u++)
        if (j + u < a.last) v[u] = *(const V*)(a.x + (j + u) * step);
#pragma unroll
      for (int u = 0; u < ROWS_AHEAD; u++)
        if (j + u < a.last)
#pragma unroll
          for (int k = 0; k < N; k++)
            total[k] = Fn::of(total[k], Fn::enter(to<M>(v[u].at[k]), centre[k]));
    }
    if (r.splits > 1) {
      M* parts = (M*)r.partial + blockIdx.y * r.kept.n + output;
#pragma unroll
      for (int k = 0; k < N; k++) parts[k] = total[k];
    } else {
#pragma unroll
      for (int k = 0; k < N; k++) store_result(r, out_at + k * r.out_step, total[k]);
    }
  }
}

// The parts [splits, outputs] of each output, by a column of threads: blocks are MEET_X by MEET_Y.
enum { MEET_X = 32, MEET_Y = 8 };
template <class Fn>
DEVICE void meet_parts(const hy_gpu_reduce& r) {
  __shared__ M partial[MEET_Y][MEET_X];
  for (i64 first = (i64)blockIdx.x * MEET_X; first < r.kept.n; first += (i64)gridDim.x * MEET_X) {
    const i64 output = first + threadIdx.x;
    M total = Fn::begin();
    if (output < r.kept.n)
#pragma unroll 8
      for (int s = (int)threadIdx.y; s < r.splits; s += MEET_Y)
        total = Fn::of(total, ((const M*)r.partial)[s * r.kept.n + output]);
    partial[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && output < r.kept.n) {
      for (int y = 1; y < MEET_Y; y++) total = Fn::of(total, partial[y][threadIdx.x]);
      i64 out_at;
      region_of(r, output, 0, &out_at);
      store_result(r, out_at, total);
    }
    __syncthreads();
  }
}

#define AS_KERNEL(name, start, entering, meeting)                                            \
  KERNEL void __launch_bounds__(256, 4) run_##name(const hy_gpu_reduce r) {                  \
    reduce_in_line<name##_fn, of_run>(r);                                                    \
  }                                                                                          \
  KERNEL void block_##name(const hy_gpu_reduce r) { reduce_in_line<name##_fn, of_any>(r); }  \
  KERNEL void thread_##name(const hy_gpu_reduce r) { reduce_in_thread<name##_fn>(r); }       \
  KERNEL void meet_##name(const hy_gpu_reduce r) { meet_parts<name##_fn>(r); }
FUNCTIONS(AS_KERNEL)
#undef AS_KERNEL
KERNEL void columns_sum(const hy_gpu_reduce r) { reduce_columns<sum_fn>(r); }
KERNEL void columns_max(const hy_gpu_reduce r) { reduce_columns<max_fn>(r); }
KERNEL void columns_min(const hy_gpu_reduce r) { reduce_columns<min_fn>(r); }
#ifndef INTEGER
KERNEL void columns_squares(const hy_gpu_reduce r) { reduce_columns<squares_fn>(r); }
#endif

// ---- Where the greatest or least element is ----

// The first of equals; NaN beats every number.
struct best {
  M value;
  i64 at;  // -1: none
};
DEVICE bool beats(const best& a, const best& b, bool greatest) {
  if (b.at < 0 || a.at < 0) return b.at < 0;
  bool a_nan = is_nan(a.value), b_nan = is_nan(b.value);
  if (a_nan || b_nan) return a_nan != b_nan ? a_nan : a.at < b.at;
  if (a.value == b.value) return a.at < b.at;
  return greatest ? a.value > b.value : a.value < b.value;
}
DEVICE best best_of(const best& a, const best& b, bool greatest) {
  return beats(a, b, greatest) ? a : b;
}

DEVICE best best_in_block(best mine, bool greatest) {
  __shared__ M values[32];
  __shared__ i64 places[32];
#pragma unroll
  for (int mask = HY_WARP / 2; mask > 0; mask /= 2) {
    best other = {SHFL_XOR(mine.value, mask), SHFL_XOR(mine.at, mask)};
    mine = best_of(mine, other, greatest);
  }
  int warp = threadIdx.x / HY_WARP, warps = blockDim.x / HY_WARP;
  if (threadIdx.x % HY_WARP == 0) {
    values[warp] = mine.value;
    places[warp] = mine.at;
  }
  __syncthreads();
  for (int w = 0; w < warps; w++) mine = best_of(mine, best{values[w], places[w]}, greatest);
  __syncthreads();
  return mine;
}

// `index` has i64 for each output, of kept's third tensor; partial results are values, then places.
DEVICE void finish_best(const hy_gpu_reduce& r, i64 output, i64 split, best b) {
  if (r.splits > 1) {
    ((M*)r.partial)[output * r.splits + split] = b.value;
    r.partial_at[output * r.splits + split] = b.at;
    return;
  }
  i64 at[3];
  walk_offsets<3>(r.kept, output, at);
  if (r.kept.data[0]) ((T*)r.kept.data[0])[at[0]] = from<T>(b.value);
  ((i64*)r.kept.data[2])[at[2]] = b.at;
}

KERNEL void block_best(const hy_gpu_reduce r, int greatest) {
  for (i64 output = blockIdx.x; output < r.kept.n; output += gridDim.x) {
    i64 split = blockIdx.y, out_at;
    region a = region_of(r, output, split, &out_at);
    best mine = {0, -1};
    for (i64 j = a.first + threadIdx.x; j < a.last; j += blockDim.x)
      mine = best_of(mine, best{to<M>(a.x[element(r, j)]), j}, greatest);
    mine = best_in_block(mine, greatest);
    if (threadIdx.x == 0) finish_best(r, output, split, mine);
  }
}

KERNEL void thread_best(const hy_gpu_reduce r, int greatest) {
  GRID_STRIDE(output, r.kept.n) {
    i64 split = blockIdx.y, out_at;
    region a = region_of(r, output, split, &out_at);
    best mine = {0, -1};
    for (i64 j = a.first; j < a.last; j++)
      mine = best_of(mine, best{to<M>(a.x[element(r, j)]), j}, greatest);
    finish_best(r, output, split, mine);
  }
}

// The best of each output's partial results; `splits` of r is their number.
KERNEL void finish_splits(const hy_gpu_reduce r, int greatest) {
  hy_gpu_reduce whole = r;
  whole.splits = 1;
  GRID_STRIDE(output, r.kept.n) {
    best mine = {0, -1};
    for (i64 s = 0; s < r.splits; s++)
      mine = best_of(mine,
                     best{((const M*)r.partial)[output * r.splits + s],
                          r.partial_at[output * r.splits + s]},
                     greatest);
    finish_best(whole, output, 0, mine);
  }
}

// ---- Running sums ----

// Lanes of `length` elements, `stride` apart, the lane's first at outer * length * stride + inner.
// Chunks are summed, the sums are scanned lane by lane, and each chunk is scanned from its own start.
enum { SCAN_THREADS = 256, SCAN_EACH = 8, SCAN_CHUNK = SCAN_THREADS * SCAN_EACH };

DEVICE i64 lane_start(const hy_gpu_scan& s, i64 lane) {
  return lane / s.inner * s.length * s.inner + lane % s.inner;
}
// Position i of the scan's order.
DEVICE i64 position(const hy_gpu_scan& s, i64 i) {
  return (s.reverse ? s.length - 1 - i : i) * s.inner;
}

DEVICE M scan_in_block(M mine, M* total) {
  __shared__ M sums[32];
  int lane = threadIdx.x % HY_WARP, warp = threadIdx.x / HY_WARP, warps = blockDim.x / HY_WARP;
  M inclusive = mine;
#pragma unroll
  for (int delta = 1; delta < HY_WARP; delta *= 2) {
    M below = SHFL_UP(inclusive, delta);
    if (lane >= delta) inclusive = ADDED(below, inclusive);
  }
  if (lane == HY_WARP - 1) sums[warp] = inclusive;
  __syncthreads();
  M before = 0, all = 0;
  for (int w = 0; w < warps; w++) {
    if (w == warp) before = all;
    all = ADDED(all, sums[w]);
  }
  __syncthreads();
  *total = all;
  M exclusive = SHFL_UP(inclusive, 1);
  return ADDED(before, lane == 0 ? (M)0 : exclusive);
}

KERNEL void scan_chunk_sums(const hy_gpu_scan s) {
  __shared__ M partial[32];
  for (i64 c = blockIdx.x; c < s.lanes * s.chunks; c += gridDim.x) {
    i64 lane = c / s.chunks, first = c % s.chunks * SCAN_CHUNK;
    const T* x = (const T*)s.x + lane_start(s, lane);
    M total = 0;
    for (int k = 0; k < SCAN_EACH; k++) {
      i64 i = first + threadIdx.x * SCAN_EACH + k;
      if (i < s.length) total = ADDED(total, to<M>(x[position(s, i)]));
    }
    total = block_reduce<sum_fn>(total, partial);
    if (threadIdx.x == 0) ((M*)s.sums)[c] = total;
  }
}

// A block for each lane: what comes before each chunk, in place of its sum.
KERNEL void scan_chunks(const hy_gpu_scan s) {
  for (i64 lane = blockIdx.x; lane < s.lanes; lane += gridDim.x) {
    M* sums = (M*)s.sums + lane * s.chunks;
    M before = 0, total;
    for (i64 first = 0; first < s.chunks; first += blockDim.x) {
      i64 c = first + threadIdx.x;
      M mine = c < s.chunks ? sums[c] : (M)0;
      M exclusive = scan_in_block(mine, &total);
      if (c < s.chunks) sums[c] = ADDED(before, exclusive);
      before = ADDED(before, total);
    }
  }
}

KERNEL void scan_write(const hy_gpu_scan s) {
  for (i64 c = blockIdx.x; c < s.lanes * s.chunks; c += gridDim.x) {
    i64 lane = c / s.chunks, first = c % s.chunks * SCAN_CHUNK + threadIdx.x * SCAN_EACH;
    const T* x = (const T*)s.x + lane_start(s, lane);
    M value[SCAN_EACH], mine = 0, total;
#pragma unroll
    for (int k = 0; k < SCAN_EACH; k++) {
      i64 i = first + k;
      value[k] = i < s.length ? to<M>(x[position(s, i)]) : (M)0;
      mine = ADDED(mine, value[k]);
    }
    M running = ADDED(((const M*)s.sums)[c], scan_in_block(mine, &total));
#pragma unroll
    for (int k = 0; k < SCAN_EACH; k++) {
      running = ADDED(running, value[k]);
      if (first + k < s.length)
        store_any(s.out_dtype, s.out, lane_start(s, lane) + position(s, first + k), running);
    }
  }
}
