// The providers whose kernels are the library's own: `xeon` with AVX-512 and what comes with it,
// `native` with the best of AVX2, NEON and plain C, `openmp` with the best of all on the threads of
// an OpenMP runtime instead of the pool's.
#include "backends/cpu/providers.h"

#include <stdio.h>

#include "backends/cpu/bind.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/pool.h"

static const hy_declaration declarations[] = {
#define HY_CPU_OP(op, family, dtypes) {HY_OP_##op, dtypes},
#define HY_CPU_OP_PARTLY(op, family, dtypes)
#include "backends/cpu/native_ops.def"
};
#define N_DECLARATIONS ((int)(sizeof declarations / sizeof declarations[0]))

typedef struct row {
  const hy__cpu_family* family;
  uint32_t dtypes;
} row;

static const row rows[HY_OP_END] = {
#define HY_CPU_OP(op, family, dtypes) [HY_OP_##op] = {&hy__cpu_##family, dtypes},
#include "backends/cpu/native_ops.def"
};
static const row integer_rows[HY_OP_END] = {
#define HY_CPU_OP(op, family, dtypes)
#define HY_CPU_INTEGER_OP(op, family, dtypes) [HY_OP_##op] = {&hy__cpu_##family, dtypes},
#include "backends/cpu/native_ops.def"
};

hy_status hy__cpu_no_memory(const hy_call* call) {
  return hy__cpu_host_services->fail(HY_OUT_OF_MEMORY, "%s: no memory for its working space",
                                     hy__cpu_host_services->op_name(call->op));
}

static hy_dtype first_dtype(const hy_call* call) {
  return call->n_in > 0 && call->in[0].dtype != HY_NONE ? call->in[0].dtype : call->out[0].dtype;
}

static const row* row_of(const hy_call* call) {
  const row* r = &integer_rows[call->op];
  return r->dtypes & HY_DTYPE_BIT(first_dtype(call)) ? r : &rows[call->op];
}

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  const row* r = row_of(call);
  if (!r->family) return HY_SUPPORT_NO_OP;
  if (!(r->dtypes & HY_DTYPE_BIT(first_dtype(call)))) return HY_SUPPORT_NO_DTYPE;
  return r->family->supports(call);
}

static hy_status run_up_to(hy__isa_level level, const hy_call* call) {
  return row_of(call)->family->run(hy__cpu_kernels_up_to(level), call);
}

// ---- xeon ----

static hy_status probe_xeon(hy_probe* report) {
  hy__isa_level level = hy__cpu_isa()->level;
  if (level == HY__ISA_AVX512) {
    report->stage = HY_STAGE_READY;
    return HY_OK;
  }
  report->stage = HY_STAGE_NONE;
  snprintf(report->remedy, sizeof report->remedy,
           "use the provider native, which runs on every processor");
  return hy__cpu_host_services->fail(
      HY_UNAVAILABLE,
      "xeon needs AVX-512 (F, BW, VL and DQ); this processor, or HALYARD_CPU_ISA, offers %s",
      hy__isa_name(level));
}

static hy_status run_xeon(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  return run_up_to(HY__ISA_AVX512, call);
}

const hy_provider hy__cpu_xeon = {
    .size = sizeof(hy_provider),
    .name = "xeon",
    .version = HY_VERSION_STRING,
    .probe = probe_xeon,
    .declares = declarations,
    .n_declares = N_DECLARATIONS,
    .supports = supports,
    .run = run_xeon,
};

// ---- native ----

static hy_status run_native(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  return run_up_to(HY__ISA_AVX2, call);
}

const hy_provider hy__cpu_native = {
    .size = sizeof(hy_provider),
    .name = "native",
    .version = HY_VERSION_STRING,
    .declares = declarations,
    .n_declares = N_DECLARATIONS,
    .supports = supports,
    .run = run_native,
};

hy_status hy__run_without_library(void* device, void* stream, const hy_call* call) {
  if (supports(device, call) != HY_SUPPORT_YES) return hy__cpu_host_services->reference(call);
  return run_native(device, stream, call);
}

// ---- openmp ----

#define OPENMP_FUNCTIONS(X) \
  X(void, GOMP_parallel, (void (*member)(void*), void* data, unsigned n, unsigned flags))

static struct openmp { OPENMP_FUNCTIONS(HY__AS_POINTER) } openmp;

static hy_status probe_openmp(hy_probe* report) {
  static const hy__symbol symbols[] = {
#define AS_SYMBOL(type, name, arguments) {#name, offsetof(struct openmp, name)},
      OPENMP_FUNCTIONS(AS_SYMBOL)
#undef AS_SYMBOL
  };
  void* library;
  snprintf(report->remedy, sizeof report->remedy, "install it, as with apt-get install libgomp1");
  HY_TRY(hy__cpu_host_services->open_library("libgomp.so.1 libomp.so.5 libomp.so", NULL, report,
                                             &library));
  HY_TRY(hy__bind(library, symbols, (int)(sizeof symbols / sizeof symbols[0]), &openmp, report));
  report->stage = HY_STAGE_READY;
  report->remedy[0] = 0;
  return HY_OK;
}

static hy_status run_openmp(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  if (!hy__bind_forked()) hy__pool_use_team(openmp.GOMP_parallel);
  hy_status status = run_up_to(HY__ISA_AVX512, call);
  hy__pool_use_team(NULL);
  return status;
}

const hy_provider hy__cpu_openmp = {
    .size = sizeof(hy_provider),
    .name = "openmp",
    .version = HY_VERSION_STRING,
    .probe = probe_openmp,
    .declares = declarations,
    .n_declares = N_DECLARATIONS,
    .flags = HY_PROVIDER_BY_NAME,
    .supports = supports,
    .run = run_openmp,
};
