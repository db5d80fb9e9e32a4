// The cambricon provider: which family an op belongs to, what is promised on this device, and the
// gate that every call passes.
#include "backends/cambricon/cambricon.h"

static const struct {
  hy_op op;
  hy__task_family family;
  uint32_t dtypes;
  const char* names;
} table[] = {
#define CAMBRICON_OP(op, family, dtypes, names) {HY_OP_##op, hy__##family, dtypes, names},
#include "backends/cambricon/ops.def"
};
enum { N_OPS = sizeof table / sizeof table[0] };

// What every promise stands on: tensors made contiguous, converted and filled.
static const char base[] =
    "GetCopyWorkspaceSize Copy_v2 Expand CastDataType Fill_v3 GetLogicOpWorkspaceSize LogicOp "
    "CAST_FLOAT_TO_HALF CAST_HALF_TO_FLOAT CAST_FLOAT_TO_BFLOAT16 CAST_BFLOAT16_TO_FLOAT "
    "CAST_FLOAT_TO_BOOL CAST_FLOAT_TO_INT32 CAST_INT32_TO_FLOAT CAST_INT32_TO_INT64 "
    "CAST_INT64_TO_INT32 CAST_BOOL_TO_FLOAT CAST_BOOL_TO_INT32";

static hy__task_family families[HY_OP_END];
static hy_declaration declared[N_OPS];

void hy__cambricon_declare(bool bf16) {
  bool whole = hy__cambricon_has(base);
  hy__cambricon_provider.n_declares = 0;
  for (int i = 0; i < N_OPS; i++) {
    families[table[i].op] = table[i].family;
    uint32_t dtypes = whole && hy__cambricon_has(table[i].names) ? table[i].dtypes : 0;
    if (!bf16) dtypes &= ~HY_DTYPE_BIT(HY_BF16);
    if (dtypes)
      declared[hy__cambricon_provider.n_declares++] = (hy_declaration){table[i].op, dtypes};
  }
}

// What no family can do anything about.
static hy_support gate(const hy__cambricon_device* d, const hy_tensor* t) {
  if (t->dtype == HY_NONE) return HY_SUPPORT_YES;
  if (hy__cambricon_dtype(t->dtype) < 0) return HY_SUPPORT_NO_DTYPE;
  if (t->dtype == HY_BF16 && !d->bf16) return HY_SUPPORT_NO_HARDWARE;
  if (t->layout != HY_LAYOUT_STRIDED) return HY_SUPPORT_NO_LAYOUT;
  if (hy_tensor_numel(t) == 0) return HY_SUPPORT_YES;
  for (int i = 0; i < t->ndim; i++)
    if (t->stride[i] < 0 && t->shape[i] > 1) return HY_SUPPORT_NO_LAYOUT;
  return HY_SUPPORT_YES;
}

static hy_support ask(hy__task* task, const hy_call* call) {
  if (call->op <= HY_OP_NONE || call->op >= HY_OP_END || !families[call->op])
    return HY_SUPPORT_NO_OP;
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const hy_tensor* t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    hy_support answer = gate((const hy__cambricon_device*)task->device, t);
    if (answer != HY_SUPPORT_YES) return answer;
  }
  hy_support answer = families[call->op](task, call);
  return answer == HY_SUPPORT_YES ? task->answer : answer;
}

// CNNL's 64-bit integers are conversions only in older releases.
const hy__task_rules hy__cambricon_rules = {.index = HY_I32, .run = ask};

static hy_support supports(void* device, const hy_call* call) {
  hy__cambricon_task task = {
      .base = {.rules = &hy__cambricon_rules, .device = device, .op = call->op}};
  return ask(&task.base, call);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  hy__vendor_stream* s = stream;
  hy__cambricon_task task = {
      .base = {.rules = &hy__cambricon_rules, .device = device, .stream = s, .op = call->op}};
  __atomic_store_n(&s->last_op, call->op, __ATOMIC_RELAXED);
  hy__vendor_arena_reset(&s->arena);
  int before = hy__vendor_enter(device);
  hy_support answer = ask(&task.base, call);
  hy__cambricon_release(&task.base);
  hy__vendor_leave(device, before);
  if (task.base.status == HY_OK && answer != HY_SUPPORT_YES)
    return hy__backend_host->fail(HY_INTERNAL, "cambricon: %s was supported and is not",
                                  hy__backend_host->op_name(call->op));
  return task.base.status;
}

hy_provider hy__cambricon_provider = {
    .size = sizeof(hy_provider),
    .name = "cambricon",
    .version = HY_VERSION_STRING,
    .declares = declared,
    .supports = supports,
    .run = run,
};
