// Data types, layouts and tensors: a tensor is a view of memory that somebody else owns.
//
// Helpers that need only their arguments are defined here, so that a plugin has them and still
// links nothing; the library exports them under the same names.
#ifndef HALYARD_TENSOR_H_
#define HALYARD_TENSOR_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "halyard/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HY_MAX_DIMS 8

// Enumerator, value, name, bits per element. Values are part of the plugin ABI: append only.
#define HY_DTYPE_MAP(X)      \
  X(NONE, 0, "none", 0)      \
  X(F32, 1, "f32", 32)       \
  X(F64, 2, "f64", 64)       \
  X(F16, 3, "f16", 16)       \
  X(BF16, 4, "bf16", 16)     \
  X(I8, 5, "i8", 8)          \
  X(I16, 6, "i16", 16)       \
  X(I32, 7, "i32", 32)       \
  X(I64, 8, "i64", 64)       \
  X(U8, 9, "u8", 8)          \
  X(BOOL, 10, "bool", 8)     \
  X(F8E4M3, 11, "f8e4m3", 8) \
  X(F8E5M2, 12, "f8e5m2", 8) \
  X(I4, 13, "i4", 4)

typedef enum hy_dtype {
#define HY_AS_ENUM(name, value, text, bits) HY_##name = value,
  HY_DTYPE_MAP(HY_AS_ENUM)
#undef HY_AS_ENUM
} hy_dtype;
#define HY_DTYPE_COUNT 14

// Sets of data types, for tables of what an op or a provider accepts.
#define HY_DTYPE_BIT(dtype) (1u << (dtype))
#define HY_FLOATS \
  (HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_F64) | HY_DTYPE_BIT(HY_F16) | HY_DTYPE_BIT(HY_BF16))
#define HY_INTS                                                                               \
  (HY_DTYPE_BIT(HY_I8) | HY_DTYPE_BIT(HY_I16) | HY_DTYPE_BIT(HY_I32) | HY_DTYPE_BIT(HY_I64) | \
   HY_DTYPE_BIT(HY_U8))
#define HY_BOOLS HY_DTYPE_BIT(HY_BOOL)
#define HY_FLOAT8S (HY_DTYPE_BIT(HY_F8E4M3) | HY_DTYPE_BIT(HY_F8E5M2))
#define HY_NUMBERS (HY_FLOATS | HY_INTS)
#define HY_ALL_DTYPES (HY_NUMBERS | HY_BOOLS)

// Memory layouts. Everything but STRIDED is a packed format, accepted only by ops that name it.
#define HY_LAYOUT_MAP(X)                                                                        \
  X(STRIDED, 0, "strided")       /* element i is at data + sum(i[d] * stride[d])           */   \
  X(PACKED_I4, 1, "packed_i4")   /* i4, contiguous, two per byte along the last dimension,  */  \
                                 /* even index in the low nibble; its size is even          */  \
  X(SPARSE_2_4, 2, "sparse_2_4") /* u8 codes of a 2:4 sparse matrix: two 4-bit groups a byte */ \
  X(FRACTAL_NZ, 3, "fractal_nz") /* f16 or bf16 [N, K], multiples of 16, as [K/16, N/16, 16, */ \
                                 /* 16]: blocks column by column, each row-major (Ascend)    */

typedef enum hy_layout {
#define HY_AS_ENUM(name, value, text) HY_LAYOUT_##name = value,
  HY_LAYOUT_MAP(HY_AS_ENUM)
#undef HY_AS_ENUM
} hy_layout;

// A view of memory: owns nothing, is copied by value. A tensor with dtype HY_NONE stands for
// "absent" where an op has an optional argument.
typedef struct hy_tensor {
  void* data;  // device address of element 0; only the device's backend may follow it
  hy_dtype dtype;
  hy_layout layout;
  int32_t ndim;
  int32_t reserved;
  int64_t shape[HY_MAX_DIMS];
  int64_t stride[HY_MAX_DIMS];  // in elements; may be 0 (broadcast) or negative
} hy_tensor;

// "f32"; "?" for an unknown value
static inline const char* hy_dtype_name(hy_dtype dtype) {
#define HY_AS_NAME(name, value, text, bits) text,
  static const char* const names[] = {HY_DTYPE_MAP(HY_AS_NAME)};
#undef HY_AS_NAME
  return (unsigned)dtype < HY_DTYPE_COUNT ? names[dtype] : "?";
}
HY_API hy_dtype hy_dtype_from_name(const char* name);  // HY_NONE for an unknown name
HY_API const char* hy_layout_name(hy_layout layout);

// 4 for i4, 0 for none
static inline int hy_dtype_bits(hy_dtype dtype) {
#define HY_AS_BITS(name, value, text, bits) bits,
  static const unsigned char table[] = {HY_DTYPE_MAP(HY_AS_BITS)};
#undef HY_AS_BITS
  return (unsigned)dtype < HY_DTYPE_COUNT ? table[dtype] : 0;
}

