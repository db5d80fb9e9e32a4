// The table of GEMM and GEMV kernels that an instruction set gives.
#ifndef HALYARD_CPU_GEMM_KERNELS_H_
#define HALYARD_CPU_GEMM_KERNELS_H_

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/gemm/indirect.h"

enum { HY__GEMV_MAX_M = 16 };

// GEMV and skinny GEMM: out[i * ldo + j] = row i of x times row first + j of w, for m rows of x (up
// to HY__GEMV_MAX_M), ldx apart, and n rows of w, whose column stride is 1.
typedef void hy__gemv(const hy__matrix* w, int64_t first, int n, int64_t k, const float* x,
                      int64_t ldx, int m, float* out, int64_t ldo);
// The same for x and weights of bf16, the column strides of both 1.
typedef void hy__gemv_bf16(const hy__matrix* w, int64_t first, int n, int64_t k, const uint16_t* x,
                           int64_t ldx, int m, float* out, int64_t ldo);
// The epilogue of a row: out = alpha * sums + beta * addend (may be NULL) for n elements of a type,
// both with the given steps in elements.
typedef void hy__epilogue(int64_t n, const float* sums, float alpha, float beta, const void* addend,
                          int64_t addend_step, void* out, int64_t out_step, hy_dtype dtype);
// n elements of a type, `step` apart, as floats.
typedef void hy__widen(int64_t n, const void* from, int64_t step, hy_dtype dtype, float* x);

typedef struct hy__gemm_kernels {
  const hy__gemm_kernel* f32;   // of f32, bf16 and f16, in f32
  const hy__gemm_kernel* bf16;  // of bf16 alone; NULL where no instructions are made for it
  const hy__gemm_kernel* int8;
  // NULL where no instructions do better than packing for the two above.
  const hy__indirect_kernel *indirect_f32, *indirect_bf16;
  hy__gemv* gemv;
  int gemv_f32_rows;         // up to which it is faster than packing weights of f32
  hy__gemv_bf16* gemv_bf16;  // NULL where no instructions are made for it
  hy__epilogue* epilogue;
  hy__widen* widen;
} hy__gemm_kernels;

// The best for those feature bits (runtime/isa.h), which must be there when the kernels run.
void hy__gemm_kernels_init(hy__gemm_kernels* kernels, uint32_t isa);

extern const hy__gemm_kernel hy__sgemm_generic, hy__sgemm_avx2, hy__sgemm_avx512, hy__sgemm_neon;
extern const hy__gemm_kernel hy__gemm_bf16_avx512, hy__gemm_bf16_amx;
extern const hy__gemm_kernel hy__gemm_int8_generic, hy__gemm_int8_avx2, hy__gemm_int8_vnni,
    hy__gemm_int8_amx;
hy__gemv hy__gemv_generic, hy__gemv_neon, hy__gemv_avx2, hy__gemv_avx512;
hy__gemv_bf16 hy__gemv_bf16_avx512;
hy__epilogue hy__epilogue_generic, hy__epilogue_neon, hy__epilogue_avx2, hy__epilogue_avx512;
hy__widen hy__widen_generic, hy__widen_neon, hy__widen_avx2, hy__widen_avx512;

// GEMV, skinny or packed GEMM, by what suits the shape (gemm_select.c). False when there is no
// memory.
bool hy__gemm_any(const hy__gemm_kernels* kernels, const hy__gemm* g);
// Whose form of packed B that takes; NULL where it reads B in place.
const hy__gemm_kernel* hy__gemm_packing_kernel(const hy__gemm_kernels* kernels, const hy__gemm* g);

#endif  // HALYARD_CPU_GEMM_KERNELS_H_
