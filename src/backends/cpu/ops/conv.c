// conv2d and its gradients as GEMM, an implicit im2col: images are copied as floats into a
// zero-padded frame, a band of image rows at a time, so that what one tap of the kernel reads at
// neighbouring output positions is contiguous, and packing a panel of B is a copy of rows. No
// column matrix is ever stored.
//
// With taps t = (row, column of the kernel, channel) and positions p of the output:
//   out[o, p] = sum over t of weight[o, t] x[t at p]
//   dweight[o, t] = sum over images and p of dy[o, p] x[t at p]
//   dx[c, q] = sum over (row, column, o) of weight[o, c, row, column] dy[o, where it took q]
// The last is a convolution as well: of dy, dilated by the stride, with the kernel rotated.
//
// A row of positions is as long as one of the frame, so that all of them form one row of the GEMM:
// those beyond the output's width are computed and dropped, or have no gradient. Padding zeros must
// not meet nonfinite values: such calls go to the reference.
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/nonfinite.h"
#include "base/memory.h"

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

// ---- frames ----

enum {
  BAND_BYTES = 512 << 10
};  // of a frame that is worked on at once: it stays in a core's cache

// A zero-padded frame: the first element of a plane is at `origin`, the next `gap` further on, both
// of which may be outside. Image rows and columns that differ modulo `step` (the stride) are kept
// apart, [channel][row mod step][column mod step][h][w], so that a step leads to a neighbour.
typedef struct frame {
  hy_pair origin, gap, step;
  int64_t channels, h, w;
  float* data;
} frame;

static int64_t plane_size(const frame* f) {
  return f->step.h * f->step.w * f->h * f->w;
}

// From the first element of a channel.
static int64_t place(const frame* f, int64_t line, int64_t column) {
  int64_t part = line % f->step.h * f->step.w + column % f->step.w;
  return (part * f->h + line / f->step.h) * f->w + column / f->step.w;
}

typedef struct filling {
  const hy__cpu_kernels* kernels;
  const frame* f;
  const planes* from;
  int64_t h, w;  // of the planes
} filling;

static void fill_line(const filling* t, const char* line, int64_t y, float* plane) {
  enum { PIECE = 256 };
  const frame* f = t->f;
  int64_t size = (int64_t)hy_dtype_size(t->from->dtype), end = f->w * f->step.w - f->origin.w;
  int64_t first = f->origin.w < 0 ? (-f->origin.w + f->gap.w - 1) / f->gap.w : 0;
  int64_t last = end > 0 ? (end - 1) / f->gap.w + 1 : 0;
  if (last > t->w) last = t->w;
  if (first >= last) return;
  if (f->gap.w == 1 && f->step.w == 1) {
    t->kernels->gemm.widen(last - first, line + first * t->from->column * size, t->from->column,
                           t->from->dtype, plane + place(f, y, f->origin.w + first));
    return;
  }
  for (int64_t x = first; x < last; x += PIECE) {
    float piece[PIECE];
    int n = (int)(last - x < PIECE ? last - x : PIECE);
    t->kernels->gemm.widen(n, line + x * t->from->column * size, t->from->column, t->from->dtype,
                           piece);
    for (int i = 0; i < n; i++) plane[place(f, y, f->origin.w + (x + i) * f->gap.w)] = piece[i];
  }
}

static void fill_plane(void* context, int64_t channel) {
  const filling* t = context;
  const frame* f = t->f;
  float* plane = f->data + channel * plane_size(f);
  memset(plane, 0, (size_t)plane_size(f) * sizeof *plane);
  int64_t size = (int64_t)hy_dtype_size(t->from->dtype);
  for (int64_t i = 0; i < t->h; i++) {
    int64_t y = f->origin.h + i * f->gap.h;
    if (y < 0 || y >= f->h * f->step.h) continue;
    fill_line(t, t->from->data + (channel * t->from->plane + i * t->from->row) * size, y, plane);
  }
}

