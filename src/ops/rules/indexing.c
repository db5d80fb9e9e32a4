// Shapes and types of the ops that index.
#include "ops/rules/indexing.h"

#include "ops/rules/common.h"

// ---- shapes ----

hy_status hy__shape_embedding(const hy_call* call, hy_tensor* out) {
  const hy_tensor *weight = &call->in[0], *ids = &call->in[1];
  HY_TRY(hy__need_ndim(call, 0, 2));
  if (ids->ndim >= HY_MAX_DIMS)
    return hy__call_fail(call, HY_SHAPE, "ids have at most %d dimensions", HY_MAX_DIMS - 1);
  hy__copy_shape(out, ids);
  out->shape[out->ndim++] = weight->shape[1];
  return HY_OK;
}

hy_status hy__shape_embedding_backward(const hy_call* call, hy_tensor* out) {
  const hy_tensor *dy = &call->in[0], *ids = &call->in[1];
  int64_t rows = call->attrs.rows.rows;
  bool fits = dy->ndim == ids->ndim + 1;
  for (int d = 0; fits && d < ids->ndim; d++) fits = dy->shape[d] == ids->shape[d];
  if (!fits)
    return hy__call_fail(call, HY_SHAPE, "dy must have the shape of ids and one dimension more");
  if (rows < 0)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "a weight of %lld rows", (long long)rows);
  out->ndim = 2;
  out->shape[0] = rows;
  out->shape[1] = dy->shape[dy->ndim - 1];
  return HY_OK;
}

static int64_t size_at(const hy_tensor* t, int d) {
  return t->ndim > 0 ? t->shape[d] : 1;
}

// The index has as many dimensions as t (0 counts as 1) and reaches no further, except in `dim`;
// pass -1 for a limit in every one.
static hy_status check_reach(const hy_call* call, const hy_tensor* t, const char* name, int dim) {
  const hy_tensor* index = &call->in[1];
  int ndim = t->ndim > 0 ? t->ndim : 1;
  if ((index->ndim > 0 ? index->ndim : 1) != ndim)
    return hy__call_fail(call, HY_SHAPE, "index and %s must have the same number of dimensions",
                         name);
  for (int d = 0; d < ndim; d++) {
    if (d != dim && size_at(index, d) > size_at(t, d))
      return hy__call_fail(call, HY_SHAPE, "index reaches %lld in dimension %d and %s only %lld",
                           (long long)size_at(index, d), d, name, (long long)size_at(t, d));
  }
  return HY_OK;
}

// An empty index asks for nothing, whatever its shape, as in PyTorch.
hy_status hy__shape_gather(const hy_call* call, hy_tensor* out) {
  const hy_tensor *x = &call->in[0], *index = &call->in[1];
  int dim;
  HY_TRY(hy__one_dim(call, call->attrs.dim.dim, x->ndim, &dim));
  if (hy_tensor_numel(index) > 0) HY_TRY(check_reach(call, x, "x", dim));
  hy__copy_shape(out, index);
  return HY_OK;
}

hy_status hy__shape_scatter(const hy_call* call, hy_tensor* out) {
  const hy_tensor *x = &call->in[0], *index = &call->in[1], *src = &call->in[2];
  hy_scatter_mode mode = call->attrs.scatter.mode;
  int dim;
  HY_TRY(hy__one_dim(call, call->attrs.scatter.dim, x->ndim, &dim));
  if (mode != HY_SCATTER_SET && mode != HY_SCATTER_ADD)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "%d is no way to scatter", (int)mode);
  if (hy_tensor_numel(index) > 0) {
    HY_TRY(check_reach(call, x, "x", dim));
    HY_TRY(check_reach(call, src, "src", -1));
  }
  hy__copy_shape(out, x);
  return HY_OK;
}

// The index is a vector (or one number); a tensor without dimensions has one element to index.
static hy_status check_vector_index(const hy_call* call, int* dim, int64_t* count) {
  const hy_tensor *x = &call->in[0], *index = &call->in[1];
  HY_TRY(hy__one_dim(call, call->attrs.dim.dim, x->ndim, dim));
  if (index->ndim > 1)
    return hy__call_fail(call, HY_SHAPE, "index has %d dimensions; 1 is needed", index->ndim);
  *count = hy_tensor_numel(index);
  if (x->ndim == 0 && *count != 1)
    return hy__call_fail(call, HY_SHAPE, "one index is needed where x has no dimensions, not %lld",
                         (long long)*count);
  return HY_OK;
}

hy_status hy__shape_index_select(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  int dim = 0;
  int64_t count = 0;
  HY_TRY(check_vector_index(call, &dim, &count));
  hy__copy_shape(out, x);
  if (x->ndim > 0) out->shape[dim] = count;
  return HY_OK;
}

