// Linear layers whose weight is stored in a packed form, for the reference.
#include "ops/reference/layer.h"

#include "ops/reference/product.h"
#include "ops/reference/slices.h"

typedef struct layer {
  const hy_call* call;
  const hy_tensor* bias;
  hy__fill_row *x_row, *weight_row;
} layer;

static void row(const void* context, int64_t i, double* values) {
  const layer* l = context;
  const hy_tensor* x = &l->call->in[0];
  int last = x->ndim - 1;
  if (l->x_row) {
    l->x_row(l->call, i, values);
    return;
  }
  hy__load_row_f(x->dtype, hy__row_address(x, i), x->stride[last], x->shape[last], values);
}

static void column(const void* context, int64_t j, double* values) {
  const layer* l = context;
  l->weight_row(l->call, j, values);
}

static void put(const void* context, int64_t i, int64_t j, int64_t n, double* sums) {
  const layer* l = context;
  const hy_tensor* out = &l->call->out[0];
  int64_t stride = out->stride[out->ndim - 1];
  for (int64_t c = 0; c < n && hy__present(l->bias); c++)
    sums[c] += hy__load_f(l->bias->dtype, hy__element(l->bias, j + c));
  char* to = hy__row_address(out, i) + j * stride * (int64_t)hy_dtype_size(out->dtype);
  hy__store_row_f(out->dtype, to, stride, n, sums);
}

hy_status hy__layer(const hy_call* call, const hy_tensor* bias, hy__fill_row* x_row,
                    hy__fill_row* weight_row) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  int last = x->ndim - 1;
  layer l = {call, bias, x_row, weight_row};
  int64_t rows = 1;
  for (int d = 0; d < last; d++) rows *= x->shape[d];
  return hy__multiply_f(
      call, &(hy__product_f){rows, out->shape[last], x->shape[last], &l, row, column, put});
}
