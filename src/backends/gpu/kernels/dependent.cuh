// Programmatic dependent launch (sm_90): a kernel launched with hy__gpu_launch_dependent starts
// while the one before it runs. Until wait_for_previous it may read only what no kernel under way
// writes; the host knows (`early`). Every such kernel waits, in every block, before it ends: that is
// how the completion of one implies that of all before it.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_DEPENDENT_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_DEPENDENT_CUH_

// The next kernel may start once all blocks of this one have said so.
DEVICE void launch_dependents() {
#if HY_PTX && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Until the kernel before is done and what it wrote can be seen.
DEVICE void wait_for_previous() {
#if HY_PTX && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Brings a line towards the second cache, which sees what other kernels write: at any time.
DEVICE void prefetch(const void* at) {
#if HY_PTX
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
}

// 16 bytes that are read once and that no kernel under way writes.
DEVICE vec<u32, 4> load_once(const void* at) {
#if HY_PTX
  vec<u32, 4> v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.at[0]), "=r"(v.at[1]), "=r"(v.at[2]), "=r"(v.at[3])
               : "l"(at));
  return v;
#else
  return *(const vec<u32, 4>*)at;
#endif
}

DEVICE void load_once(const void* at, vec<u32, 4>* to) { *to = load_once(at); }
DEVICE void load_once(const void* at, vec<u32, 2>* to) {
#if HY_PTX
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(to->at[0]), "=r"(to->at[1])
               : "l"(at));
#else
  *to = *(const vec<u32, 2>*)at;
#endif
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_DEPENDENT_CUH_
