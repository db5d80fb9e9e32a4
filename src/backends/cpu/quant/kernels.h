// The table of quantised kernels that an instruction set gives: dequantising, GEMV on quantised
// weights, int8 products.
#ifndef HALYARD_CPU_QUANT_KERNELS_H_
#define HALYARD_CPU_QUANT_KERNELS_H_

#include "backends/cpu/quant/int8_kernel.h"
#include "backends/cpu/quant/quantized.h"

enum { HY__MAX_QUANTIZED_GEMV = 4 };

typedef struct hy__quant_kernels {
  hy__dequantize* dequantize;
  hy__quantize* quantize;
  const hy__quantized_gemv* gemv[HY__MAX_QUANTIZED_GEMV];  // the fastest first, then NULL
  const hy__int8_kernel* int8;
  const hy__int8_kernel* int8_tiles;  // of which only the tiles are used
} hy__quant_kernels;

// The best for those feature bits (runtime/isa.h), which must be there when the kernels run.
void hy__quant_kernels_init(hy__quant_kernels* kernels, uint32_t isa);

hy__dequantize hy__dequantize_generic, hy__dequantize_avx2, hy__dequantize_avx512;
hy__quantize hy__quantize_generic, hy__quantize_avx2, hy__quantize_avx512;
extern const hy__quantized_gemv hy__quantized_gemv_avx2, hy__quantized_gemv_i4_avx2,
    hy__quantized_gemv_avx512, hy__quantized_gemv_fp8_vbmi, hy__quantized_gemv_i4_vnni;
extern const hy__int8_kernel hy__int8_generic, hy__int8_neon, hy__int8_avx2, hy__int8_vnni,
    hy__int8_amx;

#endif  // HALYARD_CPU_QUANT_KERNELS_H_
