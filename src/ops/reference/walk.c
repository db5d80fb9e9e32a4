// Walking tensors that broadcast together, row by row.
#include "ops/reference/walk.h"

void hy__walk_begin(hy__walk* w, const hy_tensor* shape_of, int count,
                    const hy_tensor* const* tensors) {
  w->count = count;
  w->started = false;
  w->ndim = 0;
  w->inner = w->first = w->n = 0;
  for (int k = 0; k < count; k++) {
    w->at[k] = tensors[k]->data;
    w->size[k] = (int64_t)hy_dtype_size(tensors[k]->dtype);
  }
  // Takes the dimensions from the outermost in, merging each into the previous one where every
  // tensor allows it.
  for (int d = 0; d < shape_of->ndim; d++) {
    int64_t size = shape_of->shape[d], stride[HY__WALK_MAX];
    if (size == 1) continue;
    bool merges = w->ndim > 0;
    for (int k = 0; k < count; k++) {
      int own = d - (shape_of->ndim - tensors[k]->ndim);
      stride[k] = own < 0 || tensors[k]->shape[own] == 1 ? 0 : tensors[k]->stride[own];
      merges = merges && w->stride[k][w->ndim - 1] == stride[k] * size;
    }
    int at = merges ? w->ndim - 1 : w->ndim++;
    w->shape[at] = merges ? w->shape[at] * size : size;
    w->index[at] = 0;
    for (int k = 0; k < count; k++) w->stride[k][at] = stride[k];
  }
  if (w->ndim == 0) {
    w->ndim = 1;
    w->shape[0] = 1;
    w->index[0] = 0;
    for (int k = 0; k < count; k++) w->stride[k][0] = 0;
  }
  for (int k = 0; k < count; k++) w->step[k] = w->stride[k][w->ndim - 1];
  for (int d = 0; d < w->ndim; d++) {
    if (w->shape[d] == 0) w->shape[w->ndim - 1] = 0;
  }
}

bool hy__walk_next(hy__walk* w) {
  int last = w->ndim - 1;
  if (w->started) {
    w->inner += w->n;
    w->first += w->n;
    for (int k = 0; k < w->count; k++) w->at[k] += w->n * w->step[k] * w->size[k];
  }
  w->started = true;
  if (w->shape[last] == 0) return false;
  if (w->inner == w->shape[last]) {
    for (int k = 0; k < w->count; k++) w->at[k] -= w->inner * w->step[k] * w->size[k];
    w->inner = 0;
    int d = last - 1;
    for (; d >= 0; d--) {
      for (int k = 0; k < w->count; k++) w->at[k] += w->stride[k][d] * w->size[k];
      if (++w->index[d] < w->shape[d]) break;
      for (int k = 0; k < w->count; k++) w->at[k] -= w->shape[d] * w->stride[k][d] * w->size[k];
      w->index[d] = 0;
    }
    if (d < 0) return false;
  }
  int64_t left = w->shape[last] - w->inner;
  w->n = left < HY__ROW ? left : HY__ROW;
  return true;
}

int64_t hy__offset(const hy_tensor* t, int64_t i) {
  int64_t offset = 0;
  for (int d = t->ndim - 1; d > 0 && i > 0; d--) {
    int64_t above = i / t->shape[d];
    offset += (i - above * t->shape[d]) * t->stride[d];
    i = above;
  }
  return t->ndim > 0 ? offset + i * t->stride[0] : 0;
}

char* hy__element(const hy_tensor* t, int64_t i) {
  return (char*)t->data + hy__offset(t, i) * (int64_t)hy_dtype_size(t->dtype);
}

char* hy__row_address(const hy_tensor* t, int64_t i) {
  hy_tensor rows = *t;
  rows.ndim = t->ndim - 1;
  return (char*)t->data + hy__offset(&rows, i) * (int64_t)hy_dtype_size(t->dtype);
}
