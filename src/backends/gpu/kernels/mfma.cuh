// tensor_core.cuh for AMD's GPUs. MFMA computes a tile of 16 x 16 x 16 with the 64 lanes of a
// wavefront. Its operands change places, so that a lane gets four neighbours of one row, which is
// also how it holds an operand: a product can be the left operand of the next one as it is. GPUs
// without MFMA of that shape have the copies and the arithmetic of pairs alone.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_MFMA_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_MFMA_CUH_

// ---- copies: through registers, so that there is nothing to wait for ----

DEVICE void copy_async_16(void* shared, const void* global, int bytes) {
  if (bytes == 16) {
    *(vec<u32, 4>*)shared = *(const vec<u32, 4>*)global;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; i++)
    ((u16*)shared)[i] = 2 * i < bytes ? ((const u16*)global)[i] : (u16)0;
}

DEVICE void copy_async_4(void* shared, const void* global, int bytes) {
  *(u32*)shared = bytes == 4 ? *(const u32*)global : 0;
}

DEVICE void copy_async_commit() {}

template <int pending>
DEVICE void copy_async_wait() {}

// ---- pairs ----

DEVICE unsigned pack_pair(f16, float low, float high) {
  return f32_to_f16(low) | (unsigned)f32_to_f16(high) << 16;
}
DEVICE unsigned pack_pair(bf16, float low, float high) {
  return f32_to_bf16(low) | (unsigned)f32_to_bf16(high) << 16;
}

DEVICE float half_of(f16, unsigned bits) {
  return f16_to_f32((u16)bits);
}
DEVICE float half_of(bf16, unsigned bits) {
  return bf16_to_f32((u16)bits);
}
template <class T>
DEVICE unsigned fma_pair(T kind, unsigned a, unsigned b, unsigned c) {
  return pack_pair(kind, fmaf(half_of(kind, a), half_of(kind, b), half_of(kind, c)),
                   fmaf(half_of(kind, a >> 16), half_of(kind, b >> 16), half_of(kind, c >> 16)));
}

DEVICE float exp2_approx(float x) {
#if __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else  // clang before 17
  return exp2f(x);
#endif
}

// ---- tiles ----

#ifdef HY_MFMA
#define MMA_LANES 64
#define MMA_ROWS 1
#define MMA_REGISTERS 2

DEVICE int mma_row(int lane) {
  return lane % 16;
}
DEVICE int mma_column(int lane, int pair) {
  return pair / 2 * 16 + lane / 16 * 4 + pair % 2 * 2;
}
#define MMA_ROW_XOR(value, bit) __shfl_xor(value, 16 << (bit), 64)
DEVICE bool mma_first_of_row(int lane) {
  return lane < 16;
}

typedef _Float16 four_f16 __attribute__((vector_size(8)));
typedef short four_bf16 __attribute__((vector_size(8)));
typedef float four_f32 __attribute__((vector_size(16)));

DEVICE four_f32 mfma(f16, vec<unsigned, 2> a, vec<unsigned, 2> b, four_f32 c) {
  return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(four_f16, a),
                                               __builtin_bit_cast(four_f16, b), c, 0, 0, 0);
}
DEVICE four_f32 mfma(bf16, vec<unsigned, 2> a, vec<unsigned, 2> b, four_f32 c) {
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(four_bf16, a),
                                                   __builtin_bit_cast(four_bf16, b), c, 0, 0, 0);
}

// An operand's lane l has elements 4 (l / 16) and the next three of row l % 16.
template <class T>
DEVICE void mma_16x16(T kind, float (&first)[2], float (&second)[2], const unsigned (&a)[2],
                      const unsigned (&b)[2]) {
  four_f32 sum = {first[0], first[1], second[0], second[1]};
  sum = mfma(kind, vec<unsigned, 2>{{b[0], b[1]}}, vec<unsigned, 2>{{a[0], a[1]}}, sum);
  first[0] = sum[0];
  first[1] = sum[1];
  second[0] = sum[2];
  second[1] = sum[3];
}
#endif  // HY_MFMA

#endif  // HALYARD_BACKENDS_GPU_KERNELS_MFMA_CUH_
