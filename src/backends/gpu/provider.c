// The provider of the backends' own kernels: which op is whose.
#include "backends/gpu/gpu.h"

static const hy__gpu_family families[HY_OP_END] = {
#define GPU_OP(op, family, dtypes) [HY_OP_##op] = hy__gpu_##family,
#include "backends/gpu/ops.def"
};

const hy_declaration hy__gpu_declarations[] = {
#define GPU_OP(op, family, dtypes) {HY_OP_##op, dtypes},
#include "backends/gpu/ops.def"
};
const int hy__gpu_n_declarations =
    (int)(sizeof hy__gpu_declarations / sizeof hy__gpu_declarations[0]);

static hy__gpu_family family_of(hy_op op) {
  return op > HY_OP_NONE && op < HY_OP_END ? families[op] : NULL;
}

hy_support hy__gpu_own(hy__gpu_task* task, const hy_call* call) {
  hy__gpu_family family = family_of(call->op);
  return family ? family(task, call) : HY_SUPPORT_NO_OP;
}

hy_support hy__gpu_supports(void* device, const hy_call* call) {
  hy__gpu_task question = {.device = device, .op = call->op};
  return hy__gpu_own(&question, call);
}

hy_status hy__gpu_run_family(void* device, void* stream, const hy_call* call,
                             hy__gpu_family family) {
  hy__gpu_task task = {.device = device, .stream = stream, .op = call->op};
  if (task.device->lost) return hy__gpu_fail(task.device, -1, hy__backend_host->op_name(call->op));
  bool entered = hy__gpu_enter(task.device);
  task.stream->last_op = call->op;
  task.status = hy__gpu_workspace_begin(stream);
  if (task.status == HY_OK && family(&task, call) != HY_SUPPORT_YES)
    task.status =
        hy__backend_host->fail(HY_INTERNAL, "%s: %s was accepted and cannot be run",
                               task.device->api->name, hy__backend_host->op_name(call->op));
  hy__gpu_note_written(&task, call);
  hy__gpu_leave(task.device, entered);
  return task.status;
}

hy_status hy__gpu_run(void* device, void* stream, const hy_call* call) {
  return hy__gpu_run_family(device, stream, call, family_of(call->op));
}
