// Cambricon backend: what its files share. CNRT and CNNL are bound at run time; every op is one or
// several calls of CNNL, with descriptors for their tensors and a workspace where they ask for one.
//
// Families are functions of a task (backends/common/task.h), asked first and run later:
//
//   hy_support hy__cambricon_abs(hy__task* task, const hy_call* call) {
//     TASK_NEED(hy__is_half_or_f32(&call->in[0]), NO_DTYPE);
//     hy_tensor x = hy__cambricon_in(task, &call->in[0], &call->out[0]), y = CNNL_OUT(0);
//     CNNL_RUN(task, Abs, CNNL_T(&x), CNNL_T(&y));
//     CNNL_GIVE(0, y);
//     return task->answer;
//   }
//
// CNNL's own header is not public. Names and orders of arguments come from its callers (cnnl.def),
// values of enumerators from public mirrors or, where there are none, from the header of the
// release that is installed (enumerators.def).
#ifndef HALYARD_BACKENDS_CAMBRICON_H_
#define HALYARD_BACKENDS_CAMBRICON_H_

#include "backends/common/composed.h"

// ---- The libraries ----

typedef struct cnnlTensorStruct* cnnl_tensor;

#define HY__BARE(...) __VA_ARGS__
typedef struct hy__cnrt_api {
#define HY_CNRT(type, name, arguments) type(*name) arguments;
#define HY_CNRT_OPTIONAL(type, name, arguments) type(*name) arguments;
#include "backends/cambricon/cnrt.def"
} hy__cnrt_api;
typedef struct hy__cnnl_api {
#define HY_CNNL_CORE(name, arguments) int(*name) arguments;
#define HY_CNNL(name, arguments) int (*name)(void* handle, HY__BARE arguments);
#include "backends/cambricon/cnnl.def"
} hy__cnnl_api;
extern hy__cnrt_api hy__cnrt;
extern hy__cnnl_api hy__cnnl;

enum { CNNL_UNKNOWN = -1 };
typedef struct hy__cnnl_enumerators {
#define CNNL_ENUM(name, value) int name;
#define CNNL_ENUM_UNKNOWN(name) int name;
#include "backends/cambricon/enumerators.def"
} hy__cnnl_enumerators;
extern hy__cnnl_enumerators hy__cnnl_enum;

// Where Neuware is looked for beside the system's paths.
#define HY__NEUWARE_FOLDERS "$NEUWARE_HOME/lib64 $NEUWARE_HOME/lib /usr/local/neuware/lib64"

// Loads and binds what is there; the report's stage is SYMBOLS after it.
hy_status hy__cambricon_bind(hy_probe* report);
// Whether there is every function and enumerator of a list such as "OpTensor SOFTMAX_LOG".
bool hy__cambricon_has(const char* names);
// The status for an error of CNRT's or CNNL's, its message naming what was being done.
hy_status hy__cnrt_fail(int error, const char* what);
hy_status hy__cnnl_fail(int error, const char* what);
// Enumerators of a C header: sets those that it finds.
hy_status hy__cambricon_read_header(const char* path);

// ---- Devices, streams and tasks ----

typedef struct hy__cambricon_device {
  hy__vendor_device base;
  bool bf16;
} hy__cambricon_device;

typedef struct hy__cambricon_stream {
  hy__vendor_stream base;
  void* handle;  // CNNL's, with the stream's queue set
} hy__cambricon_stream;

extern const hy__vendor hy__cambricon_vendor;
extern const struct hy__ccl hy__cambricon_ccl;

// Handles of the launch that is being put together, destroyed after it.
#define HY__CAMBRICON_HANDLES 80
typedef struct hy__cambricon_task {
  hy__task base;
  struct {
    int (*destroy)(void*);
    void* handle;
    hy_tensor of;  // a tensor's descriptor is made once
  } handles[HY__CAMBRICON_HANDLES];
  int n_handles;
  void* workspace;
  size_t workspace_bytes;
} hy__cambricon_task;

