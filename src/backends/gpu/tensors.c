// Tensors as kernels see them, and temporary ones in the workspace.
#include <string.h>

#include "backends/gpu/gpu.h"

const char* hy__gpu_type_name(hy_dtype dtype) {
  return dtype == HY_BOOL ? "b8" : hy_dtype_name(dtype);
}

const char* hy__gpu_option(hy_dtype dtype) {
  static const char* const options[HY_DTYPE_COUNT] = {
      [HY_F32] = "-DT=f32",           [HY_F64] = "-DT=f64",
      [HY_F16] = "-DT=f16",           [HY_BF16] = "-DT=bf16",
      [HY_I8] = "-DT=i8 -DINTEGER",   [HY_I16] = "-DT=i16 -DINTEGER",
      [HY_I32] = "-DT=i32 -DINTEGER", [HY_I64] = "-DT=i64 -DINTEGER",
      [HY_U8] = "-DT=u8 -DINTEGER",   [HY_BOOL] = "-DT=b8 -DINTEGER",
      [HY_F8E4M3] = "-DT=f8e4m3",     [HY_F8E5M2] = "-DT=f8e5m2",
  };
  return options[dtype];
}

hy_gpu_view hy__gpu_view(const hy_tensor* t) {
  hy_gpu_view view = {t->data, (int)t->dtype, t->ndim, {0}, {0}};
  for (int d = 0; d < t->ndim; d++) {
    view.shape[d] = t->shape[d];
    view.stride[d] = t->stride[d];
  }
  return view;
}

hy_gpu_walk hy__gpu_walk(const hy_tensor* shape_of, int count, const hy_tensor* const* tensors) {
  hy_gpu_walk w = {.n = 1, .count = count};
  for (int k = 0; k < count; k++) {
    w.data[k] = tensors[k]->data;
    w.dtype[k] = (int)tensors[k]->dtype;
  }
  for (int d = 0; d < shape_of->ndim; d++) {
    int64_t size = shape_of->shape[d], stride[HY_GPU_WALK];
    w.n *= size;
    if (size == 1) continue;
    bool merges = w.ndim > 0;
    for (int k = 0; k < count; k++) {
      int own = d - (shape_of->ndim - tensors[k]->ndim);
      stride[k] = own < 0 || tensors[k]->shape[own] == 1 ? 0 : tensors[k]->stride[own];
      merges = merges && w.stride[k][w.ndim - 1] == stride[k] * size;
    }
    int at = merges ? w.ndim - 1 : w.ndim++;
    w.shape[at] = merges ? w.shape[at] * size : size;
    for (int k = 0; k < count; k++) w.stride[k][at] = stride[k];
  }
  if (w.ndim == 0) {
    w.ndim = 1;
    w.shape[0] = 1;
    for (int k = 0; k < count; k++) w.stride[k][0] = 1;
  }
  return w;
}

bool hy__gpu_walk_is_linear(const hy_gpu_walk* walk) {
  for (int k = 0; k < walk->count; k++)
    if (walk->ndim != 1 || walk->stride[k][0] != 1) return false;
  return true;
}

hy_tensor hy__gpu_temporary(hy__gpu_task* task, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor t = {.dtype = dtype, .ndim = ndim};
  int64_t n = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    t.shape[d] = shape[d];
    t.stride[d] = n;
    n *= shape[d];
  }
  t.data = (void*)(uintptr_t)hy__gpu_workspace(task, (size_t)n * hy_dtype_size(dtype));
  return t;
}

hy_tensor hy__gpu_contiguous(hy__gpu_task* task, const hy_tensor* t) {
  if (hy_tensor_is_contiguous(t)) return *t;
  hy_tensor packed = hy__gpu_temporary(task, t->dtype, t->ndim, t->shape);
  hy__gpu_copy(task, &packed, t);
  return packed;
}

hy_tensor hy__gpu_out_begin(hy__gpu_task* task, const hy_tensor* out) {
  if (hy_tensor_is_contiguous(out)) return *out;
  return hy__gpu_temporary(task, out->dtype, out->ndim, out->shape);
}

void hy__gpu_out_end(hy__gpu_task* task, const hy_tensor* out, const hy_tensor* written) {
  if (written->data != out->data) hy__gpu_copy(task, out, written);
}
