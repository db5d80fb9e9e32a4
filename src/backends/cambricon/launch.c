// Cambricon launches: descriptors and other handles of a call of CNNL, its workspace, and tensors
// made contiguous for it.
#include <stdarg.h>
#include <string.h>

#include "backends/cambricon/cambricon.h"

static hy__cambricon_task* own(hy__task* task) {
  return (hy__cambricon_task*)task;
}

void* hy__cambricon_handle(const hy__task* task) {
  return ((const hy__cambricon_stream*)task->stream)->handle;
}

void hy__cambricon_release(hy__task* task) {
  hy__cambricon_task* t = own(task);
  while (t->n_handles > 0) {
    t->n_handles--;
    t->handles[t->n_handles].destroy(t->handles[t->n_handles].handle);
  }
  t->workspace = NULL;
  t->workspace_bytes = 0;
}

bool hy__cambricon_done(hy__task* task, const char* name, int error) {
  if (error && task->status == HY_OK) task->status = hy__cnnl_fail(error, name);
  return task->status == HY_OK;
}

void* hy__cambricon_keep(hy__task* task, const char* name, int (*create)(void**),
                         int (*destroy)(void*)) {
  hy__cambricon_task* t = own(task);
  void* handle = NULL;
  if (!hy__task_runs(task)) return NULL;
  if (t->n_handles == HY__CAMBRICON_HANDLES) {
    task->status = hy__backend_host->fail(HY_OUT_OF_MEMORY, "cambricon: too many handles");
    return NULL;
  }
  if (!hy__cambricon_done(task, name, create(&handle))) return NULL;
  t->handles[t->n_handles].of = hy_tensor_absent();
  t->handles[t->n_handles].destroy = destroy;
  t->handles[t->n_handles++].handle = handle;
  return handle;
}

int hy__cambricon_dtype(hy_dtype dtype) {
  switch (dtype) {
    case HY_F32: return CNNL_E(CNNL_DTYPE_FLOAT);
    case HY_F16: return CNNL_E(CNNL_DTYPE_HALF);
    case HY_BF16: return CNNL_E(CNNL_DTYPE_BFLOAT16);
    case HY_I8: return CNNL_E(CNNL_DTYPE_INT8);
    case HY_I32: return CNNL_E(CNNL_DTYPE_INT32);
    case HY_I64: return CNNL_E(CNNL_DTYPE_INT64);
    case HY_U8: return CNNL_E(CNNL_DTYPE_UINT8);
    case HY_BOOL: return CNNL_E(CNNL_DTYPE_BOOL);
    default: return -1;
  }
}

static int create_descriptor(void** handle) {
  return hy__cnnl.CreateTensorDescriptor((cnnl_tensor*)handle);
}

static int destroy_descriptor(void* handle) {
  return hy__cnnl.DestroyTensorDescriptor(handle);
}

static bool same_tensor(const hy_tensor* a, const hy_tensor* b) {
  return a->dtype == b->dtype && a->ndim == b->ndim &&
         memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0 &&
         memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof a->stride[0]) == 0;
}

// A number is a vector of one there.
cnnl_tensor hy__cambricon_descriptor(hy__task* task, const hy_tensor* t) {
  hy__cambricon_task* mine = own(task);
  if (!hy__task_runs(task) || !hy__present(t)) return NULL;
  for (int i = 0; i < mine->n_handles; i++)
    if (hy__present(&mine->handles[i].of) && same_tensor(&mine->handles[i].of, t))
      return mine->handles[i].handle;
  cnnl_tensor d =
      hy__cambricon_keep(task, "cnnlCreateTensorDescriptor", create_descriptor, destroy_descriptor);
  if (!d) return NULL;
  int64_t shape[HY_MAX_DIMS] = {1}, stride[HY_MAX_DIMS] = {1};
  for (int i = 0; i < t->ndim; i++) {
    shape[i] = t->shape[i];
    stride[i] = t->shape[i] == 1 ? 1 : t->stride[i];  // of no meaning there, and perhaps negative
  }
  int error =
      hy__cnnl.SetTensorDescriptorEx_v2(d, CNNL_E(CNNL_LAYOUT_ARRAY), hy__cambricon_dtype(t->dtype),
                                        t->ndim ? t->ndim : 1, shape, stride);
  if (!hy__cambricon_done(task, "cnnlSetTensorDescriptorEx_v2", error)) return NULL;
  mine->handles[mine->n_handles - 1].of = *t;
  return d;
}

// ---- Launches ----

bool hy__cambricon_created(hy__task* task, ...) {
  if (task->status != HY_OK) hy__cambricon_release(task);
  return task->status == HY_OK;
}

// The workspace is free for the next launch at once: work on a stream is in order.
void hy__cambricon_planned(hy__task* task, const char* name, int error, size_t bytes) {
  hy__cambricon_task* t = own(task);
  t->workspace = NULL;
  t->workspace_bytes = bytes;
  if (hy__cambricon_done(task, name, error) && bytes > 0) {
    const hy__vendor* vendor = task->device->vendor;
    int failed = 0;
    t->workspace = hy__vendor_arena_lend(vendor, &task->stream->arena, bytes, &failed);
    if (failed) task->status = vendor->fail(failed, "a workspace");
  }
  if (task->status != HY_OK) hy__cambricon_release(task);
}

void hy__cambricon_launched(hy__task* task, const char* name, int error) {
  hy__cambricon_done(task, name, error);
  hy__cambricon_release(task);
}

// ---- Contiguous tensors ----

hy_tensor hy__cambricon_in(hy__task* task, const hy_tensor* t, const hy_tensor* out) {
  bool same_shape = t->ndim == out->ndim;
  for (int d = 0; same_shape && d < t->ndim; d++) same_shape = t->shape[d] == out->shape[d];
  if (same_shape) return hy__task_contiguous(task, t, t->dtype);
  hy_tensor wide = hy__task_temporary(task, t->dtype, out->ndim, out->shape);
  hy__task_copy(task, &wide, t);
  return wide;
}

hy_tensor hy__cambricon_out(hy__task* task, const hy_tensor* out) {
  if (hy_tensor_is_contiguous(out)) return hy__view(out, out->ndim, out->shape);
  return hy__task_temporary(task, out->dtype, out->ndim, out->shape);
}

void hy__cambricon_give(hy__task* task, const hy_tensor* out, const hy_tensor* from) {
  bool there = out->dtype == from->dtype && hy_tensor_is_contiguous(out) &&
               (!task->stream || out->data == from->data);
  if (!there) hy__task_copy(task, out, from);
}
