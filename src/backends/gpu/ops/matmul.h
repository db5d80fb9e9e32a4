// The matrix product behind mm, bmm, addmm, linear and whatever else can be written as one.
#ifndef HALYARD_BACKENDS_GPU_OPS_MATMUL_H_
#define HALYARD_BACKENDS_GPU_OPS_MATMUL_H_

#include "backends/gpu/gpu.h"

// out = alpha a b + beta addend, all of three dimensions: a [batch, m, k], b [batch, n, k] (its
// rows are the output's columns), addend (absent, or repeated by strides of 0) and out [batch, m,
// n].
typedef struct hy__gpu_matmul {
  hy_tensor a, b, addend, out;
  hy_scalar alpha, beta;
} hy__gpu_matmul;

hy_support hy__gpu_product(hy__gpu_task* task, const hy__gpu_matmul* m);

#endif  // HALYARD_BACKENDS_GPU_OPS_MATMUL_H_
