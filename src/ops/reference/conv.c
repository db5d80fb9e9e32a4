// Convolution and its gradients, in doubles: one tap of the kernel at a time adds a shifted,
// scaled plane to another.
#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"

typedef struct conv {
  int64_t images, in_channels, out_channels, groups;
  int64_t group_in, group_out;  // channels of one group
  int64_t h, w, out_h, out_w, kernel_h, kernel_w;
  hy_pair stride, padding, dilation;
} conv;

static conv describe(const hy_call* call, const hy_tensor* x, const hy_tensor* weight,
                     const hy_tensor* out) {
  hy_attrs_conv a = call->attrs.conv;
  int n = x->ndim;
  conv c = {.images = n == 4 ? x->shape[0] : 1, .groups = a.groups};
  c.in_channels = x->shape[n - 3];
  c.out_channels = weight->shape[0];
  c.group_in = c.in_channels / a.groups;
  c.group_out = c.out_channels / a.groups;
  c.h = x->shape[n - 2];
  c.w = x->shape[n - 1];
  c.out_h = out->shape[n - 2];
  c.out_w = out->shape[n - 1];
  c.kernel_h = weight->shape[2];
  c.kernel_w = weight->shape[3];
  c.stride = a.stride;
  c.padding = a.padding;
  c.dilation = a.dilation;
  return c;
}

// The outputs first..last of one dimension whose tap falls inside the input, and the place in the
// input of output 0.
typedef struct span {
  int64_t first, last, origin;
} span;

static span reach(int64_t tap, int64_t size, int64_t out_size, int64_t stride, int64_t padding,
                  int64_t dilation) {
  span s = {.origin = tap * dilation - padding};
  s.first = s.origin < 0 ? (-s.origin + stride - 1) / stride : 0;
  s.last = s.origin < size ? (size - 1 - s.origin) / stride + 1 : 0;
  if (s.last > out_size) s.last = out_size;
  return s;
}

// What one tap does with a row of n inputs, `step` apart, and the n outputs they touch.
typedef enum effect { FORWARD, TO_INPUT, TO_WEIGHT } effect;

static void tap_row(effect effect, int64_t n, int64_t step, double* x, double* y, double* weight) {
  if (effect == FORWARD) {
    for (int64_t i = 0; i < n; i++) y[i] += *weight * x[i * step];
  } else if (effect == TO_INPUT) {
    for (int64_t i = 0; i < n; i++) x[i * step] += *weight * y[i];
  } else {
    for (int64_t i = 0; i < n; i++) *weight += y[i] * x[i * step];
  }
}

// All taps between all planes of all images; of x, y and weight two are read, one is added to.
static void apply(const conv* c, effect effect, double* x, double* y, double* weight) {
  int64_t taps = c->kernel_h * c->kernel_w;
  for (int64_t image = 0; image < c->images; image++) {
    for (int64_t o = 0; o < c->out_channels; o++) {
      double* y_plane = y + (image * c->out_channels + o) * c->out_h * c->out_w;
      for (int64_t i = 0; i < c->group_in; i++) {
        int64_t channel = o / c->group_out * c->group_in + i;
        double* x_plane = x + (image * c->in_channels + channel) * c->h * c->w;
        for (int64_t tap = 0; tap < taps; tap++) {
          span v =
              reach(tap / c->kernel_w, c->h, c->out_h, c->stride.h, c->padding.h, c->dilation.h);
          span u =
              reach(tap % c->kernel_w, c->w, c->out_w, c->stride.w, c->padding.w, c->dilation.w);
          for (int64_t row = v.first; row < v.last && u.first < u.last; row++)
            tap_row(effect, u.last - u.first, c->stride.w,
                    x_plane +
                        ((v.origin + row * c->stride.h) * c->w + u.origin + u.first * c->stride.w),
                    y_plane + row * c->out_w + u.first,
                    weight + (o * c->group_in + i) * taps + tap);
        }
      }
    }
  }
}

hy_status hy__ref_conv2d(const hy_call* call) {
  const hy_tensor *bias = &call->in[2], *out = &call->out[0];
  conv c = describe(call, &call->in[0], &call->in[1], out);
  int64_t planes = c.images * c.out_channels, plane = c.out_h * c.out_w;
  double* x = hy__scratch_of(call, &call->in[0]);
  double* weight = x ? hy__scratch_of(call, &call->in[1]) : NULL;
  double* b = !weight             ? NULL
              : hy__present(bias) ? hy__scratch_of(call, bias)
                                  : hy__scratch_zero(call, c.out_channels, 1);
  double* y = b ? hy__scratch(call, planes, plane) : NULL;
  hy_status status = y ? HY_OK : HY_OUT_OF_MEMORY;
  if (y) {
    for (int64_t i = 0; i < planes * plane; i++) y[i] = b[i / plane % c.out_channels];
    apply(&c, FORWARD, x, y, weight);
    hy__store_all_f(out, y);
  }
  hy__mfree(y);
  hy__mfree(b);
  hy__mfree(weight);
  hy__mfree(x);
  return status;
}

hy_status hy__ref_conv2d_backward(const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *x = &call->in[1], *weight = &call->in[2];
  const hy_tensor *dx = &call->out[0], *dweight = &call->out[1], *dbias = &call->out[2];
  conv c = describe(call, x, weight, dy);
  int64_t plane = c.out_h * c.out_w;
  hy_status status = HY_OUT_OF_MEMORY;
  double *from = NULL, *to = NULL, *y = hy__scratch_of(call, dy);
  if (!y) return HY_OUT_OF_MEMORY;
  if (hy__present(dx)) {
    from = hy__scratch_of(call, weight);
    to = from ? hy__scratch_zero(call, hy_tensor_numel(dx), 1) : NULL;
    if (!to) goto done;
    apply(&c, TO_INPUT, to, y, from);
    hy__store_all_f(dx, to);
    hy__mfree(to);
    hy__mfree(from);
    from = to = NULL;
  }
  if (hy__present(dweight)) {
    from = hy__scratch_of(call, x);
    to = from ? hy__scratch_zero(call, hy_tensor_numel(dweight), 1) : NULL;
    if (!to) goto done;
    apply(&c, TO_WEIGHT, from, y, to);
    hy__store_all_f(dweight, to);
    hy__mfree(to);
    to = NULL;
  }
  if (hy__present(dbias)) {
    to = hy__scratch_zero(call, c.out_channels, 1);
    if (!to) goto done;
    for (int64_t i = 0; i < c.images * c.out_channels * plane; i++)
      to[i / plane % c.out_channels] += y[i];
    hy__store_all_f(dbias, to);
  }
  status = HY_OK;
done:
  hy__mfree(to);
  hy__mfree(from);
  hy__mfree(y);
  return status;
}
