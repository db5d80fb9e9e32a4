// Conditions that the rules of several families state; each fails with the argument's name.
#ifndef HALYARD_RULES_NEED_H_
#define HALYARD_RULES_NEED_H_

#include "ops/internal.h"

const char* hy__input_name(const hy_call* call, int i);
// Input i has exactly that many dimensions.
hy_status hy__need_ndim(const hy_call* call, int i, int ndim);
// Input i, where present, has exactly that shape.
hy_status hy__need_shape(const hy_call* call, int i, int ndim, const int64_t* shape);
// Input i, where present, broadcasts to that shape.
hy_status hy__need_broadcast(const hy_call* call, int i, int ndim, const int64_t* shape);
// Input i, where present, is strided and has one of the types in the set.
hy_status hy__need_dtype(const hy_call* call, int i, uint32_t set);
// The n inputs from `first` on, absent ones left out, are strided and have one type, which the op
// takes.
hy_status hy__need_alike(const hy_call* call, int first, int n);

// The shape of t.
static inline void hy__take_shape(hy_tensor* out, const hy_tensor* t) {
  out->ndim = t->ndim;
  for (int d = 0; d < t->ndim; d++) out->shape[d] = t->shape[d];
}

#endif  // HALYARD_RULES_NEED_H_
