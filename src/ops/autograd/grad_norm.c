// Gradients of softmax, losses and normalisations, which have rows of their own in the table.
#include "ops/autograd/grad.h"

// y = softmax(x)                             dx = y (dy - sum(dy y))
HY__RULE(softmax, OUT(0)) {
  hy_array* dy = g_dense(g, g->dy);
  g_give(g, 0, g_op(g, HY_OP_softmax_backward, g_attrs(g), G_LIST(dy, g_out(g, 0)), 0));
}

// y = log(softmax(x))                        dx = dy - exp(y) sum(dy)
HY__RULE(log_softmax, OUT(0)) {
  hy_array* dy = g_dense(g, g->dy);
  g_give(g, 0, g_op(g, HY_OP_log_softmax_backward, g_attrs(g), G_LIST(dy, g_out(g, 0)), 0));
}

// y = -log(softmax(x))[target]               dx = dy (softmax(x) - target as one-hot)
HY__RULE(cross_entropy, IN(0) | IN(1) | IN(2), NO_GRADIENT, NO_GRADIENT) {
  hy_array* in[] = {g_in(g, 0), g_in(g, 1), g_in(g, 2), g_dense(g, g->dy)};
  g_give(g, 0, g_op(g, HY_OP_cross_entropy_backward, g_attrs(g), in, 4, 0));
}

// y = (x - mean) rstd weight + bias
HY__RULE(layer_norm, IN(0) | IN(1) | OUT(1) | OUT(2), IN(0) | OUT(1) | OUT(2),
         IN(0) | OUT(1) | OUT(2)) {
  hy_array* in[] = {g_dense(g, g->dy), g_in(g, 0), g_out(g, 1), g_out(g, 2), g_in(g, 1)};
  g_give_all(g, HY_OP_layer_norm_backward, g_attrs(g), in, 5);
}

// y = x rstd weight
HY__RULE(rms_norm, IN(0) | IN(1) | OUT(1), IN(0) | OUT(1)) {
  hy_array* in[] = {g_dense(g, g->dy), g_in(g, 0), g_out(g, 1), g_in(g, 1)};
  g_give_all(g, HY_OP_rms_norm_backward, g_attrs(g), in, 4);
}

// y = (x - mean) rstd weight + bias, by channel
HY__RULE(batch_norm, IN(0) | IN(1) | OUT(1) | OUT(2), IN(0) | OUT(1) | OUT(2),
         IN(0) | OUT(1) | OUT(2), NO_GRADIENT, NO_GRADIENT) {
  hy_array* in[] = {g_dense(g, g->dy), g_in(g, 0), g_out(g, 1), g_out(g, 2), g_in(g, 1)};
  g_give_all(g, HY_OP_batch_norm_backward, g_attrs(g), in, 5);
}
