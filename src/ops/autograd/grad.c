// What gradient rules are written with.
#include "ops/autograd/grad.h"

#include <string.h>

const hy__grad_rule hy__grad_none = {"none", NULL, {0}};

void hy__grad_begin(hy__grad* g, hy_tape* tape, hy__node* node) {
  g->tape = tape;
  g->node = node;
  g->dy = NULL;
  g->dys = NULL;
  g->status = HY_OK;
  g->kept = NULL;
  g->n_kept = g->capacity = 0;
  if (node) memset(g->dx, 0, (size_t)node->n_in * sizeof g->dx[0]);
}

hy_status hy__grad_end(hy__grad* g) {
  for (int i = 0; i < g->n_kept; i++) hy_array_release(g->kept[i]);
  hy__mfree(g->kept);
  return g->status;
}

// Takes over a fresh reference, or the failure that came instead of one.
static hy_array* keep(hy__grad* g, hy_status status, hy_array* array) {
  if (status == HY_OK && g->n_kept == g->capacity) {
    int capacity = g->capacity ? 2 * g->capacity : 16;
    hy_array** grown = hy__realloc(g->kept, (size_t)capacity * sizeof *grown);
    if (grown) {
      g->kept = grown;
      g->capacity = capacity;
    } else {
      status = hy_fail(HY_OUT_OF_MEMORY, "no host memory for a backward");
    }
  }
  if (status != HY_OK) {
    hy_array_release(array);
    g->status = status;
    return NULL;
  }
  return g->kept[g->n_kept++] = array;
}

static hy_array* restore(hy__grad* g, const hy__saved* saved) {
  if (g->status != HY_OK || !saved->storage) return NULL;
  hy_array* array = NULL;
  hy_status status = hy__array_over(&array, saved->storage, &saved->view);
  return keep(g, status, array);
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
  if (g->status != HY_OK) return NULL;
  hy_array* out = NULL;
  hy_array** outputs[HY_MAX_OUTPUTS] = {NULL};
  outputs[which] = &out;
  hy_status status =
      hy_array_apply(g->tape, op, in, n_in, attrs, outputs, hy_op_describe(op)->n_outputs);
  return keep(g, status, out);
}

