// Convolution and its gradients by implicit GEMM, over contiguous images.
#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/held.h"

#define TILE 64

static hy_conv describe(const hy_call* call, const hy_tensor* x, const hy_tensor* weight,
                        const hy_tensor* y) {
  const hy_attrs_conv* a = &call->attrs.conv;
  int n = x->ndim;
  hy_conv c = {.images = n == 4 ? (int)x->shape[0] : 1, .groups = (int)a->groups};
  c.in_channels = (int)x->shape[n - 3];
  c.out_channels = (int)weight->shape[0];
  c.group_in = c.in_channels / c.groups;
  c.group_out = c.out_channels / c.groups;
  c.h = (int)x->shape[n - 2];
  c.w = (int)x->shape[n - 1];
  c.out_h = (int)y->shape[n - 2];
  c.out_w = (int)y->shape[n - 1];
  c.kernel_h = (int)weight->shape[2];
  c.kernel_w = (int)weight->shape[3];
  c.stride_h = (int)a->stride.h;
  c.stride_w = (int)a->stride.w;
  c.padding_h = (int)a->padding.h;
  c.padding_w = (int)a->padding.w;
  c.dilation_h = (int)a->dilation.h;
  c.dilation_w = (int)a->dilation.w;
  return c;
}

// Kernels count pixels, taps and padded places in an int, and groups in the grid's z.
static bool fits(const hy_call* call, const hy_tensor* x, const hy_tensor* weight,
                 const hy_tensor* y) {
  const hy_attrs_conv* a = &call->attrs.conv;
  const int64_t most = 1 << 30;
  int n = x->ndim;
  int64_t reach_h = x->shape[n - 2] + 2 * a->padding.h + a->dilation.h * weight->shape[2];
  int64_t reach_w = x->shape[n - 1] + 2 * a->padding.w + a->dilation.w * weight->shape[3];
  return hy_tensor_numel(x) < most * 2 && hy_tensor_numel(y) < most * 2 &&
         hy_tensor_numel(weight) < most && reach_h < most && reach_w < most && a->groups <= 65535;
}

static hy__gpu_function* kernel_of(hy__gpu_task* task, const char* entry, hy_dtype dtype) {
  return hy__gpu_kernel(task, "conv", entry, hy__gpu_option(dtype));
}

hy_support hy__gpu_conv2d(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  HY__GPU_NEED(fits(call, &call->in[0], &call->in[1], out), NO_SHAPE);
  if (!task->stream || hy_tensor_numel(out) == 0) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor weight = hy__gpu_contiguous(task, &call->in[1]), held = hy__gpu_held(task, out), bias;
  hy_conv c = describe(call, &x, &weight, out);
  c.x = x.data;
  c.weight = weight.data;
  c.out = held.data;
  if (hy__gpu_present(&call->in[2])) {
    bias = hy__gpu_contiguous(task, &call->in[2]);
    c.bias = bias.data;
  }
  int64_t pixels = (int64_t)c.images * c.out_h * c.out_w;
  hy__gpu_launch(task, kernel_of(task, "conv_forward", x.dtype),
                 (hy__gpu_dim3){hy__gpu_tiles(pixels, TILE), hy__gpu_tiles(c.group_out, TILE),
                                (unsigned)c.groups},
                 (hy__gpu_dim3){256, 1, 1}, 0, HY__GPU_ARGS(&c));
  hy__gpu_finish(task, out, &held);
  return HY_SUPPORT_YES;
}

// dweight, its long sum over pixels split until the device is full.
static void backward_weight(hy__gpu_task* task, hy_conv* c, hy_dtype dtype) {
  int64_t columns = (int64_t)c->group_in * c->kernel_h * c->kernel_w;
  int64_t depth = (int64_t)c->images * c->out_h * c->out_w;
  int64_t blocks =
      (int64_t)hy__gpu_tiles(c->group_out, TILE) * hy__gpu_tiles(columns, TILE) * c->groups;
  int64_t wanted = 2 * (int64_t)task->device->multiprocessors / (blocks > 0 ? blocks : 1);
  int64_t most = depth / 512 < 65535 / c->groups ? depth / 512 : 65535 / c->groups;
  c->splits = (int)(wanted > most ? most : wanted);
  if (c->splits < 1) c->splits = 1;
  size_t size = dtype == HY_F64 ? 8 : 4;
  int64_t n = c->out_channels * columns;
  c->partial = (void*)(uintptr_t)hy__gpu_workspace(task, (size_t)c->splits * (size_t)n * size);
  hy__gpu_launch(task, kernel_of(task, "conv_backward_weight", dtype),
                 (hy__gpu_dim3){hy__gpu_tiles(c->group_out, TILE), hy__gpu_tiles(columns, TILE),
                                (unsigned)(c->groups * c->splits)},
                 (hy__gpu_dim3){256, 1, 1}, 0, HY__GPU_ARGS(c));
  hy__gpu_launch(task, kernel_of(task, "conv_weight_sum", dtype),
                 (hy__gpu_dim3){hy__gpu_blocks(task, n, 256, 1), 1, 1}, (hy__gpu_dim3){256, 1, 1},
                 0, HY__GPU_ARGS(c));
}

hy_support hy__gpu_conv2d_backward(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *dx = &call->out[0], *dweight = &call->out[1], *dbias = &call->out[2];
  HY__GPU_NEED(fits(call, &call->in[1], &call->in[2], &call->in[0]), NO_SHAPE);
  if (!task->stream) return HY_SUPPORT_YES;
  hy_tensor dy = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor x = hy__gpu_contiguous(task, &call->in[1]);
  hy_tensor weight = hy__gpu_contiguous(task, &call->in[2]);
  hy_tensor held_x = hy__gpu_held(task, dx), held_weight = hy__gpu_held(task, dweight);
  hy_tensor held_bias = hy__gpu_held(task, dbias);
  hy_conv c = describe(call, &x, &weight, &dy);
  c.dy = dy.data;
  c.x = x.data;
  c.weight = weight.data;
  c.dx = held_x.data;
  c.dweight = held_weight.data;
  c.dbias = held_bias.data;
  if (hy__gpu_present(dx) && hy_tensor_numel(dx) > 0) {
    int64_t pixels = (int64_t)c.images * c.h * c.w;
    hy__gpu_launch(task, kernel_of(task, "conv_backward_input", dy.dtype),
                   (hy__gpu_dim3){hy__gpu_tiles(pixels, TILE), hy__gpu_tiles(c.group_in, TILE),
                                  (unsigned)c.groups},
                   (hy__gpu_dim3){256, 1, 1}, 0, HY__GPU_ARGS(&c));
    hy__gpu_finish(task, dx, &held_x);
  }
  if (hy__gpu_present(dweight) && hy_tensor_numel(dweight) > 0) {
    backward_weight(task, &c, dy.dtype);
    hy__gpu_finish(task, dweight, &held_weight);
  }
  if (hy__gpu_present(dbias)) {
    hy__gpu_launch(task, kernel_of(task, "conv_backward_bias", dy.dtype),
                   (hy__gpu_dim3){(unsigned)c.out_channels, 1, 1}, (hy__gpu_dim3){256, 1, 1}, 0,
                   HY__GPU_ARGS(&c));
    hy__gpu_finish(task, dbias, &held_bias);
  }
  return HY_SUPPORT_YES;
}
