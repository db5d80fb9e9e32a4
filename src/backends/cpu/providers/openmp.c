// The provider `openmp`: our own kernels on the threads of an OpenMP runtime instead of the thread
// pool's.
#include <stdio.h>

#include "backends/common/dlsym.h"
#include "backends/common/host.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/runtime/thread_pool.h"

#define OPENMP_FUNCTIONS(X) \
  X(void, GOMP_parallel, (void (*member)(void*), void* data, unsigned n, unsigned flags))

static struct openmp { OPENMP_FUNCTIONS(HY__AS_POINTER) } openmp;

static hy_status probe(hy_probe* report) {
  static const hy__symbol symbols[] = {
#define AS_SYMBOL(type, name, arguments) {#name, offsetof(struct openmp, name)},
      OPENMP_FUNCTIONS(AS_SYMBOL)
#undef AS_SYMBOL
  };
  void* library;
  snprintf(report->remedy, sizeof report->remedy, "install it, as with apt-get install libgomp1");
  HY_TRY(
      hy__backend_host->open_library("libgomp.so.1 libomp.so.5 libomp.so", NULL, report, &library));
  HY_TRY(
      hy__dlsym_bind(library, symbols, (int)(sizeof symbols / sizeof symbols[0]), &openmp, report));
  report->stage = HY_STAGE_READY;
  report->remedy[0] = 0;
  return HY_OK;
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  if (!hy__dlsym_forked()) hy__pool_use_team(openmp.GOMP_parallel);
  hy_status status = hy__cpu_run_best(call);
  hy__pool_use_team(NULL);
  return status;
}

const hy_provider hy__cpu_openmp = {
    .size = sizeof(hy_provider),
    .name = "openmp",
    .version = HY_VERSION_STRING,
    .probe = probe,
    .declares = hy__cpu_declarations,
    .n_declares = HY__CPU_N_DECLARATIONS,
    .flags = HY_PROVIDER_BY_NAME,
    .supports = hy__cpu_supports,
    .run = run,
};