// Bytes of one element of a byte-addressable type; 0 for none and i4.
static inline size_t hy_dtype_size(hy_dtype dtype) {
  return (size_t)hy_dtype_bits(dtype) / 8;
}

// The 8-bit floats included.
static inline bool hy_dtype_is_float(hy_dtype dtype) {
  return (unsigned)dtype < HY_DTYPE_COUNT && (HY_DTYPE_BIT(dtype) & (HY_FLOATS | HY_FLOAT8S)) != 0;
}

// bool and i4 excluded.
static inline bool hy_dtype_is_int(hy_dtype dtype) {
  return (unsigned)dtype < HY_DTYPE_COUNT && (HY_DTYPE_BIT(dtype) & HY_INTS) != 0;
}

// The type that holds both, by PyTorch's table: bool < ints < floats, f16 with bf16 gives f32.
HY_API hy_dtype hy_promote_dtypes(hy_dtype a, hy_dtype b);

// Fills a contiguous row-major view. `shape` may be NULL when ndim is 0.
HY_API hy_status hy_tensor_init(hy_tensor* t, void* data, hy_dtype dtype, int ndim,
                                const int64_t* shape);

static inline hy_tensor hy_tensor_absent(void) {
  hy_tensor t = {NULL, HY_NONE, HY_LAYOUT_STRIDED, 0, 0, {0}, {0}};
  return t;
}

static inline bool hy_tensor_is_absent(const hy_tensor* t) {
  return !t || t->dtype == HY_NONE;
}

static inline int64_t hy_tensor_numel(const hy_tensor* t) {
  int64_t numel = 1;
  for (int d = 0; d < t->ndim; d++) numel *= t->shape[d];
  return numel;
}

// The size in bytes of a contiguous tensor of this shape, type and layout.
static inline size_t hy_tensor_bytes(const hy_tensor* t) {
  return (size_t)hy_tensor_numel(t) * (size_t)hy_dtype_bits(t->dtype) / 8;
}

static inline bool hy_tensor_is_contiguous(const hy_tensor* t) {
  uint64_t expected = 1;  // wraps in tensors that hy_tensor_check refuses
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (t->shape[d] == 0) return true;
    if (t->shape[d] != 1 && (uint64_t)t->stride[d] != expected) return false;
    expected *= (uint64_t)t->shape[d];
  }
  return true;
}

// The half-open range of byte offsets from `data` that the view can touch; both 0 when empty.
static inline void hy_tensor_extent(const hy_tensor* t, int64_t* first, int64_t* last) {
  int64_t low = 0, high = 0, size = (int64_t)hy_dtype_size(t->dtype);
  *first = *last = 0;
  if (t->layout != HY_LAYOUT_STRIDED) {
    *last = (int64_t)hy_tensor_bytes(t);
    return;
  }
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] == 0) return;
    int64_t reach = (t->shape[d] - 1) * t->stride[d];
    if (reach < 0)
      low += reach;
    else
      high += reach;
  }
  *first = low * size;
  *last = (high + 1) * size;
}

// Checks that shape, strides, dtype and layout are valid and that sizes do not overflow.
HY_API hy_status hy_tensor_check(const hy_tensor* t);
// "f32[2, 3]", with strides when not contiguous. Writes at most `size` bytes, always terminated;
// returns `buffer`.
HY_API const char* hy_tensor_describe(const hy_tensor* t, char* buffer, size_t size);

// Views never copy. Negative dimensions count from the end. `out` may be the same object as `t`.
HY_API hy_status hy_view(hy_tensor* out, const hy_tensor* t, int ndim,
                         const int64_t* shape);  // one -1 allowed
HY_API hy_status hy_transpose(hy_tensor* out, const hy_tensor* t, int dim0, int dim1);
HY_API hy_status hy_permute(hy_tensor* out, const hy_tensor* t, const int* dims);
HY_API hy_status hy_squeeze(hy_tensor* out, const hy_tensor* t, int dim);
HY_API hy_status hy_unsqueeze(hy_tensor* out, const hy_tensor* t, int dim);
HY_API hy_status hy_expand(hy_tensor* out, const hy_tensor* t, int ndim,
                           const int64_t* shape);  // -1 keeps a size
HY_API hy_status hy_slice(hy_tensor* out, const hy_tensor* t, int dim, int64_t start, int64_t stop,
                          int64_t step);
HY_API hy_status hy_select(hy_tensor* out, const hy_tensor* t, int dim, int64_t index);
// The dimension in reverse order: its stride changes sign.
HY_API hy_status hy_flip(hy_tensor* out, const hy_tensor* t, int dim);
// Arbitrary shape and strides, `offset` elements from t's element 0. The result must stay within
// t's extent.
HY_API hy_status hy_as_strided(hy_tensor* out, const hy_tensor* t, int ndim, const int64_t* shape,
                               const int64_t* stride, int64_t offset);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_TENSOR_H_
