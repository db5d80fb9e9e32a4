// Families of ops on the cpu: what a family runs, and the kernels that an instruction set gives it.
//
// A family (gemm/matmul.c, ops/softmax.c, ...) knows ops, shapes and threads; what it needs in
// vectors it takes from the tables of the provider that runs it. docs/how-to/cpu-kernel.md adds
// one.
#ifndef HALYARD_CPU_FAMILY_H_
#define HALYARD_CPU_FAMILY_H_

#include "backends/common/host.h"
#include "backends/cpu/attention/kernels.h"
#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/quant/kernels.h"
#include "backends/cpu/rows/rows.h"
#include "backends/cpu/runtime/caches.h"

// The kernels for a set of feature bits, a table for each topic.
typedef struct hy__cpu_kernels {
  hy__gemm_kernels gemm;
  hy__attention_kernels attention;
  hy__quant_kernels quant;
  const hy__rows* rows;
} hy__cpu_kernels;

static inline void hy__cpu_kernels_init(hy__cpu_kernels* kernels, uint32_t isa) {
  hy__caches_init();
  hy__gemm_kernels_init(&kernels->gemm, isa);
  hy__attention_kernels_init(&kernels->attention, isa);
  hy__quant_kernels_init(&kernels->quant, isa);
  kernels->rows = hy__rows_for(isa);
}

// What a family runs, and running it. `run` is called only for calls it supports.
typedef struct hy__cpu_family {
  hy_support (*supports)(const hy_call* call);
  hy_status (*run)(const hy__cpu_kernels* kernels, const hy_call* call);
} hy__cpu_family;

// The families are those named in ops.def.
#define HY_CPU_OP(op, family, dtypes) extern const hy__cpu_family hy__cpu_##family;
#define HY_CPU_INTEGER_OP HY_CPU_OP
#include "backends/cpu/ops.def"

// The message of a call that found no memory for its working space.
hy_status hy__cpu_no_memory(const hy_call* call);

#endif  // HALYARD_CPU_FAMILY_H_
