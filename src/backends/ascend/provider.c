// The ascend provider: which family an op belongs to, what is promised on this chip, and which
// tensors it takes.
#include "backends/ascend/ascend.h"

static const struct {
  hy_op op;
  uint32_t dtypes;
  const char* names;
} table[] = {
#define ASCEND_OP(op, family, dtypes, names) {HY_OP_##op, dtypes, names},
#include "backends/ascend/ops.def"
};
enum { N_OPS = sizeof table / sizeof table[0] };

static const hy__task_family families[HY_OP_END] = {
#define ASCEND_OP(op, family, dtypes, names) [HY_OP_##op] = hy__##family,
#include "backends/ascend/ops.def"
};
static hy_declaration declared[N_OPS];

// What is made of products, which in f32 keep their precision on some chips only.
static bool needs_f32_products(hy_op op) {
  switch (op) {
    case HY_OP_mm:
    case HY_OP_bmm:
    case HY_OP_addmm:
    case HY_OP_linear:
    case HY_OP_linear_quantized:
    case HY_OP_sdpa:
    case HY_OP_sdpa_backward:
    case HY_OP_paged_attention: return true;
    default: return false;
  }
}

bool hy__ascend_packs_weights(const hy__ascend_chip* chip) {
  return chip->fractal_nz && hy__ascend_has("NpuFormatCast MatmulWeightNz");
}

void hy__ascend_declare(const hy__ascend_chip* chip) {
  hy__ascend_provider.n_declares = 0;
  for (int i = 0; i < N_OPS; i++) {
    uint32_t dtypes = hy__ascend_has(table[i].names) ? table[i].dtypes : 0;
    bool packs = table[i].op == HY_OP_pack_fractal_nz || table[i].op == HY_OP_linear_fractal_nz;
    if (packs && !chip->fractal_nz) dtypes = 0;
    if (!chip->bf16) dtypes &= ~HY_DTYPE_BIT(HY_BF16);
    if (!chip->fp32_products && needs_f32_products(table[i].op)) {
      // Attention of odd shapes, and quantised weights, are made of products in f32.
      bool plain = table[i].op == HY_OP_mm || table[i].op == HY_OP_bmm ||
                   table[i].op == HY_OP_addmm || table[i].op == HY_OP_linear;
      dtypes &= plain ? ~HY_DTYPE_BIT(HY_F32) : 0;
    }
    if (dtypes) declared[hy__ascend_provider.n_declares++] = (hy_declaration){table[i].op, dtypes};
  }
}

static hy_support gate(const hy__vendor_device* device, const hy_tensor* t) {
  if (t->dtype == HY_F64) return HY_SUPPORT_NO_DTYPE;
  if (t->dtype == HY_BF16 && !((const hy__ascend_device*)device)->chip->bf16)
    return HY_SUPPORT_NO_HARDWARE;
  bool known = t->layout == HY_LAYOUT_STRIDED || t->layout == HY_LAYOUT_PACKED_I4 ||
               t->layout == HY_LAYOUT_FRACTAL_NZ;
  return known ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

static const hy__task_rules rules = {
    .name = "ascend", .index = HY_I64, .families = families, .gate = gate};

static hy_support supports(void* device, const hy_call* call) {
  hy__ascend_task task = {.base = {.rules = &rules, .device = device, .op = call->op}};
  return hy__task_ask(&task.base, call);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  hy__ascend_task task = {
      .base = {.rules = &rules, .device = device, .stream = stream, .op = call->op}};
  return hy__task_run(&task.base, call);
}

hy_provider hy__ascend_provider = {
    .size = sizeof(hy_provider),
    .name = "ascend",
    .version = HY_VERSION_STRING,
    .declares = declared,
    .supports = supports,
    .run = run,
};