static void fill_frame(const hy__cpu_kernels* kernels, const frame* f, const planes* from,
                       int64_t h, int64_t w) {
  filling t = {kernels, f, from, h, w};
  hy__pool_run(fill_plane, &t, f->channels);
}

// ---- products ----

// A band of lines of positions, of one image and group.
typedef struct product {
  const conv* c;
  frame f;
  planes target;  // where sums go, [channel][line][column]; `width` columns to a line
  int64_t width;
  const hy_tensor* bias;
  int64_t first_channel;
} product;

// Channels `first` on of the frame, as the tap of this row and column of the kernel takes them: one
// channel to a row of the matrix, positions in columns.
static hy__matrix taken(const product* p, int64_t area, int64_t first) {
  const conv* c = p->c;
  int64_t line = area / c->kernel_w * c->dilation.h, column = area % c->kernel_w * c->dilation.w;
  int64_t plane = plane_size(&p->f);
  return (hy__matrix){p->f.data + first * plane + place(&p->f, line, column), HY_F32, plane, 1};
}

static void pack_taps(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                      float* packed) {
  const product* p = context;
  const hy__gemm_kernel* gemm = p->c->kernels->gemm.f32;
  for (int i = 0; i < depth;) {
    int64_t first = (k + i) % p->f.channels, left = p->f.channels - first;
    int count = (int)(left < depth - i ? left : depth - i);
    hy__matrix b = taken(p, (k + i) / p->f.channels, first);
    gemm->pack_b(&b, 0, count, j, n, packed + (int64_t)i * panel);
    i += count;
  }
}

// Taps in columns and positions along the sum. Those of several places of the kernel are brought
// together first.
static void pack_positions(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                           float* packed) {
  (void)panel;
  const product* p = context;
  const hy__gemm_kernel* gemm = p->c->kernels->gemm.f32;
  float lines[HY__GEMM_MAX_NR * HY__GEMM_MAX_KC];
  hy__matrix b = taken(p, j / p->f.channels, j % p->f.channels);
  if (j % p->f.channels + n <= p->f.channels) {
    b = (hy__matrix){b.data, HY_F32, 1, b.row};
    gemm->pack_b(&b, k, depth, 0, n, packed);
    return;
  }
  for (int i = 0; i < n; i++) {
    b = taken(p, (j + i) / p->f.channels, (j + i) % p->f.channels);
    memcpy(lines + i * depth, (float*)b.data + k, (size_t)depth * sizeof *lines);
  }
  b = (hy__matrix){lines, HY_F32, 1, depth};
  gemm->pack_b(&b, 0, depth, 0, n, packed);
}

static float bias_of(const product* p, int64_t channel) {
  float bias = 0;
  if (!p->bias || p->bias->dtype == HY_NONE) return bias;
  int64_t at = (p->first_channel + channel) * p->bias->stride[0];
  p->c->kernels->gemm.widen(
      1, (const char*)p->bias->data + at * (int64_t)hy_dtype_size(p->bias->dtype), 1,
      p->bias->dtype, &bias);
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
      int64_t y = (j + done) / p->f.w, x = (j + done) % p->f.w, count = p->f.w - x;
      if (count > n - done) count = n - done;
      int64_t wanted = p->width - x < count ? p->width - x : count;
      char* to = (char*)t->data + ((i + r) * t->plane + y * t->row + x * t->column) * size;
      if (wanted > 0)
        p->c->kernels->gemm.epilogue(wanted, tile + r * stride + done, 1, 0, NULL, 0, to, t->column,
                                     t->dtype);
      done += (int)count;
    }
  }
}

// A convolution of planes, forward or turned, with `weights` [group][to][row, column, from].
typedef struct pass {
  const conv* c;
  const hy_tensor *from, *to, *bias;
  int64_t from_channels, to_channels;  // of a group
  int64_t from_h, from_w, to_h, to_w;
  hy_pair origin, gap, step;
  int64_t lines, bands;  // of the target, to a band; bands to a plane
  const float* weights;
  atomic_bool failed;
} pass;

