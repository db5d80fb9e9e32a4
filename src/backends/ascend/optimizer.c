// AdamW of the ascend backend, of elementwise ops in f32: halves are widened, stepped and rounded
// once. aclnnApplyAdamWV2 is one pass instead of nine, but takes its factors as f32: 1 - 0.999f is
// off by 5e-5, which is what the second moment would then be off by.
#include <math.h>

#include "backends/ascend/ascend.h"

hy_support hy__ascend_adamw(hy__ascend_task* task, const hy_call* call) {
  hy_attrs_adamw a = call->attrs.adamw;
  for (int i = 0; i < 4; i++)
    ASCEND_NEED(
        call->in[i].dtype == HY_F32 || call->in[i].dtype == HY_F16 || call->in[i].dtype == HY_BF16,
        NO_DTYPE);
  hy_tensor state[3];
  for (int i = 0; i < 3; i++) {
    const hy_tensor *from = &call->in[i], *to = &call->out[i];
    bool direct = to->dtype == HY_F32 && hy_tensor_is_contiguous(to);
    state[i] = direct ? *to : hy__ascend_temporary(task, HY_F32, to->ndim, to->shape);
    if (from->data != state[i].data || !task->stream) hy__ascend_copy(task, &state[i], from);
  }
  const hy_tensor *param = &state[0], *m = &state[1], *v = &state[2];
  hy_tensor grad = hy__ascend_as(task, &call->in[3], HY_F32);
  hy_tensor root = hy__ascend_temporary(task, HY_F32, param->ndim, param->shape);
  double sign = a.maximize ? -1 : 1, step = (double)a.step;
  double rate = a.lr / (1 - pow(a.beta1, step)), scale = 1 / sqrt(1 - pow(a.beta2, step));
  hy__ascend_scale(task, m, a.beta1);
  ASCEND_RUN(task, Add, ASCEND_T(m), ASCEND_T(&grad), ASCEND_F(sign * (1 - a.beta1)), ASCEND_T(m));
  hy__ascend_scale(task, v, a.beta2);
  ASCEND_RUN(task, Addcmul, ASCEND_T(v), ASCEND_T(&grad), ASCEND_T(&grad), ASCEND_F(1 - a.beta2),
             ASCEND_T(v));
  ASCEND_RUN(task, Sqrt, ASCEND_T(v), ASCEND_T(&root));
  hy__ascend_scale(task, &root, scale);
  ASCEND_RUN(task, Adds, ASCEND_T(&root), ASCEND_F(a.eps), ASCEND_F(1), ASCEND_T(&root));
  hy__ascend_scale(task, param, 1 - a.lr * a.weight_decay);
  ASCEND_RUN(task, Addcdiv, ASCEND_T(param), ASCEND_T(m), ASCEND_T(&root), ASCEND_F(-rate),
             ASCEND_T(param));
  for (int i = 0; i < 3; i++)
    if (state[i].data != call->out[i].data || !task->stream)
      hy__ascend_copy(task, &call->out[i], &state[i]);
  return task->answer;
}
