// conv2d and its gradients as products, whose second operand is never stored: packing a panel
// gathers it from the image.
//
// With taps t = (channel, row, column of the kernel) and positions p of the output:
//   out[o, p] = sum over t of weight[o, t] x[t at p]
//   dweight[o, t] = sum over images and p of dy[o, p] x[t at p]
//   dx[c, q] = sum over (o, row, column) of weight[o, c, row, column] dy[o, where it took q]
//
// Places outside an image are zeros, which must not meet weights or gradients that are not finite:
// such calls go to the reference.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/finite.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/pool.h"

typedef struct conv {
  const hy__cpu_kernels* kernels;
  int64_t images, groups, in, out;  // channels of one group
  int64_t h, w, out_h, out_w, kernel_h, kernel_w;
  hy_pair stride, padding, dilation;
} conv;

static conv describe(const hy__cpu_kernels* kernels, const hy_call* call, const hy_tensor* x,
                     const hy_tensor* weight, const hy_tensor* y) {
  hy_attrs_conv a = call->attrs.conv;
  int n = x->ndim;
  return (conv){.kernels = kernels,
                .images = n == 4 ? x->shape[0] : 1,
                .groups = a.groups,
                .in = weight->shape[1],
                .out = weight->shape[0] / a.groups,
                .h = x->shape[n - 2],
                .w = x->shape[n - 1],
                .out_h = y->shape[n - 2],
                .out_w = y->shape[n - 1],
                .kernel_h = weight->shape[2],
                .kernel_w = weight->shape[3],
                .stride = a.stride,
                .padding = a.padding,
                .dilation = a.dilation};
}

// The planes of one image from `channel` on.
typedef struct planes {
  const char* data;
  hy_dtype dtype;
  int64_t plane, row, column;
} planes;

static planes planes_of(const hy_tensor* t, int64_t image, int64_t channel) {
  int n = t->ndim;
  int64_t offset = channel * t->stride[n - 3] + (n == 4 ? image * t->stride[0] : 0);
  return (planes){(const char*)t->data + offset * (int64_t)hy_dtype_size(t->dtype), t->dtype,
                  t->stride[n - 3], t->stride[n - 2], t->stride[n - 1]};
}

// ---- gathering ----

// n values from place `at` of a line of `size` places on, `step` places apart; 0 outside of it.
static void gather_line(const conv* c, const planes* p, const char* line, int64_t size, int64_t at,
                        int64_t step, int n, float* to) {
  int64_t first = at < 0 ? (-at + step - 1) / step : 0;
  int64_t last = at < size ? (size - 1 - at) / step + 1 : 0;
  if (last > n) last = n;
  if (first > last) first = last;
  memset(to, 0, (size_t)first * sizeof *to);
  c->kernels->widen(last - first,
                    line + (at + first * step) * p->column * (int64_t)hy_dtype_size(p->dtype),
                    step * p->column, p->dtype, to + first);
  memset(to + last, 0, (size_t)(n - last) * sizeof *to);
}

// The tap at output positions first .. first + n - 1.
static void gather_tap(const conv* c, const planes* x, int64_t tap, int64_t first, int n,
                       float* to) {
  int64_t taps = c->kernel_h * c->kernel_w, row = tap % taps / c->kernel_w;
  int64_t column = tap % c->kernel_w, size = (int64_t)hy_dtype_size(x->dtype);
  for (int done = 0; done < n;) {
    int64_t y = (first + done) / c->out_w, at = (first + done) % c->out_w;
    int count = (int)(c->out_w - at < n - done ? c->out_w - at : n - done);
    int64_t h = y * c->stride.h - c->padding.h + row * c->dilation.h;
    int64_t w = at * c->stride.w - c->padding.w + column * c->dilation.w;
    const char* line = x->data + (tap / taps * x->plane + h * x->row) * size;
    if (h < 0 || h >= c->h)
      memset(to + done, 0, (size_t)count * sizeof *to);
    else
      gather_line(c, x, line, c->w, w, c->stride.w, count, to + done);
    done += count;
  }
}

