// Test library for Ascend: what its three parts share. The declarations are this library's own,
// written from the public headers named beside them; no backend includes this file.
#ifndef HALYARD_TESTS_VENDORS_ASCEND_H_
#define HALYARD_TESTS_VENDORS_ASCEND_H_

#include "halyard/call.h"
#include "vendor.h"

// acl/error_codes/rt_error_codes.h and acl/acl_base.h of CANN 8.1.RC1.
enum {
  ACL_SUCCESS = 0,
  ACL_ERROR_INVALID_PARAM = 100000,
  ACL_ERROR_UNINITIALIZE = 100001,
  ACL_ERROR_REPEAT_INITIALIZE = 100002,
  ACL_ERROR_RT_PARAM_INVALID = 107000,
  ACL_ERROR_RT_INVALID_DEVICEID = 107001,
  ACL_ERROR_RT_CONTEXT_NULL = 107002,
  ACL_ERROR_RT_STREAM_CONTEXT = 107003,
  ACL_ERROR_RT_MEMORY_ALLOCATION = 207001,
  ACL_ERROR_RT_NO_DEVICE = 207004,
  ACL_ERROR_RT_AICORE_EXCEPTION = 507015,
  ACLNN_ERR_PARAM_NULLPTR = 161001,  // documented in "aclnn return codes"
  ACLNN_ERR_PARAM_INVALID = 161002,
};

// acl/acl_base.h: aclDataType and aclFormat.
enum {
  ACL_FLOAT = 0,
  ACL_FLOAT16 = 1,
  ACL_INT8 = 2,
  ACL_INT32 = 3,
  ACL_UINT8 = 4,
  ACL_INT16 = 6,
  ACL_INT64 = 9,
  ACL_DOUBLE = 11,
  ACL_BOOL = 12,
  ACL_BF16 = 27,
  ACL_INT4 = 29,
  ACL_FORMAT_ND = 2,
  ACL_FORMAT_FRACTAL_NZ = 29,
};

// aclnn/acl_meta.h: opaque there; ours hold copies.
typedef struct aclTensor {
  hy_tensor view;  // data: the device address of element 0
  int dtype;       // the vendor's
} aclTensor;
typedef struct aclScalar {
  hy_scalar value;
} aclScalar;
enum { MAX_ARRAY = 4096, MAX_LIST = 64 };
typedef struct aclIntArray {
  uint64_t n;
  int64_t values[];
} aclIntArray;
typedef struct aclBoolArray {
  uint64_t n;
  bool values[];
} aclBoolArray;
typedef struct aclTensorList {
  uint64_t n;
  const aclTensor* tensors[MAX_LIST];  // the list owns them
} aclTensorList;
typedef struct aclOpExecutor aclOpExecutor;

// libascendcl.so, for the other two. The device that is current on this thread, or -1 with misuse
// noted under the name of the call.
VENDOR_API int ascend_device(const char* call);
VENDOR_API bool ascend_stream_fits(const char* call, const void* stream);
VENDOR_API bool ascend_has_bf16(void);

#define ENTER(name)                      \
  do {                                   \
    int injected_ = vendor_enter(#name); \
    if (injected_) return injected_;     \
  } while (0)

// A rule of the vendor's documents: broken, it is misuse and the call returns `code`.
#define DEMAND(condition, code, ...) \
  do {                               \
    if (!(condition)) {              \
      vendor_misuse(__VA_ARGS__);    \
      return code;                   \
    }                                \
  } while (0)

#endif  // HALYARD_TESTS_VENDORS_ASCEND_H_
