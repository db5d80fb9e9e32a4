// Indexing by a list of tensors: x[i, :, j]. Negative indices count from the end.
#include <string.h>

#include "ops/reference/indices.h"
#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"
#include "ops/rules/indexing.h"

static hy_status check_all(const hy_call* call, int first) {
  for (int i = first; i < call->n_in; i++) {
    int dim = i - first;
    if (hy__present(&call->in[i]))
      HY_TRY(hy__check_indices(call, &call->in[i], dim, call->in[0].shape[dim], true));
  }
  return HY_OK;
}

// For each element of the broadcast indices, how many elements of t it is from the first. To be
// freed; NULL with the message set when there is no memory.
static int64_t* offsets_in(const hy_call* call, int first, const hy__index_plan* plan,
                           const hy_tensor* t) {
  int64_t n = hy_tensor_numel(&plan->indexed), *offsets = hy__scratch(call, 1, n);
  if (!offsets) return NULL;
  for (int64_t i = 0; i < n; i++) offsets[i] = 0;
  for (int k = first; k < call->n_in; k++) {
    const hy_tensor* index = &call->in[k];
    if (!hy__present(index)) continue;
    int64_t size = t->shape[k - first], stride = t->stride[k - first];
    hy__walk w;
    hy__walk_begin(&w, &plan->indexed, 1, (const hy_tensor*[]){index});
    while (hy__walk_next(&w)) {
      int64_t row[HY__ROW];
      hy__load_row_i(index->dtype, w.at[0], w.step[0], w.n, row);
      for (int64_t i = 0; i < w.n; i++)
        offsets[w.first + i] += (row[i] < 0 ? row[i] + size : row[i]) * stride;
    }
  }
  return offsets;
}

// t seen with the dimensions of the result; those of the indices, which the offsets answer for, are
// the mask.
static hy_tensor spread(const hy__index_plan* plan, const hy_tensor* t, uint32_t* mask) {
  hy_tensor view = *t;
  view.ndim = plan->result.ndim;
  *mask = 0;
  for (int d = 0; d < view.ndim; d++) {
    int own = plan->dim_of[d];
    if (own < 0) *mask |= 1u << d;
    view.shape[d] = own < 0 ? 1 : t->shape[own];
    view.stride[d] = own < 0 ? 0 : t->stride[own];
  }
  return view;
}

hy_status hy__ref_index(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  int64_t size = (int64_t)hy_dtype_size(x->dtype);
  hy__index_plan plan;
  HY_TRY(hy__plan_index(call, 1, &plan));
  HY_TRY(check_all(call, 1));
  int64_t* offsets = offsets_in(call, 1, &plan, x);
  if (!offsets) return HY_OUT_OF_MEMORY;
  uint32_t mask;
  hy_tensor from = spread(&plan, x, &mask);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 2, (const hy_tensor*[]){out, &from});
  while (hy__ref_slices_next(&l)) {
    const char* base = l.slice[1].data;
    hy__walk w;
    hy__walk_begin(&w, &l.slice[0], 1, (const hy_tensor*[]){&l.slice[0]});
    while (hy__walk_next(&w)) {
      for (int64_t i = 0; i < w.n; i++)
        memcpy(w.at[0] + i * w.step[0] * size, base + offsets[w.first + i] * size, (size_t)size);
    }
  }
  hy__mfree(offsets);
  return HY_OK;
}

hy_status hy__ref_index_put(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  bool adds = call->attrs.accumulate.accumulate;
  hy_tensor values = call->in[1], to = *out;
  hy__index_plan plan;
  HY_TRY(hy__plan_index(call, 2, &plan));
  HY_TRY(check_all(call, 2));
  HY_TRY(hy_expand(&values, &values, plan.result.ndim, plan.result.shape));
  void* sums = adds ? hy__scratch(call, 1, hy_tensor_numel(x)) : NULL;
  if (adds && !sums) return HY_OUT_OF_MEMORY;
  if (adds) to = hy__widen(x, sums);
  int64_t* offsets = offsets_in(call, 2, &plan, &to);
  hy_status status = offsets ? HY_OK : HY_OUT_OF_MEMORY;
  if (!offsets) goto done;
  if (!adds) hy__copy_view(out, x);
  uint32_t mask;
  hy_tensor target = spread(&plan, &to, &mask);
  int64_t size = (int64_t)hy_dtype_size(to.dtype);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 2, (const hy_tensor*[]){&values, &target});
  while (hy__ref_slices_next(&l)) {
    char* base = l.slice[1].data;
    hy__walk w;
    hy__walk_begin(&w, &l.slice[0], 1, (const hy_tensor*[]){&l.slice[0]});
    while (hy__walk_next(&w)) {
      for (int64_t i = 0; i < w.n; i++) {
        const char* from = w.at[0] + i * w.step[0] * w.size[0];
        char* at = base + offsets[w.first + i] * size;
        if (adds)
          hy__add_element(&to, at, values.dtype, from);
        else
          memcpy(at, from, (size_t)size);
      }
    }
  }
  if (adds) hy__copy_view(out, &to);
done:
  hy__mfree(offsets);
  hy__mfree(sums);
  return status;
}
