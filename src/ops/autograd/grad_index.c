// Gradients of indexing and joining.
#include "ops/autograd/grad.h"

// y = weight[ids]                            dweight[ids] += dy
HY__RULE(embedding, IN(1), NO_GRADIENT) {
  hy_attrs attrs = {.rows = {g_shape(g, 0)->shape[0], g_attrs(g)->padding.padding_index}};
  hy_array* dy = g_dense(g, g->dy);
  g_give(g, 0, g_op(g, HY_OP_embedding_backward, &attrs, G_LIST(dy, g_in(g, 1)), 0));
}

// y = x[index] along dim                     dx[index] += dy
HY__RULE(gather, IN(1), NO_GRADIENT) {
  hy_attrs attrs = {.scatter = {g_attrs(g)->dim.dim, HY_SCATTER_ADD}};
  hy_array* zeros = g_zeros(g, g_shape(g, 0));
  g_give(g, 0, g_op(g, HY_OP_scatter, &attrs, G_LIST(zeros, g_in(g, 1), g->dy), 0));
}

// y = x, y[index] = src or += src            dx = dy, 0 at the index where it was set
//                                            dsrc = dy[index]
HY__RULE(scatter, IN(1), NO_GRADIENT, IN(1)) {
  const hy_attrs_scatter* a = &g_attrs(g)->scatter;
  hy_array* index = g_in(g, 1);
  if (!index) return;
  if (g_wants(g, 0) && a->mode == HY_SCATTER_SET) {
    hy_array* zeros = g_full(g, g->dy->view.dtype, index->view.ndim, index->view.shape, 0);
    g_give(g, 0, g_op(g, HY_OP_scatter, g_attrs(g), G_LIST(g->dy, index, zeros), 0));
  } else {
    g_give(g, 0, g->dy);
  }
  if (g_wants(g, 2)) {
    hy_array* read = g_op(g, HY_OP_gather, &(hy_attrs){.dim = {a->dim}}, G_LIST(g->dy, index), 0);
    // The source may be larger than the index; the rest of it was not read.
    hy_array *dsrc = g_zeros(g, g_shape(g, 2)), *part = dsrc;
    for (int d = 0; part && d < part->view.ndim; d++)
      part = g_slice(g, part, d, 0, index->view.shape[d], 1);
    g_copy_into(g, part, read);
    g_give(g, 2, dsrc);
  }
}

// y = x[index, :]                            dx[index, :] += dy
HY__RULE(index_select, IN(1), NO_GRADIENT) {
  hy_array* zeros = g_zeros(g, g_shape(g, 0));
  g_give(g, 0, g_op(g, HY_OP_index_add, g_attrs(g), G_LIST(zeros, g_in(g, 1), g->dy), 0));
}

// y = x, y[index, :] += src                  dx = dy, dsrc = dy[index, :]
HY__RULE(index_add, 0, NO_GRADIENT, IN(1)) {
  g_give(g, 0, g->dy);
  if (g_wants(g, 2))
    g_give(g, 2, g_op(g, HY_OP_index_select, g_attrs(g), G_LIST(g->dy, g_in(g, 1)), 0));
}

// Fills in[from...] with the list of indices that starts at the node's input `at`.
static int put_indices(hy__grad* g, hy_array** in, int from, int at) {
  for (int i = at; i < g->node->n_in; i++) in[from++] = g_in(g, i);
  return from;
}

// y = x[indices]                             dx[indices] += dy
HY__RULE(index, LIST, NO_GRADIENT) {
  hy_array* in[HY_MAX_INPUTS] = {g_zeros(g, g_shape(g, 0)), g->dy};
  int n = put_indices(g, in, 2, 1);
  g_give(g, 0, g_op(g, HY_OP_index_put, &(hy_attrs){.accumulate = {true}}, in, n, 0));
}

// y = x, y[indices] = values or += values    dx = dy, 0 at the indices where it was set
//                                            dvalues = dy[indices]
HY__RULE(index_put, LIST, LIST, NO_GRADIENT) {
  hy_array* in[HY_MAX_INPUTS] = {g->dy};
  if (g_wants(g, 0) && !g_attrs(g)->accumulate.accumulate) {
    in[1] = g_full(g, g->dy->view.dtype, 0, NULL, 0);
    int n = put_indices(g, in, 2, 2);
    g_give(g, 0, g_op(g, HY_OP_index_put, g_attrs(g), in, n, 0));
  } else {
    g_give(g, 0, g->dy);
  }
  if (g_wants(g, 1)) {
    int n = put_indices(g, in, 1, 2);
    g_give(g, 1, g_op(g, HY_OP_index, NULL, in, n, 0));
  }
}

// y = the inputs one after another           dx = each one's part of dy
HY__RULE(cat, 0) {
  int dim = hy__wrap_dim(g_attrs(g)->dim.dim, g->dy->view.ndim);
  int64_t at = 0;
  for (int i = 0; i < g->node->n_in; i++) {
    const hy_tensor* x = g_shape(g, i);
    // An empty vector joins anything and adds nothing.
    if (x->ndim == 1 && x->shape[0] == 0 && g->dy->view.ndim != 1) {
      if (g_wants(g, i)) g_give(g, i, g_zeros(g, x));
      continue;
    }
    if (g_wants(g, i)) g_give(g, i, g_slice(g, g->dy, dim, at, at + x->shape[dim], 1));
    at += x->shape[dim];
  }
}

// y = the inputs side by side                dx = each one's part of dy
HY__RULE(stack, 0) {
  int dim = hy__wrap_dim(g_attrs(g)->dim.dim, g->dy->view.ndim);
  for (int i = 0; i < g->node->n_in; i++) {
    if (g_wants(g, i)) g_give(g, i, g_select(g, g->dy, dim, i));
  }
}
