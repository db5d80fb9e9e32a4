// Plugins for the loader's tests: one that is good, and one for each way of being bad; and one that
// loads well and claims what it cannot do. The build compiles this file once for each, with
// PLUGIN_<case> defined.
#include <stddef.h>

#include "support/stub.h"

#define EXPORT __attribute__((visibility("default")))

#if defined(PLUGIN_no_query)

EXPORT int halyard_backend_quarry(void);
int halyard_backend_quarry(void) {
  return 0;
}

#else

#if defined(PLUGIN_lying)

static const hy_host* services;

static hy_support supports_add(void* device, const hy_call* call) {
  (void)device;
  if (call->op != HY_OP_add) return HY_SUPPORT_NO_OP;
  for (int i = 0; i < 3; i++)
    if ((i < 2 ? &call->in[i] : &call->out[0])->dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
  return HY_SUPPORT_YES;
}

static hy_status run_add(void* device, void* stream, const hy_call* call) {
  (void)device, (void)stream;
  return services->reference(call);
}

// An honest add of f32, and a claim of fp32, which is more than that.
static void lie(hy_backend* table, const hy_host* host) {
  static const hy_declaration declares[] = {{HY_OP_add, HY_DTYPE_BIT(HY_F32)}};
  static hy_provider kernels;
  static const hy_provider* const list[] = {&kernels};
  services = host;
  kernels = stub_provider("lying_kernels");
  kernels.declares = declares;
  kernels.n_declares = 1;
  kernels.supports = supports_add;
  kernels.run = run_add;
  table->name = "lying";
  table->providers = list;
  table->n_providers = 1;
  stub.capabilities = HY_CAP_FP32;
}

#endif

EXPORT hy_status halyard_backend_query(uint32_t max_abi, const hy_host* host,
                                       const hy_backend** backend) {
  static hy_backend table;
  stub_reset();
  table = stub_backend("good");
  *backend = &table;
  if (host->size < sizeof *host || max_abi < 1) return HY_INTERNAL;
#if defined(PLUGIN_refusing)
  return host->fail(HY_DEVICE_FAILED, "the licence has run out");
#elif defined(PLUGIN_needs_newer)
  return HY_ABI_MISMATCH;
#elif defined(PLUGIN_newer_table)
  table.name = "newer_table";
  table.abi = max_abi + 1;
#elif defined(PLUGIN_no_table)
  *backend = NULL;
#elif defined(PLUGIN_tiny_table)
  table.size = 4;
#elif defined(PLUGIN_null_function)
  table.name = "null_function";
  table.device_open = NULL;
#elif defined(PLUGIN_half_streams)
  // Streams without events.
  table.name = "half_streams";
  table.stream_create = table.device_open ? (hy_status(*)(void*, void**))1 : NULL;
#elif defined(PLUGIN_lying)
  lie(&table, host);
#elif defined(PLUGIN_failing)
  table.name = "failing";
  stub.status = HY_DEVICE_FAILED;
  stub.stage = HY_STAGE_DEVICES;
  stub.reason = "the small kernel gave 3 for 1 + 1";
#endif
  return HY_OK;
}

#endif
