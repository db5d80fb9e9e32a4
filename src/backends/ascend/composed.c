// Ops of the ascend backend that have no aclnn op, or one that rules too much out: a label that is
// ignore_index and lies outside the classes makes aclnnCrossEntropyLoss fault, aclnnApplyAdamWV2
// takes its factors in f32, and 1 - 0.999f is off by 5e-5.
#include "backends/ascend/ascend.h"

#define COMPOSED(op)                                                       \
  hy_support hy__ascend_##op(hy__ascend_task* task, const hy_call* call) { \
    return hy__composed_##op(&task->base, call);                           \
  }
COMPOSED(cross_entropy)
COMPOSED(cross_entropy_backward)
COMPOSED(rope)
COMPOSED(adamw)
COMPOSED(sample)
