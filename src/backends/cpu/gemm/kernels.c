// Which GEMM and GEMV kernels an instruction set gives: the generic ones, then what does better.
#include "backends/cpu/gemm/kernels.h"

#include "backends/cpu/runtime/isa.h"

void hy__gemm_kernels_init(hy__gemm_kernels* k, uint32_t isa) {
  *k = (hy__gemm_kernels){.f32 = &hy__sgemm_generic,
                          .int8 = &hy__gemm_int8_generic,
                          .gemv = hy__gemv_generic,
                          .gemv_f32_rows = HY__GEMV_MAX_M,
                          .epilogue = hy__epilogue_generic,
                          .widen = hy__widen_generic};
#if defined(__aarch64__)
  if (isa & HY__ISA_NEON) {
    k->f32 = &hy__sgemm_neon;
    k->gemv = hy__gemv_neon;
    k->epilogue = hy__epilogue_neon;
    k->widen = hy__widen_neon;
  }
#endif
#if defined(__x86_64__)
  if (isa & HY__ISA_AVX2) {
    k->f32 = &hy__sgemm_avx2;
    k->int8 = &hy__gemm_int8_avx2;
    k->gemv = hy__gemv_avx2;
    k->epilogue = hy__epilogue_avx2;
    k->widen = hy__widen_avx2;
  }
  if (isa & HY__ISA_AVX512) {
    k->f32 = &hy__sgemm_avx512;
    k->indirect_f32 = &hy__indirect_f32_avx512;
    k->gemv = hy__gemv_avx512;
    k->gemv_f32_rows = 64;
    k->epilogue = hy__epilogue_avx512;
    k->widen = hy__widen_avx512;
  }
  if (isa & HY__ISA_AVX512_BF16) {
    k->bf16 = &hy__gemm_bf16_avx512;
    k->indirect_bf16 = &hy__indirect_bf16_avx512;
    k->gemv_bf16 = hy__gemv_bf16_avx512;
  }
  if (isa & HY__ISA_AMX_BF16) {
    k->bf16 = &hy__gemm_bf16_amx;
    k->indirect_bf16 = NULL;
  }
  if (isa & HY__ISA_AVX512_VNNI) k->int8 = &hy__gemm_int8_vnni;
  if (isa & HY__ISA_AMX_INT8) k->int8 = &hy__gemm_int8_amx;
#endif
  (void)isa;
}
