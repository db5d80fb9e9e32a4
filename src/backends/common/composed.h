// Ops composed of plain ones, for backends whose vendor has no op of its own for them or one that
// rules too much out: families over a task (task.h), computing in f32 whatever the type.
#ifndef HALYARD_COMMON_COMPOSED_H_
#define HALYARD_COMMON_COMPOSED_H_

#include "backends/common/task.h"

// The sizes of an attention call, and its scale where 0 stands for the usual one.
typedef struct hy__heads {
  int64_t batch, heads, kv_heads, queries, keys, size, value_size;
  double scale;
  hy_causal causal;
} hy__heads;
hy__heads hy__heads_of(const hy_call* call, const hy_tensor* q, const hy_tensor* k,
                       const hy_tensor* v);
// Whether a query may see no key at all.
bool hy__heads_may_be_blind(const hy__heads* h, const hy_tensor* mask);

typedef struct hy__paged_batch {
  const hy_tensor *q, *k, *v, *table, *start, *context, *out;
  int64_t tokens, heads, kv_heads, size, value_size, block, sequences, blocks_each;
  double scale;
} hy__paged_batch;
// HY_SUPPORT_YES, or why no backend takes this call.
hy_support hy__paged_batch_of(const hy_call* call, hy__paged_batch* b);

hy_support hy__composed_sdpa(hy__task* task, const hy_call* call);
hy_support hy__composed_sdpa_backward(hy__task* task, const hy_call* call);
hy_support hy__composed_paged_attention(hy__task* task, const hy_call* call);
hy_support hy__composed_rope(hy__task* task, const hy_call* call);
hy_support hy__composed_cross_entropy(hy__task* task, const hy_call* call);
hy_support hy__composed_cross_entropy_backward(hy__task* task, const hy_call* call);
hy_support hy__composed_layer_norm(hy__task* task, const hy_call* call);
hy_support hy__composed_layer_norm_backward(hy__task* task, const hy_call* call);
hy_support hy__composed_rms_norm(hy__task* task, const hy_call* call);
hy_support hy__composed_rms_norm_backward(hy__task* task, const hy_call* call);
hy_support hy__composed_adamw(hy__task* task, const hy_call* call);
hy_support hy__composed_sample(hy__task* task, const hy_call* call);

#endif  // HALYARD_COMMON_COMPOSED_H_
