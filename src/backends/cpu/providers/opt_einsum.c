// The provider `opt_einsum`: the library's planner of contractions (ops/einsum_plan.h) by its name.
//
// It has no kernels. An einsum that no provider takes whole is contracted two operands at a time in
// the cheapest order, on every device, and what runs the products is up to the other providers; so
// there is nothing to switch on, only something to name and to report.
#include "backends/cpu/family.h"
#include "backends/cpu/provider.h"

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  (void)call;
  return HY_SUPPORT_NO_OP;
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  return hy__backend_host->fail(HY_INTERNAL, "%s: opt_einsum plans, and runs nothing",
                                hy__backend_host->op_name(call->op));
}

const hy_provider hy__cpu_opt_einsum = {
    .size = sizeof(hy_provider),
    .name = "opt_einsum",
    .version = HY_VERSION_STRING,
    .flags = HY_PROVIDER_BY_NAME,
    .supports = supports,
    .run = run,
};
