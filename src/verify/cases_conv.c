// Cases of convolution and pooling.
#include <math.h>
#include <string.h>

#include "verify/case.h"

static hy_pair draw_pair(hy__case* c, int64_t low, int64_t high) {
  int64_t h = hy__draw_int(c, low, high), w = hy__draw_int(c, low, high);
  return (hy_pair){h, hy__draw_bool(c) ? h : w};
}

typedef struct conv {
  int64_t batch, in_channels, out_channels, h, w, kernel_h, kernel_w;
} conv;

static conv draw_conv(hy__case* c) {
  hy_attrs_conv* a = &c->call.attrs.conv;
  conv v;
  // Of models: kernels of 7, many channels of either side, many groups, large images and batches.
  a->groups = hy__draw_small_sized(c, 3, 2, 130);
  a->stride = draw_pair(c, 1, 3);
  a->padding = draw_pair(c, 0, 3);
  a->dilation = draw_pair(c, 1, 3);
  v.batch = hy__draw_small_sized(c, 3, 0, 200);
  if (c->flavour == HY__FLAVOUR_EMPTY) v.batch = 0;
  if (hy__is_model(c, 3)) a->groups = v.batch = 1;
  if (hy__is_model(c, 1) && c->key.quick) a->groups = v.batch = 1;
  v.in_channels = a->groups * hy__draw_small_sized(c, 3, 1, 130);
  v.out_channels = a->groups * hy__draw_small_sized(c, 3, 1, 120);
  v.kernel_h = hy__draw_small_sized(c, 3, 0, 7);
  v.kernel_w = hy__draw_small_sized(c, 3, 0, 7);
  // Large enough for one step of the kernel.
  v.h = a->dilation.h * (v.kernel_h - 1) + hy__draw_small_sized(c, 6, 3, 230);
  v.w = a->dilation.w * (v.kernel_w - 1) +
        hy__draw_small_sized(c, 6, 3, c->main && !c->key.quick ? 330 : 13);
  c->terms = v.in_channels / a->groups * v.kernel_h * v.kernel_w + 1;
  return v;
}

// The products of x and the weight, and the bias.
static void scale_by(hy__case* c, const hy_tensor* a, const hy_tensor* b) {
  c->scale = 2 * hy__largest(a) * hy__largest(b);
  c->wide = true;
}

void hy__cases_conv2d(hy__case* c) {
  conv v = draw_conv(c);
  int64_t groups = c->call.attrs.conv.groups;
  hy__add_input(c, c->dtype, 4, (int64_t[]){v.batch, v.in_channels, v.h, v.w});
  hy__add_input(c, c->dtype, 4,
                (int64_t[]){v.out_channels, v.in_channels / groups, v.kernel_h, v.kernel_w});
  // An infinite weight beside the padding's zeros gives NaN where the zeros are multiplied.
  hy__fill_uniform(c, &c->in[1], -4, 4);
  hy__add_optional(c, c->dtype, 1, &v.out_channels);
  scale_by(c, &c->in[0], &c->in[1]);
  c->scale = fmax(c->scale, 2 * hy__largest(&c->in[2]));
  if (hy__mistake(c, 1, HY_SHAPE, "channels that do not fit")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 4,
                  (int64_t[]){v.out_channels, v.in_channels + 1, v.kernel_h, v.kernel_w});
    hy__add_absent(c);
  }
  if (hy__mistake(c, 2, HY_INVALID_ARGUMENT, "a stride of 0"))
    c->call.attrs.conv.stride = (hy_pair){0, 1};
  if (hy__mistake(c, 3, HY_INVALID_ARGUMENT, "negative padding"))
    c->call.attrs.conv.padding = (hy_pair){-1, 0};
  if (hy__mistake(c, 4, HY_SHAPE, "a kernel larger than the padded input")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 4,
                  (int64_t[]){v.out_channels, v.in_channels / groups, 40, v.kernel_w});
    hy__add_absent(c);
  }
}

void hy__cases_conv2d_backward(hy__case* c) {
  conv v = draw_conv(c);
  hy_tensor in[3], dy[HY_MAX_OUTPUTS];
  hy__add_input(c, c->dtype, 0, NULL);
  in[0] = *hy__add_input(c, c->dtype, 4, (int64_t[]){v.batch, v.in_channels, v.h, v.w});
  in[1] = *hy__add_input(c, c->dtype, 4,
                         (int64_t[]){v.out_channels, v.in_channels / c->call.attrs.conv.groups,
                                     v.kernel_h, v.kernel_w});
  in[2] = hy_tensor_absent();
  hy_call forward = {.op = HY_OP_conv2d, .n_in = 3, .in = in, .attrs = c->call.attrs};
  if (hy_infer(&forward, dy) != HY_OK) return;
  c->call.n_in = 0;
  hy__fill_uniform(c, hy__add_input(c, c->dtype, 4, dy[0].shape), -4, 4);
  c->call.n_in = 3;
  scale_by(c, &c->in[0], hy__largest(&in[0]) > hy__largest(&in[1]) ? &in[0] : &in[1]);
  c->terms +=
      v.out_channels * v.kernel_h * v.kernel_w + dy[0].shape[0] * dy[0].shape[2] * dy[0].shape[3];
  if (hy__mistake(c, 1, HY_SHAPE, "a gradient of the wrong shape")) {
    dy[0].shape[1]++;
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 4, dy[0].shape);
    c->call.n_in = 3;
  }
}