// ---- Launches ----

// Asks for a workspace: CNNL_PLAN(task, GetDivWorkspaceSize, CNNL_D(&a), ...), the size left out.
#define CNNL_PLAN(task, name, ...)                                                  \
  do {                                                                              \
    if (!hy__cnnl.name) (task)->answer = HY_SUPPORT_NO_OP;                          \
    if (hy__task_runs(task) && hy__cambricon_created(task, __VA_ARGS__)) {          \
      size_t bytes_ = 0;                                                            \
      int error_ = hy__cnnl.name(hy__cambricon_handle(task), __VA_ARGS__, &bytes_); \
      hy__cambricon_planned(task, "cnnl" #name, error_, bytes_);                    \
    }                                                                               \
  } while (0)
// One function of CNNL, the handle left out. Arguments are evaluated twice: first their descriptors
// are created, and only where all could be, they are passed on.
#define CNNL_RUN(task, name, ...)                                          \
  do {                                                                     \
    if (!hy__cnnl.name) (task)->answer = HY_SUPPORT_NO_OP;                 \
    if (hy__task_runs(task) && hy__cambricon_created(task, __VA_ARGS__)) { \
      int error_ = hy__cnnl.name(hy__cambricon_handle(task), __VA_ARGS__); \
      hy__cambricon_launched(task, "cnnl" #name, error_);                  \
    }                                                                      \
  } while (0)
#define CNNL_WORKSPACE \
  ((hy__cambricon_task*)task)->workspace, ((hy__cambricon_task*)task)->workspace_bytes
#define CNNL_D(t) hy__cambricon_descriptor(task, t)
#define CNNL_T(t) hy__cambricon_descriptor(task, t), (t)->data
#define CNNL_IN(i) hy__cambricon_in(task, &call->in[i], &call->out[0])
#define CNNL_OUT(i) hy__cambricon_out(task, &call->out[i])
#define CNNL_GIVE(i, t) hy__cambricon_give(task, &call->out[i], &(t))
// The family stops where an enumerator's value is not known.
#define CNNL_KNOWN(name) TASK_NEED(hy__cnnl_enum.name != CNNL_UNKNOWN, NO_OP)
#define CNNL_E(name) hy__cnnl_enum.name

void* hy__cambricon_handle(const hy__task* task);
void hy__cambricon_release(hy__task* task);  // what a failure has left
bool hy__cambricon_created(hy__task* task, ...);
void hy__cambricon_planned(hy__task* task, const char* name, int error, size_t bytes);
void hy__cambricon_launched(hy__task* task, const char* name, int error);
cnnl_tensor hy__cambricon_descriptor(hy__task* task, const hy_tensor* t);  // NULL for an absent one
// Keeps a handle that `create` makes until the launch is over; NULL where it could not.
void* hy__cambricon_keep(hy__task* task, const char* name, int (*create)(void**),
                         int (*destroy)(void*));
// A function of CNNL that is no launch: its failure is the task's.
bool hy__cambricon_done(hy__task* task, const char* name, int error);

int hy__cambricon_dtype(hy_dtype dtype);  // CNNL's number; -1: none
// A contiguous tensor of the shape of `out`, to which t broadcasts.
hy_tensor hy__cambricon_in(hy__task* task, const hy_tensor* t, const hy_tensor* out);
// A contiguous tensor to write, which is `out` where that is contiguous, and is given to it after.
hy_tensor hy__cambricon_out(hy__task* task, const hy_tensor* out);
void hy__cambricon_give(hy__task* task, const hy_tensor* out, const hy_tensor* from);

// ---- The provider ----

#define CAMBRICON_OP(op, family, dtypes, names) \
  hy_support hy__##family(hy__task* task, const hy_call* call);
#include "backends/cambricon/ops.def"

extern hy_provider hy__cambricon_provider;
void hy__cambricon_declare(bool bf16);

#endif  // HALYARD_BACKENDS_CAMBRICON_H_
