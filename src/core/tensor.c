// Tensor views: making, checking and describing them.
#include "halyard/tensor.h"

#include <stdio.h>
#include <string.h>

static void set_contiguous_strides(hy_tensor* t) {
  int64_t stride = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    t->stride[d] = stride;
    stride *= t->shape[d] > 1 ? t->shape[d] : 1;
  }
}

hy_status hy_tensor_init(hy_tensor* t, void* data, hy_dtype dtype, int ndim, const int64_t* shape) {
  if (!t) return hy_fail(HY_INVALID_ARGUMENT, "hy_tensor_init: the tensor is NULL");
  if (ndim < 0 || ndim > HY_MAX_DIMS)
    return hy_fail(HY_SHAPE, "a tensor has 0 to %d dimensions, not %d", HY_MAX_DIMS, ndim);
  if (ndim > 0 && !shape) return hy_fail(HY_INVALID_ARGUMENT, "hy_tensor_init: the shape is NULL");
  memset(t, 0, sizeof *t);
  t->data = data;
  t->dtype = dtype;
  t->layout = dtype == HY_I4 ? HY_LAYOUT_PACKED_I4 : HY_LAYOUT_STRIDED;
  t->ndim = ndim;
  int64_t numel = 1;
  for (int d = 0; d < ndim; d++) {
    t->shape[d] = shape[d];
    if (shape[d] < 0)
      return hy_fail(HY_SHAPE, "dimension %d has the negative size %lld", d, (long long)shape[d]);
    // Sizes of 0 are left out here, so that strides cannot overflow either.
    if (shape[d] > 0 && __builtin_mul_overflow(numel, shape[d], &numel))
      return hy_fail(HY_SHAPE, "the number of elements overflows 64 bits at dimension %d", d);
  }
  set_contiguous_strides(t);
  return hy_tensor_check(t);
}

hy_status hy_tensor_check(const hy_tensor* t) {
  if (!t) return hy_fail(HY_INVALID_ARGUMENT, "hy_tensor_check: the tensor is NULL");
  if (t->dtype <= HY_NONE || t->dtype >= HY_DTYPE_COUNT)
    return hy_fail(HY_DTYPE, "%d is no data type", (int)t->dtype);
  if (t->ndim < 0 || t->ndim > HY_MAX_DIMS)
    return hy_fail(HY_SHAPE, "a tensor has 0 to %d dimensions, not %d", HY_MAX_DIMS, t->ndim);
  int64_t numel = 1, reach = 1;
  bool empty = false;
  for (int d = 0; d < t->ndim; d++) {
    int64_t size = t->shape[d], span;
    if (size < 0)
      return hy_fail(HY_SHAPE, "dimension %d has the negative size %lld", d, (long long)size);
    if (size == 0) {
      empty = true;
      continue;
    }
    int64_t stride = t->stride[d];
    // INT64_MIN has no opposite: not even a dimension of one element, which never steps, may have
    // it.
    if (__builtin_mul_overflow(numel, size, &numel) || stride == INT64_MIN ||
        __builtin_mul_overflow(size - 1, stride < 0 ? -stride : stride, &span) ||
        __builtin_add_overflow(reach, span, &reach))
      return hy_fail(HY_SHAPE, "sizes and strides overflow 64 bits at dimension %d", d);
  }
  if (numel > INT64_MAX / 8 || reach > INT64_MAX / 8)
    return hy_fail(HY_SHAPE, "%lld elements are more than memory can hold", (long long)numel);
  switch (t->layout) {
    case HY_LAYOUT_STRIDED:
      if (t->dtype == HY_I4)
        return hy_fail(HY_LAYOUT, "i4 has no addressable elements: its layout is packed_i4");
      return HY_OK;
    case HY_LAYOUT_PACKED_I4:
      if (t->dtype != HY_I4)
        return hy_fail(HY_LAYOUT, "packed_i4 holds i4, not %s", hy_dtype_name(t->dtype));
      if (!hy_tensor_is_contiguous(t) || t->ndim < 1 || (!empty && t->shape[t->ndim - 1] % 2 != 0))
        return hy_fail(HY_LAYOUT, "packed_i4 is contiguous, and its last dimension is even");
      return HY_OK;
    case HY_LAYOUT_SPARSE_2_4:
      if (t->dtype != HY_U8 || !hy_tensor_is_contiguous(t))
        return hy_fail(HY_LAYOUT, "sparse_2_4 codes are contiguous u8");
      return HY_OK;
    case HY_LAYOUT_FRACTAL_NZ:
      if (t->dtype != HY_F16 && t->dtype != HY_BF16)
        return hy_fail(HY_LAYOUT, "fractal_nz holds f16 or bf16, not %s", hy_dtype_name(t->dtype));
      if (!hy_tensor_is_contiguous(t) || t->ndim != 2 || t->shape[0] % 16 != 0 ||
          t->shape[1] % 16 != 0)
        return hy_fail(HY_LAYOUT, "fractal_nz is a contiguous matrix of blocks of 16 x 16");
      return HY_OK;
  }
  return hy_fail(HY_LAYOUT, "%d is no layout", (int)t->layout);
}

const char* hy_tensor_describe(const hy_tensor* t, char* buffer, size_t size) {
  if (!buffer || size == 0) return "";
  buffer[0] = 0;
  if (hy_tensor_is_absent(t)) {
    snprintf(buffer, size, "none");
    return buffer;
  }
  size_t used = 0;
#define APPEND(...)                                                                     \
  do {                                                                                  \
    if (used < size) used += (size_t)snprintf(buffer + used, size - used, __VA_ARGS__); \
  } while (0)
  int ndim = t->ndim;
  if (ndim < 0 || ndim > HY_MAX_DIMS) {
    APPEND("%s of %d dimensions", hy_dtype_name(t->dtype), ndim);
    return buffer;
  }
  APPEND("%s[", hy_dtype_name(t->dtype));
  for (int d = 0; d < ndim; d++) APPEND(d ? ", %lld" : "%lld", (long long)t->shape[d]);
  APPEND("]");
  if (t->layout != HY_LAYOUT_STRIDED) {
    APPEND(" %s", hy_layout_name(t->layout));
  } else if (!hy_tensor_is_contiguous(t)) {
    APPEND(" strides (");
    for (int d = 0; d < ndim; d++) APPEND(d ? ", %lld" : "%lld", (long long)t->stride[d]);
    APPEND(")");
  }
#undef APPEND
  return buffer;
}
