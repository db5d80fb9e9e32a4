// Gradients of matrix products and attention.
#include <string.h>

#include "ops/autograd/grad.h"

// y = a b                                    da = dy b', db = a' dy
HY__RULE(mm, IN(1), IN(0)) {
  if (g_wants(g, 0)) g_give_mm(g, 0, g->dy, g_transpose(g, g_in(g, 1)), 1);
  if (g_wants(g, 1)) g_give_mm(g, 1, g_transpose(g, g_in(g, 0)), g->dy, 1);
}

HY__RULE(bmm, IN(1), IN(0)) {
  if (g_wants(g, 0)) g_give(g, 0, g_binary(g, HY_OP_bmm, g->dy, g_transpose(g, g_in(g, 1))));
  if (g_wants(g, 1)) g_give(g, 1, g_binary(g, HY_OP_bmm, g_transpose(g, g_in(g, 0)), g->dy));
}

// y = beta x + alpha a b                     dx = beta dy, da = alpha dy b', db = alpha a' dy
HY__RULE(addmm, 0, IN(2), IN(1)) {
  double beta = hy_scalar_f(g_attrs(g)->addmm.beta), alpha = hy_scalar_f(g_attrs(g)->addmm.alpha);
  if (g_wants(g, 0)) g_give(g, 0, g_scale(g, g->dy, beta));
  if (g_wants(g, 1)) g_give_mm(g, 1, g->dy, g_transpose(g, g_in(g, 2)), alpha);
  if (g_wants(g, 2)) g_give_mm(g, 2, g_transpose(g, g_in(g, 1)), g->dy, alpha);
}

// The sum over all rows.
static void give_bias(hy__grad* g, int i, hy_array* dy) {
  hy_dims rows = hy_one_dim(0);
  if (g_wants(g, i)) g_give(g, i, g_sum(g, dy, &rows, false));
}

// y = x weight' + bias                       dx = dy weight, dweight = dy' x, dbias = sum dy
HY__RULE(linear, IN(1), IN(0), 0) {
  hy_array* dy = g_rows(g, g->dy);
  if (g_wants(g, 0)) g_give_mm(g, 0, dy, g_in(g, 1), 1);
  if (g_wants(g, 1)) g_give_mm(g, 1, g_transpose(g, dy), g_rows(g, g_in(g, 0)), 1);
  if (g->node->n_in > 2) give_bias(g, 2, dy);
}

// y = x (q scale)' + bias                    dx = dy (q scale), dbias = sum dy
HY__RULE(linear_quantized, IN(1) | IN(2), NO_GRADIENT, NO_GRADIENT, 0) {
  hy_array* dy = g_rows(g, g->dy);
  if (g_wants(g, 0)) {
    hy_attrs attrs = {.cast = {g_shape(g, 0)->dtype}};
    hy_array* weight = g_op(g, HY_OP_dequantize, &attrs, G_LIST(g_in(g, 1), g_in(g, 2)), 0);
    g_give_mm(g, 0, dy, weight, 1);
  }
  give_bias(g, 3, dy);
}

// y = x weight' + bias, 2:4 sparse           dx = dy weight, dbias = sum dy
// The dense weight is what the layer makes of the identity.
HY__RULE(linear_sparse_2_4, IN(1) | IN(2), NO_GRADIENT, NO_GRADIENT, 0) {
  const hy_tensor* x = g_shape(g, 0);
  hy_array* dy = g_rows(g, g->dy);
  if (g_wants(g, 0)) {
    hy_array* identity = g_identity(g, x->dtype, x->shape[x->ndim - 1]);
    hy_array* in[] = {identity, g_in(g, 1), g_in(g, 2), NULL};
    hy_array* dense = g_op(g, HY_OP_linear_sparse_2_4, NULL, in, 4, 0);
    g_give_mm(g, 0, dy, g_transpose(g, dense), 1);
  }
  give_bias(g, 3, dy);
}

// y = softmax(scale q k' + mask) v
HY__RULE(sdpa, IN(0) | IN(1) | IN(2) | IN(3) | OUT(0) | OUT(1),
         IN(0) | IN(1) | IN(2) | IN(3) | OUT(0) | OUT(1),
         IN(0) | IN(1) | IN(2) | IN(3) | OUT(0) | OUT(1), NO_GRADIENT) {
  hy_array* in[] = {g->dy,       g_in(g, 0),  g_in(g, 1), g_in(g, 2),
                    g_out(g, 0), g_out(g, 1), g_in(g, 3)};
  g_give_all(g, HY_OP_sdpa_backward, g_attrs(g), in, 7);
}

// y = x rotated by an angle                  dx = dy rotated back
HY__RULE(rope, IN(1) | IN(2), NO_GRADIENT, NO_GRADIENT) {
  hy_attrs attrs = *g_attrs(g);
  attrs.rope.inverse = !attrs.rope.inverse;
  g_give(g, 0, g_op(g, HY_OP_rope, &attrs, G_LIST(g->dy, g_in(g, 1), g_in(g, 2)), 0));
}
