// Rows in registers: a row of contiguous memory belongs to the blockDim.x threads of a block's line,
// which hold a few vectors of 16 bytes each. All of a row is under way at once, it is read once, and
// the blocks of a multiprocessor cover each other's waits. Lines of more than one warp are a block
// each; lines of one warp are several to a block, along y. T is the type of the elements.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_ROWS_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_ROWS_CUH_

typedef traits<T>::math M;
enum { N = lanes16<T>::n };
typedef vec<T, N> V;

// A vector by one load. Where only its elements are used, nvcc would load each by itself: eight loads
// for eight halves.
DEVICE V load_vector(const void* vectors, i64 i) {
  return __builtin_bit_cast(V, ((const vec<u32, 4>*)vectors)[i]);
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

template <int HELD>
DEVICE void load_row(V (&held)[HELD], const T* row, int vectors) {
  each_vector<HELD>(vectors, [&](int h, int i) { held[h] = ((const V*)row)[i]; });
}

// Calls f(value) for each element that the thread holds.
template <int HELD, class F>
DEVICE void each_held(const V (&held)[HELD], int vectors, F f) {
  each_vector<HELD>(vectors, [&](int h, int) {
#pragma unroll
    for (int k = 0; k < N; k++) f(to<M>(held[h].at[k]));
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

#endif  // HALYARD_BACKENDS_GPU_KERNELS_ROWS_CUH_
