// Which attention kernels an instruction set gives: the generic ones, then what does better.
#include "backends/cpu/attention/kernels.h"

#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/runtime/isa.h"

void hy__attention_kernels_init(hy__attention_kernels* k, uint32_t isa) {
  *k = (hy__attention_kernels){.online_softmax = hy__online_softmax_generic,
                               .exp_columns = hy__exp_columns_generic,
                               .weighted_sum = hy__weighted_sum_generic};
#if defined(__x86_64__)
  if (isa & HY__ISA_AVX2) {
    k->online_softmax = hy__online_softmax_avx2;
    k->exp_columns = hy__exp_columns_avx2;
    k->weighted_sum = hy__weighted_sum_avx2;
  }
  if (isa & HY__ISA_AVX512) {
    k->online_softmax = hy__online_softmax_avx512;
    k->exp_columns = hy__exp_columns_avx512;
    k->weighted_sum = hy__weighted_sum_avx512;
  }
  if (isa & HY__ISA_AVX512_BF16) {
    k->bf16_forward = isa & HY__ISA_AMX_BF16 ? &hy__gemm_bf16_amx : &hy__gemm_bf16_avx512;
    k->online_softmax_bf16 = hy__online_softmax_bf16_avx512;
  }
  // Where there are tiles, the others keep f32: it was never timed beside dot products there.
  if ((isa & HY__ISA_AVX512_BF16) && !(isa & HY__ISA_AMX_BF16)) {
    k->bf16 = &hy__gemm_bf16_avx512;
    k->softmax_grad_bf16 = hy__softmax_grad_bf16_avx512;
    k->softmax_row_bf16 = hy__softmax_row_bf16_avx512;
    k->weighted_sum_bf16 = hy__weighted_sum_bf16_avx512;
  }
#elif defined(__aarch64__)
  if (isa & HY__ISA_NEON) {
    k->online_softmax = hy__online_softmax_neon;
    k->exp_columns = hy__exp_columns_neon;
    k->weighted_sum = hy__weighted_sum_neon;
  }
#endif
  (void)isa;
}
