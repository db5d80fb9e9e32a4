// Index tensors, checked against the dimension they index.
#include "ops/reference/indices.h"

#include <string.h>

#include "ops/overlap.h"
#include "ops/reference/arithmetic.h"
#include "ops/reference/slices.h"

hy_status hy__check_indices(const hy_call* call, const hy_tensor* index, int dim, int64_t size,
                            bool wrap) {
  hy__walk w;
  hy__walk_begin(&w, index, 1, (const hy_tensor*[]){index});
  while (hy__walk_next(&w)) {
    int64_t row[HY__ROW];
    hy__load_row_i(index->dtype, w.at[0], w.step[0], w.n, row);
    for (int64_t i = 0; i < w.n; i++) {
      if (row[i] >= size || row[i] < (wrap ? -size : 0))
        return hy__call_fail(call, HY_INDEX,
                             "index %lld is outside dimension %d, which has size %lld",
                             (long long)row[i], dim, (long long)size);
    }
  }
  return HY_OK;
}

hy_tensor hy__at_least_1d(const hy_tensor* t) {
  hy_tensor view = *t;
  if (view.ndim > 0) return view;
  view.ndim = 1;
  view.shape[0] = 1;
  view.stride[0] = 0;
  return view;
}

void hy__copy_elements(size_t size, int64_t n, char* to, int64_t to_step, const char* from,
                       int64_t from_step) {
  if (to_step == 1 && from_step == 1) {
    memcpy(to, from, (size_t)n * size);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    memcpy(to + i * to_step * (int64_t)size, from + i * from_step * (int64_t)size, size);
}

void hy__copy_view(const hy_tensor* to, const hy_tensor* from) {
  if (hy__tensor_is_same_view(to, from)) return;
  hy__walk w;
  hy__walk_begin(&w, to, 2, (const hy_tensor*[]){to, from});
  while (hy__walk_next(&w)) {
    if (hy__in_double(from->dtype)) {
      double row[HY__ROW];
      hy__load_row_f(from->dtype, w.at[1], w.step[1], w.n, row);
      hy__store_row_f(to->dtype, w.at[0], w.step[0], w.n, row);
    } else {
      int64_t row[HY__ROW];
      hy__load_row_i(from->dtype, w.at[1], w.step[1], w.n, row);
      hy__store_row_i(to->dtype, w.at[0], w.step[0], w.n, row);
    }
  }
}

hy_tensor hy__widen(const hy_tensor* x, void* memory) {
  hy_tensor wide = *x;
  wide.data = memory;
  wide.dtype = hy__in_double(x->dtype) ? HY_F64 : HY_I64;
  int64_t stride = 1;
  for (int d = x->ndim - 1; d >= 0; d--) {
    wide.stride[d] = stride;
    stride *= x->shape[d];
  }
  hy__copy_view(&wide, x);
  return wide;
}

void hy__add_element(const hy_tensor* wide, char* to, hy_dtype dtype, const char* from) {
  if (wide->dtype == HY_F64)
    hy__store_f(HY_F64, to, hy__load_f(HY_F64, to) + hy__load_f(dtype, from));
  else
    hy__store_i(HY_I64, to, hy__add_i(hy__load_i(HY_I64, to), hy__load_i(dtype, from)));
}
