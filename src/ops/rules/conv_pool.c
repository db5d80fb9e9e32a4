// Shapes and types of convolution and pooling, over [C, H, W] or [N, C, H, W].
#include "ops/rules/common.h"

#define PAIR(p) (long long)(p).h, (long long)(p).w

static hy_status check_image(const hy_call* call, int i) {
  int ndim = call->in[i].ndim;
  if (ndim == 3 || ndim == 4) return HY_OK;
  return hy__call_fail(call, HY_SHAPE, "%s has %d dimensions; it must be [C, H, W] or [N, C, H, W]",
                       hy__input_name(call, i), ndim);
}

// The bound keeps every size computed from these within 64 bits.
static hy_status check_pair(const hy_call* call, const char* name, hy_pair pair, int64_t least) {
  if (pair.h >= least && pair.w >= least && pair.h <= INT32_MAX && pair.w <= INT32_MAX)
    return HY_OK;
  return hy__call_fail(call, HY_INVALID_ARGUMENT, "%s (%lld, %lld) must be between %lld and %d",
                       name, PAIR(pair), (long long)least, INT32_MAX);
}

typedef struct window {
  hy_pair kernel, stride, padding, dilation;
  bool ceil_mode;
} window;

static hy_status check_window(const hy_call* call, const window* w) {
  HY_TRY(check_pair(call, "kernel", w->kernel, 1));
  HY_TRY(check_pair(call, "stride", w->stride, 1));
  HY_TRY(check_pair(call, "padding", w->padding, 0));
  return check_pair(call, "dilation", w->dilation, 1);
}

static int64_t windows_along(int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                             int64_t dilation, bool ceil_mode) {
  int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0) return 0;
  int64_t n = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  // No window may begin in the padding on the right.
  if (ceil_mode && (n - 1) * stride >= size + padding) n--;
  return n;
}

// The output of windows over x, with `channels` of them.
static hy_status slide(const hy_call* call, const hy_tensor* x, int64_t channels, const window* w,
                       hy_tensor* out) {
  int n = x->ndim;
  hy__copy_shape(out, x);
  out->shape[n - 3] = channels;
  out->shape[n - 2] = windows_along(x->shape[n - 2], w->kernel.h, w->stride.h, w->padding.h,
                                    w->dilation.h, w->ceil_mode);
  out->shape[n - 1] = windows_along(x->shape[n - 1], w->kernel.w, w->stride.w, w->padding.w,
                                    w->dilation.w, w->ceil_mode);
  if (x->shape[n - 2] > 0 && x->shape[n - 1] > 0 && out->shape[n - 2] > 0 && out->shape[n - 1] > 0)
    return HY_OK;
  return hy__call_fail(call, HY_SHAPE,
                       "a kernel of (%lld, %lld) does not fit into the padded input",
                       PAIR(w->kernel));
}

// ---- convolution ----

static hy_status conv_output(const hy_call* call, int x_at, hy_tensor* out) {
  const hy_tensor *x = &call->in[x_at], *weight = &call->in[x_at + 1];
  hy_attrs_conv a = call->attrs.conv;
  HY_TRY(check_image(call, x_at));
  HY_TRY(hy__need_ndim(call, x_at + 1, 4));
  int64_t in = x->shape[x->ndim - 3], channels = weight->shape[0];
  if (a.groups < 1 || in % a.groups != 0 || channels < 1 || channels % a.groups != 0)
    return hy__call_fail(call, HY_SHAPE,
                         "%lld groups do not divide %lld input and %lld output channels",
                         (long long)a.groups, (long long)in, (long long)channels);
  if (weight->shape[1] != in / a.groups)
    return hy__call_fail(call, HY_SHAPE, "the weight takes %lld channels of each group, not %lld",
                         (long long)(in / a.groups), (long long)weight->shape[1]);
  window w = {{weight->shape[2], weight->shape[3]}, a.stride, a.padding, a.dilation, false};
  HY_TRY(check_window(call, &w));
  return slide(call, x, channels, &w, out);
}

