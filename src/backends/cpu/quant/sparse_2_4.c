// linear_sparse_2_4: 2:4 sparse weights, of which two of every four neighbours are kept, with a
// code of four bits for their places.
#include <string.h>

#include "backends/cpu/quant/dequant_linear.h"

typedef struct sparse {
  const unsigned char* codes;  // k / 8 bytes a row
  hy__matrix values;
} sparse;

static hy_support describe(const hy_call* call, hy__dequant_linear* l, sparse* s) {
  const hy_tensor *values = &call->in[1], *codes = &call->in[2];
  *s = (sparse){codes->data, {values->data, values->dtype, values->stride[0], values->stride[1]}};
  return hy__dequant_linear_describe(call, values->shape[0], 2 * values->shape[1], &call->in[3], l);
}

static void decode(const hy__dequant_linear* l, int64_t row, int64_t first, int64_t count,
                   float* out) {
  enum { PIECE = 256 };
  const sparse* s = l->weights;
  const unsigned char* codes = s->codes + row * (l->k / 8) + first / 8;
  float kept[PIECE / 2];
  memset(out, 0, (size_t)count * sizeof *out);
  for (int64_t at = 0; at < count; at += PIECE) {
    int64_t n = count - at < PIECE ? count - at : PIECE;
    l->kernels->gemm.widen(n / 2, hy__matrix_at(&s->values, row, (first + at) / 2),
                           s->values.column, s->values.dtype, kept);
    for (int64_t g = 0; g < n / 4; g++) {
      int code = codes[(at / 4 + g) / 2] >> (g % 2 * 4) & 15;
      float* four = out + at + 4 * g;
      four[code & 3] += kept[2 * g];
      four[code >> 2] += kept[2 * g + 1];
    }
  }
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  hy__dequant_linear l;
  sparse s;
  describe(call, &l, &s);
  l.kernels = kernels;
  l.decode = decode;
  l.weights = &s;
  return hy__dequant_linear_run(&l) ? HY_OK : hy__cpu_no_memory(call);
}

static hy_support supports(const hy_call* call) {
  hy__dequant_linear l;
  sparse s;
  return describe(call, &l, &s);
}

const hy__cpu_family hy__cpu_sparse_2_4 = {supports, run};
