// mha: fused attention by name, which is the backend's own flash attention: forward and backward,
// on tensor cores in 16-bit types, and over a paged cache.
#include "backends/cuda/cuda.h"

static const hy_declaration declarations[] = {
    {HY_OP_sdpa, HY_FLOATS},
    {HY_OP_sdpa_backward, HY_FLOATS},
    {HY_OP_paged_attention, HY_FLOATS},
    {HY_OP_rope_paged_attention, HY_FLOATS},
    {HY_OP_rope_cache, HY_FLOATS},
};
enum { COUNT = sizeof declarations / sizeof declarations[0] };

static hy_support supports(void* device, const hy_call* call) {
  for (int i = 0; i < COUNT; i++)
    if (declarations[i].op == call->op) return hy__gpu_supports(device, call);
  return HY_SUPPORT_NO_OP;
}

const hy_provider hy__cuda_mha = {
    .size = sizeof(hy_provider),
    .name = "mha",
    .version = HY_VERSION_STRING,
    .declares = declarations,
    .n_declares = COUNT,
    .supports = supports,
    .run = hy__gpu_run,
};
