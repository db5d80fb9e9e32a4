// Fused chains of elementwise ops on the cpu.
#ifndef HALYARD_CPU_FUSED_CHAIN_H_
#define HALYARD_CPU_FUSED_CHAIN_H_

#include "backends/cpu/family.h"

hy_support hy__cpu_supports_chain(const hy_chain* chain);
// Variants, of which 0 suits most chains, are lengths of the blocks.
enum { HY__CHAIN_VARIANTS = 3 };
hy_status hy__cpu_run_chain(const hy__cpu_kernels* kernels, const hy_chain* chain, int variant);

#endif  // HALYARD_CPU_FUSED_CHAIN_H_
