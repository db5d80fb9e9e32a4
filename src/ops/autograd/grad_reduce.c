// Gradients of reductions, scans and sorts.
#include "ops/autograd/grad.h"

// dy, with the reduced dimensions put back as size 1.
static hy_array* unreduced_dy(hy__grad* g) {
  return g_unreduce(g, g->dy, g_shape(g, 0), &g_attrs(g)->reduce.dims);
}

// How many elements of the input went into one of the output.
static double reduced_count(const hy__grad* g) {
  const hy_tensor* x = g_shape(g, 0);
  const hy_dims* dims = &g_attrs(g)->reduce.dims;
  if (dims->n == 0) return (double)hy_tensor_numel(x);
  double count = 1;
  for (int64_t i = 0; i < dims->n && x->ndim > 0; i++)
    count *= (double)x->shape[hy__wrap_dim(dims->dim[i], x->ndim)];
  return count;
}

// y = sum x                                  dx = dy
HY__RULE(sum, 0) {
  g_give(g, 0, g_expand(g, unreduced_dy(g), g_shape(g, 0)));
}

// y = sum x / n                              dx = dy / n
HY__RULE(mean, 0) {
  hy_array* dx = g_scale(g, unreduced_dy(g), 1 / reduced_count(g));
  g_give(g, 0, g_expand(g, dx, g_shape(g, 0)));
}

// y = prod x                                 dx = dy (product of the others)
// With one zero only its own gradient is not 0, with two none is; so the product of what is not
// zero, and the number of zeros, tell every case.
HY__RULE(prod, IN(0)) {
  const hy_attrs* attrs = g_attrs(g);
  hy_array* x = g_in(g, 0);
  hy_array* zero = g_compare(g, HY_OP_eq_scalar, x, 0);
  hy_array* others =
      g_op(g, HY_OP_masked_fill, &(hy_attrs){.value = {hy_float(1)}}, G_LIST(x, zero), 0);
  hy_attrs keepdim = *attrs;
  keepdim.reduce.keepdim = true;
  hy_array* product = g_op(g, HY_OP_prod, &keepdim, G_LIST(others), 0);
  hy_array* zeros = g_sum(g, zero, &attrs->reduce.dims, true);
  // Where x is zero: the product of the rest, if it is the only zero. Elsewhere: product / x, if
  // there is none.
  hy_array* spoiled = g_binary(g, HY_OP_ne, zeros, zero);
  hy_array* dx = g_mul(g, unreduced_dy(g), g_div(g, product, others));
  g_give(g, 0, g_mask(g, dx, spoiled));
}

// y = max x, min x                           dx = dy where x is y, shared evenly among ties
HY__RULE(extremum, IN(0) | OUT(0)) {
  const hy_dims* dims = &g_attrs(g)->reduce.dims;
  hy_array* x = g_in(g, 0);
  hy_array* y = g_unreduce(g, g_out(g, 0), g_shape(g, 0), dims);
  hy_array* hit = g_cast(g, g_binary(g, HY_OP_eq, x, y), g_shape(g, 0)->dtype);
  hy_array* share = g_div(g, unreduced_dy(g), g_sum(g, hit, dims, true));
  g_give(g, 0, g_mul(g, hit, share));
}

// y = sum (x - mean)^2 / (n - c)             dx = dy 2 (x - mean) / (n - c)
HY__RULE(var, IN(0)) {
  const hy_attrs_var* a = &g_attrs(g)->var;
  hy_array* x = g_in(g, 0);
  hy_attrs keepdim = {.reduce = {a->dims, true}};
  hy_array* mean = g_op(g, HY_OP_mean, &keepdim, G_LIST(x), 0);
  hy_array* dy = g_unreduce(g, g->dy, g_shape(g, 0), &a->dims);
  dy = g_scale(g, dy, 2 / (reduced_count(g) - a->correction));
  g_give(g, 0, g_mul(g, dy, g_sub(g, x, mean)));
}

// dy at the places of x that index says, 0 elsewhere.
static hy_array* put_back(hy__grad* g, hy_array* dy, hy_array* index, int64_t dim) {
  hy_attrs attrs = {.scatter = {dim, HY_SCATTER_SET}};
  return g_op(g, HY_OP_scatter, &attrs, G_LIST(g_zeros(g, g_shape(g, 0)), index, dy), 0);
}

// y = x[index], index from max_dim, min_dim  dx = dy at the index
HY__RULE(select_index, OUT(1)) {
  const hy_dims* dims = &g_attrs(g)->reduce.dims;
  hy_array* index = g_unreduce(g, g_out(g, 1), g_shape(g, 0), dims);
  g_give(g, 0, put_back(g, unreduced_dy(g), index, dims->dim[0]));
}

// y[i] = sum of x[j], j <= i                 dx[i] = sum of dy[j], j >= i
HY__RULE(cumsum, 0) {
  hy_attrs attrs = {.scan = {g_attrs(g)->scan.dim, !g_attrs(g)->scan.reverse}};
  g_give(g, 0, g_op(g, HY_OP_cumsum, &attrs, G_LIST(g->dy), 0));
}

// y = x[index]                               dx = dy at the index
HY__RULE(sort, OUT(1)) {
  g_give(g, 0, put_back(g, g->dy, g_out(g, 1), g_attrs(g)->sort.dim));
}
HY__RULE(topk, OUT(1)) {
  g_give(g, 0, put_back(g, g->dy, g_out(g, 1), g_attrs(g)->topk.dim));
}
