// Which quantised kernels an instruction set gives: the generic ones, then what does better.
#include "backends/cpu/quant/kernels.h"

#include "backends/cpu/runtime/isa.h"

void hy__quant_kernels_init(hy__quant_kernels* k, uint32_t isa) {
  *k = (hy__quant_kernels){.dequantize = hy__dequantize_generic,
                           .quantize = hy__quantize_generic,
                           .int8 = &hy__int8_generic};
#if defined(__aarch64__)
  if (isa & HY__ISA_NEON) k->int8 = &hy__int8_neon;
#endif
#if defined(__x86_64__)
  if (isa & HY__ISA_AVX2) {
    k->dequantize = hy__dequantize_avx2;
    k->quantize = hy__quantize_avx2;
    k->gemv[0] = &hy__quantized_gemv_i4_avx2;
    k->gemv[1] = &hy__quantized_gemv_avx2;
    k->int8 = &hy__int8_avx2;
  }
  if (isa & HY__ISA_AVX512) {
    k->dequantize = hy__dequantize_avx512;
    k->quantize = hy__quantize_avx512;
    int n = 0;
    if (isa & HY__ISA_AVX512_VBMI) k->gemv[n++] = &hy__quantized_gemv_fp8_vbmi;
    if (isa & HY__ISA_AVX512_VNNI) k->gemv[n++] = &hy__quantized_gemv_i4_vnni;
    k->gemv[n++] = &hy__quantized_gemv_avx512;
    k->gemv[n] = NULL;
  }
  if (isa & HY__ISA_AVX512_VNNI) k->int8 = &hy__int8_vnni;
#endif
  k->int8_tiles = k->int8;
#if defined(__x86_64__)
  if (isa & HY__ISA_AMX_INT8) k->int8_tiles = &hy__int8_amx;
#endif
  (void)isa;
}
