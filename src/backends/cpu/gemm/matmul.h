// What a call of mm, bmm, addmm or linear asks for, as matrices.
#ifndef HALYARD_CPU_GEMM_MATMUL_H_
#define HALYARD_CPU_GEMM_MATMUL_H_

#include "backends/cpu/family.h"

// out = alpha a b + beta addend, `batches` times.
typedef struct hy__matmul {
  int64_t batches, m, n, k;
  hy__matrix a, b, out, addend;         // addend.data is NULL where there is none
  int64_t a_batch, b_batch, out_batch;  // from one product to the next, in elements
  float alpha, beta;
} hy__matmul;

// HY_SUPPORT_NO_LAYOUT where the leading dimensions cannot be taken as one.
hy_support hy__matmul_describe(const hy_call* call, hy__matmul* p);

// The call with tiles of that choice (hy__gemm.tiles).
hy_status hy__matmul_tiled(const hy__cpu_kernels* kernels, const hy_call* call, int tiles);

// Packed weights, as hy_provider has them.
uint64_t hy__matmul_packed_bytes(const hy__cpu_kernels* kernels, const hy_call* call,
                                 hy_tensor* matrix);
void hy__matmul_pack(const hy__cpu_kernels* kernels, const hy_tensor* matrix, void* packed);
hy_status hy__matmul_packed(const hy__cpu_kernels* kernels, const hy_call* call,
                            const void* packed);

// The dimensions of t but the last as one, if they can be: `rows` elements `step` apart.
bool hy__collapse(const hy_tensor* t, int64_t* rows, int64_t* step);

// A matrix as other libraries take it: contiguous along one dimension, which is not the last one
// where `transposed`, and `lead` elements from one line to the next, no closer than a line is long.
bool hy__matrix_lead(const hy__matrix* m, int64_t rows, int64_t columns, bool* transposed,
                     int64_t* lead);

#endif  // HALYARD_CPU_GEMM_MATMUL_H_