// The gradient at the outputs that took input positions first .. first + n - 1 with that tap.
static void gather_source(const conv* c, const planes* dy, int64_t tap, int64_t first, int n,
                          float* to) {
  int64_t taps = c->kernel_h * c->kernel_w, row = tap % taps / c->kernel_w;
  int64_t column = tap % c->kernel_w, size = (int64_t)hy_dtype_size(dy->dtype);
  for (int done = 0; done < n;) {
    int64_t y = (first + done) / c->w, at = (first + done) % c->w;
    int count = (int)(c->w - at < n - done ? c->w - at : n - done);
    int64_t h = y + c->padding.h - row * c->dilation.h;
    int64_t w = at + c->padding.w - column * c->dilation.w;
    bool taken = h >= 0 && h % c->stride.h == 0 && h / c->stride.h < c->out_h;
    const char* line = dy->data + (tap / taps * dy->plane + h / c->stride.h * dy->row) * size;
    if (!taken) {
      memset(to + done, 0, (size_t)count * sizeof *to);
    } else if (c->stride.w == 1) {
      gather_line(c, dy, line, c->out_w, w, 1, count, to + done);
    } else {
      for (int i = 0; i < count; i++, w++) {
        bool inside = w >= 0 && w % c->stride.w == 0 && w / c->stride.w < c->out_w;
        to[done + i] = 0;
        if (inside)
          c->kernels->widen(1, line + w / c->stride.w * dy->column * size, 1, dy->dtype,
                            to + done + i);
      }
    }
    done += count;
  }
}

// ---- products ----

// One image and group.
typedef struct product {
  const conv* c;
  planes source;  // what is gathered
  planes target;  // where sums go, [channel][position]; or
  float* sums;    // [channel][tap]
  const hy_tensor* bias;
  int64_t first_channel;
  int64_t width;  // of a line of the target
} product;

static void pack_taps(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                      float* packed) {
  const product* p = context;
  for (int i = 0; i < depth; i++, packed += panel) {
    gather_tap(p->c, &p->source, k + i, j, n, packed);
    memset(packed + n, 0, (size_t)(panel - n) * sizeof *packed);
  }
}

static void pack_sources(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                         float* packed) {
  const product* p = context;
  for (int i = 0; i < depth; i++, packed += panel) {
    gather_source(p->c, &p->source, k + i, j, n, packed);
    memset(packed + n, 0, (size_t)(panel - n) * sizeof *packed);
  }
}

// Taps in columns and positions along the sum: lines are gathered and turned.
static void pack_positions(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                           float* packed) {
  (void)panel;
  const product* p = context;
  float lines[HY__GEMM_MAX_PANEL * HY__GEMM_DEPTH];
  for (int i = 0; i < n; i++) gather_tap(p->c, &p->source, j + i, k, depth, lines + i * depth);
  hy__matrix b = {lines, HY_F32, 1, depth};
  p->c->kernels->gemm->pack_b(&b, 0, depth, 0, n, packed);
}

static float bias_of(const product* p, int64_t channel) {
  float bias = 0;
  if (!p->bias || p->bias->dtype == HY_NONE) return bias;
  int64_t at = (p->first_channel + channel) * p->bias->stride[0];
  p->c->kernels->widen(1, (const char*)p->bias->data + at * (int64_t)hy_dtype_size(p->bias->dtype),
                       1, p->bias->dtype, &bias);
  return bias;
}

static void finish(const void* context, int64_t i, int64_t j, int m, int n, float* tile,
                   int64_t stride) {
  const product* p = context;
  const planes* t = &p->target;
  int64_t size = (int64_t)hy_dtype_size(t->dtype);
  for (int r = 0; r < m; r++) {
    float bias = bias_of(p, i + r);
    for (int c = 0; bias != 0 && c < n; c++) tile[r * stride + c] += bias;
    for (int done = 0; done < n;) {
      int64_t y = (j + done) / p->width, x = (j + done) % p->width;
      int count = (int)(p->width - x < n - done ? p->width - x : n - done);
      char* to = (char*)t->data + ((i + r) * t->plane + y * t->row + x * t->column) * size;
      p->c->kernels->finish(count, tile + r * stride + done, 1, 0, NULL, 0, to, t->column,
                            t->dtype);
      done += count;
    }
  }
}

// Images and groups are divided among the threads where there are enough of them.
typedef struct batch {
  const conv* c;
  bool (*run)(const void* context, int64_t i);
  const void* context;
  atomic_bool failed;
} batch;

static void run_one(void* context, int64_t i) {
  batch* b = context;
  if (!b->run(b->context, i)) atomic_store(&b->failed, true);
}

