// Gradients of convolution and pooling, which have rows of their own in the table.
#include "ops/autograd/grad.h"

// y = x * weight + bias
HY__RULE(conv2d, IN(0) | IN(1), IN(0) | IN(1), IN(0) | IN(1)) {
  hy_array* in[] = {g_dense(g, g->dy), g_in(g, 0), g_in(g, 1)};
  g_give_all(g, HY_OP_conv2d_backward, g_attrs(g), in, 3);
}

// y = the largest of each window             dx[index] += dy
HY__RULE(max_pool2d, IN(0) | OUT(1)) {
  hy_array* in[] = {g_dense(g, g->dy), g_out(g, 1), g_in(g, 0)};
  g_give(g, 0, g_op(g, HY_OP_max_pool2d_backward, g_attrs(g), in, 3, 0));
}

// y = the mean of each window                dx += dy / n over the window
HY__RULE(avg_pool2d, IN(0)) {
  hy_array* in[] = {g_dense(g, g->dy), g_in(g, 0)};
  g_give(g, 0, g_op(g, HY_OP_avg_pool2d_backward, g_attrs(g), in, 2, 0));
}
