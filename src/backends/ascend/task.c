// Ascend tasks: handles for the arguments of an aclnn op, and its two phases.
#include <stdarg.h>
#include <string.h>

#include "backends/ascend/ascend.h"

enum { FORMAT_ND = 2, FORMAT_FRACTAL_NZ = 29 };  // aclFormat

static hy__ascend_task* own(const hy__task* task) {
  return (hy__ascend_task*)task;
}

// ---- Handles ----

static void fail(hy__task* task, int error, const char* what) {
  if (task->status == HY_OK) task->status = hy__ascend_fail(error, what);
}

static uint64_t hash(char kind, const void* bytes, size_t n) {
  uint64_t h = 0xcbf29ce484222325ull ^ (unsigned char)kind;
  for (size_t i = 0; i < n; i++) h = (h ^ ((const unsigned char*)bytes)[i]) * 0x100000001b3ull;
  return h;
}

static const void* find(const hy__task* task, char kind, uint64_t content) {
  const hy__ascend_task* t = own(task);
  for (int i = 0; i < t->n_handles; i++)
    if (t->handles[i].kind == kind && t->handles[i].content == content) return t->handles[i].handle;
  return NULL;
}

// Keeps a handle until the launch is over. NULL: it could not be created.
static const void* keep(hy__task* task, char kind, uint64_t content, const void* handle) {
  hy__ascend_task* t = own(task);
  if (!handle || t->n_handles == HY__ASCEND_HANDLES) {
    if (task->status == HY_OK)
      task->status =
          hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: %s: no handle for an argument",
                                 hy__backend_host->op_name(task->op));
    return NULL;
  }
  t->handles[t->n_handles].kind = kind;
  t->handles[t->n_handles].content = content;
  t->handles[t->n_handles++].handle = handle;
  return handle;
}

static void release(hy__task* task) {
  hy__ascend_task* t = own(task);
  for (int i = t->n_handles - 1; i >= 0; i--) {
    const void* handle = t->handles[i].handle;
    switch (t->handles[i].kind) {
      case 'T': hy__acl.aclDestroyTensor(handle); break;
      case 'L': hy__acl.aclDestroyTensorList(handle); break;
      case 'S': hy__acl.aclDestroyScalar(handle); break;
      case 'I': hy__acl.aclDestroyIntArray(handle); break;
      default: hy__acl.aclDestroyBoolArray(handle); break;
    }
  }
  t->n_handles = 0;
}

int hy__ascend_dtype(hy_dtype dtype) {
  switch (dtype) {
    case HY_F32: return ACL_TYPE_FLOAT;
    case HY_F16: return ACL_TYPE_FLOAT16;
    case HY_BF16: return ACL_TYPE_BF16;
    case HY_I8: return ACL_TYPE_INT8;
    case HY_I16: return ACL_TYPE_INT16;
    case HY_I32: return ACL_TYPE_INT32;
    case HY_I64: return ACL_TYPE_INT64;
    case HY_U8: return ACL_TYPE_UINT8;
    case HY_BOOL: return ACL_TYPE_BOOL;
    case HY_I4: return ACL_TYPE_INT4;
    default: return -1;
  }
}

// [N, K], or with its strides in each other's place [K, N], in the storage of [N, K].
static const void* create_fractal_nz(const hy_tensor* t) {
  enum { BLOCK = 16 };
  int k = t->stride[1] == 1 ? 1 : 0;
  const int64_t storage[4] = {t->shape[k] / BLOCK, t->shape[1 - k] / BLOCK, BLOCK, BLOCK};
  return hy__acl.aclCreateTensor(t->shape, 2, hy__ascend_dtype(t->dtype), t->stride, 0,
                                 FORMAT_FRACTAL_NZ, storage, 4, t->data);
}

