// Norms of the cambricon backend: CNNL's own functions, in f32, where they have all they ask for.
// The others are composed of plain ops, as are RMS norms whose statistics somebody wants: whether
// CNNL gives the root or its reciprocal is in no public source.
#include "backends/cambricon/cambricon.h"

// [n, size] in f32: a row is what is normalised together.
static hy_tensor rows_of(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  int split = x->ndim - (int)call->attrs.norm.norm_dims;
  int64_t shape[2] = {1, 1};
  for (int d = 0; d < x->ndim; d++) shape[d < split ? 0 : 1] *= x->shape[d];
  hy_tensor whole = hy__task_contiguous(task, x, HY_F32);
  return hy__view(&whole, 2, shape);
}

static hy_tensor row_of(hy__task* task, const hy_tensor* t, int64_t size) {
  hy_tensor whole = hy__task_contiguous(task, t, HY_F32);
  return hy__view(&whole, 1, &size);
}

static void give(hy__task* task, const hy_tensor* out, const hy_tensor* t) {
  if (!hy__present(out)) return;
  hy_tensor shaped = hy__view(t, out->ndim, out->shape);
  hy__task_copy(task, out, &shaped);
}

static bool suits(const hy_call* call, int n_weights) {
  for (int i = 1; i <= n_weights; i++)
    if (!hy__present(&call->in[i]) || call->in[i].dtype != call->in[0].dtype) return false;
  return hy__is_half_or_f32(&call->in[0]) && hy_tensor_numel(&call->in[0]) > 0;
}

hy_support hy__cambricon_rms_norm(hy__task* task, const hy_call* call) {
  enum { AXIS = 1 };
  if (!hy__cnnl.RmsNormForward || !hy__cnnl.GetRmsNormOpWorkspaceSize || !suits(call, 1) ||
      hy__present(&call->out[1]))
    return hy__composed_rms_norm(task, call);
  hy_tensor x = rows_of(task, call), weight = row_of(task, &call->in[1], x.shape[1]);
  hy_tensor y = hy__task_temporary(task, HY_F32, 2, x.shape);
  hy_tensor rms = hy__task_temporary(task, HY_F32, 1, x.shape);
  CNNL_PLAN(task, GetRmsNormOpWorkspaceSize, AXIS, CNNL_D(&x));
  CNNL_RUN(task, RmsNormForward, AXIS, CNNL_T(&x), CNNL_T(&weight), NULL,
           (float)call->attrs.norm.eps, CNNL_WORKSPACE, CNNL_T(&y), CNNL_T(&rms));
  give(task, &call->out[0], &y);
  return task->answer;
}

hy_support hy__cambricon_layer_norm(hy__task* task, const hy_call* call) {
  enum { AXIS = 1 };
  if (!hy__cnnl.LayerNormForward || !hy__cnnl.GetLayerNormOpWorkspaceSize || !suits(call, 2))
    return hy__composed_layer_norm(task, call);
  hy_tensor x = rows_of(task, call), weight = row_of(task, &call->in[1], x.shape[1]);
  hy_tensor bias = row_of(task, &call->in[2], x.shape[1]);
  hy_tensor y = hy__task_temporary(task, HY_F32, 2, x.shape);
  hy_tensor mean = hy__task_temporary(task, HY_F32, 1, x.shape);
  hy_tensor rstd = hy__task_temporary(task, HY_F32, 1, x.shape);
  CNNL_PLAN(task, GetLayerNormOpWorkspaceSize, AXIS, CNNL_D(&x));
  CNNL_RUN(task, LayerNormForward, CNNL_T(&x), AXIS, CNNL_T(&weight), bias.data,
           (float)call->attrs.norm.eps, CNNL_WORKSPACE, CNNL_T(&y), CNNL_T(&mean), rstd.data);
  give(task, &call->out[0], &y);
  give(task, &call->out[1], &mean);
  give(task, &call->out[2], &rstd);
  return task->answer;
}
