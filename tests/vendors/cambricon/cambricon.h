// Test library for Cambricon: what its two parts share. The declarations are this library's own;
// no backend includes this file.
#ifndef HALYARD_TESTS_VENDORS_CAMBRICON_H_
#define HALYARD_TESTS_VENDORS_CAMBRICON_H_

#include "cnnl_enums.h"
#include "halyard/call.h"
#include "vendor.h"

// cnrtRet_t, from CNRT's guide and torch_mlu's caching_allocator.cpp.
enum {
  cnrtSuccess = 0,
  cnrtErrorNotReady = 1,
  cnrtErrorNoDevice = 100004,
  cnrtErrorDeviceInvalid = 100005,
  cnrtErrorArgsInvalid = 100006,
  cnrtErrorNoMem = 100100,
};

// cnnlStatus_t, from cnnl-example/cnnl_core.h.
enum {
  CNNL_STATUS_SUCCESS = 0,
  CNNL_STATUS_NOT_INITIALIZED = 1,
  CNNL_STATUS_ALLOC_FAILED = 2,
  CNNL_STATUS_BAD_PARAM = 3,
  CNNL_STATUS_EXECUTION_FAILED = 6,
};

// libcnrt.so, for the other. The device that is current on this thread, or -1 with misuse noted
// under the name of the call; whether the queue is one and that device's.
VENDOR_API int cambricon_device(const char* call);
VENDOR_API bool cambricon_queue_fits(const char* call, const void* queue);
VENDOR_API bool cambricon_has_bf16(void);

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

#endif  // HALYARD_TESTS_VENDORS_CAMBRICON_H_