// Element 0 is where the storage begins: strides that matter are never negative here.
static const void* create_tensor(const hy_tensor* t) {
  if (t->layout == HY_LAYOUT_FRACTAL_NZ) return create_fractal_nz(t);
  int64_t storage = 1, stride[HY_MAX_DIMS];
  bool empty = hy_tensor_numel(t) == 0;
  for (int d = 0; d < t->ndim; d++) {
    stride[d] = empty || t->shape[d] == 1 ? 1 : t->stride[d];
    storage += (t->shape[d] - 1) * stride[d];
  }
  if (empty) storage = 0;
  return hy__acl.aclCreateTensor(t->shape, (uint64_t)t->ndim, hy__ascend_dtype(t->dtype), stride, 0,
                                 FORMAT_ND, &storage, 1, t->data);
}

acl_tensor hy__ascend_tensor(hy__task* task, const hy_tensor* t) {
  if (!hy__task_runs(task) || t->dtype == HY_NONE) return NULL;
  uint64_t content = hash('T', t, sizeof *t);
  const void* found = find(task, 'T', content);
  return found ? found : keep(task, 'T', content, create_tensor(t));
}

acl_list hy__ascend_list(hy__task* task, const hy_tensor* tensors, int n) {
  if (!hy__task_runs(task)) return NULL;
  uint64_t content = hash('L', tensors, (size_t)n * sizeof *tensors);
  const void* found = find(task, 'L', content);
  if (found) return found;
  const struct aclTensor* members[HY_MAX_INPUTS] = {NULL};
  int made = 0;
  while (made < n && (members[made] = create_tensor(&tensors[made]))) made++;
  const void* list = made == n ? hy__acl.aclCreateTensorList(members, (uint64_t)n) : NULL;
  // A list owns its tensors; without one they are still ours.
  while (!list && made > 0) hy__acl.aclDestroyTensor(members[--made]);
  return keep(task, 'L', content, list);
}

acl_scalar hy__ascend_scalar(hy__task* task, hy_scalar value) {
  if (!hy__task_runs(task) || value.kind == HY_NONE) return NULL;
  uint64_t content = hash('S', &value, sizeof value);
  const void* found = find(task, 'S', content);
  if (found) return found;
  bool truth = value.as.i != 0;
  int dtype = value.kind == HY_F64   ? ACL_TYPE_DOUBLE
              : value.kind == HY_I64 ? ACL_TYPE_INT64
                                     : ACL_TYPE_BOOL;
  void* at = value.kind == HY_BOOL ? (void*)&truth : (void*)&value.as;
  return keep(task, 'S', content, hy__acl.aclCreateScalar(at, dtype));
}

acl_ints hy__ascend_ints(hy__task* task, const int64_t* values, int n) {
  if (!hy__task_runs(task)) return NULL;
  uint64_t content = hash('I', values, (size_t)n * sizeof *values) + (uint64_t)n;
  const void* found = find(task, 'I', content);
  return found ? found : keep(task, 'I', content, hy__acl.aclCreateIntArray(values, (uint64_t)n));
}

acl_bools hy__ascend_bools(hy__task* task, const bool* values, int n) {
  if (!hy__task_runs(task)) return NULL;
  uint64_t content = hash('B', values, (size_t)n * sizeof *values) + (uint64_t)n;
  const void* found = find(task, 'B', content);
  return found ? found : keep(task, 'B', content, hy__acl.aclCreateBoolArray(values, (uint64_t)n));
}

// ---- Launches ----

bool hy__ascend_begin(hy__task* task) {
  return hy__task_runs(task);
}

bool hy__ascend_created(hy__task* task, ...) {
  if (task->status != HY_OK) release(task);
  return task->status == HY_OK;
}

// The workspace is free for the next launch at once: work on a stream is in order.
void hy__ascend_launch(hy__task* task, const char* name, int error, hy__aclnn_run run,
                       uint64_t workspace, hy__acl_executor* executor) {
  void* memory = NULL;
  if (!error && workspace)
    memory = hy__vendor_arena_lend(task->device->vendor, &task->stream->arena, workspace, &error);
  if (!error) error = run(memory, workspace, executor, task->stream->queue);
  if (error) fail(task, error, name);
  release(task);
}
