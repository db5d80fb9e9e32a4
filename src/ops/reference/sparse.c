// Matrices with two of every four neighbours kept. A group's code has the places of its two values,
// 2 bits each, the lower place in the lower bits; the even group of a byte has the low nibble.
#include <math.h>

#include "ops/reference/layer.h"
#include "ops/reference/slices.h"

// The larger magnitudes win, the earlier place among equals; NaN counts as infinite.
static void two_largest(const double* values, int* first, int* second) {
  double size[4];
  int best = 0, next = -1;
  for (int i = 0; i < 4; i++) size[i] = isnan(values[i]) ? INFINITY : fabs(values[i]);
  for (int i = 1; i < 4; i++) best = size[i] > size[best] ? i : best;
  for (int i = 0; i < 4; i++) {
    if (i != best && (next < 0 || size[i] > size[next])) next = i;
  }
  *first = best < next ? best : next;
  *second = best < next ? next : best;
}

hy_status hy__ref_sparsify_2_4(const hy_call* call) {
  const hy_tensor *weight = &call->in[0], *values = &call->out[0], *codes = &call->out[1];
  int64_t groups = weight->shape[1] / 4, size = (int64_t)hy_dtype_size(weight->dtype);
  for (int64_t r = 0; r < weight->shape[0]; r++) {
    const char* from = hy__row_address(weight, r);
    char* to = hy__row_address(values, r);
    uint8_t* code = (uint8_t*)codes->data + r * groups / 2;
    for (int64_t g = 0; g < groups; g++) {
      double four[4];
      int first, second;
      hy__load_row_f(weight->dtype, from + 4 * g * weight->stride[1] * size, weight->stride[1], 4,
                     four);
      two_largest(four, &first, &second);
      hy__store_row_f(values->dtype, to + 2 * g * values->stride[1] * size, values->stride[1], 2,
                      (double[]){four[first], four[second]});
      int nibble = first | second << 2;
      code[g / 2] = (uint8_t)(g % 2 ? code[g / 2] | nibble << 4 : nibble);
    }
  }
  return HY_OK;
}

static void weight_row(const hy_call* call, int64_t row, double* dense) {
  const hy_tensor *values = &call->in[1], *codes = &call->in[2];
  int64_t groups = values->shape[1] / 2;
  const uint8_t* code = (const uint8_t*)codes->data + row * groups / 2;
  const char* from = hy__row_address(values, row);
  for (int64_t i = 0; i < 4 * groups; i++) dense[i] = 0;
  for (int64_t g = 0; g < groups; g++) {
    double two[2];
    hy__load_row_f(values->dtype,
                   from + 2 * g * values->stride[1] * (int64_t)hy_dtype_size(values->dtype),
                   values->stride[1], 2, two);
    int nibble = code[g / 2] >> (g % 2 * 4) & 15;
    dense[4 * g + (nibble & 3)] += two[0];
    dense[4 * g + (nibble >> 2)] += two[1];
  }
}

hy_status hy__ref_linear_sparse_2_4(const hy_call* call) {
  return hy__layer(call, &call->in[3], NULL, weight_row);
}
