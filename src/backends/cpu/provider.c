// The providers whose kernels are the library's own: `avx512` (by an older name `xeon`) with
// AVX-512 and what comes with it, `native` with the best of AVX2, NEON and plain C.
#include "backends/cpu/provider.h"

#include <pthread.h>
#include <stdio.h>

#include "backends/cpu/family.h"
#include "backends/cpu/fused/chain.h"
#include "backends/cpu/gemm/matmul.h"
#include "backends/cpu/runtime/isa.h"

const hy_declaration hy__cpu_declarations[] = {
#define HY_CPU_OP(op, family, dtypes) {HY_OP_##op, dtypes},
#define HY_CPU_OP_PARTLY(op, family, dtypes)  // promises nothing
#include "backends/cpu/ops.def"
};

typedef struct row {
  const hy__cpu_family* family;
  uint32_t dtypes;
} row;

static const row rows[HY_OP_END] = {
#define HY_CPU_OP(op, family, dtypes) [HY_OP_##op] = {&hy__cpu_##family, dtypes},
#include "backends/cpu/ops.def"
};
static const row integer_rows[HY_OP_END] = {
#define HY_CPU_INTEGER_OP(op, family, dtypes) [HY_OP_##op] = {&hy__cpu_##family, dtypes},
#include "backends/cpu/ops.def"
};

hy_status hy__cpu_no_memory(const hy_call* call) {
  return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no memory for its working space",
                                hy__backend_host->op_name(call->op));
}

static hy_dtype first_dtype(const hy_call* call) {
  return call->n_in > 0 && call->in[0].dtype != HY_NONE ? call->in[0].dtype : call->out[0].dtype;
}

static const row* row_of(const hy_call* call) {
  const row* r = &integer_rows[call->op];
  return r->dtypes & HY_DTYPE_BIT(first_dtype(call)) ? r : &rows[call->op];
}

hy_support hy__cpu_supports(void* device, const hy_call* call) {
  (void)device;
  const row* r = row_of(call);
  if (!r->family) return HY_SUPPORT_NO_OP;
  if (!(r->dtypes & HY_DTYPE_BIT(first_dtype(call)))) return HY_SUPPORT_NO_DTYPE;
  return r->family->supports(call);
}

// The kernels of every feature bit that is there, and of those without AVX-512.
static hy__cpu_kernels best, without_avx512;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose_kernels(void) {
  hy__cpu_kernels_init(&best, hy__cpu_isa());
  hy__cpu_kernels_init(&without_avx512, hy__cpu_isa() & ~(uint32_t)HY__ISA_AVX512_FAMILY);
}

hy_status hy__cpu_run_best(const hy_call* call) {
  pthread_once(&once, choose_kernels);
  return row_of(call)->family->run(&best, call);
}

static hy_support supports_chain(void* device, const hy_chain* chain) {
  (void)device;
  return hy__cpu_supports_chain(chain);
}

// Tiles of a product, blocks of a chain.
static int32_t variants(void* device, const hy_graph_node* node) {
  (void)device;
  if (node->kind == HY_NODE_CHAIN) return HY__CHAIN_VARIANTS;
  return row_of(node->call)->family == &hy__cpu_matmul ? HY__GEMM_TILES : 1;
}

static hy_status run_variant(const hy__cpu_kernels* kernels, const hy_graph_node* node,
                             int32_t variant) {
  pthread_once(&once, choose_kernels);
  if (node->kind == HY_NODE_CHAIN) return hy__cpu_run_chain(kernels, node->chain, variant);
  return hy__matmul_tiled(kernels, node->call, variant);
}

static uint64_t packed_bytes(const hy__cpu_kernels* kernels, const hy_call* call,
                             hy_tensor* matrix) {
  pthread_once(&once, choose_kernels);
  return row_of(call)->family == &hy__cpu_matmul ? hy__matmul_packed_bytes(kernels, call, matrix)
                                                 : 0;
}

// ---- avx512 ----

static hy_status probe_avx512(hy_probe* report) {
  if (hy__cpu_isa() & HY__ISA_AVX512) {
    report->stage = HY_STAGE_READY;
    return HY_OK;
  }
  report->stage = HY_STAGE_NONE;
  snprintf(report->remedy, sizeof report->remedy,
           "use the provider native, which runs on every processor");
  return hy__backend_host->fail(
      HY_UNAVAILABLE,
      "avx512 needs AVX-512 (F, BW, VL and DQ); this processor, or HALYARD_CPU_ISA, offers %s",
      hy__isa_name(hy__cpu_isa()));
}

