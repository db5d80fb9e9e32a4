// What the indexing kernels share.
#ifndef HALYARD_REFERENCE_INDICES_H_
#define HALYARD_REFERENCE_INDICES_H_

#include "ops/internal.h"

// Every element of `index` names one of the `size` positions of dimension `dim`; with `wrap`,
// negative ones count from the end. Kernels ask before they write anything.
hy_status hy__check_indices(const hy_call* call, const hy_tensor* index, int dim, int64_t size,
                            bool wrap);

// The tensor itself, or a vector of one element where it has no dimensions.
hy_tensor hy__at_least_1d(const hy_tensor* t);

// n elements of `size` bytes; steps in elements.
void hy__copy_elements(size_t size, int64_t n, char* to, int64_t to_step, const char* from,
                       int64_t from_step);
// All elements of a view into another of its shape, converted to its type.
void hy__copy_view(const hy_tensor* to, const hy_tensor* from);

// Sums that round once: a copy of x in f64 or i64, contiguous, over `memory`, a scratch of one
// number for each element.
hy_tensor hy__widen(const hy_tensor* x, void* memory);
// Adds the element at `from` to the element at `to`, which is f64 or i64.
void hy__add_element(const hy_tensor* wide, char* to, hy_dtype dtype, const char* from);

#endif  // HALYARD_REFERENCE_INDICES_H_
