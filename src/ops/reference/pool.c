// Pooling over windows of planes, and its gradients.
#include <math.h>

#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"

// Planes of an image: all dimensions but the last two, counted in row-major order.
typedef struct planes {
  int64_t count, h, w;
} planes;

static planes planes_of(const hy_tensor* t) {
  int n = t->ndim;
  planes p = {.count = 1, .h = t->shape[n - 2], .w = t->shape[n - 1]};
  for (int d = 0; d < n - 2; d++) p.count *= t->shape[d];
  return p;
}

// ---- maximum ----

// The place in the plane of the largest element of the window that begins at (top, left); the last
// NaN where there is one, -1 where the window is wholly in the padding.
static int64_t largest(const hy_tensor* x, int64_t plane, const hy_attrs_max_pool* a, int64_t top,
                       int64_t left) {
  planes p = planes_of(x);
  bool in_double = hy__in_double(x->dtype);
  int64_t best = -1, best_i = 0;
  double best_f = 0;
  for (int64_t i = 0; i < a->kernel.h; i++) {
    int64_t row = top + i * a->dilation.h;
    if (row < 0 || row >= p.h) continue;
    for (int64_t j = 0; j < a->kernel.w; j++) {
      int64_t column = left + j * a->dilation.w;
      if (column < 0 || column >= p.w) continue;
      int64_t place = row * p.w + column;
      const char* at = hy__element(x, plane * p.h * p.w + place);
      double f = in_double ? hy__load_f(x->dtype, at) : 0;
      int64_t n = in_double ? 0 : hy__load_i(x->dtype, at);
      if (best < 0 || f > best_f || isnan(f) || n > best_i) {
        best = place;
        best_f = f;
        best_i = n;
      }
    }
  }
  return best;
}

static void store_lowest(const hy_tensor* out, char* at) {
  if (hy__in_double(out->dtype))
    hy__store_f(out->dtype, at, -INFINITY);
  else
    hy__store_i(out->dtype, at,
                out->dtype == HY_U8 ? 0 : INT64_MIN >> (64 - hy_dtype_bits(out->dtype)));
}

hy_status hy__ref_max_pool2d(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0], *index = &call->out[1];
  const hy_attrs_max_pool* a = &call->attrs.max_pool;
  planes in = planes_of(x), result = planes_of(out);
  int64_t n = hy_tensor_numel(out);
  for (int64_t i = 0; i < n; i++) {
    int64_t row = i / result.w % result.h, column = i % result.w;
    int64_t plane = i / (result.w * result.h);
    int64_t place =
        largest(x, plane, a, row * a->stride.h - a->padding.h, column * a->stride.w - a->padding.w);
    char* to = hy__element(out, i);
    const char* from = place < 0 ? NULL : hy__element(x, plane * in.h * in.w + place);
    if (!from)
      store_lowest(out, to);
    else if (hy__in_double(x->dtype))
      hy__store_f(out->dtype, to, hy__load_f(x->dtype, from));
    else
      hy__store_i(out->dtype, to, hy__load_i(x->dtype, from));
    if (hy__present(index)) hy__store_i(index->dtype, hy__element(index, i), place);
  }
  return HY_OK;
}

hy_status hy__ref_max_pool2d_backward(const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *index = &call->in[1], *dx = &call->out[0];
  planes in = planes_of(dx), result = planes_of(dy);
  int64_t n = hy_tensor_numel(dy), plane = in.h * in.w;
  double* sums = hy__scratch_zero(call, in.count, plane);
  if (!sums) return HY_OUT_OF_MEMORY;
  for (int64_t i = 0; i < n; i++) {
    int64_t place = hy__load_i(index->dtype, hy__element(index, i));
    if (place < -1 || place >= plane) {
      hy__mfree(sums);
      return hy__call_fail(call, HY_INDEX, "the index %lld is outside a plane of %lld elements",
                           (long long)place, (long long)plane);
    }
    if (place >= 0)
      sums[i / (result.h * result.w) * plane + place] += hy__load_f(dy->dtype, hy__element(dy, i));
  }
  hy__store_all_f(dx, sums);
  hy__mfree(sums);
  return HY_OK;
}

// ---- average ----

// A window clipped to the plane, and what its sum is divided by.
typedef struct area {
  int64_t top, bottom, left, right;
  double divisor;
} area;

static int64_t at_most(int64_t value, int64_t limit) {
  return value < limit ? value : limit;
}

static area area_at(const hy_attrs_avg_pool* a, const planes* p, int64_t row, int64_t column) {
  int64_t top = row * a->stride.h - a->padding.h, left = column * a->stride.w - a->padding.w;
  int64_t bottom = at_most(top + a->kernel.h, p->h + a->padding.h);
  int64_t right = at_most(left + a->kernel.w, p->w + a->padding.w);
  int64_t padded = (bottom - top) * (right - left);
  area r = {top < 0 ? 0 : top, at_most(bottom, p->h), left < 0 ? 0 : left, at_most(right, p->w), 0};
  int64_t inside = (r.bottom - r.top) * (r.right - r.left);
  r.divisor = (double)(a->divisor != 0 ? a->divisor : a->count_padding ? padded : inside);
  return r;
}

hy_status hy__ref_avg_pool2d(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  planes in = planes_of(x), result = planes_of(out);
  int64_t n = hy_tensor_numel(out);
  for (int64_t i = 0; i < n; i++) {
    area r = area_at(&call->attrs.avg_pool, &in, i / result.w % result.h, i % result.w);
    int64_t plane = i / (result.w * result.h) * in.h * in.w;
    double sum = 0;
    for (int64_t row = r.top; row < r.bottom; row++) {
      for (int64_t column = r.left; column < r.right; column++)
        sum += hy__load_f(x->dtype, hy__element(x, plane + row * in.w + column));
    }
    bool empty = r.top >= r.bottom || r.left >= r.right;
    hy__store_f(out->dtype, hy__element(out, i), empty ? 0 : sum / r.divisor);
  }
  return HY_OK;
}

hy_status hy__ref_avg_pool2d_backward(const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *dx = &call->out[0];
  planes in = planes_of(dx), result = planes_of(dy);
  int64_t n = hy_tensor_numel(dy);
  double* sums = hy__scratch_zero(call, in.count, in.h * in.w);
  if (!sums) return HY_OUT_OF_MEMORY;
  for (int64_t i = 0; i < n; i++) {
    area r = area_at(&call->attrs.avg_pool, &in, i / result.w % result.h, i % result.w);
    double* plane = sums + i / (result.w * result.h) * in.h * in.w;
    double share = hy__load_f(dy->dtype, hy__element(dy, i)) / r.divisor;
    for (int64_t row = r.top; row < r.bottom; row++) {
      for (int64_t column = r.left; column < r.right; column++) plane[row * in.w + column] += share;
    }
  }
  hy__store_all_f(dx, sums);
  hy__mfree(sums);
  return HY_OK;
}
