// Ops that work along some dimensions of a tensor see it as slices: the views over those
// dimensions, one for each index of the others.
#ifndef HALYARD_REFERENCE_SLICES_H_
#define HALYARD_REFERENCE_SLICES_H_

#include "ops/internal.h"
#include "ops/reference/element.h"
#include "ops/reference/walk.h"

//   hy__ref_slices l;
//   hy__ref_slices_begin(&l, mask, 2, (const hy_tensor*[]){x, out});
//   while (hy__ref_slices_next(&l)) ... l.slice[k] is the same slice of each tensor
//
// All tensors have the dimensions of the first; outside the mask they broadcast to it. An absent
// tensor has absent slices.
typedef struct hy__ref_slices {
  hy_tensor slice[HY__WALK_MAX];
  hy_tensor rest[HY__WALK_MAX];
  int count;
  hy__walk walk;
  int64_t at;  // inside the walk's row
} hy__ref_slices;

void hy__ref_slices_begin(hy__ref_slices* l, uint32_t mask, int count,
                          const hy_tensor* const* tensors);
bool hy__ref_slices_next(hy__ref_slices* l);

// Element i of a slice over one dimension, or of one over none.
static inline char* hy__ref_slice_element(const hy_tensor* slice, int64_t i) {
  return (char*)slice->data + i * slice->stride[0] * (int64_t)hy_dtype_size(slice->dtype);
}

// A tensor over the dimensions outside the mask, such as the result of a reduction, seen with all
// `ndim` dimensions, those of the mask having size 1; as it is when it has them already.
hy_tensor hy__keep_dims(const hy_tensor* out, int ndim, uint32_t mask);

// All elements of a view in row-major order.
void hy__load_all_f(const hy_tensor* t, double* values);
void hy__load_all_i(const hy_tensor* t, int64_t* values);
void hy__store_all_f(const hy_tensor* t, const double* values);
void hy__store_all_i(const hy_tensor* t, const int64_t* values);

#endif  // HALYARD_REFERENCE_SLICES_H_
