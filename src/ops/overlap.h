// Whether views share memory: what in-place and output arguments are checked with.
#ifndef HALYARD_OPS_OVERLAP_H_
#define HALYARD_OPS_OVERLAP_H_

#include "halyard/tensor.h"

// Exact for the views that slicing and transposing make; the search is bounded, and a case that
// exceeds the bound counts as an overlap.
bool hy__tensors_overlap(const hy_tensor* a, const hy_tensor* b);
// Same address, shape, strides and element width: what an in-place op may be given.
bool hy__tensor_is_same_view(const hy_tensor* a, const hy_tensor* b);
// Whether two indices may mean one element, as in an expanded tensor.
bool hy__tensor_overlaps_itself(const hy_tensor* t);

#endif  // HALYARD_OPS_OVERLAP_H_
