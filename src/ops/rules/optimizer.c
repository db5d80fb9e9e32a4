// Shapes and types of the optimizers.
#include "ops/rules/common.h"

// Outputs are the first inputs, changed. The state and the gradient have the parameter's type, or
// f32 beside one of 16 bits.
hy_status hy__dtype_optimizer(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  hy_dtype param = call->in[0].dtype;
  uint32_t known = HY_DTYPE_BIT(param) | (param == HY_F64 ? 0 : HY_DTYPE_BIT(HY_F32));
  HY_TRY(hy__check_dtypes_among(call, 1, call->n_in, known));
  for (int i = 0; i < hy_op_describe(call->op)->n_outputs; i++)
    out[i].dtype = hy__present(&call->in[i]) ? call->in[i].dtype : param;
  return HY_OK;
}

static hy_status check_sgd(const hy_call* call) {
  hy_attrs_sgd attrs = call->attrs.sgd;
  if (attrs.momentum != 0 && !attrs.first && !hy__present(&call->in[1]))
    return hy__call_fail(call, HY_INVALID_ARGUMENT,
                         "momentum needs the velocity of the step before");
  if (attrs.nesterov && (attrs.momentum <= 0 || attrs.dampening != 0))
    return hy__call_fail(call, HY_INVALID_ARGUMENT,
                         "nesterov needs a positive momentum and no dampening");
  return HY_OK;
}

hy_status hy__shape_optimizer(const hy_call* call, hy_tensor* out) {
  const hy_tensor* param = &call->in[0];
  for (int i = 1; i < call->n_in; i++) HY_TRY(hy__need_shape(call, i, param->ndim, param->shape));
  if (call->op == HY_OP_sgd) HY_TRY(check_sgd(call));
  if (call->op == HY_OP_adamw && call->attrs.adamw.step < 1)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "steps count from 1, and this is step %lld",
                         (long long)call->attrs.adamw.step);
  for (int i = 0; i < hy_op_describe(call->op)->n_outputs; i++) hy__copy_shape(&out[i], param);
  return HY_OK;
}
