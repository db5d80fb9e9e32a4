// Which instructions this processor and its system offer; asked once, the answer never changes.
#ifndef HALYARD_CPU_RUNTIME_FEATURES_H_
#define HALYARD_CPU_RUNTIME_FEATURES_H_

#include <stdbool.h>

// The highest level whose instructions are all there. HALYARD_CPU_ISA (scalar, avx2, avx512, neon)
// lowers it, for tests.
typedef enum hy__isa_level {
  HY__ISA_SCALAR,
  HY__ISA_NEON,
  HY__ISA_AVX2,
  HY__ISA_AVX512
} hy__isa_level;

typedef struct hy__isa {
  hy__isa_level level;
  bool vnni;  // avx512_vnni
  bool avx512_bf16;
  bool amx_int8, amx_bf16;  // and the system lets this process use the tiles
} hy__isa;

const hy__isa* hy__cpu_isa(void);
const char* hy__isa_name(hy__isa_level level);

#endif  // HALYARD_CPU_RUNTIME_FEATURES_H_
