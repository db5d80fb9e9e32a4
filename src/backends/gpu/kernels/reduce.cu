// Reductions over any dimensions. T is the type read. The order of sums is fixed by the shape, so
// that results repeat bit for bit.
//
// An output has `length` elements of x, cut into `splits` parts. run_ and block_ kernels give a part to
// the threads of a line (rows.cuh), for elements that are one run of vectors or are anywhere. columns_
// kernels give a vector of adjacent outputs to a thread, and lines_ kernels a part of it to each line of
// a block. Where several blocks share outputs, the last of them makes the results of their parts.
// thread_ kernels give a part to a thread, for outputs that are adjacent but no vectors: their partial
// results, [splits, outputs] of the type of computation, meet in a second launch.
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
    const T* x = a.x + a.first;
    const int whole = (int)((a.last - a.first) / N), step = (int)blockDim.x;
    const i64 rest = a.first + (i64)whole * N + threadIdx.x;
    if (rest < a.last) f.take(0, to<M>(a.x[rest]), centre);
    for (int i = (int)threadIdx.x; i < whole; i += AHEAD * step) {
      words v[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; u++)
        if (i + u * step < whole) v[u] = load_words(x, i + u * step);
#pragma unroll
      for (int u = 0; u < AHEAD; u++)
        if (i + u * step < whole)
#pragma unroll
          for (int k = 0; k < N; k++) f.take(k % 4, element(v[u], k), centre);
    }
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

// Of a block that has left its part: whether it is the last of the `splits` that share a counter, which
// sees what all have left.
DEVICE bool comes_last(const hy_gpu_reduce& r, i64 counter) {
  __shared__ u32 arrived;
  const bool one = threadIdx.x == 0 && threadIdx.y == 0;
  __threadfence();
  __syncthreads();
  if (one) arrived = atomicAdd(&r.counters[counter], 1u);
  __syncthreads();
  if (arrived + 1 != (u32)r.splits) return false;
  __threadfence();
  if (one) r.counters[counter] = 0;
  return true;
}

// Leaves a block's part of an output; true in the block that comes last, with what all parts make.
template <class Fn>
DEVICE bool met_in_last(const hy_gpu_reduce& r, i64 output, M* total) {
  __shared__ M partial[32];
  M* parts = (M*)r.partial + output * r.splits;
  if (threadIdx.x == 0) parts[blockIdx.y] = *total;
  if (!comes_last(r, output)) return false;
  M mine = Fn::begin();
  for (int s = (int)threadIdx.x; s < r.splits; s += (int)blockDim.x)
    mine = Fn::of(mine, ((volatile const M*)parts)[s]);
  *total = row_reduce<Fn>(mine, partial);
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

// N outputs that are adjacent, of some rows: AHEAD of them in flight.
template <class Fn, int AHEAD>
DEVICE void add_rows(const hy_gpu_reduce& r, i64 output, const region& a, int line, int lines,
                     M (&total)[N]) {
  M centre[N];
#pragma unroll
  for (int k = 0; k < N; k++) {
    total[k] = Fn::begin();
    centre[k] = centre_of(r, output + k);
  }
  for (i64 j = a.first + line; j < a.last; j += AHEAD * lines) {
    words v[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (j + u * lines < a.last) v[u] = load_words(a.x + (j + u * lines) * r.stride[0], 0);
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
      if (j + u * lines < a.last)
#pragma unroll
        for (int k = 0; k < N; k++)
          total[k] = Fn::of(total[k], Fn::enter(element(v[u], k), centre[k]));
  }
}

template <class Fn>
DEVICE void reduce_columns(const hy_gpu_reduce& r) {
  GRID_STRIDE(group, r.kept.n / N) {
    i64 out_at;
    const region a = region_of(r, group * N, 0, &out_at);
    M total[N];
    add_rows<Fn, 8>(r, group * N, a, 0, 1, total);
#pragma unroll
    for (int k = 0; k < N; k++) store_result(r, out_at + k * r.out_step, total[k]);
  }
}

// Blocks of LINES_THREADS, of which x, at most LINE, have a vector of outputs each, and y are lines.
enum { LINE = 16, LINES_THREADS = 256, LINES_BLOCKS = N * sizeof(M) > 64 ? 2 : 4 };
typedef M line_parts[LINES_THREADS / HY_WARP][LINE * N];
// What the lines have, met: output k of vector x comes to thread k * blockDim.x + x.
template <class Fn>
DEVICE M meet_lines(M (&total)[N], line_parts& parts) {
  const int width = (int)blockDim.x, id = (int)(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
  for (int k = 0; k < N; k++) {
    for (int mask = width; mask < HY_WARP; mask *= 2)
      total[k] = Fn::of(total[k], SHFL_XOR(total[k], mask));
    if (id % HY_WARP < width) parts[id / HY_WARP][k * width + id % HY_WARP] = total[k];
  }
  __syncthreads();
  M all = Fn::begin();
  if (id < width * N)
#pragma unroll
    for (int w = 0; w < LINES_THREADS / HY_WARP; w++) all = Fn::of(all, parts[w][id]);
  return all;
}

template <class Fn>
DEVICE void reduce_lines(const hy_gpu_reduce& r) {
  __shared__ line_parts parts;
  const int width = (int)blockDim.x, id = (int)(threadIdx.y * blockDim.x + threadIdx.x);
  const i64 groups = r.kept.n / N, first = (i64)blockIdx.x * width, group = first + threadIdx.x;
  i64 out_at;
  M total[N];
  // Vectors past the end have no rows.
  region a = region_of(r, group < groups ? group * N : 0, blockIdx.y, &out_at);
  if (group >= groups) a.last = a.first;
  add_rows<Fn, 4>(r, group < groups ? group * N : 0, a, (int)threadIdx.y, (int)blockDim.y, total);
  M all = meet_lines<Fn>(total, parts);
  // What meet_lines gives this thread.
  const int k = id / width;
  const i64 mine = first + id % width;
  const bool has = k < N && mine < groups;
  if (r.splits > 1) {
    M* left = (M*)r.partial;  // [splits, N, groups]
    if (has) left[blockIdx.y * r.kept.n + k * groups + mine] = all;
    if (!comes_last(r, blockIdx.x)) return;
#pragma unroll
    for (int i = 0; i < N; i++) total[i] = Fn::begin();
    if (group < groups)
#pragma unroll 4
      for (int s = (int)threadIdx.y; s < r.splits; s += (int)blockDim.y)
#pragma unroll
        for (int i = 0; i < N; i++)
          total[i] = Fn::of(total[i], ((volatile const M*)left)[s * r.kept.n + i * groups + group]);
    all = meet_lines<Fn>(total, parts);
  }
  if (!has) return;
  region_of(r, mine * N, 0, &out_at);
  store_result(r, out_at + k * r.out_step, all);
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
#define AS_COLUMNS_KERNEL(name)                                                              \
  KERNEL void columns_##name(const hy_gpu_reduce r) { reduce_columns<name##_fn>(r); }        \
  KERNEL void __launch_bounds__(LINES_THREADS, LINES_BLOCKS)                                 \
      lines_##name(const hy_gpu_reduce r) {                                                  \
    reduce_lines<name##_fn>(r);                                                              \
  }
AS_COLUMNS_KERNEL(sum)
AS_COLUMNS_KERNEL(max)
AS_COLUMNS_KERNEL(min)
#ifndef INTEGER
AS_COLUMNS_KERNEL(squares)
#endif
#undef AS_COLUMNS_KERNEL

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
