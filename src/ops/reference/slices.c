// Slices along an axis, for the reference.
#include "ops/reference/slices.h"

// The dimensions of `t` in the mask, or those outside it.
static hy_tensor choose_dims(const hy_tensor* t, uint32_t mask, bool inside) {
  hy_tensor view = *t;
  view.ndim = 0;
  for (int d = 0; d < t->ndim; d++) {
    if ((mask >> d & 1) != inside) continue;
    view.shape[view.ndim] = t->shape[d];
    view.stride[view.ndim++] = t->stride[d];
  }
  return view;
}

void hy__ref_slices_begin(hy__ref_slices* l, uint32_t mask, int count,
                          const hy_tensor* const* tensors) {
  static char nowhere;  // what the walk points at for absent tensors; never followed
  const hy_tensor* rest[HY__WALK_MAX];
  l->count = count;
  l->at = -1;
  for (int k = 0; k < count; k++) {
    l->slice[k] = l->rest[k] = (hy_tensor){.data = &nowhere};
    if (hy__present(tensors[k])) {
      l->slice[k] = choose_dims(tensors[k], mask, true);
      l->rest[k] = choose_dims(tensors[k], mask, false);
    }
    rest[k] = &l->rest[k];
  }
  hy__walk_begin(&l->walk, rest[0], count, rest);
}

bool hy__ref_slices_next(hy__ref_slices* l) {
  hy__walk* w = &l->walk;
  if (l->at < 0 || ++l->at == w->n) {
    if (!hy__walk_next(w)) return false;
    l->at = 0;
  }
  for (int k = 0; k < l->count; k++) l->slice[k].data = w->at[k] + l->at * w->step[k] * w->size[k];
  return true;
}

hy_tensor hy__keep_dims(const hy_tensor* out, int ndim, uint32_t mask) {
  if (!hy__present(out) || out->ndim == ndim) return *out;
  hy_tensor view = *out;
  view.ndim = ndim;
  for (int d = 0, own = 0; d < ndim; d++) {
    bool reduced = mask >> d & 1;
    view.shape[d] = reduced ? 1 : out->shape[own];
    view.stride[d] = reduced ? 0 : out->stride[own++];
  }
  return view;
}

#define EACH_ROW(t, statement)                       \
  hy__walk w;                                        \
  hy__walk_begin(&w, t, 1, (const hy_tensor*[]){t}); \
  while (hy__walk_next(&w)) statement

void hy__load_all_f(const hy_tensor* t, double* values) {
  EACH_ROW(t, hy__load_row_f(t->dtype, w.at[0], w.step[0], w.n, values + w.first));
}

void hy__load_all_i(const hy_tensor* t, int64_t* values) {
  EACH_ROW(t, hy__load_row_i(t->dtype, w.at[0], w.step[0], w.n, values + w.first));
}

void hy__store_all_f(const hy_tensor* t, const double* values) {
  EACH_ROW(t, hy__store_row_f(t->dtype, w.at[0], w.step[0], w.n, values + w.first));
}

void hy__store_all_i(const hy_tensor* t, const int64_t* values) {
  EACH_ROW(t, hy__store_row_i(t->dtype, w.at[0], w.step[0], w.n, values + w.first));
}
