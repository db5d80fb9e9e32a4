// Indexing and joining of the cambricon backend. Indices are clamped before the vendor sees them,
// as i32; those that were outside are told when the stream is waited for.
#include "backends/cambricon/cambricon.h"

static bool is_index(const hy_tensor* t) {
  return t->dtype == HY_I32 || t->dtype == HY_I64;
}

hy_support hy__cambricon_embedding(hy__task* task, const hy_call* call) {
  const hy_tensor *weight = &call->in[0], *ids = &call->in[1], *out = &call->out[0];
  TASK_NEED(weight->dtype == out->dtype && is_index(ids), NO_DTYPE);
  const int64_t n = hy_tensor_numel(ids);
  hy_tensor inside = hy__task_indices(task, ids, weight->shape[0], false);
  inside = hy__view(&inside, 1, &n);
  hy_tensor table = hy__task_contiguous(task, weight, weight->dtype), to = CNNL_OUT(0);
  hy_tensor rows = hy__view(&to, 2, (const int64_t[]){n, weight->shape[1]});
  CNNL_RUN(task, IndexSelect, 0, CNNL_T(&table), CNNL_T(&inside), CNNL_T(&rows));
  CNNL_GIVE(0, to);
  return task->answer;
}

// Summed in f32.
hy_support hy__cambricon_embedding_backward(hy__task* task, const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *ids = &call->in[1], *dweight = &call->out[0];
  hy_attrs_rows a = call->attrs.rows;
  TASK_NEED(hy__is_half_or_f32(dy) && dweight->dtype == dy->dtype && is_index(ids), NO_DTYPE);
  const int64_t n = hy_tensor_numel(ids);
  if (n == 0) {
    hy__task_fill(task, dweight, hy_float(0));
    return task->answer;
  }
  hy_tensor inside = hy__task_indices(task, ids, a.rows, false);
  inside = hy__view(&inside, 1, &n);
  hy_tensor grad = hy__task_contiguous(task, dy, HY_F32);
  grad = hy__view(&grad, 2, (const int64_t[]){n, dweight->shape[1]});
  hy_tensor to = hy__task_temporary(task, HY_F32, 2, dweight->shape);
  CNNL_PLAN(task, GetEmbeddingBackwardWorkspaceSize, CNNL_D(&grad), CNNL_D(&to), false);
  CNNL_RUN(task, EmbeddingBackward, a.padding_index < 0 ? -1 : (int)a.padding_index, false,
           CNNL_T(&inside), CNNL_T(&grad), CNNL_WORKSPACE, CNNL_T(&to));
  hy__task_copy(task, dweight, &to);
  return task->answer;
}

hy_support hy__cambricon_gather(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *index = &call->in[1], *out = &call->out[0];
  TASK_NEED(out->dtype == x->dtype && is_index(index), NO_DTYPE);
  TASK_NEED(x->ndim > 0 && index->ndim > 0, NO_SHAPE);
  int dim = (int)hy__wrapped_dim(call->attrs.dim.dim, x->ndim);
  hy_tensor inside = hy__task_indices(task, index, x->shape[dim], false);
  hy_tensor from = hy__task_contiguous(task, x, x->dtype), to = CNNL_OUT(0);
  if (call->op == HY_OP_gather) {
    CNNL_PLAN(task, GetGatherWorkspaceSize, CNNL_D(&from), CNNL_D(&inside), CNNL_D(&to), dim);
    CNNL_RUN(task, Gather_v2, dim, CNNL_T(&from), CNNL_T(&inside), CNNL_WORKSPACE, CNNL_T(&to));
  } else {
    CNNL_RUN(task, IndexSelect, dim, CNNL_T(&from), CNNL_T(&inside), CNNL_T(&to));
  }
  CNNL_GIVE(0, to);
  return task->answer;
}

// Halves are summed in f32, from x to the last term.
hy_support hy__cambricon_index_add(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *index = &call->in[1], *src = &call->in[2],
                  *out = &call->out[0];
  TASK_NEED(hy__is_half_or_f32(x) && src->dtype == x->dtype && out->dtype == x->dtype, NO_DTYPE);
  TASK_NEED(is_index(index), NO_DTYPE);
  TASK_NEED(x->ndim > 0 && index->ndim == 1, NO_SHAPE);
  int dim = (int)hy__wrapped_dim(call->attrs.dim.dim, x->ndim);
  if (hy_tensor_numel(src) == 0) {
    if (x->data != out->data || !task->stream) hy__task_copy(task, out, x);
    return task->answer;
  }
  hy_tensor inside = hy__task_indices(task, index, x->shape[dim], false);
  hy_tensor from = hy__task_contiguous(task, x, HY_F32);
  hy_tensor terms = hy__task_contiguous(task, src, HY_F32);
  hy_tensor sum = hy__task_temporary(task, HY_F32, x->ndim, x->shape);
  CNNL_RUN(task, IndexAdd, dim, CNNL_T(&from), CNNL_T(&inside), CNNL_T(&terms), CNNL_T(&sum));
  hy__task_copy(task, out, &sum);
  return task->answer;
}

