// Layer norm and RMS norm of the ascend backend, with their gradients. What the caller left out and
// the vendor requires is made: weights of 1, and outputs nobody reads.
#include "backends/ascend/ascend.h"

// The type of x, or f32 for statistics and for gradients of weights.
static bool types_fit(const hy_call* call, hy_dtype dtype) {
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const hy_tensor* t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    if (t->dtype != HY_NONE && t->dtype != dtype && t->dtype != HY_F32) return false;
  }
  return true;
}

static const int64_t* norm_shape(const hy_call* call, const hy_tensor* x, int* n) {
  *n = (int)call->attrs.norm.norm_dims;
  return x->shape + x->ndim - *n;
}

static hy_tensor weight_or_ones(hy__task* task, const hy_tensor* weight, const hy_tensor* x, int n,
                                const int64_t* shape) {
  if (hy__present(weight)) return hy__task_as(task, weight, x->dtype);
  return hy__task_filled(task, x->dtype, n, shape, 1);
}

static hy_tensor statistic(hy__task* task, const hy_tensor* x, int n) {
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < x->ndim; d++) shape[d] = d < x->ndim - n ? x->shape[d] : 1;
  return hy__task_temporary(task, HY_F32, x->ndim, shape);
}

hy_support hy__ascend_layer_norm(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  int n;
  const int64_t* shape = norm_shape(call, x, &n);
  TASK_NEED(hy__is_half_or_f32(x) && types_fit(call, x->dtype) && call->out[0].dtype == x->dtype,
            NO_DTYPE);
  for (int i = 1; i < 3; i++)
    TASK_NEED(call->in[i].dtype == HY_NONE || call->in[i].dtype == x->dtype, NO_DTYPE);
  ASCEND_RUN(task, LayerNorm, ASCEND_IN(0), hy__ascend_ints(task, shape, n), ASCEND_IN(1),
             ASCEND_IN(2), call->attrs.norm.eps, ASCEND_OUT(0), ASCEND_OUT(1), ASCEND_OUT(2));
  return task->answer;
}

// Gradients of weights of no rows.
static bool fill_if_empty(hy__task* task, const hy_call* call) {
  if (hy_tensor_numel(&call->in[1]) > 0) return false;
  for (int i = 1; i < call->n_out; i++)
    if (hy__present(&call->out[i])) hy__task_fill(task, &call->out[i], hy_float(0));
  return true;
}

hy_support hy__ascend_layer_norm_backward(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[1];
  int n;
  const int64_t* shape = norm_shape(call, x, &n);
  TASK_NEED(hy__is_half_or_f32(x) && call->in[0].dtype == x->dtype && types_fit(call, x->dtype),
            NO_DTYPE);
  TASK_NEED(call->in[2].dtype == HY_F32 && call->in[3].dtype == HY_F32, NO_DTYPE);
  for (int i = 0; i < 3; i++)
    TASK_NEED(call->out[i].dtype == HY_NONE || call->out[i].dtype == x->dtype, NO_DTYPE);
  if (fill_if_empty(task, call)) return task->answer;
  hy_tensor weight = weight_or_ones(task, &call->in[4], x, n, shape);
  bool wanted[3];
  for (int i = 0; i < 3; i++) wanted[i] = hy__present(&call->out[i]);
  const hy_tensor none = hy_tensor_absent();
  ASCEND_RUN(task, LayerNormBackward, ASCEND_IN(0), ASCEND_IN(1), hy__ascend_ints(task, shape, n),
             ASCEND_IN(2), ASCEND_IN(3), ASCEND_T(&weight), ASCEND_T(&none),
             hy__ascend_bools(task, wanted, 3), ASCEND_OUT(0), ASCEND_OUT(1), ASCEND_OUT(2));
  return task->answer;
}

hy_support hy__ascend_rms_norm(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  int n;
  const int64_t* shape = norm_shape(call, x, &n);
  TASK_NEED(hy__is_half_or_f32(x) && types_fit(call, x->dtype) && call->out[0].dtype == x->dtype,
            NO_DTYPE);
  TASK_NEED(call->in[1].dtype == HY_NONE || call->in[1].dtype == x->dtype, NO_DTYPE);
  hy_tensor weight = weight_or_ones(task, &call->in[1], x, n, shape);
  hy_tensor rstd = hy__present(&call->out[1]) ? call->out[1] : statistic(task, x, n);
  TASK_NEED(rstd.dtype == HY_F32, NO_DTYPE);
  ASCEND_RUN(task, RmsNorm, ASCEND_IN(0), ASCEND_T(&weight), call->attrs.norm.eps, ASCEND_OUT(0),
             ASCEND_T(&rstd));
  return task->answer;
}

hy_support hy__ascend_rms_norm_backward(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[1], *dx = &call->out[0], *dweight = &call->out[1];
  int n;
  const int64_t* shape = norm_shape(call, x, &n);
  TASK_NEED(hy__is_half_or_f32(x) && call->in[0].dtype == x->dtype && types_fit(call, x->dtype),
            NO_DTYPE);
  TASK_NEED(call->in[2].dtype == HY_F32, NO_DTYPE);
  TASK_NEED(dx->dtype == HY_NONE || dx->dtype == x->dtype, NO_DTYPE);
  if (fill_if_empty(task, call)) return task->answer;
  hy_tensor weight = weight_or_ones(task, &call->in[3], x, n, shape);
  hy_tensor dx_to = hy__present(dx) ? *dx : hy__task_temporary(task, x->dtype, x->ndim, x->shape);
  // The gradient of the weight comes in f32.
  bool direct = dweight->dtype == HY_F32;
  hy_tensor dweight_to = direct ? *dweight : hy__task_temporary(task, HY_F32, n, shape);
  ASCEND_RUN(task, RmsNormGrad, ASCEND_IN(0), ASCEND_IN(1), ASCEND_IN(2), ASCEND_T(&weight),
             ASCEND_T(&dx_to), ASCEND_T(&dweight_to));
  if (hy__present(dweight) && !direct) hy__task_copy(task, dweight, &dweight_to);
  return task->answer;
}
