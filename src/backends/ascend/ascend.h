// Ascend backend: what its files share. CANN's libraries are bound at run time; every op is one or
// several aclnn ops, whose two phases ASCEND_RUN makes of one row of aclnn.def.
//
// Families are functions of a task (backends/common/task.h), asked first and run later: asked,
// ASCEND_RUN only sees to it that the library has the op.
//
//   hy_support hy__ascend_silu(hy__task* task, const hy_call* call) {
//     TASK_NEED(hy__is_half_or_f32(&call->in[0]), NO_DTYPE);
//     ASCEND_RUN(task, Silu, ASCEND_IN(0), ASCEND_OUT(0));
//     return task->answer;
//   }
#ifndef HALYARD_BACKENDS_ASCEND_H_
#define HALYARD_BACKENDS_ASCEND_H_

#include "backends/common/composed.h"

// ---- The library ----

typedef struct hy__acl_executor hy__acl_executor;
typedef const struct aclTensor* acl_tensor;
typedef const struct aclTensorList* acl_list;
typedef const struct aclScalar* acl_scalar;
typedef const struct aclIntArray* acl_ints;
typedef const struct aclBoolArray* acl_bools;

typedef int (*hy__aclnn_run)(void* workspace, uint64_t bytes, hy__acl_executor* executor,
                             void* stream);

typedef struct hy__acl_api {
#define HY_ACL(type, name, arguments) type(*name) arguments;
#define HY_ACL_OPTIONAL(type, name, arguments) type(*name) arguments;
#define HY_ACL_META(type, name, arguments) type(*name) arguments;
#include "backends/ascend/acl.def"
} hy__acl_api;

#define HY__BARE(...) __VA_ARGS__
typedef struct hy__aclnn_api {
#define HY_ACLNN(name, arguments)                                             \
  struct {                                                                    \
    int (*plan)(HY__BARE arguments, uint64_t* workspace, hy__acl_executor**); \
    hy__aclnn_run run;                                                        \
  } name;
#include "backends/ascend/aclnn.def"
} hy__aclnn_api;
extern hy__acl_api hy__acl;
extern hy__aclnn_api hy__aclnn;

// acl/acl_base.h and acl/acl_rt.h.
enum {
  ACL_TYPE_FLOAT = 0,
  ACL_TYPE_FLOAT16 = 1,
  ACL_TYPE_INT8 = 2,
  ACL_TYPE_INT32 = 3,
  ACL_TYPE_UINT8 = 4,
  ACL_TYPE_INT16 = 6,
  ACL_TYPE_INT64 = 9,
  ACL_TYPE_DOUBLE = 11,
  ACL_TYPE_BOOL = 12,
  ACL_TYPE_BF16 = 27,
  ACL_TYPE_INT4 = 29,
};

// Where CANN is looked for beside the system's paths.
#define HY__CANN_FOLDERS                                                             \
  "$ASCEND_HOME_PATH/lib64 $ASCEND_TOOLKIT_HOME/lib64 /usr/local/Ascend/cann/lib64 " \
  "/usr/local/Ascend/ascend-toolkit/latest/lib64"

// Loads and binds what is there; the report's stage is SYMBOLS after it.
hy_status hy__ascend_bind(hy_probe* report);
// Whether the library has every op of a list such as "Add Mul".
bool hy__ascend_has(const char* names);
// The status for an error of the vendor's, its message naming what was being done.
hy_status hy__ascend_fail(int error, const char* what);

// What a chip can do, by the name that aclrtGetSocName gives it.
typedef struct hy__ascend_chip {
  const char* prefix;
  const char* series;
  bool bf16, fp32_products, flash_attention, fractal_nz;
} hy__ascend_chip;
const hy__ascend_chip* hy__ascend_chip_of(const char* soc_name);

// ---- Devices and streams ----

typedef struct hy__ascend_device {
  hy__vendor_device base;
  const hy__ascend_chip* chip;
  void*
      float8;  // the values of e4m3 and e5m2 by their bits, f32 [2, 256]; NULL before the first use
  pthread_mutex_t mutex;  // guards float8
} hy__ascend_device;

extern const hy__vendor hy__ascend_vendor;
extern const struct hy__ccl hy__ascend_ccl;

// ---- Tasks ----

#define HY__ASCEND_HANDLES 80
typedef struct hy__ascend_task {
  hy__task base;
  struct {
    char kind;
    uint64_t content;  // a hash
    const void* handle;
  } handles[HY__ASCEND_HANDLES];  // of the launch that is being put together
  int n_handles;
} hy__ascend_task;

// One aclnn op, with its arguments in the vendor's order. They are evaluated twice: first their
// handles are created, and only where all could be, they are passed on.
#define ASCEND_RUN(task, name, ...)                                                          \
  do {                                                                                       \
    if (!hy__aclnn.name.plan || !hy__aclnn.name.run) (task)->answer = HY_SUPPORT_NO_OP;      \
    if (hy__ascend_begin(task) && hy__ascend_created(task, __VA_ARGS__)) {                   \
      uint64_t bytes_ = 0;                                                                   \
      hy__acl_executor* executor_ = NULL;                                                    \
      int error_ = hy__aclnn.name.plan(__VA_ARGS__, &bytes_, &executor_);                    \
      hy__ascend_launch(task, "aclnn" #name, error_, hy__aclnn.name.run, bytes_, executor_); \
    }                                                                                        \
  } while (0)
bool hy__ascend_begin(hy__task* task);         // false: there is nothing to run
bool hy__ascend_created(hy__task* task, ...);  // false: a handle could not be created
void hy__ascend_launch(hy__task* task, const char* name, int error, hy__aclnn_run run,
                       uint64_t workspace, hy__acl_executor* executor);

// Handles for arguments, released after the launch. NULL for an absent tensor or scalar.
acl_tensor hy__ascend_tensor(hy__task* task, const hy_tensor* t);
acl_list hy__ascend_list(hy__task* task, const hy_tensor* tensors, int n);
acl_scalar hy__ascend_scalar(hy__task* task, hy_scalar value);
acl_ints hy__ascend_ints(hy__task* task, const int64_t* values, int n);
acl_bools hy__ascend_bools(hy__task* task, const bool* values, int n);
int hy__ascend_dtype(hy_dtype dtype);  // the vendor's number; -1: none

#define ASCEND_T(t) hy__ascend_tensor(task, t)
#define ASCEND_IN(i) hy__ascend_tensor(task, &call->in[i])
#define ASCEND_OUT(i) hy__ascend_tensor(task, &call->out[i])
#define ASCEND_F(x) hy__ascend_scalar(task, hy_float(x))
#define ASCEND_I(x) hy__ascend_scalar(task, hy_int(x))
#define ASCEND_CHIP(task) (((hy__ascend_device*)(task)->device)->chip)

// ---- The provider, and the functions of the backend's table ----

#define ASCEND_OP(op, family, dtypes, names) \
  hy_support hy__##family(hy__task* task, const hy_call* call);
#include "backends/ascend/ops.def"

extern hy_provider hy__ascend_provider;
// Whether weights of linear layers are best packed in Ascend's own format, as a device's properties
// then say.
bool hy__ascend_packs_weights(const hy__ascend_chip* chip);
// Declares what this library and this chip can do.
void hy__ascend_declare(const hy__ascend_chip* chip);

hy_status hy__ascend_device_open(int index, void** device);
void hy__ascend_device_close(void* device);
hy_status hy__ascend_stream_create(void* device, void** stream);
void hy__ascend_stream_destroy(void* device, void* stream);

#endif  // HALYARD_BACKENDS_ASCEND_H_
