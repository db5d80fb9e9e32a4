// The ascend provider: which family an op belongs to, what is promised on this chip, and the gate
// that every call passes.
#include <string.h>

#include "backends/ascend/ascend.h"

static const struct {
  hy_op op;
  hy__ascend_family family;
  uint32_t dtypes;
  const char* names;
} table[] = {
#define ASCEND_OP(op, family, dtypes, names) {HY_OP_##op, hy__ascend_##family, dtypes, names},
#include "backends/ascend/ops.def"
};
enum { N_OPS = sizeof table / sizeof table[0] };

static hy__ascend_family families[HY_OP_END];
static hy_declaration declared[N_OPS];

// Products in f32 keep their precision on some chips only.
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

void hy__ascend_declare(const hy__ascend_chip* chip) {
  hy__ascend_provider.n_declares = 0;
  for (int i = 0; i < N_OPS; i++) {
    families[table[i].op] = table[i].family;
    uint32_t dtypes = hy__ascend_has(table[i].names) ? table[i].dtypes : 0;
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

// What no family can do anything about.
static hy_support gate(const hy__ascend_device* d, const hy_tensor* t) {
  if (t->dtype == HY_NONE) return HY_SUPPORT_YES;
  if (t->dtype == HY_F64) return HY_SUPPORT_NO_DTYPE;
  if (t->dtype == HY_BF16 && !d->chip->bf16) return HY_SUPPORT_NO_HARDWARE;
  if (t->layout != HY_LAYOUT_STRIDED && t->layout != HY_LAYOUT_PACKED_I4)
    return HY_SUPPORT_NO_LAYOUT;
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
    hy_support answer = gate((const hy__ascend_device*)task->device, t);
    if (answer != HY_SUPPORT_YES) return answer;
  }
  bool wide = call->n_in > 0 && call->in[0].dtype == HY_F32;
  if (wide && !((const hy__ascend_device*)task->device)->chip->fp32_products &&
      needs_f32_products(call->op))
    return HY_SUPPORT_NO_HARDWARE;
  hy_support answer = families[call->op]((hy__ascend_task*)task, call);
  return answer == HY_SUPPORT_YES ? task->answer : answer;
}

const hy__task_rules hy__ascend_rules = {.index = HY_I64, .run = ask};

static hy_support supports(void* device, const hy_call* call) {
  hy__ascend_task task = {.base = {.rules = &hy__ascend_rules, .device = device, .op = call->op}};
  return ask(&task.base, call);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  hy__vendor_stream* s = stream;
  hy__ascend_task task = {
      .base = {.rules = &hy__ascend_rules, .device = device, .stream = s, .op = call->op}};
  __atomic_store_n(&s->last_op, call->op, __ATOMIC_RELAXED);
  hy__vendor_arena_reset(&s->arena);
  int before = hy__vendor_enter(device);
  hy_support answer = ask(&task.base, call);
  hy__vendor_leave(device, before);
  if (task.base.status == HY_OK && answer != HY_SUPPORT_YES)
    return hy__backend_host->fail(HY_INTERNAL, "ascend: %s was supported and is not",
                                  hy__backend_host->op_name(call->op));
  return task.base.status;
}

hy_provider hy__ascend_provider = {
    .size = sizeof(hy_provider),
    .name = "ascend",
    .version = HY_VERSION_STRING,
    .declares = declared,
    .supports = supports,
    .run = run,
};
