// Composite ops: an op that no provider has, made of ops that one has, on the same device.
#include "ops/compose.h"

#include "core/internal.h"
#include "ops/einsum_run.h"
#include "ops/flat.h"

// Below this many multiplications by definition the reference is done sooner than a plan is made.
#define TINY 4096

static bool runs(hy_device* device, hy_op op, hy_dtype dtype) {
  hy_placement placement;
  return hy_place_op(device, op, dtype, &placement) == HY_OK && placement.provider != NULL;
}

const char* hy__composite_name(hy_op op) {
  return op == HY_OP_einsum ? HY__COMPOSITE : HY__FLAT;
}

bool hy__composes_op(hy_device* device, hy_op op, hy_dtype dtype) {
  return op == HY_OP_einsum && !hy__is_left_out(HY__COMPOSITE) &&
         (hy_op_describe(op)->dtypes & HY_DTYPE_BIT(dtype)) && runs(device, HY_OP_bmm, dtype);
}

static bool is_tiny(const hy__einsum* e) {
  double work = e->n_operands;
  for (int i = 0; i < HY__EINSUM_LABELS; i++) work *= e->size[i] >= 0 ? (double)e->size[i] : 1;
  return work < TINY;
}

// Taking apart pays where each part then runs on the device itself; a part that has to fall back
// would travel to the host and back on its own.
static bool parts_run(hy_device* device, const hy__einsum* e, const hy__einsum_plan* plan,
                      hy_dtype dtype) {
  bool sums = false, fits = true;
  for (int k = 0; k < e->n_operands; k++) sums = sums || plan->kept[k] != plan->given[k];
  for (int i = 0; i < plan->n_steps && fits; i++) {
    hy__labels a = plan->kept[plan->step[i].a], b = plan->kept[plan->step[i].b];
    hy__labels kept = plan->kept[e->n_operands + i];
    fits = __builtin_popcountll(kept) <= HY_MAX_DIMS &&
           runs(device, a & b & ~kept ? HY_OP_bmm : HY_OP_mul, dtype);
  }
  if (!fits || (sums && !runs(device, HY_OP_sum, dtype))) return false;
  return runs(device, HY_OP_copy, dtype);
}

static bool plan_einsum(hy_device* device, const hy_call* call, hy__einsum* e,
                        hy__einsum_plan* plan) {
  if (hy__is_left_out(HY__COMPOSITE)) return false;
  if (hy__einsum_parse(call, e) != HY_OK || (device->is_host && is_tiny(e))) return false;
  hy__einsum_plan_make(call, e, plan);
  return parts_run(device, e, plan, call->in[0].dtype);
}

bool hy__composes(hy_device* device, const hy_call* call) {
  hy__einsum e;
  hy__einsum_plan plan;
  if (call->op != HY_OP_einsum) return hy__flat_composes(device, call);
  return plan_einsum(device, call, &e, &plan);
}

hy_status hy__compose(hy_stream* stream, const hy_call* call, bool* composed) {
  *composed = false;
  if (call->op != HY_OP_einsum) {
    *composed = hy__flat_composes(hy_stream_device(stream), call);
    return *composed ? hy__flat_run(stream, call) : HY_OK;
  }
  hy__einsum e;
  hy__einsum_plan plan;
  if (!plan_einsum(hy_stream_device(stream), call, &e, &plan)) return HY_OK;
  *composed = true;
  return hy__einsum_run(stream, call, &e, &plan);
}