static hy_status run_avx512(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  return hy__cpu_run_best(call);
}

static hy_status run_chain_avx512(void* device, void* stream, const hy_chain* chain) {
  (void)device;
  (void)stream;
  pthread_once(&once, choose_kernels);
  return hy__cpu_run_chain(&best, chain, 0);
}

static uint64_t packed_bytes_avx512(void* device, const hy_call* call, hy_tensor* matrix) {
  (void)device;
  return packed_bytes(&best, call, matrix);
}

static hy_status pack_avx512(void* device, void* stream, const hy_tensor* matrix, void* packed) {
  (void)device;
  (void)stream;
  hy__matmul_pack(&best, matrix, packed);
  return HY_OK;
}

static hy_status run_packed_avx512(void* device, void* stream, const hy_call* call,
                                   const void* packed) {
  (void)device;
  (void)stream;
  return hy__matmul_packed(&best, call, packed);
}

static hy_status run_variant_avx512(void* device, void* stream, const hy_graph_node* node,
                                    int32_t variant) {
  (void)device;
  (void)stream;
  return run_variant(&best, node, variant);
}

const hy_provider hy__cpu_avx512 = {
    .size = sizeof(hy_provider),
    .name = "avx512",
    .version = HY_VERSION_STRING,
    .probe = probe_avx512,
    .declares = hy__cpu_declarations,
    .n_declares = HY__CPU_N_DECLARATIONS,
    .supports = hy__cpu_supports,
    .run = run_avx512,
    .supports_chain = supports_chain,
    .run_chain = run_chain_avx512,
    .variants = variants,
    .run_variant = run_variant_avx512,
    .packed_bytes = packed_bytes_avx512,
    .pack = pack_avx512,
    .run_packed = run_packed_avx512,
};

// The same under the name that PyTorch's CPU backend gives it.
const hy_provider hy__cpu_xeon = {
    .size = sizeof(hy_provider),
    .name = "xeon",
    .version = HY_VERSION_STRING,
    .probe = probe_avx512,
    .declares = hy__cpu_declarations,
    .n_declares = HY__CPU_N_DECLARATIONS,
    .supports = hy__cpu_supports,
    .run = run_avx512,
    .supports_chain = supports_chain,
    .run_chain = run_chain_avx512,
    .variants = variants,
    .run_variant = run_variant_avx512,
    .packed_bytes = packed_bytes_avx512,
    .pack = pack_avx512,
    .run_packed = run_packed_avx512,
    .flags = HY_PROVIDER_BY_NAME,
};

// ---- native ----

static hy_status run_native(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  pthread_once(&once, choose_kernels);
  return row_of(call)->family->run(&without_avx512, call);
}

static hy_status run_chain_native(void* device, void* stream, const hy_chain* chain) {
  (void)device;
  (void)stream;
  pthread_once(&once, choose_kernels);
  return hy__cpu_run_chain(&without_avx512, chain, 0);
}

static uint64_t packed_bytes_native(void* device, const hy_call* call, hy_tensor* matrix) {
  (void)device;
  return packed_bytes(&without_avx512, call, matrix);
}

static hy_status pack_native(void* device, void* stream, const hy_tensor* matrix, void* packed) {
  (void)device;
  (void)stream;
  hy__matmul_pack(&without_avx512, matrix, packed);
  return HY_OK;
}

static hy_status run_packed_native(void* device, void* stream, const hy_call* call,
                                   const void* packed) {
  (void)device;
  (void)stream;
  return hy__matmul_packed(&without_avx512, call, packed);
}

static hy_status run_variant_native(void* device, void* stream, const hy_graph_node* node,
                                    int32_t variant) {
  (void)device;
  (void)stream;
  return run_variant(&without_avx512, node, variant);
}

const hy_provider hy__cpu_native = {
    .size = sizeof(hy_provider),
    .name = "native",
    .version = HY_VERSION_STRING,
    .declares = hy__cpu_declarations,
    .n_declares = HY__CPU_N_DECLARATIONS,
    .supports = hy__cpu_supports,
    .run = run_native,
    .supports_chain = supports_chain,
    .run_chain = run_chain_native,
    .variants = variants,
    .run_variant = run_variant_native,
    .packed_bytes = packed_bytes_native,
    .pack = pack_native,
    .run_packed = run_packed_native,
};

hy_status hy__cpu_run_without_library(void* device, void* stream, const hy_call* call) {
  if (hy__cpu_supports(device, call) != HY_SUPPORT_YES) return hy__backend_host->reference(call);
  return run_native(device, stream, call);
}