// The frame of lines first .. first + lines - 1 of positions.
static frame frame_of(const pass* s, int64_t first, int64_t lines) {
  const conv* c = s->c;
  frame f = {.origin = s->origin, .gap = s->gap, .step = s->step, .channels = s->from_channels};
  f.origin.h -= first * s->step.h;
  f.h = lines + (c->kernel_h - 1) * c->dilation.h / s->step.h;
  f.w = s->to_w + (c->kernel_w - 1) * c->dilation.w / s->step.w;
  return f;
}

static void cut_into_bands(pass* s) {
  frame one = frame_of(s, 0, 0);
  int64_t line = s->from_channels * s->step.h * s->step.w * one.w * (int64_t)sizeof(float);
  int64_t lines = BAND_BYTES / (line + 1) - one.h;
  if (lines < one.h + 1) lines = one.h + 1;
  s->bands = (s->to_h + lines - 1) / lines;
  s->lines = s->bands > 0 ? (s->to_h + s->bands - 1) / s->bands : 0;
}

static bool run_band(const pass* s, int64_t image, int64_t group, int64_t band) {
  const conv* c = s->c;
  int64_t first = band * s->lines, left = s->to_h - first;
  int64_t lines = left < s->lines ? left : s->lines;
  int64_t taps = s->from_channels * c->kernel_h * c->kernel_w;
  if (lines <= 0) return true;
  product p = {.c = c, .f = frame_of(s, first, lines), .width = s->to_w, .bias = s->bias};
  p.first_channel = group * s->to_channels;
  p.f.data = hy__scratch_get(HY__SCRATCH_ROWS,
                             (size_t)(s->from_channels * plane_size(&p.f)) * sizeof(float));
  if (!p.f.data) return false;
  planes from = planes_of(s->from, image, group * s->from_channels);
  fill_frame(c->kernels, &p.f, &from, s->from_h, s->from_w);
  p.target = planes_of(s->to, image, group * s->to_channels);
  p.target.data += first * p.target.row * (int64_t)hy_dtype_size(p.target.dtype);
  hy__gemm g = {.m = s->to_channels, .n = (lines - 1) * p.f.w + s->to_w, .k = taps};
  g.a = (hy__matrix){(void*)(s->weights + group * s->to_channels * taps), HY_F32, taps, 1};
  g.epilogue = finish;
  g.pack_b = pack_taps;
  g.context = &p;
  return hy__gemm_run(c->kernels->gemm.f32, &g);
}

static void run_task(void* context, int64_t i) {
  pass* s = context;
  int64_t band = i % s->bands, image = i / s->bands / s->c->groups;
  if (!run_band(s, image, i / s->bands % s->c->groups, band)) atomic_store(&s->failed, true);
}

// Bands are divided among the threads where there are enough of them, else each product is.
static bool run_pass(pass* s) {
  cut_into_bands(s);
  int64_t count = s->c->images * s->c->groups * s->bands;
  if (count >= 2 * (int64_t)hy__pool_threads()) {
    hy__pool_run(run_task, s, count);
  } else {
    for (int64_t i = 0; i < count; i++) run_task(s, i);
  }
  return !atomic_load(&s->failed);
}

// The weights as floats, [group][out][row, column, in]; or turned: [group][in][row, column, out],
// rows and columns backwards.
static float* copy_weights(const conv* c, const hy_tensor* t, bool turned) {
  int64_t area = c->kernel_h * c->kernel_w, count = c->groups * c->out * c->in * area;
  float* copy = hy__malloc((size_t)(count + 1) * sizeof *copy);
  if (!copy) return NULL;
  int64_t size = (int64_t)hy_dtype_size(t->dtype);
  for (int64_t o = 0; o < c->groups * c->out; o++) {
    for (int64_t i = 0; i < c->in; i++) {
      int64_t g = o / c->out, oo = o % c->out;
      for (int64_t k = 0; k < area; k++) {
        int64_t from = o * t->stride[0] + i * t->stride[1] + k / c->kernel_w * t->stride[2] +
                       k % c->kernel_w * t->stride[3];
        int64_t to = turned ? ((g * c->in + i) * area + area - 1 - k) * c->out + oo
                            : (o * area + k) * c->in + i;
        c->kernels->gemm.widen(1, (const char*)t->data + from * size, 1, t->dtype, copy + to);
      }
    }
  }
  return copy;
}

