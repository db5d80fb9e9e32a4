// Indexing along one dimension: gather, scatter, index_select, index_add. Where indices repeat, the
// last one in row-major order is what stays.
#include <string.h>

#include "ops/reference/indices.h"
#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"

hy_status hy__ref_gather(const hy_call* call) {
  if (hy_tensor_numel(&call->in[1]) == 0) return HY_OK;
  hy_tensor x = hy__at_least_1d(&call->in[0]), index = hy__at_least_1d(&call->in[1]);
  hy_tensor out = hy__at_least_1d(&call->out[0]);
  int dim = hy__wrap_dim(call->attrs.dim.dim, x.ndim);
  HY_TRY(hy__check_indices(call, &index, dim, x.shape[dim], false));
  size_t size = hy_dtype_size(x.dtype);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, 1u << dim, 3, (const hy_tensor*[]){&index, &x, &out});
  while (hy__ref_slices_next(&l)) {
    for (int64_t i = 0; i < index.shape[dim]; i++) {
      int64_t at = hy__load_i(index.dtype, hy__ref_slice_element(&l.slice[0], i));
      memcpy(hy__ref_slice_element(&l.slice[2], i), hy__ref_slice_element(&l.slice[1], at), size);
    }
  }
  return HY_OK;
}

hy_status hy__ref_scatter(const hy_call* call) {
  hy_tensor x = hy__at_least_1d(&call->in[0]), index = hy__at_least_1d(&call->in[1]);
  hy_tensor src = hy__at_least_1d(&call->in[2]), out = hy__at_least_1d(&call->out[0]), to = out;
  bool adds = call->attrs.scatter.mode == HY_SCATTER_ADD, empty = hy_tensor_numel(&index) == 0;
  int dim = hy__wrap_dim(call->attrs.scatter.dim, x.ndim);
  HY_TRY(hy__check_indices(call, &index, dim, x.shape[dim], false));
  void* sums = NULL;
  if (adds && !empty) {
    sums = hy__scratch(call, 1, hy_tensor_numel(&x));
    if (!sums) return HY_OUT_OF_MEMORY;
    to = hy__widen(&x, sums);
  } else {
    hy__copy_view(&out, &x);
  }
  if (empty) return HY_OK;
  hy__ref_slices l;
  hy__ref_slices_begin(&l, 1u << dim, 3, (const hy_tensor*[]){&index, &src, &to});
  while (hy__ref_slices_next(&l)) {
    for (int64_t i = 0; i < index.shape[dim]; i++) {
      int64_t at = hy__load_i(index.dtype, hy__ref_slice_element(&l.slice[0], i));
      const char* from = hy__ref_slice_element(&l.slice[1], i);
      if (adds)
        hy__add_element(&to, hy__ref_slice_element(&l.slice[2], at), src.dtype, from);
      else
        memcpy(hy__ref_slice_element(&l.slice[2], at), from, hy_dtype_size(src.dtype));
    }
  }
  if (adds) hy__copy_view(&out, &to);
  hy__mfree(sums);
  return HY_OK;
}

hy_status hy__ref_index_select(const hy_call* call) {
  hy_tensor x = hy__at_least_1d(&call->in[0]), index = hy__at_least_1d(&call->in[1]);
  hy_tensor out = hy__at_least_1d(&call->out[0]);
  int dim = hy__wrap_dim(call->attrs.dim.dim, x.ndim);
  HY_TRY(hy__check_indices(call, &index, dim, x.shape[dim], false));
  size_t size = hy_dtype_size(x.dtype);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, 1u << dim, 2, (const hy_tensor*[]){&x, &out});
  while (hy__ref_slices_next(&l)) {
    for (int64_t i = 0; i < index.shape[0]; i++) {
      int64_t at = hy__load_i(index.dtype, hy__ref_slice_element(&index, i));
      memcpy(hy__ref_slice_element(&l.slice[1], i), hy__ref_slice_element(&l.slice[0], at), size);
    }
  }
  return HY_OK;
}

hy_status hy__ref_index_add(const hy_call* call) {
  hy_tensor x = hy__at_least_1d(&call->in[0]), index = hy__at_least_1d(&call->in[1]);
  hy_tensor src = hy__at_least_1d(&call->in[2]), out = hy__at_least_1d(&call->out[0]);
  int dim = hy__wrap_dim(call->attrs.dim.dim, x.ndim);
  HY_TRY(hy__check_indices(call, &index, dim, x.shape[dim], false));
  void* memory = hy__scratch(call, 1, hy_tensor_numel(&x));
  if (!memory) return HY_OUT_OF_MEMORY;
  hy_tensor sums = hy__widen(&x, memory);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, 1u << dim, 2, (const hy_tensor*[]){&src, &sums});
  while (hy__ref_slices_next(&l)) {
    for (int64_t i = 0; i < index.shape[0]; i++) {
      int64_t at = hy__load_i(index.dtype, hy__ref_slice_element(&index, i));
      hy__add_element(&sums, hy__ref_slice_element(&l.slice[1], at), src.dtype,
                      hy__ref_slice_element(&l.slice[0], i));
    }
  }
  hy__copy_view(&out, &sums);
  hy__mfree(memory);
  return HY_OK;
}
