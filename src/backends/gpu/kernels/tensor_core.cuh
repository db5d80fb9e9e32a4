// Tensor cores by PTX: ldmatrix, mma.sync and cp.async, which every GPU since sm_80 has; and the
// same for AMD's, where there is MFMA. Half values travel in pairs, two to a 32-bit register;
// accumulators are f32 (s32 for bytes).
//
// What kernels are written against, so that they need not know whose GPU it is: a product of 16 x
// 16 is shared by MMA_LANES lanes. A lane has MMA_ROWS of its rows, the first being mma_row and the
// others 8 below each, and in each row two pairs of neighbours: pair j of a row of many such
// products is at mma_column(lane, j), and its elements are sums[j][2 h] and sums[j][2 h + 1].
#ifndef HALYARD_BACKENDS_GPU_KERNELS_TENSOR_CORE_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_TENSOR_CORE_CUH_

#if HY_HIP
#include "mfma.cuh"
#else

#define MMA_LANES 32
#define MMA_ROWS 2
#define MMA_REGISTERS 4  // of an operand of 16 x 16

DEVICE int mma_row(int lane) {
  return lane / 4;
}
DEVICE int mma_column(int lane, int pair) {
  return 8 * pair + lane % 4 * 2;
}
// The lanes of a row differ in these two bits of their numbers.
#define MMA_ROW_XOR(value, bit) SHFL_XOR(value, 1 << (bit))
DEVICE bool mma_first_of_row(int lane) {
  return lane % 4 == 0;
}

// The address of shared memory as PTX takes it.
DEVICE unsigned shared_address(const void* p) {
  unsigned address;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(p));
  return address;
}

// ---- asynchronous copies ----

// 16 bytes from global to shared memory, past the first cache; those beyond `bytes` become 0.
DEVICE void copy_async_16(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}

DEVICE void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

DEVICE void copy_async_4(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}

// Until at most `pending` of this thread's latest groups are under way.
template <int pending>
DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// ---- fragments ----

// Four 8x8 matrices of halves; lane l gives the address of row l % 8 of matrix l / 8 and receives
// elements (l / 4, 2 (l % 4)) and its neighbour of each, or of its transpose.
template <bool transposed>
DEVICE void load_matrices(unsigned (&r)[4], const void* row) {
  unsigned at = shared_address(row);
  if (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

// c[16, 8] += a[16, 16] b[16, 8]. Lane l holds of c (l / 4, 2 (l % 4)) and its neighbour, then the
// same 8 rows below; of a the four 8x8 matrices (0, 0), (8, 0), (0, 8), (8, 8); of b, by columns,
// (0, 0), (8, 0).
DEVICE void mma(f16, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE void mma(bf16, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// sums[16, 16] += a[16, 16] b[16, 16]^T, pairs 0 and 1 of its rows.
template <class T>
DEVICE void mma_16x16(T kind, float (&first)[4], float (&second)[4], const unsigned (&a)[4],
                      const unsigned (&b)[4]) {
  mma(kind, first, a, b[0], b[2]);
  mma(kind, second, a, b[1], b[3]);
}

// The same of bytes, 32 of k: lane l holds four neighbours (l / 4, 4 (l % 4)) where halves have
// two.
DEVICE void mma(i8, int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats as a pair of halves, the first in the low bits.
DEVICE unsigned pack_pair(f16, float low, float high) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

DEVICE unsigned pack_pair(bf16, float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// a b + c of both halves, each rounded once.
DEVICE unsigned fma_pair(f16, unsigned a, unsigned b, unsigned c) {
  unsigned d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

DEVICE unsigned fma_pair(bf16, unsigned a, unsigned b, unsigned c) {
  unsigned d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// 2 to the x by the special function unit: 2 units off at most, subnormal results are 0.
DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

#endif  // !HY_HIP
#endif  // HALYARD_BACKENDS_GPU_KERNELS_TENSOR_CORE_CUH_
