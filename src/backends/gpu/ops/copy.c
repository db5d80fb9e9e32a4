// Copies, conversions and fills on a GPU.
#include <stdio.h>
#include <string.h>

#include "backends/gpu/gpu.h"

enum { THREADS = 256 };

static bool aligned(const void* a, const void* b) {
  return (((uintptr_t)a | (uintptr_t)b) & 15) == 0;
}

static const char* sized(char* entry, size_t size, const char* kind, size_t bytes) {
  snprintf(entry, size, "%s_%zu", kind, bytes);
  return entry;
}

// The walk with the dimension along which x is contiguous moved next to last, where that makes of
// the copy a transposition of matrices large enough for tiles.
static bool is_transpose(hy_gpu_walk* w) {
  int last = w->ndim - 1, close = -1;
  if (w->ndim < 2 || w->stride[0][last] != 1 || w->stride[1][last] == 1 || w->shape[last] < 16)
    return false;
  for (int d = 0; d < last; d++)
    if (w->stride[1][d] == 1 && w->shape[d] >= 16) close = d;
  if (close < 0) return false;
  long long size = w->shape[close], out = w->stride[0][close], x = w->stride[1][close], batch = 1;
  for (int d = close; d < last - 1; d++) {
    w->shape[d] = w->shape[d + 1];
    w->stride[0][d] = w->stride[0][d + 1];
    w->stride[1][d] = w->stride[1][d + 1];
  }
  w->shape[last - 1] = size;
  w->stride[0][last - 1] = out;
  w->stride[1][last - 1] = x;
  for (int d = 0; d < last - 1; d++) batch *= w->shape[d];
  return batch <= 65535 && (size + 31) / 32 <= 65535;
}

static void copy_words(hy__gpu_task* task, const hy_gpu_walk* walk, size_t bytes) {
  char entry[32];
  hy_gpu_walk turned = *walk;
  if (is_transpose(&turned)) {
    int last = turned.ndim - 1;
    long long batch = turned.n / (turned.shape[last] * turned.shape[last - 1]);
    hy__gpu_dim3 grid = {(unsigned)((turned.shape[last] + 31) / 32),
                         (unsigned)((turned.shape[last - 1] + 31) / 32), (unsigned)batch};
    hy__gpu_launch(task,
                   hy__gpu_kernel(task, "copy", sized(entry, sizeof entry, "transpose", bytes), ""),
                   grid, (hy__gpu_dim3){32, 8, 1}, 0, HY__GPU_ARGS(&turned));
    return;
  }
  hy__gpu_launch(task, hy__gpu_kernel(task, "copy", sized(entry, sizeof entry, "copy", bytes), ""),
                 hy__gpu_1d(hy__gpu_blocks(task, walk->n, THREADS, 1)), hy__gpu_1d(THREADS), 0,
                 HY__GPU_ARGS((void*)walk));
}

// dst = src by way of the type `via`.
static void convert(hy__gpu_task* task, const hy_tensor* dst, const hy_tensor* src, hy_dtype via) {
  hy_gpu_walk walk = hy__gpu_walk(dst, 2, (const hy_tensor*[]){dst, src});
  if (walk.n == 0 || task->status != HY_OK) return;
  bool linear = hy__gpu_walk_is_linear(&walk);
  size_t bytes = hy_dtype_size(dst->dtype);
  if (src->dtype == dst->dtype && via == dst->dtype) {
    if (!linear) {
      copy_words(task, &walk, bytes);
    } else if (dst->data != src->data) {
      int error = task->device->api->driver.copy_on_device(
          (uintptr_t)dst->data, (uintptr_t)src->data, (size_t)walk.n * bytes, task->stream->queue);
      if (error)
        task->status = hy__gpu_fail(task->device, error, hy__backend_host->op_name(task->op));
    }
    return;
  }
  const uint32_t fast = HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_F16) | HY_DTYPE_BIT(HY_BF16);
  if (linear && via == dst->dtype && aligned(dst->data, src->data) &&
      (HY_DTYPE_BIT(dst->dtype) & fast) && (HY_DTYPE_BIT(src->dtype) & fast)) {
    char entry[32];
    snprintf(entry, sizeof entry, "convert_%s_%s", hy_dtype_name(src->dtype),
             hy_dtype_name(dst->dtype));
    hy__gpu_launch(task, hy__gpu_kernel(task, "copy", entry, ""),
                   hy__gpu_1d(hy__gpu_blocks(task, walk.n, THREADS, 8)), hy__gpu_1d(THREADS), 0,
                   HY__GPU_ARGS(&walk.data[0], &walk.data[1], &walk.n));
    return;
  }
  int by = (int)via;
  hy__gpu_launch(task, hy__gpu_kernel(task, "copy", "convert_any", ""),
                 hy__gpu_1d(hy__gpu_blocks(task, walk.n, THREADS, 1)), hy__gpu_1d(THREADS), 0,
                 HY__GPU_ARGS(&walk, &by));
}

