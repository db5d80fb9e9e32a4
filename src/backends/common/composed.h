// Ops composed of plain ones, for backends whose vendor has no op of its own for them or one that
// rules too much out: families over a task (task.h), computing in f32 whatever the type.
#ifndef HALYARD_COMMON_COMPOSED_H_
#define HALYARD_COMMON_COMPOSED_H_

#include "backends/common/task.h"

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
