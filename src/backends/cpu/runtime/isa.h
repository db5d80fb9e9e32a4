// Instruction sets as feature bits: what this processor has and its system lets a process use.
// Asked once; the answer never changes.
#ifndef HALYARD_CPU_RUNTIME_ISA_H_
#define HALYARD_CPU_RUNTIME_ISA_H_

#include <stdint.h>

#include "halyard/status.h"

// Bit, name. No set implies another: kernels ask for every one they use.
#define HY__ISA_MAP(X)                                              \
  X(NEON, 0, "neon")                                                \
  X(AVX2, 1, "avx2")               /* with FMA and F16C */          \
  X(AVX512, 2, "avx512")           /* F, BW, VL and DQ */           \
  X(AVX512_VNNI, 3, "avx512_vnni") /* dot products of bytes */      \
  X(AVX512_BF16, 4, "avx512_bf16") /* dot products of bf16 pairs */ \
  X(AMX_INT8, 5, "amx_int8")       /* tiles of bytes */             \
  X(AMX_BF16, 6, "amx_bf16")       /* tiles of bf16 */              \
  X(AVX512_VBMI, 7, "avx512_vbmi") /* permutes of bytes */

enum {
#define HY_AS_ENUM(name, bit, text) HY__ISA_##name = 1u << bit,
  HY__ISA_MAP(HY_AS_ENUM)
#undef HY_AS_ENUM
};

// What runs only where HY__ISA_AVX512 does.
#define HY__ISA_AVX512_FAMILY                                                         \
  (HY__ISA_AVX512 | HY__ISA_AVX512_VNNI | HY__ISA_AVX512_BF16 | HY__ISA_AVX512_VBMI | \
   HY__ISA_AMX_INT8 | HY__ISA_AMX_BF16)

// The bits that are there. HALYARD_CPU_ISA (scalar, neon, avx2, avx512) takes away those beyond it,
// for tests.
uint32_t hy__cpu_isa(void);
// HY_INVALID_ARGUMENT where HALYARD_CPU_ISA is none of these.
hy_status hy__cpu_isa_check(void);
// The widest vectors among the bits, in words: "avx512", "avx2", "neon" or "scalar".
const char* hy__isa_name(uint32_t isa);

#endif  // HALYARD_CPU_RUNTIME_ISA_H_
