// The cambricon provider: which family an op belongs to, what is promised on this device, and
// which tensors it takes.
#include "backends/cambricon/cambricon.h"

static const struct {
  hy_op op;
  uint32_t dtypes;
  const char* names;
} table[] = {
#define CAMBRICON_OP(op, family, dtypes, names) {HY_OP_##op, dtypes, names},
#include "backends/cambricon/ops.def"
};
enum { N_OPS = sizeof table / sizeof table[0] };

// What every promise stands on: tensors made contiguous, converted and filled.
static const char base[] =
    "GetCopyWorkspaceSize Copy_v2 Expand CastDataType Fill_v3 GetLogicOpWorkspaceSize LogicOp "
    "CAST_FLOAT_TO_HALF CAST_HALF_TO_FLOAT CAST_FLOAT_TO_BFLOAT16 CAST_BFLOAT16_TO_FLOAT "
    "CAST_FLOAT_TO_BOOL CAST_FLOAT_TO_INT32 CAST_INT32_TO_FLOAT CAST_INT32_TO_INT64 "
    "CAST_INT64_TO_INT32 CAST_BOOL_TO_FLOAT CAST_BOOL_TO_INT32";

static const hy__task_family families[HY_OP_END] = {
#define CAMBRICON_OP(op, family, dtypes, names) [HY_OP_##op] = hy__##family,
#include "backends/cambricon/ops.def"
};
static hy_declaration declared[N_OPS];

void hy__cambricon_declare(bool bf16) {
  bool whole = hy__cambricon_has(base);
  hy__cambricon_provider.n_declares = 0;
  for (int i = 0; i < N_OPS; i++) {
    uint32_t dtypes = whole && hy__cambricon_has(table[i].names) ? table[i].dtypes : 0;
    if (!bf16) dtypes &= ~HY_DTYPE_BIT(HY_BF16);
    if (dtypes)
      declared[hy__cambricon_provider.n_declares++] = (hy_declaration){table[i].op, dtypes};
  }
}

static hy_support gate(const hy__vendor_device* device, const hy_tensor* t) {
  if (hy__cambricon_dtype(t->dtype) < 0) return HY_SUPPORT_NO_DTYPE;
  if (t->dtype == HY_BF16 && !((const hy__cambricon_device*)device)->bf16)
    return HY_SUPPORT_NO_HARDWARE;
  return t->layout == HY_LAYOUT_STRIDED ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

// CNNL's 64-bit integers are conversions only in older releases.
static const hy__task_rules rules = {.name = "cambricon",
                                     .index = HY_I32,
                                     .families = families,
                                     .gate = gate,
                                     .release = hy__cambricon_release};

static hy_support supports(void* device, const hy_call* call) {
  hy__cambricon_task task = {.base = {.rules = &rules, .device = device, .op = call->op}};
  return hy__task_ask(&task.base, call);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  hy__cambricon_task task = {
      .base = {.rules = &rules, .device = device, .stream = stream, .op = call->op}};
  return hy__task_run(&task.base, call);
}

hy_provider hy__cambricon_provider = {
    .size = sizeof(hy_provider),
    .name = "cambricon",
    .version = HY_VERSION_STRING,
    .declares = declared,
    .supports = supports,
    .run = run,
};
