// What the rules of several families ask of a call.
#ifndef HALYARD_RULES_COMMON_H_
#define HALYARD_RULES_COMMON_H_

#include "ops/internal.h"

// Inputs first .. end - 1, where present, have a type of the op's row and no packed layout.
hy_status hy__check_dtypes(const hy_call* call, int first, int end);
// The same with another set of types.
hy_status hy__check_dtypes_among(const hy_call* call, int first, int end, uint32_t known);
// Input i, where present, holds indices: i32 or i64.
hy_status hy__check_index_dtype(const hy_call* call, int i);

// The set of dimensions that `dims` names, bit d for dimension d: each at most once, none for all.
// A 0-dimensional tensor has none, whatever is named.
hy_status hy__dims_mask(const hy_call* call, const hy_dims* dims, int ndim, uint32_t* mask);
// Dimension `dim` of a tensor with `ndim` dimensions, counted from the front.
hy_status hy__one_dim(const hy_call* call, int64_t dim, int ndim, int* out);

bool hy__same_shape(const hy_tensor* a, const hy_tensor* b);
void hy__copy_shape(hy_tensor* out, const hy_tensor* t);
// Conditions on input i that fail with its name; an absent input meets those on shapes.
const char* hy__input_name(const hy_call* call, int i);
hy_status hy__need_ndim(const hy_call* call, int i, int ndim);
hy_status hy__need_shape(const hy_call* call, int i, int ndim, const int64_t* shape);
hy_status hy__need_broadcast(const hy_call* call, int i, int ndim, const int64_t* shape);
// The n inputs from `first` on, absent ones left out, have one type, and it is one of the op's row.
hy_status hy__need_alike(const hy_call* call, int first, int n);

#endif  // HALYARD_RULES_COMMON_H_
