// The table of quantised kernels that an instruction set gives: dequantising, GEMV on quantised
// weights, int8 products.
#ifndef HALYARD_CPU_QUANT_KERNELS_H_
#define HALYARD_CPU_QUANT_KERNELS_H_

#include "backends/cpu/quant/int8_kernel.h"
#include "backends/cpu/quant/quantized.h"

typedef struct hy__quant_kernels {
  hy__dequantize* dequantize;
  hy__quantize* quantize;
  hy__gemv_quantized* gemv;  // NULL, as is order_row, where the instruction set has none
  hy__order_row* order_row;
  const hy__int8_kernel* int8;
} hy__quant_kernels;

// The best for those feature bits (runtime/isa.h), which must be there when the kernels run.
void hy__quant_kernels_init(hy__quant_kernels* kernels, uint32_t isa);

hy__dequantize hy__dequantize_generic, hy__dequantize_avx512;
hy__quantize hy__quantize_generic, hy__quantize_avx512;
hy__gemv_quantized hy__gemv_quantized_avx512;
hy__order_row hy__order_row_avx512;
extern const hy__int8_kernel hy__int8_generic, hy__int8_neon, hy__int8_avx2, hy__int8_vnni;

#endif  // HALYARD_CPU_QUANT_KERNELS_H_