hy_status hy__shape_index_add(const hy_call* call, hy_tensor* out) {
  const hy_tensor* x = &call->in[0];
  int dim = 0;
  int64_t count = 0;
  HY_TRY(check_vector_index(call, &dim, &count));
  hy__copy_shape(out, x);
  if (x->ndim > 0) out->shape[dim] = count;
  HY_TRY(hy__need_shape(call, 2, out->ndim, out->shape));
  hy__copy_shape(out, x);
  return HY_OK;
}

// Broadcasts the shapes of the present indices.
static hy_status broadcast_indices(const hy_call* call, int first, hy_tensor* shape) {
  shape->ndim = 0;
  for (int i = first; i < call->n_in; i++) {
    const hy_tensor* index = &call->in[i];
    if (!hy__present(index)) continue;
    for (; shape->ndim < index->ndim; shape->ndim++) {
      for (int d = shape->ndim; d > 0; d--) shape->shape[d] = shape->shape[d - 1];
      shape->shape[0] = 1;
    }
    for (int d = 0; d < index->ndim; d++) {
      int64_t* size = &shape->shape[shape->ndim - index->ndim + d];
      if (index->shape[d] == *size || index->shape[d] == 1) continue;
      if (*size != 1)
        return hy__call_fail(call, HY_SHAPE,
                             "the indices do not broadcast: sizes %lld and %lld meet",
                             (long long)*size, (long long)index->shape[d]);
      *size = index->shape[d];
    }
  }
  return HY_OK;
}

hy_status hy__plan_index(const hy_call* call, int first, hy__index_plan* plan) {
  const hy_tensor* x = &call->in[0];
  int n = call->n_in - first, rest[HY_MAX_DIMS], n_rest = 0;
  if (n > x->ndim)
    return hy__call_fail(call, HY_SHAPE, "%d indices and x has %d dimensions", n, x->ndim);
  HY_TRY(broadcast_indices(call, first, &plan->indexed));
  // The result's indexed dimensions stand where the indices stood when these are neighbours, else
  // in front.
  int begin = 0, runs = 0;
  for (int d = 0; d < x->ndim; d++) {
    bool indexed = d < n && hy__present(&call->in[first + d]);
    bool follows = indexed && d > 0 && hy__present(&call->in[first + d - 1]);
    if (!indexed) rest[n_rest++] = d;
    if (indexed && !follows && runs++ == 0) begin = d;
  }
  if (runs > 1) begin = 0;
  if (n_rest + plan->indexed.ndim > HY_MAX_DIMS)
    return hy__call_fail(call, HY_SHAPE, "the result would have %d dimensions; at most %d fit",
                         n_rest + plan->indexed.ndim, HY_MAX_DIMS);
  hy_tensor* result = &plan->result;
  result->ndim = 0;
  for (int k = 0; k <= n_rest; k++) {
    for (int b = 0; k == begin && b < plan->indexed.ndim; b++) {
      plan->dim_of[result->ndim] = -1;
      result->shape[result->ndim++] = plan->indexed.shape[b];
    }
    if (k == n_rest) break;
    plan->dim_of[result->ndim] = rest[k];
    result->shape[result->ndim++] = x->shape[rest[k]];
  }
  return HY_OK;
}

hy_status hy__shape_index(const hy_call* call, hy_tensor* out) {
  hy__index_plan plan;
  HY_TRY(hy__plan_index(call, 1, &plan));
  hy__copy_shape(out, &plan.result);
  return HY_OK;
}

hy_status hy__shape_index_put(const hy_call* call, hy_tensor* out) {
  hy__index_plan plan;
  HY_TRY(hy__plan_index(call, 2, &plan));
  HY_TRY(hy__need_broadcast(call, 1, plan.result.ndim, plan.result.shape));
  hy__copy_shape(out, &call->in[0]);
  return HY_OK;
}

// ---- types ----

hy_status hy__dtype_indexed(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  HY_TRY(hy__check_index_dtype(call, 1));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}

static hy_status check_source(const hy_call* call, int i) {
  if (call->in[i].dtype != call->in[0].dtype)
    return hy__call_fail(call, HY_DTYPE, "%s is %s and x is %s; one type is needed",
                         hy__input_name(call, i), hy_dtype_name(call->in[i].dtype),
                         hy_dtype_name(call->in[0].dtype));
  return HY_OK;
}

hy_status hy__dtype_scatter(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_source(call, 2));
  return hy__dtype_indexed(call, out);
}

hy_status hy__dtype_index_list(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  for (int i = 1; i < call->n_in; i++) HY_TRY(hy__check_index_dtype(call, i));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}

hy_status hy__dtype_index_put(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes(call, 0, 1));
  HY_TRY(check_source(call, 1));
  for (int i = 2; i < call->n_in; i++) HY_TRY(hy__check_index_dtype(call, i));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}
