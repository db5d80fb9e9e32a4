// Indexing by a list of tensors, x[i, :, j]: what goes where.
#ifndef HALYARD_RULES_INDEXING_H_
#define HALYARD_RULES_INDEXING_H_

#include "ops/internal.h"

typedef struct hy__index_plan {
  hy_tensor indexed;        // a shape: the indices, broadcast together
  hy_tensor result;         // a shape: `indexed`, and the dimensions of x that no index takes
  int dim_of[HY_MAX_DIMS];  // of each dimension of the result: which of x it is, -1: of `indexed`
} hy__index_plan;

// The indices are the inputs from `first` on; an absent one takes the whole dimension.
hy_status hy__plan_index(const hy_call* call, int first, hy__index_plan* plan);

#endif  // HALYARD_RULES_INDEXING_H_
