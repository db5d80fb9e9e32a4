// Rotary positions: pairs of elements of the last dimension turned by an angle each. A pair is
// element i with i + D/2, or 2i with 2i + 1 when interleaved; the inverse turns back.
#include "ops/reference/element.h"
#include "ops/reference/scratch.h"
#include "ops/reference/walk.h"

static void load(const hy_tensor* t, int64_t row, double* values) {
  int last = t->ndim - 1;
  hy__load_row_f(t->dtype, hy__row_address(t, row), t->stride[last], t->shape[last], values);
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
  int64_t rows = 1, step = call->attrs.rope.interleaved ? 2 : 1;
  for (int d = 0; d < last; d++) rows *= x->shape[d];
  int64_t partner = call->attrs.rope.interleaved ? 1 : half;
  for (int64_t r = 0; r < rows; r++) {
    load(x, r, row);
    load(&c, r, cosine);
    load(&s, r, sine);
    for (int64_t i = 0; i < half; i++) {
      double* pair = row + i * step;
      double a = pair[0], b = pair[partner], turn = call->attrs.rope.inverse ? -sine[i] : sine[i];
      pair[0] = a * cosine[i] - b * turn;
      pair[partner] = b * cosine[i] + a * turn;
    }
    hy__store_row_f(out->dtype, hy__row_address(out, r), out->stride[last], size, row);
  }
  hy__mfree(row);
  return HY_OK;
}
