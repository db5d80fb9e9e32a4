// Linear layers that dequantise (or decompress) their weights on the way: a row at a time for a few
// rows of x, a packed GEMM panel at a time for many.
#ifndef HALYARD_CPU_QUANT_DEQUANT_LINEAR_H_
#define HALYARD_CPU_QUANT_DEQUANT_LINEAR_H_

#include "backends/cpu/gemm/matmul.h"

typedef struct hy__dequant_linear hy__dequant_linear;
struct hy__dequant_linear {
  const hy__cpu_kernels* kernels;
  int64_t m, n, k;
  hy__matrix x, out, bias;  // bias.data is NULL where there is none
  // Columns first .. first + count - 1 of a row of the weights; first is a multiple of 8.
  void (*decode)(const hy__dequant_linear* l, int64_t row, int64_t first, int64_t count,
                 float* out);
  const void* weights;
};

// x is the call's first input and [n, k] stands for its weights; the caller fills the rest.
hy_support hy__dequant_linear_describe(const hy_call* call, int64_t n, int64_t k,
                                       const hy_tensor* bias, hy__dequant_linear* l);
// False when there is no memory.
bool hy__dequant_linear_run(const hy__dequant_linear* l);
// Sums with the bias into the output: a `finish` of hy__gemm.
void hy__dequant_linear_epilogue(const void* layer, int64_t i, int64_t j, int m, int n, float* tile,
                                 int64_t stride);

#endif  // HALYARD_CPU_QUANT_DEQUANT_LINEAR_H_
