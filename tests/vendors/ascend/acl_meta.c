// libnnopbase.so for tests: tensors, scalars and arrays of aclnn, as aclnn/acl_meta.h of CANN
// 8.1.RC1 declares them.
#include <stdlib.h>
#include <string.h>

#include "ascend.h"

static const struct {
  int vendor;
  hy_dtype dtype;
} types[] = {
    {ACL_FLOAT, HY_F32}, {ACL_FLOAT16, HY_F16}, {ACL_INT8, HY_I8},   {ACL_INT32, HY_I32},
    {ACL_UINT8, HY_U8},  {ACL_INT16, HY_I16},   {ACL_INT64, HY_I64}, {ACL_DOUBLE, HY_F64},
    {ACL_BOOL, HY_BOOL}, {ACL_BF16, HY_BF16},   {ACL_INT4, HY_I4},
};

static hy_dtype dtype_of(int vendor) {
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (types[i].vendor == vendor) return types[i].dtype;
  return HY_NONE;
}

// Refuses with NULL, as the vendor does, after noting the misuse.
#define REFUSE_UNLESS(condition, ...) \
  do {                                \
    if (!(condition)) {               \
      vendor_misuse(__VA_ARGS__);     \
      return NULL;                    \
    }                                 \
  } while (0)

// C0 is 16 for 16-bit types: a matrix [H, W] is stored as [W / 16, H / 16, 16, 16], rounded up, as
// the documents of aclnnNpuFormatCast and aclnnMatmulWeightNz say. A view with its strides in each
// other's place is the transpose.
static bool is_fractal_nz(const hy_tensor* t, int64_t offset, const int64_t* storage, uint64_t n) {
  if (t->ndim != 2 || offset != 0 || n != 4 || (t->dtype != HY_F16 && t->dtype != HY_BF16))
    return false;
  bool plain = t->stride[1] == 1 && t->stride[0] == t->shape[1];
  bool transposed = t->stride[0] == 1 && t->stride[1] == t->shape[0];
  if (!plain && !transposed) return false;
  int64_t height = t->shape[plain ? 0 : 1], width = t->shape[plain ? 1 : 0];
  return storage[0] == (width + 15) / 16 && storage[1] == (height + 15) / 16 && storage[2] == 16 &&
         storage[3] == 16;
}

VENDOR_API aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum, int dataType,
                                      const int64_t* stride, int64_t offset, int format,
                                      const int64_t* storageDims, uint64_t storageDimsNum,
                                      void* tensorData) {
  if (vendor_enter("aclCreateTensor")) return NULL;
  hy_tensor t = {.dtype = dtype_of(dataType), .ndim = (int32_t)viewDimsNum};
  REFUSE_UNLESS(t.dtype != HY_NONE, "aclCreateTensor: data type %d", dataType);
  REFUSE_UNLESS(viewDimsNum <= HY_MAX_DIMS, "aclCreateTensor: %d dimensions", (int)viewDimsNum);
  REFUSE_UNLESS(format == ACL_FORMAT_ND || format == ACL_FORMAT_FRACTAL_NZ,
                "aclCreateTensor: format %d", format);
  REFUSE_UNLESS(offset >= 0, "aclCreateTensor: offset %lld", (long long)offset);
  int64_t reach = offset, storage = 1;
  for (uint64_t d = 0; d < viewDimsNum; d++) {
    REFUSE_UNLESS(viewDims[d] >= 0 && stride[d] >= 0, "aclCreateTensor: a negative size or stride");
    t.shape[d] = viewDims[d];
    t.stride[d] = stride[d];
    reach += (viewDims[d] - 1) * stride[d];
  }
  for (uint64_t d = 0; d < storageDimsNum; d++) storage *= storageDims[d];
  REFUSE_UNLESS(hy_tensor_numel(&t) == 0 || reach < storage,
                "aclCreateTensor: the view reaches element %lld of a storage of %lld",
                (long long)reach, (long long)storage);
  REFUSE_UNLESS(tensorData || hy_tensor_numel(&t) == 0, "aclCreateTensor: no memory");
  t.data = (char*)tensorData + offset * (int64_t)hy_dtype_size(t.dtype);
  if (format == ACL_FORMAT_FRACTAL_NZ) {
    REFUSE_UNLESS(is_fractal_nz(&t, offset, storageDims, storageDimsNum),
                  "aclCreateTensor: no FRACTAL_NZ storage of this view");
    t.layout = HY_LAYOUT_FRACTAL_NZ;
  }
  if (t.dtype == HY_I4) t.layout = HY_LAYOUT_PACKED_I4;
  aclTensor* tensor = calloc(1, sizeof *tensor);
  if (!tensor) return NULL;
  *tensor = (aclTensor){t, dataType};
  vendor_born(tensor, "tensor");
  return tensor;
}

