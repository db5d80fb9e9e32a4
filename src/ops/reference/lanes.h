// Ops that work along some dimensions of a tensor see it as lanes: the views over those dimensions,
// one for each index of the others.
#ifndef HALYARD_REFERENCE_LANES_H_
#define HALYARD_REFERENCE_LANES_H_

#include "ops/internal.h"
#include "ops/reference/element.h"
#include "ops/reference/walk.h"

//   hy__lanes l;
//   hy__lanes_begin(&l, mask, 2, (const hy_tensor*[]){x, out});
//   while (hy__lanes_next(&l)) ... l.lane[k] is the same lane of each tensor
//
// All tensors have the dimensions of the first; outside the mask they broadcast to it. An absent
// tensor has absent lanes.
typedef struct hy__lanes {
  hy_tensor lane[HY__WALK_MAX];
  hy_tensor rest[HY__WALK_MAX];
  int count;
  hy__walk walk;
  int64_t at;  // inside the walk's row
} hy__lanes;

void hy__lanes_begin(hy__lanes* l, uint32_t mask, int count, const hy_tensor* const* tensors);
bool hy__lanes_next(hy__lanes* l);

// Element i of a lane over one dimension, or of one over none.
static inline char* hy__lane_element(const hy_tensor* lane, int64_t i) {
  return (char*)lane->data + i * lane->stride[0] * (int64_t)hy_dtype_size(lane->dtype);
}

// A tensor over the dimensions outside the mask, such as the result of a reduction, seen with all
// `ndim` dimensions, those of the mask having size 1; as it is when it has them already.
hy_tensor hy__keep_dims(const hy_tensor* out, int ndim, uint32_t mask);

// All elements of a view in row-major order.
void hy__load_all_f(const hy_tensor* t, double* values);
void hy__load_all_i(const hy_tensor* t, int64_t* values);
void hy__store_all_f(const hy_tensor* t, const double* values);
void hy__store_all_i(const hy_tensor* t, const int64_t* values);

#endif  // HALYARD_REFERENCE_LANES_H_
