// Rows in registers: a row of contiguous memory belongs to the blockDim.x threads of a block's line,
// which hold a few vectors of 16 bytes each. All of a row is under way at once, it is read once, and
// the blocks of a multiprocessor cover each other's waits. Lines of more than one warp are a block
// each; lines of one warp are several to a block, along y. T is the type of the elements.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_ROWS_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_ROWS_CUH_

typedef traits<T>::math M;
enum { N = lanes16<T>::n };
typedef vec<T, N> V;

// A vector as it came, in four registers. As V, halves would have one each, and where only elements are
// used nvcc might load each by itself.
typedef vec<u32, 4> words;
DEVICE words load_words(const void* vectors, i64 i) {
  return ((const words*)vectors)[i];
}
DEVICE M element(const words& w, int k) {
  return to<M>(__builtin_bit_cast(V, w).at[k]);
}
DEVICE M element(const V& v, int k) {
  return to<M>(v.at[k]);
}

// The line's row; a row past the end belongs to whole warps.
DEVICE i64 row_of_line() {
  return (i64)blockIdx.x * blockDim.y + threadIdx.y;
}

// Calls f(h, i) for the thread's vectors: its h-th is the row's i-th.
template <int HELD, class F>
DEVICE void each_vector(int vectors, F f) {
#pragma unroll
  for (int h = 0; h < HELD; h++) {
    int i = h * (int)blockDim.x + (int)threadIdx.x;
    if (i < vectors) f(h, i);
  }
}

// Vectors are held as V, or as words.
template <class A, int HELD>
DEVICE void load_row(A (&held)[HELD], const void* row, int vectors) {
  each_vector<HELD>(vectors, [&](int h, int i) { held[h] = ((const A*)row)[i]; });
}

// Calls f(value) for each element that the thread holds.
template <class A, int HELD, class F>
DEVICE void each_held(const A (&held)[HELD], int vectors, F f) {
  each_vector<HELD>(vectors, [&](int h, int) {
#pragma unroll
    for (int k = 0; k < N; k++) f(element(held[h], k));
  });
}

// Over the threads of a line; every thread gets the result. `partial` is shared memory for one value
// a warp, which a block uses once.
template <class Op>
DEVICE M row_reduce(M value, M* partial) {
  value = warp_reduce<Op>(value);
  const int warps = (int)blockDim.x / HY_WARP;
  if (warps == 1) return value;
  if (threadIdx.x % HY_WARP == 0) partial[threadIdx.x / HY_WARP] = value;
  __syncthreads();
  value = partial[0];
  for (int w = 1; w < warps; w++) value = Op::of(value, partial[w]);
  return value;
}
// Of two values at once, which meet at one barrier.
template <class Op>
DEVICE void row_reduce_two(M* a, M* b, M (*partial)[32]) {
  *a = warp_reduce<Op>(*a);
  *b = warp_reduce<Op>(*b);
  const int warps = (int)blockDim.x / HY_WARP;
  if (warps == 1) return;
  if (threadIdx.x % HY_WARP == 0) {
    partial[0][threadIdx.x / HY_WARP] = *a;
    partial[1][threadIdx.x / HY_WARP] = *b;
  }
  __syncthreads();
  *a = partial[0][0], *b = partial[1][0];
  for (int w = 1; w < warps; w++) {
    *a = Op::of(*a, partial[0][w]);
    *b = Op::of(*b, partial[1][w]);
  }
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_ROWS_CUH_
