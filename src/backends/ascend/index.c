// Indexing and joining of the ascend backend. Indices are clamped before the vendor sees them, and
// those that were outside are told when the stream is waited for.
#include "backends/ascend/ascend.h"

static bool is_stored(const hy_tensor* t) {
  return hy__is_half_or_f32(t) || hy_dtype_is_int(t->dtype) || t->dtype == HY_BOOL;
}

static bool is_index(const hy_tensor* t) {
  return hy_dtype_is_int(t->dtype);
}

hy_support hy__ascend_embedding(hy__task* task, const hy_call* call) {
  const hy_tensor *weight = &call->in[0], *ids = &call->in[1];
  TASK_NEED(is_stored(weight) && weight->dtype == call->out[0].dtype && is_index(ids), NO_DTYPE);
  hy_tensor inside = hy__task_indices(task, ids, weight->shape[0], false);
  ASCEND_RUN(task, Embedding, ASCEND_IN(0), ASCEND_T(&inside), ASCEND_OUT(0));
  return task->answer;
}

// Summed in f32.
hy_support hy__ascend_embedding_backward(hy__task* task, const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *ids = &call->in[1], *dweight = &call->out[0];
  hy_attrs_rows a = call->attrs.rows;
  TASK_NEED(hy__is_half_or_f32(dy) && dweight->dtype == dy->dtype && is_index(ids), NO_DTYPE);
  if (hy_tensor_numel(ids) == 0) {
    hy__task_fill(task, dweight, hy_float(0));
    return task->answer;
  }
  hy_tensor inside = hy__task_indices(task, ids, a.rows, false);
  hy_tensor grad = hy__task_contiguous(task, dy, HY_F32);
  bool direct = dweight->dtype == HY_F32 && hy_tensor_is_contiguous(dweight);
  hy_tensor to = direct ? *dweight : hy__task_temporary(task, HY_F32, 2, dweight->shape);
  ASCEND_RUN(task, EmbeddingDenseBackward, ASCEND_T(&grad), ASCEND_T(&inside), (uint64_t)a.rows,
             a.padding_index < 0 ? UINT64_MAX : (uint64_t)a.padding_index, false, ASCEND_T(&to));
  if (!direct) hy__task_copy(task, dweight, &to);
  return task->answer;
}

hy_support hy__ascend_gather(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *index = &call->in[1], *out = &call->out[0];
  TASK_NEED(is_stored(x) && out->dtype == x->dtype && is_index(index), NO_DTYPE);
  TASK_NEED(x->ndim > 0 && index->ndim > 0, NO_SHAPE);
  int64_t dim = hy__wrapped_dim(call->attrs.dim.dim, x->ndim);
  hy_tensor inside = hy__task_indices(task, index, x->shape[dim], false);
  if (call->op == HY_OP_gather)
    ASCEND_RUN(task, Gather, ASCEND_IN(0), dim, ASCEND_T(&inside), ASCEND_OUT(0));
  else
    ASCEND_RUN(task, IndexSelect, ASCEND_IN(0), dim, ASCEND_T(&inside), ASCEND_OUT(0));
  return task->answer;
}

// Halves are summed in f32, from x to the last term.
hy_support hy__ascend_index_add(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *index = &call->in[1], *src = &call->in[2],
                  *out = &call->out[0];
  TASK_NEED(hy__is_half_or_f32(x) && src->dtype == x->dtype && out->dtype == x->dtype, NO_DTYPE);
  TASK_NEED(is_index(index), NO_DTYPE);
  TASK_NEED(x->ndim > 0 && index->ndim == 1, NO_SHAPE);
  int64_t dim = hy__wrapped_dim(call->attrs.dim.dim, x->ndim);
  if (hy_tensor_numel(src) == 0) {
    if (x->data != out->data || !task->stream) hy__task_copy(task, out, x);
    return task->answer;
  }
  hy_tensor inside = hy__task_indices(task, index, x->shape[dim], false);
  hy_tensor from = hy__task_as(task, x, HY_F32), terms = hy__task_as(task, src, HY_F32);
  hy_tensor sum = hy__task_temporary(task, HY_F32, x->ndim, x->shape);
  ASCEND_RUN(task, IndexAdd, ASCEND_T(&from), dim, ASCEND_T(&inside), ASCEND_T(&terms), ASCEND_F(1),
             ASCEND_T(&sum));
  hy__task_copy(task, out, &sum);
  return task->answer;
}

// Rows written to where an index says, as a KV cache does: one index per leading dimension, and
// none twice. Sums over the same place are left to the reference.
hy_support hy__ascend_index_put(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *values = &call->in[1], *out = &call->out[0];
  int n = call->n_in - 2;
  TASK_NEED(is_stored(x) && values->dtype == x->dtype && out->dtype == x->dtype, NO_DTYPE);
  TASK_NEED(!call->attrs.accumulate.accumulate, NO_ATTRIBUTE);
  TASK_NEED(n >= 1 && n <= x->ndim, NO_SHAPE);
  for (int i = 0; i < n; i++) {
    TASK_NEED(is_index(&call->in[2 + i]), NO_DTYPE);
    TASK_NEED(call->in[2 + i].ndim == 1 && call->in[2 + i].shape[0] == call->in[2].shape[0],
              NO_SHAPE);
  }
  if (x->data != out->data || !task->stream) hy__task_copy(task, out, x);
  if (hy_tensor_numel(&call->in[2]) == 0) return task->answer;
  hy_tensor inside[HY_MAX_DIMS];
  for (int i = 0; i < n; i++)
    inside[i] = hy__task_indices(task, &call->in[2 + i], x->shape[i], true);
  ASCEND_RUN(task, IndexPutImpl, ASCEND_T(out), hy__ascend_list(task, inside, n), ASCEND_T(values),
             false, false);
  return task->answer;
}

// Empty tensors add nothing, and the vendor takes none.
hy_support hy__ascend_join(hy__task* task, const hy_call* call) {
  hy_tensor parts[HY_MAX_INPUTS];
  int n = 0;
  TASK_NEED(is_stored(&call->out[0]) && hy__same_types(call), NO_DTYPE);
  for (int i = 0; i < call->n_in; i++)
    if (hy_tensor_numel(&call->in[i]) > 0) parts[n++] = call->in[i];
  if (n == 0) return task->answer;
  int64_t dim = hy__wrapped_dim(call->attrs.dim.dim, call->out[0].ndim);
  if (call->op == HY_OP_cat)
    ASCEND_RUN(task, Cat, hy__ascend_list(task, parts, n), dim, ASCEND_OUT(0));
  else
    ASCEND_RUN(task, Stack, hy__ascend_list(task, parts, n), dim, ASCEND_OUT(0));
  return task->answer;
}
