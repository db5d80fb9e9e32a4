// The providers of the cpu backend, in the order in which they are asked.
#ifndef HALYARD_CPU_PROVIDERS_PROVIDERS_H_
#define HALYARD_CPU_PROVIDERS_PROVIDERS_H_

#include "halyard/plugin.h"

extern const hy_provider hy__cpu_xeon, hy__cpu_native, hy__cpu_openblas, hy__cpu_mkl,
    hy__cpu_mkldnn, hy__cpu_openmp, hy__cpu_nnpack, hy__cpu_opt_einsum, hy__cpu_parts;

// What a library's provider does in a process where the library cannot be used.
hy_status hy__run_without_library(void* device, void* stream, const hy_call* call);

#endif  // HALYARD_CPU_PROVIDERS_PROVIDERS_H_