// ---- forward ----

static pass forward_pass(const conv* c, const hy_tensor* x, const hy_tensor* y) {
  return (pass){.c = c,
                .from = x,
                .to = y,
                .from_channels = c->in,
                .to_channels = c->out,
                .from_h = c->h,
                .from_w = c->w,
                .to_h = c->out_h,
                .to_w = c->out_w,
                .origin = c->padding,
                .gap = {1, 1},
                .step = c->stride};
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[1], *y = &call->out[0];
  if (!hy__tensor_is_finite(weight)) return hy__backend_host->reference(call);
  conv c = describe(kernels, call, x, weight, y);
  float* weights = copy_weights(&c, weight, false);
  if (!weights) return hy__cpu_no_memory(call);
  pass s = forward_pass(&c, x, y);
  s.bias = &call->in[2];
  s.weights = weights;
  bool done = run_pass(&s);
  hy__mfree(weights);
  return done ? HY_OK : hy__cpu_no_memory(call);
}

// ---- backward ----

static bool run_dx(const conv* c, const hy_tensor* dy, const hy_tensor* weight,
                   const hy_tensor* dx) {
  float* weights = copy_weights(c, weight, true);
  if (!weights) return false;
  pass s = {.c = c,
            .from = dy,
            .to = dx,
            .from_channels = c->out,
            .to_channels = c->in,
            .from_h = c->out_h,
            .from_w = c->out_w,
            .to_h = c->h,
            .to_w = c->w,
            .origin = {(c->kernel_h - 1) * c->dilation.h - c->padding.h,
                       (c->kernel_w - 1) * c->dilation.w - c->padding.w},
            .gap = c->stride,
            .step = {1, 1},
            .weights = weights};
  bool done = run_pass(&s);
  hy__mfree(weights);
  return done;
}

// sums [out][row, column, in] of one group, a band of an image after the other.
static bool add_dweight(const pass* s, int64_t image, int64_t group, int64_t band, float* sums) {
  const conv* c = s->c;
  int64_t first = band * s->lines, left = s->to_h - first;
  int64_t lines = left < s->lines ? left : s->lines;
  int64_t taps = c->in * c->kernel_h * c->kernel_w;
  if (lines <= 0) return true;
  product p = {.c = c, .f = frame_of(s, first, lines)};
  // dy, with zeros where a line of the frame is longer than its own.
  frame dy = {.gap = {1, 1}, .step = {1, 1}, .channels = c->out, .h = lines, .w = p.f.w};
  int64_t x_size = c->in * plane_size(&p.f), dy_size = c->out * plane_size(&dy);
  p.f.data = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)(x_size + dy_size) * sizeof(float));
  if (!p.f.data) return false;
  dy.data = p.f.data + x_size;
  planes from = planes_of(s->from, image, group * c->in);
  fill_frame(c->kernels, &p.f, &from, c->h, c->w);
  from = planes_of(s->to, image, group * c->out);
  from.data += first * from.row * (int64_t)hy_dtype_size(from.dtype);
  fill_frame(c->kernels, &dy, &from, lines, c->out_w);
  hy__gemm g = {.m = c->out, .n = taps, .k = (lines - 1) * p.f.w + c->out_w};
  g.a = (hy__matrix){dy.data, HY_F32, lines * dy.w, 1};
  g.c = sums;
  g.ldc = taps;
  g.accumulate = true;
  g.pack_b = pack_positions;
  g.context = &p;
  return hy__gemm_run(c->kernels->gemm.f32, &g);
}

