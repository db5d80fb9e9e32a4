// What gradient rules are written with.
#include "ops/autograd/grad.h"

const hy__grad_rule hy__grad_none = {"none", NULL, {0}};

static hy_array* restore(hy__grad* g, const hy__saved* saved) {
  if (g->scope.status != HY_OK || !saved->storage) return NULL;
  hy_array* array = NULL;
  hy_status status = hy__array_over(&array, saved->storage, &saved->view);
  return hy_scope_keep(&g->scope, status, array);
}

hy_array* g_in(hy__grad* g, int i) {
  return restore(g, &g->node->in[i].saved);
}

hy_array* g_out(hy__grad* g, int i) {
  return restore(g, &g->node->saved_out[i]);
}

// ---- ops ----

hy_array* g_op(hy__grad* g, hy_op op, const hy_attrs* attrs, hy_array* const* in, int n_in,
               int which) {
  hy_array* out = NULL;
  hy_array** outputs[HY_MAX_OUTPUTS] = {NULL};
  outputs[which] = &out;
  hy_s_apply(&g->scope, op, in, n_in, attrs, outputs, hy_op_describe(op)->n_outputs);
  return out;
}

void g_give_all(hy__grad* g, hy_op op, const hy_attrs* attrs, hy_array* const* in, int n_in) {
  hy_array* out[HY_MAX_OUTPUTS] = {NULL};
  hy_array** outputs[HY_MAX_OUTPUTS] = {NULL};
  int n_out = hy_op_describe(op)->n_outputs;
  for (int i = 0; i < n_out && i < g->node->n_in; i++) {
    if (g_wants(g, i)) outputs[i] = &out[i];
  }
  hy_s_apply(&g->scope, op, in, n_in, attrs, outputs, n_out);
  for (int i = 0; i < n_out; i++) {
    if (out[i]) g_give(g, i, out[i]);
  }
}

hy_array* g_unary(hy__grad* g, hy_op op, hy_array* x) {
  return g_op(g, op, NULL, G_LIST(x), 0);
}

hy_array* g_binary(hy__grad* g, hy_op op, hy_array* a, hy_array* b) {
  hy_attrs attrs = {0};
  if (op == HY_OP_add || op == HY_OP_sub) attrs.alpha.alpha = hy_int(1);
  return g_op(g, op, &attrs, G_LIST(a, b), 0);
}

hy_array* g_compare(hy__grad* g, hy_op op, hy_array* x, double value) {
  return g_op(g, op, &(hy_attrs){.value = {hy_float(value)}}, G_LIST(x), 0);
}

hy_array* g_scale(hy__grad* g, hy_array* x, double factor) {
  if (factor == 1) return x;
  return hy_s_mul_scalar(&g->scope, x, hy_float(factor));
}

hy_array* g_mask(hy__grad* g, hy_array* x, hy_array* mask) {
  return hy_s_masked_fill(&g->scope, x, mask, hy_float(0));
}

hy_array* g_cast(hy__grad* g, hy_array* x, hy_dtype dtype) {
  if (!x || x->view.dtype == dtype) return x;
  return hy_s_cast(&g->scope, x, dtype);
}

hy_array* g_full(hy__grad* g, hy_dtype dtype, int ndim, const int64_t* shape, double value) {
  hy_array* out = hy_s_empty(&g->scope, dtype, ndim, shape);
  return hy_s_fill(&g->scope, out, hy_float(value));
}

hy_array* g_identity(hy__grad* g, hy_dtype dtype, int64_t n) {
  hy_array* ones = g_full(g, dtype, 2, (int64_t[]){n, n}, 1);
  return hy_s_tril(&g->scope, hy_s_triu(&g->scope, ones, 0), 0);
}

// ---- shapes ----

hy_array* g_as_strided(hy__grad* g, hy_array* x, int ndim, const int64_t* shape,
                       const int64_t* stride) {
  if (g->scope.status != HY_OK) return NULL;
  hy_tensor view;
  hy_array* out = NULL;
  hy_status status = hy_as_strided(&view, &x->view, ndim, shape, stride, 0);
  if (status == HY_OK) status = hy__array_over(&out, x->storage, &view);
  return hy_scope_keep(&g->scope, status, out);
}

hy_array* g_rows(hy__grad* g, hy_array* x) {
  if (g->scope.status != HY_OK) return NULL;
  int64_t columns = x->view.shape[x->view.ndim - 1], rows = 1;
  for (int d = 0; d < x->view.ndim - 1; d++) rows *= x->view.shape[d];
  return g_reshape(g, x, 2, (int64_t[]){rows, columns});
}

hy_array* g_unreduce(hy__grad* g, hy_array* reduced, const hy_tensor* like, const hy_dims* dims) {
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < like->ndim; d++) shape[d] = dims->n == 0 ? 1 : like->shape[d];
  for (int64_t i = 0; i < dims->n && like->ndim > 0; i++)
    shape[hy__wrap_dim(dims->dim[i], like->ndim)] = 1;
  return g_reshape(g, reduced, like->ndim, shape);
}

// ---- giving ----

// Sums over the dimensions that broadcasting added or repeated.
static hy_array* sum_to(hy__grad* g, hy_array* x, const hy_tensor* like) {
  hy_dims dims = {{0}, 0};
  int lead = x->view.ndim - like->ndim;
  for (int d = 0; d < x->view.ndim; d++) {
    if (d < lead || (like->shape[d - lead] == 1 && x->view.shape[d] != 1)) dims.dim[dims.n++] = d;
  }
  if (dims.n == 0) return x;
  x = g_sum(g, x, &dims, true);
  return lead > 0 ? g_reshape(g, x, like->ndim, like->shape) : x;
}

void g_give(hy__grad* g, int i, hy_array* value) {
  if (g->scope.status != HY_OK || !g_wants(g, i)) return;
  const hy_tensor* like = g_shape(g, i);
  value = sum_to(g, value, like);
  value = g_cast(g, value, like->dtype);
  if (g->scope.status == HY_OK) g->dx[i] = hy_array_retain(value);
}

hy_array* g_gathered(hy__grad* g, int i) {
  const hy__slot* slot = g->node->in[i].slot;
  return slot && hy__slot_may_add(slot) ? slot->grad : NULL;
}

void g_give_mm(hy__grad* g, int i, hy_array* a, hy_array* b, double alpha) {
  if (g->scope.status != HY_OK || !g_wants(g, i)) return;
  const hy_tensor* like = g_shape(g, i);
  hy_array* sum = g_gathered(g, i);
  if (!sum && alpha == 1) {
    g_give(g, i, g_reshape(g, g_mm(g, a, b), like->ndim, like->shape));
    return;
  }
  // A beta of 0: what is there is not read.
  hy_attrs attrs = {.addmm = {.beta = hy_int(sum != NULL), .alpha = hy_float(alpha)}};
  hy_array* to =
      sum ? g_rows(g, sum)
          : hy_s_empty(&g->scope, like->dtype, 2, (int64_t[]){a->view.shape[0], b->view.shape[1]});
  hy_s_apply_into(&g->scope, HY_OP_addmm, (hy_array*[]){to, a, b}, 3, &attrs, to);
  if (!sum) g_give(g, i, g_reshape(g, to, like->ndim, like->shape));
}
