// HIP's dialect, for AMD's GPUs and Hygon's. A warp of the kernels is 32 lanes everywhere: on
// hardware with wavefronts of 64, each half is one, which makes sums run in the same order on every
// GPU. Shuffles stay inside a half; lanes of the other half may be elsewhere meanwhile.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_HIP_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_HIP_CUH_

#define HY_HIP 1
#define HY_WARP 32
#define SHFL_XOR(value, mask) __shfl_xor(value, mask, HY_WARP)
#define SHFL_UP(value, delta) __shfl_up(value, delta, HY_WARP)
#define SHFL_DOWN(value, delta) __shfl_down(value, delta, HY_WARP)
#define SHFL(value, lane) __shfl(value, lane, HY_WARP)

// Lanes of a wavefront go in step: what is missing is that the compiler keeps the order.
#define __syncwarp() \
  (__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"), __builtin_amdgcn_wave_barrier())

// The second number that CUDA's takes, blocks of a multiprocessor, means something else here.
#ifndef HY_EMULATOR
#undef __launch_bounds__
#define __launch_bounds__(threads, ...) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#endif

// Matrix cores with tiles of 16 x 16 x 16 halves; see tensor_core.cuh.
#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || \
    defined(__gfx950__)
#define HY_MFMA 1
#endif

__device__ inline __attribute__((always_inline)) int hip_dp4a(int a, int b, int c) {
#if defined(__gfx906__) || defined(__gfx908__) || defined(HY_MFMA)
  return __builtin_amdgcn_sdot4(a, b, c, false);
#else
  for (int i = 0; i < 32; i += 8) c += (int)(signed char)(a >> i) * (signed char)(b >> i);
  return c;
#endif
}
#define __dp4a hip_dp4a
__device__ inline int hip_float2int_rn(float v) {
  return (int)__builtin_rintf(v);
}
#define __float2int_rn hip_float2int_rn

#endif  // HALYARD_BACKENDS_GPU_KERNELS_HIP_CUH_
