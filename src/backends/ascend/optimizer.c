// AdamW of the ascend backend, in f32: halves are widened, stepped and rounded once.
#include "backends/ascend/ascend.h"

hy_support hy__ascend_adamw(hy__ascend_task* task, const hy_call* call) {
  hy_attrs_adamw a = call->attrs.adamw;
  for (int i = 0; i < 4; i++)
    ASCEND_NEED(call->in[i].dtype == HY_F32 || call->in[i].dtype == HY_F16 ||
                    call->in[i].dtype == HY_BF16,
                NO_DTYPE);
  hy_tensor state[3];
  for (int i = 0; i < 3; i++) {
    const hy_tensor *from = &call->in[i], *to = &call->out[i];
    bool direct = to->dtype == HY_F32 && hy_tensor_is_contiguous(to);
    state[i] = direct ? *to : hy__ascend_temporary(task, HY_F32, to->ndim, to->shape);
    if (from->data != state[i].data || !task->stream) hy__ascend_copy(task, &state[i], from);
  }
  hy_tensor grad = hy__ascend_as(task, &call->in[3], HY_F32);
  // The vendor counts the steps made before this one.
  hy_tensor step = hy__ascend_filled(task, HY_F32, 1, (const int64_t[]){1}, (double)(a.step - 1));
  const hy_tensor none = hy_tensor_absent();
  ASCEND_RUN(task, ApplyAdamWV2, ASCEND_T(&state[0]), ASCEND_T(&state[1]), ASCEND_T(&state[2]),
             ASCEND_T(&none), ASCEND_T(&grad), ASCEND_T(&step), (float)a.lr, (float)a.beta1,
             (float)a.beta2, (float)a.weight_decay, (float)a.eps, false, a.maximize);
  for (int i = 0; i < 3; i++)
    if (state[i].data != call->out[i].data || !task->stream)
      hy__ascend_copy(task, &call->out[i], &state[i]);
  return task->answer;
}
