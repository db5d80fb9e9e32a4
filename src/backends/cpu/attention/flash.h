// Flash attention on the GEMM microkernel: blocks of keys with an online softmax.
//
// A panel of queries fills the columns of a tile and keys its rows: scores of a panel are K Q^T,
// the maximum and the sum of each query run down a column, and the scores become the packed B
// operand of V^T P without being moved. Nothing of size queries x keys is ever stored.
#ifndef HALYARD_CPU_ATTENTION_FLASH_H_
#define HALYARD_CPU_ATTENTION_FLASH_H_

#include "backends/cpu/family.h"
#include "backends/cpu/simd/nonfinite.h"

enum { HY__MAX_KEYS = 512 };  // of a block, whatever the kernel

// The sizes of a call and where its heads are.
typedef struct hy__sdpa {
  const hy__cpu_kernels* kernels;
  const hy__gemm_kernel* gemm;  // of scores and sums: bf16 where it pays, or f32
  int block;                    // keys whose scores are held at once: few enough for the L1 cache
  const hy_tensor *q, *k, *v;
  hy_tensor mask;  // expanded to [..., heads, queries, keys]; dtype HY_NONE where there is none
  int64_t batches, heads, kv_heads, group, queries, keys, size, value_size;
  hy_causal causal;
  float scale;
  float softmax_scale;  // of scores in bf16: the scale, or 1 where it comes before the mask
} hy__sdpa;

// `pairs`: the kernel for bf16, or NULL.
void hy__sdpa_describe(const hy__cpu_kernels* kernels, const hy__gemm_kernel* pairs,
                       const hy_call* call, int first, int mask_at, hy__sdpa* a);

// One head of a tensor whose last two dimensions are rows and columns.
hy__matrix hy__head(const hy_tensor* t, int64_t batch, int64_t head);
// Element [batch, head, row] of a tensor without the last dimension.
char* hy__head_row(const hy_tensor* t, int64_t batch, int64_t head, int64_t row);
// How many keys, from the first on, a query sees.
int64_t hy__visible(const hy__sdpa* a, int64_t query);

// ---- panels ----

// Words that the packed keys, or values, of one head take.
int64_t hy__flash_keys_size(const hy__sdpa* a);
int64_t hy__flash_values_size(const hy__sdpa* a);
// Rows first .. end - 1 of `keys` x `size` as the first operand of scores; `first` begins a block.
void hy__flash_pack_keys(const hy__sdpa* a, const hy__matrix* k, int64_t columns, int64_t first,
                         int64_t end, float* packed);
// The same as the first operand of a sum over keys: by blocks of keys, panels of columns in each.
void hy__flash_pack_values(const hy__sdpa* a, const hy__matrix* v, int64_t columns, int64_t first,
                           int64_t end, float* packed);

// How many keys, of `keys` from first_key on, each group of queries of a panel sees at most.
void hy__flash_visible_keys(const hy__sdpa* a, int64_t first_query, int queries, int64_t first_key,
                            int keys, int* seen);
// scores[key][query] of keys first .. first + n - 1 with a packed panel of queries. With `seen` not
// NULL, those that a group does not see may be left as they are.
void hy__flash_scores(const hy__sdpa* a, const float* packed_keys, int64_t first, int n,
                      const int* seen, int64_t columns, const float* queries, float* scores);
// sums[column][query] += values^T scores for that block. With `seen` not NULL, scores that a group
// does not see are 0.
void hy__flash_accumulate(const hy__sdpa* a, const float* packed_values, int64_t first, int n,
                          const int* seen, int64_t columns, const float* scores, float* sums);
// -inf for keys that a query does not see, by causality and by the mask, which is also added.
// Scores of bf16 are scaled before, unless the softmax will.
void hy__flash_mask(const hy__sdpa* a, int64_t batch, int64_t head, int64_t first_query,
                    int queries, int64_t first_key, int keys, float* scores);

// The mask's part of that for one query, whose scores are `step` apart.
void hy__mask_row(const hy__sdpa* a, int64_t batch, int64_t head, int64_t query, int64_t first_key,
                  int keys, int step, float* scores);

#endif  // HALYARD_CPU_ATTENTION_FLASH_H_
