// Shape and type of einsum.
#include "ops/einsum.h"

#include "ops/rules/common.h"

hy_status hy__dtype_einsum(const hy_call* call, hy_tensor* out) {
  if (call->n_in == 0) return hy_fail(HY_INVALID_ARGUMENT, "einsum: there are no operands");
  for (int i = 0; i < call->n_in; i++) {
    if (!hy__present(&call->in[i]))
      return hy__call_fail(call, HY_INVALID_ARGUMENT, "operand %d is absent", i);
  }
  HY_TRY(hy__need_alike(call, 0, call->n_in));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}

hy_status hy__shape_einsum(const hy_call* call, hy_tensor* out) {
  hy__einsum e;
  HY_TRY(hy__einsum_parse(call, &e));
  out->ndim = e.out.rank;
  for (int d = 0; d < e.out.rank; d++) out->shape[d] = e.size[e.out.label[d]];
  return HY_OK;
}