// Pooling: padding is at most half the kernel.
static hy_tensor* add_pooled(hy__case* c, hy_pair* kernel, hy_pair* stride, hy_pair* padding,
                             hy_pair dilation) {
  hy__has_sizes_to(c, 4);
  *kernel = draw_pair(c, 1, 3);
  if (hy__is_model(c, 0)) *kernel = draw_pair(c, 6, 9);
  *stride = draw_pair(c, 1, kernel->h > 3 ? 7 : 3);
  *padding = (hy_pair){hy__draw_int(c, 0, kernel->h / 2), hy__draw_int(c, 0, kernel->w / 2)};
  int64_t shape[4] = {hy__draw_small_sized(c, 3, 2, 803), hy__draw_small_sized(c, 3, 1, 10007),
                      dilation.h * (kernel->h - 1) + hy__draw_small_sized(c, 6, 3, 310),
                      dilation.w * (kernel->w - 1) +
                          hy__draw_small_sized(c, 6, 3, c->main && !c->key.quick ? 330 : 13)};
  if (hy__is_model(c, 3)) shape[0] = shape[1] = 1;
  if (hy__is_model(c, 1)) {
    shape[0] = 1;
    shape[2] += 3;
    shape[3] += 3;
  }
  if (c->flavour == HY__FLAVOUR_EMPTY) shape[0] = 0;
  bool batched = c->flavour == HY__FLAVOUR_EMPTY || hy__is_model(c, 2);
  int skip = hy__draw_int(c, 0, 3) == 0 && !batched;
  c->terms = kernel->h * kernel->w;
  return hy__add_input(c, c->dtype, 4 - skip, shape + skip);
}

static void draw_max_pool(hy__case* c) {
  hy_attrs_max_pool* a = &c->call.attrs.max_pool;
  a->dilation = draw_pair(c, 1, 2);
  a->ceil_mode = hy__draw_int(c, 0, 3) == 0;
  add_pooled(c, &a->kernel, &a->stride, &a->padding, a->dilation);
}

void hy__cases_max_pool2d(hy__case* c) {
  draw_max_pool(c);
  hy_attrs_max_pool* a = &c->call.attrs.max_pool;
  if (hy__mistake(c, 1, HY_INVALID_ARGUMENT, "padding of more than half the kernel"))
    a->padding = (hy_pair){a->kernel.h, a->kernel.w};
  if (hy__mistake(c, 2, HY_INVALID_ARGUMENT, "a kernel of size 0")) a->kernel = (hy_pair){0, 1};
  if (hy__mistake(c, 3, HY_SHAPE, "a kernel larger than the input"))
    a->kernel = (hy_pair){60, 60}, a->padding = (hy_pair){0, 0};
}

void hy__cases_max_pool2d_backward(hy__case* c) {
  draw_max_pool(c);
  hy_tensor x = c->in[0], out[HY_MAX_OUTPUTS];
  hy_call forward = {.op = HY_OP_max_pool2d, .n_in = 1, .in = &x, .attrs = c->call.attrs};
  if (hy_infer(&forward, out) != HY_OK) return;
  c->call.n_in = 0;
  hy__add_input(c, c->dtype, out[0].ndim, out[0].shape);
  hy__add_result(c, HY_OP_max_pool2d, &c->call.attrs, 1, &x, 1);
  c->in[c->call.n_in++] = x;
  if (hy__mistake(c, 1, HY_SHAPE, "a gradient of the wrong shape")) {
    out[0].shape[out[0].ndim - 1]++;
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, out[0].ndim, out[0].shape);
    c->call.n_in = 3;
  }
}

static void draw_avg_pool(hy__case* c) {
  hy_attrs_avg_pool* a = &c->call.attrs.avg_pool;
  a->ceil_mode = hy__draw_int(c, 0, 3) == 0;
  a->count_padding = hy__draw_bool(c);
  a->divisor = hy__draw_bool(c) ? hy__draw_int(c, 1, hy__draw_bool(c) ? 9 : 200) : 0;
  add_pooled(c, &a->kernel, &a->stride, &a->padding, (hy_pair){1, 1});
}

void hy__cases_avg_pool2d(hy__case* c) {
  draw_avg_pool(c);
  hy_attrs_avg_pool* a = &c->call.attrs.avg_pool;
  if (hy__mistake(c, 1, HY_INVALID_ARGUMENT, "padding of more than half the kernel"))
    a->padding = (hy_pair){a->kernel.h, a->kernel.w};
  if (hy__mistake(c, 2, HY_INVALID_ARGUMENT, "a stride of 0")) a->stride = (hy_pair){1, 0};
}

void hy__cases_avg_pool2d_backward(hy__case* c) {
  draw_avg_pool(c);
  hy_tensor x = c->in[0], out[HY_MAX_OUTPUTS];
  hy_call forward = {.op = HY_OP_avg_pool2d, .n_in = 1, .in = &x, .attrs = c->call.attrs};
  if (hy_infer(&forward, out) != HY_OK) return;
  c->call.n_in = 0;
  hy__add_input(c, c->dtype, out[0].ndim, out[0].shape);
  c->in[c->call.n_in++] = x;
}