// Rows written to where an index says, as a KV cache does: one index per leading dimension, and
// none twice. Sums over the same place are left to the reference.
hy_support hy__cambricon_index_put(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *values = &call->in[1], *out = &call->out[0];
  int n = call->n_in - 2;
  TASK_NEED(values->dtype == x->dtype && out->dtype == x->dtype, NO_DTYPE);
  TASK_NEED(!call->attrs.accumulate.accumulate, NO_ATTRIBUTE);
  TASK_NEED(n >= 1 && n <= x->ndim, NO_SHAPE);
  for (int i = 0; i < n; i++) {
    TASK_NEED(is_index(&call->in[2 + i]), NO_DTYPE);
    TASK_NEED(call->in[2 + i].ndim == 1 && call->in[2 + i].shape[0] == call->in[2].shape[0],
              NO_SHAPE);
  }
  if (hy_tensor_numel(&call->in[2]) == 0) {
    if (x->data != out->data || !task->stream) hy__task_copy(task, out, x);
    return task->answer;
  }
  hy_tensor inside[HY_MAX_DIMS];
  // The values, of the shape that is written: [n, the rest of x].
  int64_t shape[HY_MAX_DIMS] = {call->in[2].shape[0]};
  for (int d = n; d < x->ndim; d++) shape[d - n + 1] = x->shape[d];
  hy_tensor rows = hy__task_temporary(task, x->dtype, x->ndim - n + 1, shape);
  hy__task_copy(task, &rows, values);
  cnnl_tensor descs[HY_MAX_DIMS] = {NULL};
  const void* places[HY_MAX_DIMS] = {NULL};
  for (int i = 0; i < n; i++)
    inside[i] = hy__task_indices(task, &call->in[2 + i], x->shape[i], true);
  hy_tensor from = hy__task_contiguous(task, x, x->dtype), to = CNNL_OUT(0);
  for (int i = 0; i < n; i++) {
    descs[i] = CNNL_D(&inside[i]);
    places[i] = inside[i].data;
  }
  CNNL_PLAN(task, GetIndexPutWorkspaceSize, CNNL_D(&from), descs, n, CNNL_D(&rows), false);
  CNNL_RUN(task, IndexPut, CNNL_T(&from), descs, places, n, CNNL_T(&rows), CNNL_WORKSPACE, false,
           true, CNNL_T(&to));
  CNNL_GIVE(0, to);
  return task->answer;
}

// Empty tensors add nothing, and the vendor is given none. A stack joins along a new dimension.
hy_support hy__cambricon_join(hy__task* task, const hy_call* call) {
  hy_tensor parts[HY_MAX_INPUTS];
  int n = 0, dim = (int)hy__wrapped_dim(call->attrs.dim.dim, call->out[0].ndim);
  TASK_NEED(hy__same_types(call), NO_DTYPE);
  for (int i = 0; i < call->n_in; i++) {
    if (hy_tensor_numel(&call->in[i]) == 0) continue;
    hy_tensor part = hy__task_contiguous(task, &call->in[i], call->in[i].dtype);
    if (call->op == HY_OP_stack) {
      int64_t shape[HY_MAX_DIMS];
      for (int d = 0; d < call->out[0].ndim; d++)
        shape[d] = d < dim ? part.shape[d] : d == dim ? 1 : part.shape[d - 1];
      part = hy__view(&part, call->out[0].ndim, shape);
    }
    parts[n++] = part;
  }
  if (n == 0) return task->answer;
  hy_tensor to = CNNL_OUT(0);
  cnnl_tensor descs[HY_MAX_INPUTS];
  const void* data[HY_MAX_INPUTS];
  for (int i = 0; i < n; i++) {
    descs[i] = CNNL_D(&parts[i]);
    data[i] = parts[i].data;
  }
  CNNL_PLAN(task, GetConcatWorkspaceSize, n);
  CNNL_RUN(task, Concat, n, dim, descs, data, CNNL_WORKSPACE, CNNL_T(&to));
  CNNL_GIVE(0, to);
  return task->answer;
}
