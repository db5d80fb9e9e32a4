// The cpu's own kernels, as the other providers use them, and every provider of the backend.
#ifndef HALYARD_CPU_PROVIDER_H_
#define HALYARD_CPU_PROVIDER_H_

#include "halyard/plugin.h"

extern const hy_provider hy__cpu_avx512, hy__cpu_native, hy__cpu_openblas, hy__cpu_mkl,
    hy__cpu_mkldnn, hy__cpu_openmp, hy__cpu_nnpack, hy__cpu_reference_mt, hy__cpu_xeon;

// Whether our own kernels run the call, and running it with the best of them.
hy_support hy__cpu_supports(void* device, const hy_call* call);
hy_status hy__cpu_run_best(const hy_call* call);
// What our own kernels promise.
extern const hy_declaration hy__cpu_declarations[];
enum {
  HY__CPU_N_DECLARATIONS = 0
#define HY_CPU_OP(op, family, dtypes) +1
#define HY_CPU_OP_PARTLY(op, family, dtypes)
#include "backends/cpu/ops.def"
};
// What a library's provider does in a process where the library cannot be used, as after fork.
hy_status hy__cpu_run_without_library(void* device, void* stream, const hy_call* call);

#endif  // HALYARD_CPU_PROVIDER_H_