static bool run_all(const conv* c, int64_t count, bool (*run)(const void*, int64_t),
                    const void* context) {
  batch b = {.c = c, .run = run, .context = context};
  if (count >= 2 * (int64_t)hy__pool_threads()) {
    hy__pool_run(run_one, &b, count);
  } else {
    for (int64_t i = 0; i < count; i++) run_one(&b, i);
  }
  return !atomic_load(&b.failed);
}

// The weights as floats: [group][out][in, rows, columns], or [group][in][out, rows, columns].
static float* copy_weights(const conv* c, const hy_tensor* t, bool by_input) {
  int64_t taps = c->kernel_h * c->kernel_w, count = c->groups * c->out * c->in * taps;
  float *copy = malloc((size_t)(count + 1) * sizeof *copy), line;
  if (!copy) return NULL;
  for (int64_t o = 0; o < c->groups * c->out; o++) {
    for (int64_t i = 0; i < c->in; i++) {
      int64_t g = o / c->out, oo = o % c->out;
      int64_t at = by_input ? ((g * c->in + i) * c->out + oo) * taps : (o * c->in + i) * taps;
      for (int64_t k = 0; k < taps; k++) {
        int64_t from = o * t->stride[0] + i * t->stride[1] + k / c->kernel_w * t->stride[2] +
                       k % c->kernel_w * t->stride[3];
        c->kernels->widen(1, (const char*)t->data + from * (int64_t)hy_dtype_size(t->dtype), 1,
                          t->dtype, &line);
        copy[at + k] = line;
      }
    }
  }
  return copy;
}

// ---- forward ----

typedef struct call_context {
  conv c;
  const hy_tensor *x, *y, *bias;
  const float* weights;
} call_context;

static bool forward_one(const void* context, int64_t i) {
  const call_context* f = context;
  const conv* c = &f->c;
  int64_t image = i / c->groups, group = i % c->groups, taps = c->in * c->kernel_h * c->kernel_w;
  product p = {.c = c, .bias = f->bias, .first_channel = group * c->out, .width = c->out_w};
  p.source = planes_of(f->x, image, group * c->in);
  p.target = planes_of(f->y, image, group * c->out);
  hy__gemm g = {.m = c->out, .n = c->out_h * c->out_w, .k = taps, .finish = finish};
  g.a = (hy__matrix){(void*)(f->weights + group * c->out * taps), HY_F32, taps, 1};
  g.pack_b = pack_taps;
  g.context = &p;
  return hy__gemm_run(c->kernels->gemm, &g);
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  if (!hy__all_finite(&call->in[1])) return hy__cpu_host_services->reference(call);
  call_context f = {.x = &call->in[0], .y = &call->out[0], .bias = &call->in[2]};
  f.c = describe(kernels, call, f.x, &call->in[1], f.y);
  float* weights = copy_weights(&f.c, &call->in[1], false);
  if (!weights) return hy__cpu_no_memory(call);
  f.weights = weights;
  bool done = run_all(&f.c, f.c.images * f.c.groups, forward_one, &f);
  free(weights);
  return done ? HY_OK : hy__cpu_no_memory(call);
}

// ---- backward ----

static bool dx_one(const void* context, int64_t i) {
  const call_context* f = context;  // y is dy, x is dx
  const conv* c = &f->c;
  int64_t image = i / c->groups, group = i % c->groups, taps = c->out * c->kernel_h * c->kernel_w;
  product p = {.c = c, .width = c->w};
  p.source = planes_of(f->y, image, group * c->out);
  p.target = planes_of(f->x, image, group * c->in);
  hy__gemm g = {.m = c->in, .n = c->h * c->w, .k = taps, .finish = finish};
  g.a = (hy__matrix){(void*)(f->weights + group * c->in * taps), HY_F32, taps, 1};
  g.pack_b = pack_sources;
  g.context = &p;
  return hy__gemm_run(c->kernels->gemm, &g);
}

static bool run_dx(const call_context* b, const hy_tensor* weight, const hy_tensor* dx) {
  call_context f = *b;
  f.x = dx;
  float* weights = copy_weights(&f.c, weight, true);
  if (!weights) return false;
  f.weights = weights;
  bool done = run_all(&f.c, f.c.images * f.c.groups, dx_one, &f);
  free(weights);
  return done;
}