void hy__gpu_copy(hy__gpu_task* task, const hy_tensor* dst, const hy_tensor* src) {
  convert(task, dst, src, dst->dtype);
}

static bool strided(const hy_tensor* t) {
  return t->layout == HY_LAYOUT_STRIDED && hy_dtype_size(t->dtype) > 0;
}

hy_support hy__gpu_move(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  HY__GPU_NEED(strided(x) && strided(out), NO_LAYOUT);
  if (task->stream)
    convert(task, out, x, call->op == HY_OP_cast ? call->attrs.cast.dtype : x->dtype);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_fill(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_scalar value = call->attrs.value.value;
  HY__GPU_NEED(strided(out), NO_LAYOUT);
  hy_gpu_walk walk = hy__gpu_walk(out, 1, (const hy_tensor*[]){out});
  if (!task->stream || walk.n == 0) return HY_SUPPORT_YES;
  double f = hy_scalar_f(value);
  long long i = value.kind == HY_F64 ? 0 : hy_scalar_i(value);
  int in_float = hy_dtype_is_float(out->dtype) || value.kind == HY_F64;
  long long bytes = (long long)hy_dtype_size(out->dtype), words = walk.n * bytes / 16;
  if (hy__gpu_walk_is_linear(&walk) && aligned(walk.data[0], NULL) && words > 0) {
    hy__gpu_launch(task, hy__gpu_kernel(task, "copy", "fill_linear", ""),
                   hy__gpu_1d(hy__gpu_blocks(task, words, THREADS, 1)), hy__gpu_1d(THREADS), 0,
                   HY__GPU_ARGS(&walk.data[0], &words, &walk.dtype[0], &bytes, &f, &i, &in_float));
    walk.data[0] += words * 16;
    walk.n -= words * 16 / bytes;
    walk.shape[0] = walk.n;
  }
  if (walk.n > 0)
    hy__gpu_launch(task, hy__gpu_kernel(task, "copy", "fill_any", ""),
                   hy__gpu_1d(hy__gpu_blocks(task, walk.n, THREADS, 1)), hy__gpu_1d(THREADS), 0,
                   HY__GPU_ARGS(&walk, &f, &i, &in_float));
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_arange(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_scalar start = call->attrs.arange.start, step = call->attrs.arange.step;
  HY__GPU_NEED(strided(out), NO_LAYOUT);
  hy_gpu_walk walk = hy__gpu_walk(out, 1, (const hy_tensor*[]){out});
  if (!task->stream || walk.n == 0) return HY_SUPPORT_YES;
  double start_f = hy_scalar_f(start), step_f = hy_scalar_f(step);
  long long start_i = hy_scalar_i(start), step_i = hy_scalar_i(step);
  hy__gpu_launch(task, hy__gpu_kernel(task, "copy", "arange", ""),
                 hy__gpu_1d(hy__gpu_blocks(task, walk.n, THREADS, 1)), hy__gpu_1d(THREADS), 0,
                 HY__GPU_ARGS(&walk, &start_f, &step_f, &start_i, &step_i));
  return HY_SUPPORT_YES;
}