static void store_dweight(const conv* c, const float* sums, const hy_tensor* dweight) {
  int64_t area = c->kernel_h * c->kernel_w, taps = c->in * area;
  for (int64_t i = 0; i < c->groups * c->out * taps; i++) {
    int64_t k = i % taps / c->in;
    int64_t to = i / taps * dweight->stride[0] + i % c->in * dweight->stride[1] +
                 k / c->kernel_w * dweight->stride[2] + k % c->kernel_w * dweight->stride[3];
    c->kernels->gemm.epilogue(1, sums + i, 1, 0, NULL, 0,
                              (char*)dweight->data + to * (int64_t)hy_dtype_size(dweight->dtype), 1,
                              dweight->dtype);
  }
}

// `odd`: something that is not finite came out.
static bool run_dweight(const conv* c, const hy_tensor* x, const hy_tensor* dy,
                        const hy_tensor* dweight, bool* odd) {
  int64_t of_group = c->out * c->in * c->kernel_h * c->kernel_w, count = c->groups * of_group;
  float* sums = hy__calloc((size_t)(count + 1), sizeof *sums);
  if (!sums) return false;
  pass s = forward_pass(c, x, dy);
  cut_into_bands(&s);
  bool done = true;
  for (int64_t i = 0; done && i < c->images * c->groups * s.bands; i++) {
    int64_t group = i / s.bands % c->groups;
    done = add_dweight(&s, i / s.bands / c->groups, group, i % s.bands, sums + group * of_group);
  }
  *odd = done && !hy__is_finite(sums, count, 1);
  if (done) store_dweight(c, sums, dweight);
  hy__mfree(sums);
  return done;
}

typedef struct dbias_context {
  const conv* c;
  const hy_tensor *dy, *dbias;
} dbias_context;

static void sum_channel(void* context, int64_t o) {
  enum { PIECE = 256 };
  const dbias_context* d = context;
  const conv* c = d->c;
  int64_t size = (int64_t)hy_dtype_size(d->dy->dtype), lines = c->images * c->out_h;
  double sum = 0;
  for (int64_t i = 0; i < lines; i++) {
    planes p = planes_of(d->dy, i / c->out_h, o);
    const char* line = p.data + i % c->out_h * p.row * size;
    for (int64_t x = 0; x < c->out_w; x += PIECE) {
      float piece[PIECE];
      int64_t n = c->out_w - x < PIECE ? c->out_w - x : PIECE;
      c->kernels->gemm.widen(n, line + x * p.column * size, p.column, p.dtype, piece);
      sum += (double)c->kernels->rows->sum(n, piece, HY_F32);
    }
  }
  float total = (float)sum;
  char* to =
      (char*)d->dbias->data + o * d->dbias->stride[0] * (int64_t)hy_dtype_size(d->dbias->dtype);
  c->kernels->gemm.epilogue(1, &total, 1, 0, NULL, 0, to, 1, d->dbias->dtype);
}

static hy_status run_backward(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *x = &call->in[1], *weight = &call->in[2];
  const hy_tensor *dx = &call->out[0], *dweight = &call->out[1], *dbias = &call->out[2];
  if (!hy__tensor_is_finite(weight)) return hy__backend_host->reference(call);
  conv c = describe(kernels, call, x, weight, dy);
  bool done = true, odd = false;
  if (dx->dtype != HY_NONE) done = run_dx(&c, dy, weight, dx);
  if (done && dweight->dtype != HY_NONE) done = run_dweight(&c, x, dy, dweight, &odd);
  if (!done) return hy__cpu_no_memory(call);
  if (odd && !(hy__tensor_is_finite(x) && hy__tensor_is_finite(dy)))
    return hy__backend_host->reference(call);
  dbias_context d = {&c, dy, dbias};
  if (dbias->dtype != HY_NONE) hy__pool_run(sum_channel, &d, c.groups * c.out);
  return HY_OK;
}

static hy_support supports(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_conv = {supports, run};
const hy__cpu_family hy__cpu_conv_backward = {supports, run_backward};