void g_give_all(hy__grad* g, hy_op op, const hy_attrs* attrs, hy_array* const* in, int n_in) {
  if (g->status != HY_OK) return;
  hy_array* out[HY_MAX_OUTPUTS] = {NULL};
  hy_array** outputs[HY_MAX_OUTPUTS] = {NULL};
  int n_out = hy_op_describe(op)->n_outputs;
  for (int i = 0; i < n_out && i < g->node->n_in; i++) {
    if (g_wants(g, i)) outputs[i] = &out[i];
  }
  hy_status status = hy_array_apply(g->tape, op, in, n_in, attrs, outputs, n_out);
  if (status != HY_OK) {
    g->status = status;
    return;
  }
  for (int i = 0; i < n_out; i++) {
    if (out[i]) g_give(g, i, keep(g, HY_OK, out[i]));
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

hy_array* g_compare_int(hy__grad* g, hy_op op, hy_array* x, int64_t value) {
  return g_op(g, op, &(hy_attrs){.value = {hy_int(value)}}, G_LIST(x), 0);
}

hy_array* g_scale(hy__grad* g, hy_array* x, double factor) {
  if (factor == 1) return x;
  return g_op(g, HY_OP_mul_scalar, &(hy_attrs){.value = {hy_float(factor)}}, G_LIST(x), 0);
}

hy_array* g_power(hy__grad* g, hy_array* x, double exponent) {
  return g_op(g, HY_OP_pow_scalar, &(hy_attrs){.value = {hy_float(exponent)}}, G_LIST(x), 0);
}

hy_array* g_sum(hy__grad* g, hy_array* x, const hy_dims* dims, bool keepdim) {
  return g_op(g, HY_OP_sum, &(hy_attrs){.reduce = {*dims, keepdim}}, G_LIST(x), 0);
}

hy_array* g_mask(hy__grad* g, hy_array* x, hy_array* mask) {
  return g_op(g, HY_OP_masked_fill, &(hy_attrs){.value = {hy_float(0)}}, G_LIST(x, mask), 0);
}

hy_array* g_cast(hy__grad* g, hy_array* x, hy_dtype dtype) {
  if (!x || x->view.dtype == dtype) return x;
  return g_op(g, HY_OP_cast, &(hy_attrs){.cast = {dtype}}, G_LIST(x), 0);
}

hy_array* g_dense(hy__grad* g, hy_array* x) {
  if (!x || hy_tensor_is_contiguous(&x->view)) return x;
  return g_unary(g, HY_OP_clone, x);
}

// ---- making ----

hy_array* g_zeros(hy__grad* g, const hy_tensor* like) {
  if (g->status != HY_OK) return NULL;
  hy_array* out = NULL;
  hy_status status = hy_array_zeros(g->tape->stream, &out, like->dtype, like->ndim, like->shape);
  return keep(g, status, out);
}

hy_array* g_full(hy__grad* g, hy_dtype dtype, int ndim, const int64_t* shape, double value) {
  if (g->status != HY_OK) return NULL;
  hy_array* out = NULL;
  hy_status status = hy_array_empty(g->tape->stream, &out, dtype, ndim, shape);
  if (out) status = hy_fill(g->tape->stream, &out->view, hy_float(value));
  return keep(g, status, out);
}

hy_array* g_identity(hy__grad* g, hy_dtype dtype, int64_t n) {
  hy_attrs diagonal = {.tri = {0}};
  hy_array* ones = g_full(g, dtype, 2, (int64_t[]){n, n}, 1);
  hy_array* upper = g_op(g, HY_OP_triu, &diagonal, G_LIST(ones), 0);
  return g_op(g, HY_OP_tril, &diagonal, G_LIST(upper), 0);
}

void g_in_place(hy__grad* g, hy_op op, const hy_attrs* attrs, hy_array* const* in, int n_in) {
  if (g->status == HY_OK) g->status = hy_array_apply_into(g->tape, op, in, n_in, attrs, in, 1);
}

void g_copy_into(hy__grad* g, hy_array* to, hy_array* from) {
  if (g->status == HY_OK) g->status = hy_copy(g->tape->stream, &to->view, &from->view);
}

void g_add_into(hy__grad* g, hy_array* to, hy_array* from) {
  if (g->status == HY_OK)
    g->status = hy_add(g->tape->stream, &to->view, &to->view, &from->view, hy_int(1));
}

void g_div_into(hy__grad* g, hy_array* to, hy_array* from) {
  if (g->status == HY_OK)
    g->status = hy_div(g->tape->stream, &to->view, &to->view, &from->view, HY_ROUND_NONE);
}

// ---- views ----

// `view` over x's memory.
static hy_array* over(hy__grad* g, hy_status status, const hy_array* x, const hy_tensor* view) {
  hy_array* out = NULL;
  if (status == HY_OK) status = hy__array_over(&out, x->storage, view);
  return keep(g, status, out);
}

hy_array* g_reshape(hy__grad* g, hy_array* x, int ndim, const int64_t* shape) {
  if (g->status != HY_OK) return NULL;
  hy_tensor view;
  hy_status status = hy_view(&view, &x->view, ndim, shape);
  if (status == HY_LAYOUT) {
    x = g_dense(g, x);
    if (!x) return NULL;
    status = hy_view(&view, &x->view, ndim, shape);
  }
  return over(g, status, x, &view);
}

hy_array* g_permute(hy__grad* g, hy_array* x, const int* dims) {
  if (g->status != HY_OK) return NULL;
  hy_tensor view;
  return over(g, hy_permute(&view, &x->view, dims), x, &view);
}

hy_array* g_transpose(hy__grad* g, hy_array* x) {
  if (g->status != HY_OK) return NULL;
  hy_tensor view;
  return over(g, hy_transpose(&view, &x->view, -2, -1), x, &view);
}

hy_array* g_expand(hy__grad* g, hy_array* x, const hy_tensor* like) {
  if (g->status != HY_OK) return NULL;
  hy_tensor view;
  return over(g, hy_expand(&view, &x->view, like->ndim, like->shape), x, &view);
}

hy_array* g_slice(hy__grad* g, hy_array* x, int dim, int64_t start, int64_t stop, int64_t step) {
  if (g->status != HY_OK) return NULL;
  hy_tensor view;
  return over(g, hy_slice(&view, &x->view, dim, start, stop, step), x, &view);
}

hy_array* g_select(hy__grad* g, hy_array* x, int dim, int64_t index) {
  if (g->status != HY_OK) return NULL;
  hy_tensor view;
  return over(g, hy_select(&view, &x->view, dim, index), x, &view);
}

hy_array* g_as_strided(hy__grad* g, hy_array* x, int ndim, const int64_t* shape,
                       const int64_t* stride) {
  if (g->status != HY_OK) return NULL;
  hy_tensor view;
  return over(g, hy_as_strided(&view, &x->view, ndim, shape, stride, 0), x, &view);
}

hy_array* g_rows(hy__grad* g, hy_array* x) {
  if (g->status != HY_OK) return NULL;
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
  if (g->status != HY_OK || !g_wants(g, i)) return;
  const hy_tensor* like = g_shape(g, i);
  value = sum_to(g, value, like);
  value = g_cast(g, value, like->dtype);
  if (g->status == HY_OK) g->dx[i] = hy_array_retain(value);
}

hy_array* g_gathered(hy__grad* g, int i) {
  const hy__slot* slot = g->node->in[i].slot;
  return slot && hy__slot_may_add(slot) ? slot->grad : NULL;
}
