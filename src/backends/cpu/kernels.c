// The tables of kernels, one for each level of instructions: each level takes over the one below
// and replaces what it does better.
#include "backends/cpu/family.h"

#include <pthread.h>

static hy__cpu_kernels tables[HY__ISA_AVX512 + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void) {
  hy__cpu_kernels k = {
      .gemm = &hy__gemm_scalar,
      .gemm_int8 = &hy__gemm_int8_scalar,
      .dot = hy__dot_scalar,
      .finish = hy__finish_scalar,
      .widen = hy__widen_scalar,
      .soften = hy__soften_scalar,
      .exp_columns = hy__exp_columns_scalar,
      .mix = hy__mix_scalar,
      .decode = hy__decode_scalar,
      .quantize = hy__quantize_scalar,
      .int8 = &hy__int8_scalar,
      .rows = &hy__rows_scalar,
  };
  for (int level = 0; level <= HY__ISA_AVX512; level++) tables[level] = k;
#if defined(__aarch64__)
  k.gemm = &hy__gemm_neon;
  k.dot = hy__dot_neon;
  k.finish = hy__finish_neon;
  k.widen = hy__widen_neon;
  k.int8 = &hy__int8_neon;
  tables[HY__ISA_NEON] = k;
#endif
#if defined(__x86_64__)
  k.gemm = &hy__gemm_avx2;
  k.dot = hy__dot_avx2;
  k.finish = hy__finish_avx2;
  k.widen = hy__widen_avx2;
  k.rows = &hy__rows_avx2;
  k.int8 = &hy__int8_avx2;
  tables[HY__ISA_AVX2] = k;
  const hy__isa* isa = hy__cpu_isa();
  k.gemm = &hy__gemm_avx512;
  if (isa->avx512_bf16) k.gemm_bf16 = &hy__gemm_bf16;
  if (isa->amx_bf16) k.gemm_bf16 = &hy__gemm_amx_bf16;
  if (isa->vnni) {
    k.gemm_int8 = &hy__gemm_vnni;
    k.int8 = &hy__int8_vnni;
  }
  if (isa->amx_int8) k.gemm_int8 = &hy__gemm_amx_int8;
  k.dot = hy__dot_avx512;
  k.finish = hy__finish_avx512;
  k.widen = hy__widen_avx512;
  k.soften = hy__soften_avx512;
  k.exp_columns = hy__exp_columns_avx512;
  k.mix = hy__mix_avx512;
  k.decode = hy__decode_avx512;
  k.quantize = hy__quantize_avx512;
  k.dot_quantized = hy__dot_quantized_avx512;
  k.line_order = hy__line_order_avx512;
  k.rows = &hy__rows_avx512;
  tables[HY__ISA_AVX512] = k;
#endif
}

const hy__cpu_kernels* hy__cpu_kernels_up_to(hy__isa_level level) {
  pthread_once(&once, fill);
  hy__isa_level have = hy__cpu_isa()->level;
  return &tables[have < level ? have : level];
}
