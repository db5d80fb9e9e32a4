// Compiling functions for an instruction set that the build does not have: those between
// HY__TARGET_<SET> and HY__TARGET_END. Only what runtime/isa.h says is there may call them.
#ifndef HALYARD_CPU_RUNTIME_TARGET_H_
#define HALYARD_CPU_RUNTIME_TARGET_H_

#define HY__PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define HY__TARGET(set) \
  HY__PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define HY__TARGET_END _Pragma("clang attribute pop")
#else
#define HY__TARGET(set) _Pragma("GCC push_options") HY__PRAGMA(GCC target(set))
#define HY__TARGET_END _Pragma("GCC pop_options")
#endif

#define HY__TARGET_AVX2 HY__TARGET("avx2,fma,f16c")
#define HY__TARGET_AVX512 HY__TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#define HY__TARGET_VNNI HY__TARGET("avx512vnni,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#define HY__TARGET_VBMI HY__TARGET("avx512vbmi,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#define HY__TARGET_BF16 HY__TARGET("avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")
#define HY__TARGET_AMX \
  HY__TARGET("amx-tile,amx-int8,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c")

// One body for several constant sizes: inlined into each, its loops unrolled.
#define HY__INLINE static inline __attribute__((always_inline))

#endif  // HALYARD_CPU_RUNTIME_TARGET_H_
