// Which row kernels an instruction set gives.
#include "backends/cpu/rows/rows.h"

#include "backends/cpu/runtime/isa.h"

const hy__rows* hy__rows_for(uint32_t isa) {
#if defined(__x86_64__)
  if (isa & HY__ISA_AVX512) return &hy__rows_avx512;
  if (isa & HY__ISA_AVX2) return &hy__rows_avx2;
#endif
  (void)isa;
  return &hy__rows_generic;
}
