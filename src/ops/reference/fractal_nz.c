// Ascend's FRACTAL_NZ: a matrix [N, K] of 16-bit floats as [K/16, N/16, 16, 16].
#include <string.h>

#include "ops/reference/layer.h"
#include "ops/reference/slices.h"

enum { BLOCK = 16 };

// Where the 16 numbers of a row that begin at column 16 k are.
static char* block_row(const hy_tensor* packed, int64_t row, int64_t k) {
  return (char*)packed->data + (k * packed->shape[0] + row) * BLOCK * 2;
}

hy_status hy__ref_pack_fractal_nz(const hy_call* call) {
  const hy_tensor *weight = &call->in[0], *packed = &call->out[0];
  for (int64_t row = 0; row < weight->shape[0]; row++) {
    const char* from = hy__row_address(weight, row);
    for (int64_t c = 0; c < weight->shape[1]; c++)
      memcpy(block_row(packed, row, c / BLOCK) + c % BLOCK * 2, from + c * weight->stride[1] * 2,
             2);
  }
  return HY_OK;
}

static void weight_row(const hy_call* call, int64_t row, double* values) {
  const hy_tensor* weight = &call->in[1];
  for (int64_t k = 0; k < weight->shape[1] / BLOCK; k++)
    hy__load_row_f(weight->dtype, block_row(weight, row, k), 1, BLOCK, values + k * BLOCK);
}

hy_status hy__ref_linear_fractal_nz(const hy_call* call) {
  return hy__layer(call, &call->in[2], NULL, weight_row);
}