hy_status hy__shape_conv2d(const hy_call* call, hy_tensor* out) {
  HY_TRY(conv_output(call, 0, out));
  return hy__need_shape(call, 2, 1, call->in[1].shape);
}

hy_status hy__shape_conv2d_backward(const hy_call* call, hy_tensor* out) {
  hy_tensor forward;
  HY_TRY(conv_output(call, 1, &forward));
  HY_TRY(hy__need_shape(call, 0, forward.ndim, forward.shape));
  hy__copy_shape(&out[0], &call->in[1]);
  hy__copy_shape(&out[1], &call->in[2]);
  out[2].ndim = 1;
  out[2].shape[0] = call->in[2].shape[0];
  return HY_OK;
}

// ---- pooling ----

static hy_status pool_output(const hy_call* call, int x_at, const window* w, hy_tensor* out) {
  const hy_tensor* x = &call->in[x_at];
  HY_TRY(check_image(call, x_at));
  HY_TRY(check_window(call, w));
  int64_t reach_h = w->dilation.h * (w->kernel.h - 1) + 1;
  int64_t reach_w = w->dilation.w * (w->kernel.w - 1) + 1;
  if (w->padding.h > reach_h / 2 || w->padding.w > reach_w / 2)
    return hy__call_fail(call, HY_INVALID_ARGUMENT,
                         "the padding (%lld, %lld) is more than half of the kernel (%lld, %lld)",
                         PAIR(w->padding), (long long)reach_h, (long long)reach_w);
  return slide(call, x, x->shape[x->ndim - 3], w, out);
}

static window max_window(const hy_call* call) {
  hy_attrs_max_pool a = call->attrs.max_pool;
  return (window){a.kernel, a.stride, a.padding, a.dilation, a.ceil_mode};
}

static window avg_window(const hy_call* call) {
  hy_attrs_avg_pool a = call->attrs.avg_pool;
  return (window){a.kernel, a.stride, a.padding, {1, 1}, a.ceil_mode};
}

hy_status hy__shape_max_pool2d(const hy_call* call, hy_tensor* out) {
  window w = max_window(call);
  HY_TRY(pool_output(call, 0, &w, &out[0]));
  hy__copy_shape(&out[1], &out[0]);
  return HY_OK;
}

hy_status hy__shape_max_pool2d_backward(const hy_call* call, hy_tensor* out) {
  window w = max_window(call);
  hy_tensor forward;
  HY_TRY(pool_output(call, 2, &w, &forward));
  HY_TRY(hy__need_shape(call, 0, forward.ndim, forward.shape));
  HY_TRY(hy__need_shape(call, 1, forward.ndim, forward.shape));
  hy__copy_shape(out, &call->in[2]);
  return HY_OK;
}

hy_status hy__shape_avg_pool2d(const hy_call* call, hy_tensor* out) {
  window w = avg_window(call);
  return pool_output(call, 0, &w, out);
}

hy_status hy__shape_avg_pool2d_backward(const hy_call* call, hy_tensor* out) {
  window w = avg_window(call);
  hy_tensor forward;
  HY_TRY(pool_output(call, 1, &w, &forward));
  HY_TRY(hy__need_shape(call, 0, forward.ndim, forward.shape));
  hy__copy_shape(out, &call->in[1]);
  return HY_OK;
}

hy_status hy__dtype_pool_backward(const hy_call* call, hy_tensor* out) {
  HY_TRY(hy__check_dtypes_among(call, 0, 1, HY_FLOATS));
  HY_TRY(hy__check_dtypes_among(call, 1, 2, HY_DTYPE_BIT(HY_I64)));
  HY_TRY(hy__check_dtypes_among(call, 2, 3, HY_DTYPE_BIT(call->in[0].dtype)));
  out->dtype = call->in[0].dtype;
  return HY_OK;
}
