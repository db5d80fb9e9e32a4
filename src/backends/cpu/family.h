// What an instruction set gives the cpu's kernels, and the families of ops built on it.
//
// A family (matmul.c, ...) knows ops, shapes and threads; what it needs in vectors it takes from
// the table of the provider that runs it. A new family is a file with a hy__cpu_family, its rows in
// native_ops.def, and members here for its vector kernels, filled per instruction set.
#ifndef HALYARD_CPU_FAMILY_H_
#define HALYARD_CPU_FAMILY_H_

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/quant/linear_int8.h"
#include "backends/cpu/quant/quantized.h"
#include "backends/cpu/rows/rows.h"
#include "backends/cpu/runtime/features.h"
#include "halyard/plugin.h"

enum { HY__DOT_LINES = 16 };

// Dot products of `lines` (up to HY__DOT_LINES) lines of x, x_line apart, with rows first .. first
// + rows - 1 of w, whose column stride is 1: out[line * out_line + row - first].
typedef void hy__dot(const hy__matrix* w, int64_t first, int rows, int64_t k, const float* x,
                     int64_t x_line, int lines, float* out, int64_t out_line);
// out = alpha * sums + beta * addend (may be NULL) for n elements of a type, both with the given
// steps in elements.
typedef void hy__finish(int64_t n, const float* sums, float alpha, float beta, const void* addend,
                        int64_t addend_step, void* out, int64_t out_step, hy_dtype dtype);
// n elements of a type, `step` apart, as floats.
typedef void hy__widen(int64_t n, const void* from, int64_t step, hy_dtype dtype, float* x);

// Scores [keys][panel], the queries in columns, become weights e^(score - largest); `largest` and
// `total` go on from the keys before, and what was summed with the old ones, [rows][panel], shrinks
// with them. Group g of HY__QUERY_GROUP queries sees the first seen[g] keys; the weights of others
// are 0, whatever their scores are.
enum { HY__QUERY_GROUP = 16, HY__QUERY_GROUPS = HY__GEMM_MAX_PANEL / HY__QUERY_GROUP };
typedef void hy__soften(float* scores, const int* seen, int keys, int panel, float* largest,
                        float* total, float* sums, int64_t rows);

// e^(score - base) in place of scores [keys][panel], each column with its own base; 0 where the
// base is -inf.
typedef void hy__exp_columns(float* scores, int keys, int panel, const float* base);
// out[line][c] += sum over r of p[line * p_line + r] * v(r, c), for the first n columns and `rows`
// rows of v.
typedef void hy__mix(const hy__matrix* v, int rows, int64_t n, const float* p, int64_t p_line,
                     int lines, float* out, int64_t out_line);

typedef struct hy__cpu_kernels {
  const hy__gemm_kernel* gemm;       // of f32, bf16 and f16, in f32
  const hy__gemm_kernel* gemm_bf16;  // of bf16 alone; NULL where no instructions are made for it
  const hy__gemm_kernel* gemm_int8;
  hy__dot* dot;
  hy__finish* finish;
  hy__widen* widen;
  hy__soften* soften;
  hy__exp_columns* exp_columns;
  hy__mix* mix;
  hy__decode* decode;
  hy__dot_quantized* dot_quantized;  // both NULL where the instruction set has none
  hy__line_order* line_order;
  hy__quantize* quantize;
  const hy__int8_kernel* int8;
  const hy__rows* rows;
} hy__cpu_kernels;

extern const hy__gemm_kernel hy__gemm_scalar, hy__gemm_avx2, hy__gemm_avx512, hy__gemm_neon;
extern const hy__gemm_kernel hy__gemm_bf16, hy__gemm_amx_bf16;
extern const hy__gemm_kernel hy__gemm_int8_scalar, hy__gemm_vnni, hy__gemm_amx_int8;
hy__dot hy__dot_scalar, hy__dot_neon, hy__dot_avx2, hy__dot_avx512;
hy__finish hy__finish_scalar, hy__finish_neon, hy__finish_avx2, hy__finish_avx512;
hy__widen hy__widen_scalar, hy__widen_neon, hy__widen_avx2, hy__widen_avx512;

hy__soften hy__soften_scalar, hy__soften_avx512;
hy__exp_columns hy__exp_columns_scalar, hy__exp_columns_avx512;
hy__mix hy__mix_scalar, hy__mix_avx512;
hy__decode hy__decode_scalar, hy__decode_avx512;
hy__dot_quantized hy__dot_quantized_avx512;
hy__line_order hy__line_order_avx512;
hy__quantize hy__quantize_scalar, hy__quantize_avx512;

// The best of every kernel up to a level that this processor has.
const hy__cpu_kernels* hy__cpu_kernels_up_to(hy__isa_level level);

// A product by the way that suits its shape. False when there is no memory.
bool hy__multiply(const hy__cpu_kernels* kernels, const hy__gemm* g);

extern const hy_host* hy__cpu_host_services;  // set when the backend is queried

// A family of ops: what it runs, and running it. `run` is called only for calls it supports.
typedef struct hy__cpu_family {
  hy_support (*supports)(const hy_call* call);
  hy_status (*run)(const hy__cpu_kernels* kernels, const hy_call* call);
} hy__cpu_family;

extern const hy__cpu_family hy__cpu_matmul, hy__cpu_quantized, hy__cpu_quantize, hy__cpu_int8_layer,
    hy__cpu_attention, hy__cpu_attention_backward, hy__cpu_paged_attention, hy__cpu_int_mm,
    hy__cpu_conv, hy__cpu_conv_backward, hy__cpu_sparse, hy__cpu_moe;
extern const hy__cpu_family hy__cpu_elementwise, hy__cpu_select, hy__cpu_softmax, hy__cpu_norm,
    hy__cpu_cross_entropy, hy__cpu_pick, hy__cpu_rope, hy__cpu_adamw, hy__cpu_sgd, hy__cpu_reduce,
    hy__cpu_integers, hy__cpu_batch_norm, hy__cpu_pooling;

// The message of a call that found no memory for its working space.
hy_status hy__cpu_no_memory(const hy_call* call);

#endif  // HALYARD_CPU_FAMILY_H_
