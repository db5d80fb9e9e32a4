// Views of arrays, and the way back of their gradients.
#include <string.h>

#include "ops/autograd/grad.h"

// Gives out an array over x's memory and records how it was made.
static hy_status make_view(hy_tape* tape, hy_array** out, hy_array* x, const hy_tensor* view,
                           const hy__grad_rule* rule, const hy__view_step* step) {
  hy_array* array;
  HY_TRY(hy__array_over(&array, x->storage, view));
  hy_status status = HY_OK;
  if (tape && hy__tape_wants(tape, &x, 1)) {
    hy__node* node;
    status = hy__node_new(tape, rule, &x, 1, &node);
    if (status == HY_OK) {
      node->step.view = *step;
      status = hy__node_attach(node, 0, array);
      hy__node_release(node);
    }
  }
  if (status == HY_OK) {
    *out = array;
  } else {
    hy_array_release(array);
  }
  return status;
}

static hy_status check(const char* what, hy_array** out, const hy_array* x) {
  if (!out) return hy_fail(HY_INVALID_ARGUMENT, "%s: out is NULL", what);
  *out = NULL;
  return hy__array_check(what, x);
}

hy_status hy_array_view(hy_tape* tape, hy_array** out, hy_array* x, int ndim,
                        const int64_t* shape) {
  HY_TRY(check("hy_array_view", out, x));
  hy_tensor view;
  HY_TRY(hy_view(&view, &x->view, ndim, shape));
  return make_view(tape, out, x, &view, &hy__grad_reshape, &(hy__view_step){0});
}

hy_status hy_array_transpose(hy_tape* tape, hy_array** out, hy_array* x, int dim0, int dim1) {
  HY_TRY(check("hy_array_transpose", out, x));
  hy_tensor view;
  HY_TRY(hy_transpose(&view, &x->view, dim0, dim1));
  hy__view_step step = {0};
  for (int d = 0; d < view.ndim; d++) step.dims[d] = d;
  int a = hy__wrap_dim(dim0, view.ndim), b = hy__wrap_dim(dim1, view.ndim);
  step.dims[a] = b;
  step.dims[b] = a;
  return make_view(tape, out, x, &view, &hy__grad_permute, &step);
}

hy_status hy_array_permute(hy_tape* tape, hy_array** out, hy_array* x, const int* dims) {
  HY_TRY(check("hy_array_permute", out, x));
  hy_tensor view;
  HY_TRY(hy_permute(&view, &x->view, dims));
  hy__view_step step = {0};
  for (int d = 0; d < view.ndim; d++) step.dims[d] = hy__wrap_dim(dims[d], view.ndim);
  return make_view(tape, out, x, &view, &hy__grad_permute, &step);
}

hy_status hy_array_squeeze(hy_tape* tape, hy_array** out, hy_array* x, int dim) {
  HY_TRY(check("hy_array_squeeze", out, x));
  hy_tensor view;
  HY_TRY(hy_squeeze(&view, &x->view, dim));
  return make_view(tape, out, x, &view, &hy__grad_reshape, &(hy__view_step){0});
}

hy_status hy_array_unsqueeze(hy_tape* tape, hy_array** out, hy_array* x, int dim) {
  HY_TRY(check("hy_array_unsqueeze", out, x));
  hy_tensor view;
  HY_TRY(hy_unsqueeze(&view, &x->view, dim));
  return make_view(tape, out, x, &view, &hy__grad_reshape, &(hy__view_step){0});
}

hy_status hy_array_expand(hy_tape* tape, hy_array** out, hy_array* x, int ndim,
                          const int64_t* shape) {
  HY_TRY(check("hy_array_expand", out, x));
  hy_tensor view;
  HY_TRY(hy_expand(&view, &x->view, ndim, shape));
  return make_view(tape, out, x, &view, &hy__grad_expand, &(hy__view_step){0});
}

hy_status hy_array_slice(hy_tape* tape, hy_array** out, hy_array* x, int dim, int64_t start,
                         int64_t stop, int64_t step) {
  HY_TRY(check("hy_array_slice", out, x));
  hy_tensor view;
  HY_TRY(hy_slice(&view, &x->view, dim, start, stop, step));
  hy__view_step how = {.dim = dim, .start = start, .stop = stop, .step = step};
  return make_view(tape, out, x, &view, &hy__grad_window, &how);
}

hy_status hy_array_select(hy_tape* tape, hy_array** out, hy_array* x, int dim, int64_t index) {
  HY_TRY(check("hy_array_select", out, x));
  hy_tensor view;
  HY_TRY(hy_select(&view, &x->view, dim, index));
  hy__view_step how = {.is_select = true, .dim = dim, .start = index};
  return make_view(tape, out, x, &view, &hy__grad_window, &how);
}

hy_status hy_array_flip(hy_tape* tape, hy_array** out, hy_array* x, int dim) {
  HY_TRY(check("hy_array_flip", out, x));
  hy_tensor view;
  HY_TRY(hy_flip(&view, &x->view, dim));
  return make_view(tape, out, x, &view, &hy__grad_flip, &(hy__view_step){.dim = dim});
}

hy_status hy_array_contiguous(hy_tape* tape, hy_array** out, hy_array* x) {
  HY_TRY(check("hy_array_contiguous", out, x));
  if (!hy_tensor_is_contiguous(&x->view)) return hy_array_clone(tape, out, x);
  *out = hy_array_retain(x);
  return HY_OK;
}

// ---- gradients ----

// y = x in another shape                     dx = dy in x's shape
HY__RULE(reshape, 0) {
  const hy_tensor* x = g_shape(g, 0);
  g_give(g, 0, g_reshape(g, g->dy, x->ndim, x->shape));
}

// y[i] = x[dims[i]]                          dx: the inverse permutation of dy
HY__RULE(permute, 0) {
  int inverse[HY_MAX_DIMS];
  for (int i = 0; i < g->dy->view.ndim; i++) inverse[g->node->step.view.dims[i]] = i;
  g_give(g, 0, g_permute(g, g->dy, inverse));
}

// y: x in reverse order                      dx: dy in reverse order
HY__RULE(flip, 0) {
  g_give(g, 0, g_flip(g, g->dy, g->node->step.view.dim));
}

// y: x repeated                              dx: dy summed over the repetitions, which g_give does
HY__RULE(expand, 0) {
  g_give(g, 0, g->dy);
}

// The part of an array like x that y shows.
static hy_array* window_of(hy__grad* g, hy_array* x) {
  const hy__view_step* step = &g->node->step.view;
  if (step->is_select) return g_select(g, x, step->dim, step->start);
  return g_slice(g, x, step->dim, step->start, step->stop, step->step);
}

// y: part of x                               dx: dy in a field of zeros
// The parts of one array share a field, so that cutting it in n costs one, not n.
HY__RULE(window, 0) {
  hy_array* field = g_gathered(g, 0);
  if (field) {
    g_add_into(g, window_of(g, field), g->dy);
    hy_array_touch(field);
    return;
  }
  field = g_zeros(g, g_shape(g, 0));
  g_copy_into(g, window_of(g, field), g->dy);
  g_give(g, 0, field);
}
