// AdamW composed of elementwise ops in f32: halves are widened, stepped and rounded once. Factors
// such as 1 - beta2 are made in double: 1 - 0.999f is off by 5e-5, and the second moment with it.
#include <math.h>

#include "backends/common/composed.h"

hy_support hy__composed_adamw(hy__task* task, const hy_call* call) {
  hy_attrs_adamw a = call->attrs.adamw;
  for (int i = 0; i < 4; i++) TASK_NEED(hy__is_half_or_f32(&call->in[i]), NO_DTYPE);
  hy_tensor state[3];
  for (int i = 0; i < 3; i++) {
    const hy_tensor *from = &call->in[i], *to = &call->out[i];
    bool direct = to->dtype == HY_F32 && hy_tensor_is_contiguous(to);
    state[i] = direct ? *to : hy__task_temporary(task, HY_F32, to->ndim, to->shape);
    if (from->data != state[i].data || !task->stream) hy__task_copy(task, &state[i], from);
  }
  const hy_tensor *param = &state[0], *m = &state[1], *v = &state[2];
  hy_tensor grad = hy__task_as(task, &call->in[3], HY_F32);
  hy_tensor root = hy__task_temporary(task, HY_F32, param->ndim, param->shape);
  double sign = a.maximize ? -1 : 1, step = (double)a.step;
  double rate = a.lr / (1 - pow(a.beta1, step)), scale = 1 / sqrt(1 - pow(a.beta2, step));
  hy__task_scale(task, m, a.beta1);
  const hy_tensor first[] = {*m, grad}, second[] = {*v, grad, grad};
  hy__task_call(task, HY_OP_add, 2, first, &state[1],
                (hy_attrs){.alpha = {hy_float(sign * (1 - a.beta1))}});
  hy__task_scale(task, v, a.beta2);
  hy__task_call(task, HY_OP_addcmul, 3, second, &state[2],
                (hy_attrs){.value = {hy_float(1 - a.beta2)}});
  hy__task_unary(task, HY_OP_sqrt, v, &root);
  hy__task_scale(task, &root, scale);
  hy__task_shift(task, &root, a.eps);
  hy__task_scale(task, param, 1 - a.lr * a.weight_decay);
  const hy_tensor step_in[] = {*param, *m, root};
  hy__task_call(task, HY_OP_addcdiv, 3, step_in, &state[0], (hy_attrs){.value = {hy_float(-rate)}});
  for (int i = 0; i < 3; i++)
    if (state[i].data != call->out[i].data || !task->stream)
      hy__task_copy(task, &call->out[i], &state[i]);
  return task->answer;
}