VENDOR_API aclScalar* aclCreateScalar(void* value, int dataType) {
  if (vendor_enter("aclCreateScalar")) return NULL;
  aclScalar* scalar = calloc(1, sizeof *scalar);
  if (!scalar) return NULL;
  switch (dataType) {
    case ACL_FLOAT: {
      float f;
      memcpy(&f, value, sizeof f);
      scalar->value = hy_float((double)f);
      break;
    }
    case ACL_DOUBLE:
      scalar->value = hy_float(0);
      memcpy(&scalar->value.as.f, value, 8);
      break;
    case ACL_INT64:
      scalar->value = hy_int(0);
      memcpy(&scalar->value.as.i, value, 8);
      break;
    case ACL_BOOL: scalar->value = hy_bool(*(const bool*)value); break;
    default: free(scalar); REFUSE_UNLESS(false, "aclCreateScalar: data type %d", dataType);
  }
  vendor_born(scalar, "scalar");
  return scalar;
}

VENDOR_API aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size) {
  if (vendor_enter("aclCreateIntArray")) return NULL;
  REFUSE_UNLESS(size <= MAX_ARRAY, "aclCreateIntArray: %llu elements", (unsigned long long)size);
  aclIntArray* array = calloc(1, sizeof *array + size * sizeof *value);
  if (!array) return NULL;
  array->n = size;
  if (size) memcpy(array->values, value, size * sizeof *value);
  vendor_born(array, "int array");
  return array;
}

VENDOR_API aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size) {
  if (vendor_enter("aclCreateBoolArray")) return NULL;
  REFUSE_UNLESS(size <= MAX_ARRAY, "aclCreateBoolArray: %llu elements", (unsigned long long)size);
  aclBoolArray* array = calloc(1, sizeof *array + size * sizeof *value);
  if (!array) return NULL;
  array->n = size;
  memcpy(array->values, value, size * sizeof *value);
  vendor_born(array, "bool array");
  return array;
}

VENDOR_API aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size) {
  if (vendor_enter("aclCreateTensorList")) return NULL;
  REFUSE_UNLESS(size > 0 && size <= MAX_LIST, "aclCreateTensorList: %llu tensors",
                (unsigned long long)size);
  aclTensorList* list = calloc(1, sizeof *list);
  if (!list) return NULL;
  list->n = size;
  for (uint64_t i = 0; i < size; i++) {
    if (!vendor_alive(value[i], "tensor")) {
      free(list);
      REFUSE_UNLESS(false, "aclCreateTensorList: %p is no tensor", (const void*)value[i]);
    }
    list->tensors[i] = value[i];
  }
  vendor_born(list, "tensor list");
  return list;
}

#define DESTROY(Type, kind)                                                 \
  VENDOR_API int aclDestroy##Type(const acl##Type* it) {                    \
    ENTER(aclDestroy##Type);                                                \
    DEMAND(vendor_dies(it, kind), ACLNN_ERR_PARAM_INVALID,                  \
           "aclDestroy" #Type ": %p is none, or no more", (const void*)it); \
    free((void*)it);                                                        \
    return ACL_SUCCESS;                                                     \
  }
DESTROY(Tensor, "tensor")
DESTROY(Scalar, "scalar")
DESTROY(IntArray, "int array")
DESTROY(BoolArray, "bool array")

// Destroys the tensors too: the list took them over.
VENDOR_API int aclDestroyTensorList(const aclTensorList* list) {
  ENTER(aclDestroyTensorList);
  DEMAND(vendor_dies(list, "tensor list"), ACLNN_ERR_PARAM_INVALID,
         "aclDestroyTensorList: %p is none, or no more", (const void*)list);
  for (uint64_t i = 0; i < list->n; i++) {
    DEMAND(vendor_dies(list->tensors[i], "tensor"), ACLNN_ERR_PARAM_INVALID,
           "aclDestroyTensorList: a tensor of it is no more");
    free((void*)list->tensors[i]);
  }
  free((void*)list);
  return ACL_SUCCESS;
}
