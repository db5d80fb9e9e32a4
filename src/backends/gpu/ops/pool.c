// Pooling: max_pool2d, avg_pool2d and their gradients, over contiguous planes.
#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/held.h"

static void set_planes(hy_pool* p, const hy_tensor* x, const hy_tensor* y) {
  int n = x->ndim;
  p->planes = 1;
  for (int d = 0; d < n - 2; d++) p->planes *= x->shape[d];
  p->h = (int)x->shape[n - 2];
  p->w = (int)x->shape[n - 1];
  p->out_h = (int)y->shape[n - 2];
  p->out_w = (int)y->shape[n - 1];
}

static hy_pool max_window(const hy_call* call, const hy_tensor* x, const hy_tensor* y) {
  const hy_attrs_max_pool* a = &call->attrs.max_pool;
  hy_pool p = {.kernel_h = (int)a->kernel.h, .kernel_w = (int)a->kernel.w};
  p.stride_h = (int)a->stride.h;
  p.stride_w = (int)a->stride.w;
  p.padding_h = (int)a->padding.h;
  p.padding_w = (int)a->padding.w;
  p.dilation_h = (int)a->dilation.h;
  p.dilation_w = (int)a->dilation.w;
  set_planes(&p, x, y);
  return p;
}

static hy_pool avg_window(const hy_call* call, const hy_tensor* x, const hy_tensor* y) {
  const hy_attrs_avg_pool* a = &call->attrs.avg_pool;
  hy_pool p = {.kernel_h = (int)a->kernel.h, .kernel_w = (int)a->kernel.w};
  p.stride_h = (int)a->stride.h;
  p.stride_w = (int)a->stride.w;
  p.padding_h = (int)a->padding.h;
  p.padding_w = (int)a->padding.w;
  p.count_padding = a->count_padding;
  p.divisor = a->divisor;
  set_planes(&p, x, y);
  return p;
}

// Kernels count places of a plane, padding included, in an int.
static bool small_planes(const hy_tensor* x) {
  int64_t h = x->shape[x->ndim - 2], w = x->shape[x->ndim - 1];
  return h < 1 << 28 && w < 1 << 28;
}

static void launch(hy__gpu_task* task, const char* entry, hy_dtype dtype, int64_t n, hy_pool* p) {
  hy__gpu_function* kernel = hy__gpu_kernel(task, "pool", entry, hy__gpu_option(dtype));
  hy__gpu_launch(task, kernel, (hy__gpu_dim3){hy__gpu_blocks(task, n, 256, 1), 1, 1},
                 (hy__gpu_dim3){256, 1, 1}, 0, HY__GPU_ARGS(p));
}

hy_support hy__gpu_max_pool2d(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *out = &call->out[0], *index = &call->out[1];
  HY__GPU_NEED(small_planes(&call->in[0]), NO_SHAPE);
  int64_t n = hy_tensor_numel(out);
  if (!task->stream || n == 0) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor y = hy__gpu_held(task, out), places = hy__gpu_held(task, index);
  hy_pool p = max_window(call, &x, &y);
  p.x = x.data;
  p.out = y.data;
  p.index = hy__gpu_present(index) ? places.data : NULL;
  launch(task, "max_pool", x.dtype, n, &p);
  hy__gpu_finish(task, out, &y);
  hy__gpu_finish(task, index, &places);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_max_pool2d_backward(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* dx = &call->out[0];
  HY__GPU_NEED(small_planes(dx), NO_SHAPE);
  int64_t n = hy_tensor_numel(dx), n_out = hy_tensor_numel(&call->in[0]);
  if (!task->stream || n == 0) return HY_SUPPORT_YES;
  hy_tensor dy = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor index = hy__gpu_contiguous(task, &call->in[1]), held = hy__gpu_held(task, dx);
  hy_pool p = max_window(call, dx, &dy);
  p.dy = dy.data;
  p.index_in = index.data;
  p.dx = held.data;
  hy__gpu_function* check =
      hy__gpu_kernel(task, "pool", "max_pool_check", hy__gpu_option(dx->dtype));
  int op = call->op;
  hy__gpu_launch(task, check, (hy__gpu_dim3){hy__gpu_blocks(task, n_out, 256, 1), 1, 1},
                 (hy__gpu_dim3){256, 1, 1}, 0,
                 HY__GPU_ARGS(&p, &task->stream->use.faults->address, &op));
  launch(task, "max_pool_backward", dx->dtype, n, &p);
  hy__gpu_finish(task, dx, &held);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_avg_pool2d(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  HY__GPU_NEED(small_planes(&call->in[0]), NO_SHAPE);
  int64_t n = hy_tensor_numel(out);
  if (!task->stream || n == 0) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, &call->in[0]), y = hy__gpu_held(task, out);
  hy_pool p = avg_window(call, &x, &y);
  p.x = x.data;
  p.out = y.data;
  launch(task, "avg_pool", x.dtype, n, &p);
  hy__gpu_finish(task, out, &y);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_avg_pool2d_backward(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* dx = &call->out[0];
  HY__GPU_NEED(small_planes(dx), NO_SHAPE);
  int64_t n = hy_tensor_numel(dx);
  if (!task->stream || n == 0) return HY_SUPPORT_YES;
  hy_tensor dy = hy__gpu_contiguous(task, &call->in[0]), held = hy__gpu_held(task, dx);
  hy_pool p = avg_window(call, dx, &dy);
  p.dy = dy.data;
  p.dx = held.data;
  launch(task, "avg_pool_backward", dx->dtype, n, &p);
  hy__gpu_finish(task, dx, &held);
  return HY_SUPPORT_YES;
}
