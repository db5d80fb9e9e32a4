// Rotary positions: pairs of elements of the last dimension turned by an angle each. A pair is
// element i with i + D/2, or 2i with 2i + 1 when interleaved; the inverse turns back.
#include "ops/reference/element.h"
#include "ops/reference/scratch.h"
#include "ops/reference/walk.h"

static void load(const hy_tensor* t, const hy_tensor* rows, int64_t row, int64_t n, double* values) {
  const char* at =
      (const char*)t->data + hy__offset(rows, row) * (int64_t)hy_dtype_size(t->dtype);
  hy__load_row_f(t->dtype, at, t->stride[t->ndim - 1], n, values);
}

hy_status hy__ref_rope(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  int last = x->ndim - 1;
  int64_t size = x->shape[last], half = size / 2, shape[HY_MAX_DIMS];
  for (int d = 0; d < last; d++) shape[d] = x->shape[d];
  shape[last] = half;
  hy_tensor c, s;
  HY_TRY(hy_expand(&c, &call->in[1], x->ndim, shape));
  HY_TRY(hy_expand(&s, &call->in[2], x->ndim, shape));
  double* row = hy__scratch(call, size, 2);
  if (!row) return HY_OUT_OF_MEMORY;
  double *cosine = row + size, *sine = cosine + half;
  hy_tensor x_rows = *x, c_rows = c, s_rows = s, out_rows = *out;
  x_rows.ndim = c_rows.ndim = s_rows.ndim = out_rows.ndim = last;
  int64_t rows = hy_tensor_numel(&x_rows), step = call->attrs.rope.interleaved ? 2 : 1;
  int64_t partner = call->attrs.rope.interleaved ? 1 : half;
  for (int64_t r = 0; r < rows; r++) {
    load(x, &x_rows, r, size, row);
    load(&c, &c_rows, r, half, cosine);
    load(&s, &s_rows, r, half, sine);
    for (int64_t i = 0; i < half; i++) {
      double* pair = row + i * step;
      double a = pair[0], b = pair[partner], turn = call->attrs.rope.inverse ? -sine[i] : sine[i];
      pair[0] = a * cosine[i] - b * turn;
      pair[partner] = b * cosine[i] + a * turn;
    }
    char* to = (char*)out->data + hy__offset(&out_rows, r) * (int64_t)hy_dtype_size(out->dtype);
    hy__store_row_f(out->dtype, to, out->stride[last], size, row);
  }
  hy__mfree(row);
  return HY_OK;
}
