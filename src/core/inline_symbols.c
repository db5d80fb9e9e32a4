// The helpers that tensor.h and call.h define inline, as symbols of the library: for programs
// linked when they were no more than that, and for languages that call the library by name.
#define hy_dtype_name inline_dtype_name
#define hy_dtype_bits inline_dtype_bits
#define hy_dtype_size inline_dtype_size
#define hy_dtype_is_float inline_dtype_is_float
#define hy_dtype_is_int inline_dtype_is_int
#define hy_tensor_absent inline_tensor_absent
#define hy_tensor_is_absent inline_tensor_is_absent
#define hy_tensor_numel inline_tensor_numel
#define hy_tensor_bytes inline_tensor_bytes
#define hy_tensor_is_contiguous inline_tensor_is_contiguous
#define hy_tensor_extent inline_tensor_extent
#define hy_scalar_i inline_scalar_i
#include "halyard/call.h"
#undef hy_dtype_name
#undef hy_dtype_bits
#undef hy_dtype_size
#undef hy_dtype_is_float
#undef hy_dtype_is_int
#undef hy_tensor_absent
#undef hy_tensor_is_absent
#undef hy_tensor_numel
#undef hy_tensor_bytes
#undef hy_tensor_is_contiguous
#undef hy_tensor_extent
#undef hy_scalar_i

HY_API const char* hy_dtype_name(hy_dtype dtype) {
  return inline_dtype_name(dtype);
}

HY_API int hy_dtype_bits(hy_dtype dtype) {
  return inline_dtype_bits(dtype);
}

HY_API size_t hy_dtype_size(hy_dtype dtype) {
  return inline_dtype_size(dtype);
}

HY_API bool hy_dtype_is_float(hy_dtype dtype) {
  return inline_dtype_is_float(dtype);
}

HY_API bool hy_dtype_is_int(hy_dtype dtype) {
  return inline_dtype_is_int(dtype);
}

HY_API hy_tensor hy_tensor_absent(void) {
  return inline_tensor_absent();
}

HY_API bool hy_tensor_is_absent(const hy_tensor* t) {
  return inline_tensor_is_absent(t);
}

HY_API int64_t hy_tensor_numel(const hy_tensor* t) {
  return inline_tensor_numel(t);
}

HY_API size_t hy_tensor_bytes(const hy_tensor* t) {
  return inline_tensor_bytes(t);
}

HY_API bool hy_tensor_is_contiguous(const hy_tensor* t) {
  return inline_tensor_is_contiguous(t);
}

HY_API void hy_tensor_extent(const hy_tensor* t, int64_t* first, int64_t* last) {
  inline_tensor_extent(t, first, last);
}

HY_API int64_t hy_scalar_i(hy_scalar s) {
  return inline_scalar_i(s);
}