// dy as [channel][position] in floats, since its positions may not lie in one line.
static void load_dy(const conv* c, const planes* dy, float* to) {
  for (int64_t o = 0; o < c->out; o++) {
    for (int64_t y = 0; y < c->out_h; y++, to += c->out_w)
      c->kernels->widen(
          c->out_w, dy->data + (o * dy->plane + y * dy->row) * (int64_t)hy_dtype_size(dy->dtype),
          dy->column, dy->dtype, to);
  }
}

typedef struct dweight_context {
  const call_context* b;
  float* sums;  // [group][out][taps]
} dweight_context;

static bool dweight_one(const void* context, int64_t group) {
  const dweight_context* d = context;
  const conv* c = &d->b->c;
  int64_t taps = c->in * c->kernel_h * c->kernel_w, positions = c->out_h * c->out_w;
  float* dy = malloc((size_t)(c->out * positions) * sizeof *dy);
  bool done = dy != NULL;
  for (int64_t image = 0; done && image < c->images; image++) {
    planes from = planes_of(d->b->y, image, group * c->out);
    load_dy(c, &from, dy);
    product p = {.c = c, .source = planes_of(d->b->x, image, group * c->in)};
    hy__gemm g = {.m = c->out, .n = taps, .k = positions, .accumulate = image > 0};
    g.a = (hy__matrix){dy, HY_F32, positions, 1};
    g.c = d->sums + group * c->out * taps;
    g.c_row = taps;
    g.pack_b = pack_positions;
    g.context = &p;
    done = hy__gemm_run(c->kernels->gemm, &g);
  }
  free(dy);
  return done;
}

static bool run_dweight(const call_context* b, const hy_tensor* dweight) {
  const conv* c = &b->c;
  int64_t area = c->kernel_h * c->kernel_w, taps = c->in * area;
  dweight_context d = {b, calloc((size_t)(c->groups * c->out * taps + 1), sizeof(float))};
  if (!d.sums) return false;
  bool done = run_all(c, c->groups, dweight_one, &d);
  for (int64_t i = 0; done && i < c->groups * c->out * taps; i++) {
    int64_t o = i / taps, tap = i % taps;
    int64_t to = o * dweight->stride[0] + tap / area * dweight->stride[1] +
                 tap % area / c->kernel_w * dweight->stride[2] +
                 tap % c->kernel_w * dweight->stride[3];
    c->kernels->finish(1, d.sums + i, 1, 0, NULL, 0,
                       (char*)dweight->data + to * (int64_t)hy_dtype_size(dweight->dtype), 1,
                       dweight->dtype);
  }
  free(d.sums);
  return done;
}

static void run_dbias(const call_context* b, const hy_tensor* dbias) {
  const conv* c = &b->c;
  int64_t size = (int64_t)hy_dtype_size(dbias->dtype);
  for (int64_t o = 0; o < c->groups * c->out; o++) {
    double sum = 0;
    for (int64_t image = 0; image < c->images; image++) {
      planes p = planes_of(b->y, image, o);
      for (int64_t i = 0; i < c->out_h * c->out_w; i++) {
        float value;
        int64_t at = i / c->out_w * p.row + i % c->out_w * p.column;
        c->kernels->widen(1, p.data + at * size, 1, p.dtype, &value);
        sum += (double)value;
      }
    }
    float total = (float)sum;
    c->kernels->finish(1, &total, 1, 0, NULL, 0, (char*)dbias->data + o * dbias->stride[0] * size,
                       1, dbias->dtype);
  }
}

static hy_status run_backward(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *x = &call->in[1], *weight = &call->in[2];
  if (!hy__all_finite(weight) || !hy__all_finite(dy)) return hy__cpu_host_services->reference(call);
  call_context b = {.c = describe(kernels, call, x, weight, dy), .x = x, .y = dy};
  bool done = true;
  if (call->out[0].dtype != HY_NONE) done = run_dx(&b, weight, &call->out[0]);
  if (done && call->out[1].dtype != HY_NONE) done = run_dweight(&b, &call->out[1]);
  if (done && call->out[2].dtype != HY_NONE) run_dbias(&b, &call->out[2]);
  return done ? HY_OK : hy__cpu_no_memory(call);
}

static hy_support supports(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_conv = {supports, run};
const hy__cpu_family hy__cpu_conv_backward = {supports, run_backward};
