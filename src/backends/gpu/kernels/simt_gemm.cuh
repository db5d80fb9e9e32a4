// Blocked matrix product without tensor cores: f32, f64, integers, and operands of any storage. A
// block of 256 threads computes a tile of BM x BN, a thread BM / 16 x BN / 16 of it; tiles of BK go
// through registers into shared memory, the next one being loaded while this one is multiplied.
// Sums run over ascending k: the result does not depend on the grid.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_SIMT_GEMM_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_SIMT_GEMM_CUH_

#define SIMT_THREADS 256

// What T is multiplied and summed in: f32, f64, or unsigned words, whose overflow wraps as integers
// do.
template <class T>
struct accumulator {
  typedef f32 type;
};
template <>
struct accumulator<f64> {
  typedef f64 type;
};
template <>
struct accumulator<i64> {
  typedef u64 type;
};
#define WORD_ACCUMULATOR(T) \
  template <>               \
  struct accumulator<T> {   \
    typedef u32 type;       \
  };
WORD_ACCUMULATOR(i8)
WORD_ACCUMULATOR(i16)
WORD_ACCUMULATOR(i32)
WORD_ACCUMULATOR(u8)
#undef WORD_ACCUMULATOR

template <class Acc>
struct accumulate {
  template <class T>
  static __device__ __forceinline__ Acc load(T x) {
    return to<Acc>(x);
  }
  template <class T>
  static __device__ __forceinline__ T store(Acc x) {
    return from<T>(x);
  }
};
#define INTEGER_ACCUMULATE(U)                                 \
  template <>                                                 \
  struct accumulate<U> {                                      \
    template <class T>                                        \
    static __device__ __forceinline__ U load(T x) {           \
      return (U)to<i64>(x);                                   \
    }                                                         \
    template <class T>                                        \
    static __device__ __forceinline__ T store(U x) {          \
      return from<T>((i64)x);                                 \
    }                                                         \
  };
INTEGER_ACCUMULATE(u32)
INTEGER_ACCUMULATE(u64)
#undef INTEGER_ACCUMULATE

// One operand's BK x ROWS tile: element (row, k) comes from a functor, asked only for what is
// inside; neighbours along k go to neighbouring threads where k_first.
template <class Acc, int ROWS, int BK, bool k_first>
struct simt_operand {
  static const int EACH = ROWS * BK / SIMT_THREADS;
  Acc held[EACH];

  static __device__ __forceinline__ int row_of(int i) {
    int e = (int)threadIdx.x + i * SIMT_THREADS;
    return k_first ? e / BK : e % ROWS;
  }
  static __device__ __forceinline__ int k_of(int i) {
    int e = (int)threadIdx.x + i * SIMT_THREADS;
    return k_first ? e % BK : e / ROWS;
  }
  template <class Load>
  __device__ __forceinline__ void load(const Load& load, int row0, int rows, int k0, int k_end) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int row = row0 + row_of(i), k = k0 + k_of(i);
      held[i] = row < rows && k < k_end ? load(row, k) : (Acc)0;
    }
  }
  __device__ __forceinline__ void store(Acc (*tile)[ROWS + 4]) const {
#pragma unroll
    for (int i = 0; i < EACH; i++) tile[k_of(i)][row_of(i)] = held[i];
  }
};

// The tile of rows row0.. and columns column0.. of sum(a(m, k) b(n, k)) over k_begin <= k < k_end,
// for a of `rows` rows and b of `columns`; `put(m, n, sum)` takes every element inside.
template <class Acc, int BM, int BN, int BK, bool a_k_first, bool b_k_first, class A, class B,
          class Put>
DEVICE void simt_gemm(int row0, int rows, int column0, int columns, int k_begin, int k_end,
                      const A& a, const B& b, const Put& put) {
  const int TM = BM / 16, TN = BN / 16, VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4;
  __shared__ __align__(16) Acc a_tile[BK][BM + 4];
  __shared__ __align__(16) Acc b_tile[BK][BN + 4];
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  Acc sum[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) sum[i][j] = (Acc)0;

  simt_operand<Acc, BM, BK, a_k_first> next_a;
  simt_operand<Acc, BN, BK, b_k_first> next_b;
  if (k_begin < k_end) {
    next_a.load(a, row0, rows, k_begin, k_end);
    next_b.load(b, column0, columns, k_begin, k_end);
  }
  for (int k0 = k_begin; k0 < k_end; k0 += BK) {
    next_a.store(a_tile);
    next_b.store(b_tile);
    __syncthreads();
    if (k0 + BK < k_end) {
      next_a.load(a, row0, rows, k0 + BK, k_end);
      next_b.load(b, column0, columns, k0 + BK, k_end);
    }
#pragma unroll
    for (int k = 0; k < BK; k++) {
      Acc x[TM], y[TN];
      // Groups of four neighbours, so that shared memory is read 16 bytes at a time.
#pragma unroll
      for (int i = 0; i < TM; i++) x[i] = a_tile[k][i / VM * 16 * VM + ty * VM + i % VM];
#pragma unroll
      for (int j = 0; j < TN; j++) y[j] = b_tile[k][j / VN * 16 * VN + tx * VN + j % VN];
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) sum[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      int m = row0 + i / VM * 16 * VM + ty * VM + i % VM;
      int n = column0 + j / VN * 16 * VN + tx * VN + j % VN;
      if (m < rows && n < columns) put(m, n, sum[i][j]);
    }
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_SIMT_GEMM_CUH_
