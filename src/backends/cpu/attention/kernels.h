// The table of attention kernels that an instruction set gives: online softmax and weighted sum.
#ifndef HALYARD_CPU_ATTENTION_KERNELS_H_
#define HALYARD_CPU_ATTENTION_KERNELS_H_

#include "backends/cpu/gemm/gemm.h"

// Queries that share what they can see: causal masks are applied by groups of this many.
enum { HY__QUERY_GROUP = 16, HY__QUERY_GROUPS = HY__GEMM_MAX_NR / HY__QUERY_GROUP };

// Online softmax. Scores [keys][nr], the queries in columns, become weights e^(score - max); `max`
// and `total` go on from the blocks of keys before, and what was summed with the old ones,
// [rows][nr], is rescaled. Group g of queries sees the first seen[g] keys; the weights of others
// are 0, whatever their scores are.
typedef void hy__online_softmax(float* scores, const int* seen, int keys, int nr, float* max,
                                float* total, float* sums, int64_t rows);
// The same of scores that are yet to be multiplied by `scale`, which is positive. The weights, in
// pairs of bf16 along the keys, take the scores' place as the B operand of the bf16 kernel: word
// [key / 2][query], of an odd last key with 0.
typedef void hy__online_softmax_bf16(float* scores, const int* seen, int keys, int nr, float scale,
                                     float* max, float* total, float* sums, int64_t rows);
// e^(score - base) in place of scores [keys][nr], each column with its own base; 0 where the base
// is -inf.
typedef void hy__exp_columns(float* scores, int keys, int nr, const float* base);
// Weights p = e^(score * factor - lse) and their gradients ds = p (grad - delta) scale of scores
// and grads [keys][nr], queries in columns with an lse and a delta each; weights are 0 where lse is
// infinite. Both become rows of bf16, ld apart; ds also takes the place of the grads in pairs
// along the keys, as the weights of hy__online_softmax_bf16 do.
typedef void hy__softmax_grad_bf16(const float* scores, float* grads, int keys, int nr,
                                   float factor, float scale, const float* lse, const float* delta,
                                   uint16_t* p, uint16_t* ds, int64_t ld);
// out[i * ldo + c] += sum over r of p[i * ldp + r] * v(r, c), for m rows of p, `rows` rows of v and
// its first n columns.
typedef void hy__weighted_sum(const hy__matrix* v, int rows, int64_t n, const float* p, int64_t ldp,
                              int m, float* out, int64_t ldo);
// Weights p = e^(score - max) of a row in bf16, 0 behind them up to a multiple of 32; their total
// and the largest score.
typedef void hy__softmax_row_bf16(const float* scores, int n, uint16_t* p, float* total,
                                  float* max);
// hy__weighted_sum of bf16 values, with column stride 1, and weights. Of an odd number of rows the
// weight behind the last is read; it must be finite.
typedef void hy__weighted_sum_bf16(const hy__matrix* v, int rows, int64_t n, const uint16_t* p,
                                   int64_t ldp, int m, float* out, int64_t ldo);

typedef struct hy__attention_kernels {
  hy__online_softmax* online_softmax;
  hy__exp_columns* exp_columns;
  hy__weighted_sum* weighted_sum;
  // Attention by dot products of bf16 pairs; NULL where f32 is used for bf16 as well.
  const hy__gemm_kernel* bf16;
  // The same for the forward pass of many queries, which may run in tiles instead.
  const hy__gemm_kernel* bf16_forward;
  hy__online_softmax_bf16* online_softmax_bf16;
  hy__softmax_grad_bf16* softmax_grad_bf16;
  hy__softmax_row_bf16* softmax_row_bf16;
  hy__weighted_sum_bf16* weighted_sum_bf16;
} hy__attention_kernels;

// The best for those feature bits (runtime/isa.h), which must be there when the kernels run.
void hy__attention_kernels_init(hy__attention_kernels* kernels, uint32_t isa);

hy__online_softmax hy__online_softmax_generic, hy__online_softmax_avx2, hy__online_softmax_avx512,
    hy__online_softmax_neon;
hy__online_softmax_bf16 hy__online_softmax_bf16_avx512;
hy__softmax_grad_bf16 hy__softmax_grad_bf16_avx512;
hy__softmax_row_bf16 hy__softmax_row_bf16_avx512;
hy__weighted_sum_bf16 hy__weighted_sum_bf16_avx512;
hy__exp_columns hy__exp_columns_generic, hy__exp_columns_avx2, hy__exp_columns_avx512,
    hy__exp_columns_neon;
hy__weighted_sum hy__weighted_sum_generic, hy__weighted_sum_avx2, hy__weighted_sum_avx512,
    hy__weighted_sum_neon;

#endif  // HALYARD_CPU_ATTENTION_KERNELS_H_
