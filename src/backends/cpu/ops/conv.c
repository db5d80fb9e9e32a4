// conv2d and its gradients as GEMM, an implicit im2col: images are laid out in zero-padded frames
// (gemm/frame.h), a band of image rows at a time, and microkernels read frames in place
// (gemm/indirect.h), or panels of B are packed by copying rows of them. No column matrix is ever
// stored. bf16 images are multiplied as bf16 where there are instructions for it, else as f32.
//
// With taps t = (row, column of the kernel, channel) and positions p of the output:
//   out[o, p] = sum over t of weight[o, t] x[t at p]
//   dweight[o, t] = sum over images and p of dy[o, p] x[t at p]
//   dx[c, q] = sum over (row, column, o) of weight[o, c, row, column] dy[o, where it took q]
// The last is a convolution as well, of dy with the kernel rotated; with a stride, one for each
// remainder of q by it, with those taps that reach such q.
//
// A row of positions is as long as one of the frame, so that all of them form one row of the GEMM:
// those beyond the output's width are computed and dropped, or have no gradient. Padding zeros must
// not meet nonfinite values: such calls go to the reference.
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/ops/conv.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/nonfinite.h"
#include "base/math.h"
#include "base/memory.h"

enum {
  BAND_BYTES = 512 << 10,  // of a frame that is worked on at once: it stays in a core's cache
  GROUP = 256,             // positions that a task multiplies at once
  KC = HY__CONV_KC,
  MAX_MR = 16,
};

static hy__conv describe(const hy__cpu_kernels* kernels, const hy_call* call, const hy_tensor* x,
                         const hy_tensor* weight, const hy_tensor* y) {
  hy_attrs_conv a = call->attrs.conv;
  const hy__gemm_kernels* k = &kernels->gemm;
  bool halves = x->dtype == HY_BF16 && weight->dtype == HY_BF16 && y->dtype == HY_BF16 && k->bf16;
  int n = x->ndim;
  return (hy__conv){.kernels = kernels,
                    .halves = halves,
                    .gemm = halves ? k->bf16 : k->f32,
                    .indirect = halves ? k->indirect_bf16 : k->indirect_f32,
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

hy_dtype hy__conv_number_type(const hy__conv* c) {
  return c->halves ? HY_BF16 : HY_F32;
}

hy__planes hy__conv_planes(const hy_tensor* t, int64_t image, int64_t channel) {
  int n = t->ndim;
  int64_t offset = channel * t->stride[n - 3] + (n == 4 ? image * t->stride[0] : 0);
  return (hy__planes){.data = (const char*)t->data + offset * (int64_t)hy_dtype_size(t->dtype),
                      .dtype = t->dtype,
                      .plane = t->stride[n - 3],
                      .row = t->stride[n - 2],
                      .column = t->stride[n - 1],
                      .h = t->shape[n - 2],
                      .w = t->shape[n - 1]};
}

// ---- bands ----

hy__frame hy__conv_frame(const hy__conv_pass* s, int64_t first, int64_t lines) {
  const hy__conv* c = s->c;
  hy__frame f = {
      .layout = s->layout, .origin = s->origin, .step = s->step, .channels = s->from_channels};
  int64_t reach = max_i64(0, (c->kernel_w - 1) * c->dilation.w / s->step.w);
  f.origin.h -= first * s->step.h;
  f.h = lines + max_i64(0, (c->kernel_h - 1) * c->dilation.h / s->step.h);
  f.w = s->to_w + reach;
  int64_t width = s->from->shape[s->from->ndim - 1];
  int64_t shared = min_i64(reach, min_i64(f.origin.w, f.w - f.origin.w - width));
  if (s->step.w > 1 || shared < 0) shared = 0;
  f.w -= shared;
  f.tail = shared + 1;  // a word of bf16 may begin with the last number
  return f;
}

void hy__conv_cut_into_bands(hy__conv_pass* s) {
  hy__frame one = hy__conv_frame(s, 0, 0);
  int64_t line = hy__frame_planes(&one) * s->step.h * s->step.w * one.w * (int64_t)sizeof(float);
  int64_t lines = BAND_BYTES / (line + 1) - one.h;
  if (lines < one.h + 1) lines = one.h + 1;
  s->bands = (s->to_h + lines - 1) / lines;
  s->lines = s->bands > 0 ? (s->to_h + s->bands - 1) / s->bands : 0;
  hy__frame whole = hy__conv_frame(s, 0, s->lines);
  s->batch = max_i64(1, min_i64(s->c->images, BAND_BYTES / (int64_t)hy__frame_bytes(&whole)));
}

int64_t hy__conv_image_step(const hy_tensor* t) {
  return t->ndim == 4 ? t->stride[0] * (int64_t)hy_dtype_size(t->dtype) : 0;
}

void hy__conv_fill_frames(const hy__conv_pass* s, hy__frame f, int64_t image, int64_t images,
                          int64_t group) {
  for (int64_t i = 0; i < images; i++, f.data = (char*)f.data + hy__frame_bytes(&f)) {
    hy__planes from = hy__conv_planes(s->from, image + i, group * s->from_channels);
    hy__frame_fill(&s->c->kernels->gemm, &f, &from);
  }
}

int64_t hy__conv_tap_place(const hy__conv* c, const hy__frame* f, int64_t area) {
  return hy__frame_place(f, area / c->kernel_w * c->dilation.h, area % c->kernel_w * c->dilation.w);
}

// ---- products with weights ----

// A band of lines of positions, of some images and one group.
typedef struct product {
  const hy__conv* c;
  int64_t images;
  hy__frame f;          // of the first image
  const int64_t* rows;  // word (row, column, channel) of the kernel in the frame
  int64_t words;
  const char* weights;
  int64_t weight_row;  // bytes
  int64_t m, n;
  // Rows of a tile; tiles and groups of positions of a task.
  int64_t part, tiles, groups;
  hy__planes target;  // of the first image: where sums go, [channel][line][column]
  int64_t target_step;
  const hy_tensor* bias;
  int64_t first_channel;
} product;

static void list_rows(const hy__conv* c, const hy__frame* f, int64_t* rows) {
  int64_t planes = hy__frame_planes(f), plane = hy__frame_plane(f);
  for (int64_t area = 0; area < c->kernel_h * c->kernel_w; area++) {
    int64_t place = hy__conv_tap_place(c, f, area);
    for (int64_t i = 0; i < planes; i++) *rows++ = i * plane + place;
  }
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

static void store_sums(const product* p, const hy__planes* t, int64_t i, int64_t j, int m, int n,
                       float* tile, int64_t stride) {
  int64_t size = (int64_t)hy_dtype_size(t->dtype);
  for (int r = 0; r < m; r++) {
    float bias = bias_of(p, i + r);
    for (int c = 0; bias != 0 && c < n; c++) tile[r * stride + c] += bias;
    int64_t y = j / p->f.w, x = j % p->f.w;
    for (int64_t done = 0; done < n; y++, x = 0) {
      int64_t count = min_i64(p->f.w - x, n - done), wanted = min_i64(t->w - x, count);
      char* to = (char*)t->data + ((i + r) * t->plane + y * t->row + x * t->column) * size;
      if (wanted > 0)
        p->c->kernels->gemm.epilogue(wanted, tile + r * stride + done, 1, 0, NULL, 0, to, t->column,
                                     t->dtype);
      done += count;
    }
  }
}

// A tile of rows with a group of positions.
static void multiply_group(const product* p, int64_t i, int64_t group) {
  const hy__indirect_kernel* kernel = p->c->indirect;
  float sums[MAX_MR * GROUP] __attribute__((aligned(64)));
  int64_t groups = ceil_div(p->n, GROUP), image = group / groups, j = group % groups * GROUP;
  const char* frame = (const char*)p->f.data + image * (int64_t)hy__frame_bytes(&p->f);
  hy__planes target = p->target;
  target.data += image * p->target_step;
  int m = (int)min_i64(p->part, p->m - i), width = (int)min_i64(GROUP, p->n - j);
  int64_t k = 0;
  do {
    int words = (int)min_i64(KC, p->words - k);
    for (int v = 0; v < width; v += kernel->nr)
      kernel->multiply(words, p->weights + i * p->weight_row + k * 4, p->weight_row,
                       (const float*)frame + j + v, p->rows + k, sums + v, GROUP, m,
                       (int)min_i64(kernel->nr, width - v), k > 0);
    k += words;
  } while (k < p->words);
  store_sums(p, &target, i, j, m, width, sums, GROUP);
}

// The weights of a tile stay near while positions pass.
static void multiply_task(void* context, int64_t task) {
  const product* p = context;
  int64_t rows = p->part * p->tiles, parts = ceil_div(p->m, rows);
  int64_t groups = p->images * ceil_div(p->n, GROUP), first = task / parts * p->groups;
  int64_t row = task % parts * rows;
  for (int64_t i = row; i < min_i64(p->m, row + rows); i += p->part) {
    for (int64_t g = first; g < min_i64(groups, first + p->groups); g++) multiply_group(p, i, g);
  }
}

// Into some tasks for each thread, by rows first where the weights are more than the images.
static void multiply_in_place(product* p, bool alone) {
  int64_t tiles = ceil_div(p->m, p->c->indirect->mr), groups = p->images * ceil_div(p->n, GROUP);
  int64_t tasks = alone ? 1 : 4 * (int64_t)hy__pool_threads();
  bool by_rows = p->m * p->weight_row > p->images * (int64_t)hy__frame_bytes(&p->f);
  int64_t parts = min_i64(tiles, by_rows ? tasks : ceil_div(tasks, groups));
  p->part = ceil_div(p->m, tiles);
  p->tiles = ceil_div(tiles, parts);
  parts = ceil_div(p->m, p->part * p->tiles);
  p->groups = ceil_div(groups, min_i64(groups, ceil_div(tasks, parts)));
  hy__pool_run(multiply_task, p, parts * ceil_div(groups, p->groups));
}

static void pack_taps(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                      float* packed) {
  const product* p = context;
  const hy__gemm_kernel* gemm = p->c->gemm;
  int words = depth / gemm->unit;
  const int64_t* rows = p->rows + k / gemm->unit;
  const float* b = (const float*)p->f.data + j;
  for (int i = 0; i < words; i++, packed += panel) {
    memcpy(packed, b + rows[i], (size_t)n * sizeof *packed);
    memset(packed + n, 0, (size_t)(panel - n) * sizeof *packed);
  }
  memset(packed, 0, (size_t)((hy__gemm_words(gemm, depth) - words) * panel) * sizeof *packed);
}

static void finish(const void* context, int64_t i, int64_t j, int m, int n, float* sums,
                   int64_t stride) {
  const product* p = context;
  store_sums(p, &p->target, i, j, m, n, sums, stride);
}

static bool multiply_packed(product p) {
  const hy__conv* c = p.c;
  int64_t size = (int64_t)hy_dtype_size(hy__conv_number_type(c));
  hy__gemm g = {.m = p.m, .n = p.n, .k = p.words * c->gemm->unit};
  g.a = (hy__matrix){(void*)p.weights, hy__conv_number_type(c), p.weight_row / size, 1};
  g.epilogue = finish;
  g.pack_b = pack_taps;
  g.context = &p;
  bool done = true;
  for (int64_t i = 0; i < p.images && done; i++) {
    done = hy__gemm_run(c->gemm, &g);
    p.f.data = (char*)p.f.data + hy__frame_bytes(&p.f);
    p.target.data += p.target_step;
  }
  return done;
}

// `alone`: other bands are run by other threads.
static bool run_band(const hy__conv_pass* s, int64_t image, int64_t group, int64_t band,
                     bool alone) {
  const hy__conv* c = s->c;
  int64_t first = band * s->lines, lines = min_i64(s->to_h - first, s->lines);
  if (lines <= 0 || s->to_w <= 0) return true;
  product p = {.c = c, .f = hy__conv_frame(s, first, lines), .bias = s->bias};
  p.images = min_i64(s->batch, c->images - image);
  p.words = hy__frame_planes(&p.f) * c->kernel_h * c->kernel_w;
  size_t frames = (size_t)p.images * hy__frame_bytes(&p.f);
  p.f.data = hy__scratch_get(HY__SCRATCH_ROWS, frames + (size_t)p.words * sizeof *p.rows);
  if (!p.f.data) return false;
  int64_t* rows = (int64_t*)((char*)p.f.data + frames);
  list_rows(c, &p.f, rows);
  p.rows = rows;
  hy__conv_fill_frames(s, p.f, image, p.images, group);
  p.target = hy__conv_planes(s->to, image, group * s->to_channels);
  p.target.data += first * p.target.row * (int64_t)hy_dtype_size(p.target.dtype);
  p.target_step = hy__conv_image_step(s->to);
  p.first_channel = group * s->to_channels;
  p.weights = s->weights + p.first_channel * s->weight_row;
  p.weight_row = s->weight_row;
  p.m = s->to_channels;
  p.n = (lines - 1) * p.f.w + s->to_w;
  if (!c->indirect) return multiply_packed(p);
  multiply_in_place(&p, alone);
  return true;
}

static void run_task(void* context, int64_t i) {
  hy__conv_pass* s = context;
  int64_t batch = i / s->bands / s->c->groups, group = i / s->bands % s->c->groups;
  if (!run_band(s, batch * s->batch, group, i % s->bands, true)) atomic_store(&s->failed, true);
}

// Bands are divided among the threads where there are enough of them, else each product is.
static bool run_bands(hy__conv_pass* s) {
  hy__conv_cut_into_bands(s);
  const hy__conv* c = s->c;
  int64_t enough = 2 * (int64_t)hy__pool_threads(), bands = s->bands * c->groups;
  if (c->images * bands >= enough) {
    s->batch = min_i64(s->batch, c->images * bands / enough);
    hy__pool_run(run_task, s, ceil_div(c->images, s->batch) * bands);
    return !atomic_load(&s->failed);
  }
  bool done = true;
  for (int64_t i = 0; i < c->images && done; i += s->batch) {
    for (int64_t b = 0; b < bands && done; b++)
      done = run_band(s, i, b / s->bands, b % s->bands, false);
  }
  return done;
}

// ---- weights ----

// The weights as rows of A, [group][out][row, column, in]; or turned: [group][in][row, column,
// out], rows and columns backwards. In bf16 the channels of a tap are even in number, the last 0.
typedef struct weight_copy {
  const hy__conv* c;
  const hy_tensor* weight;
  bool turned;
  int64_t row;  // bytes
  char* data;
  atomic_bool nonfinite;
} weight_copy;

static bool halves_are_finite(const uint16_t* x, int64_t n) {
  enum { EXPONENT = 0x7f80 };
  uint16_t nonfinite = 0;
  for (int64_t i = 0; i < n; i++) nonfinite |= (x[i] & EXPONENT) == EXPONENT;
  return !nonfinite;
}

static void copy_weight_row(void* context, int64_t r) {
  weight_copy* w = context;
  const hy__conv* c = w->c;
  const hy_tensor* t = w->weight;
  int64_t area = c->kernel_h * c->kernel_w, size = (int64_t)hy_dtype_size(t->dtype);
  int64_t n = w->turned ? c->out : c->in, step = t->stride[w->turned ? 0 : 1];
  const char* from = (const char*)t->data + r * t->stride[0] * size;
  if (w->turned)
    from = (const char*)t->data +
           (r / c->in * c->out * t->stride[0] + r % c->in * t->stride[1]) * size;
  char* row = w->data + r * w->row;
  for (int64_t a = 0; a < area; a++) {
    int64_t k = w->turned ? area - 1 - a : a;
    const char* tap =
        from + (k / c->kernel_w * t->stride[2] + k % c->kernel_w * t->stride[3]) * size;
    if (!c->halves) {
      c->kernels->gemm.widen(n, tap, step, t->dtype, (float*)row + a * n);
      continue;
    }
    uint16_t* to = (uint16_t*)row + a * round_up(n, 2);
    for (int64_t i = 0; i < n; i++) to[i] = ((const uint16_t*)tap)[i * step];
    if (n % 2) to[n] = 0;
  }
  bool finite = c->halves ? halves_are_finite((uint16_t*)row, area * round_up(n, 2))
                          : hy__is_finite((float*)row, area * n, 1);
  if (!finite) atomic_store(&w->nonfinite, true);
}

// Runs the pass with a copy of the weights.
static hy__conv_outcome run_pass(hy__conv_pass* s, const hy_tensor* weight, bool turned) {
  const hy__conv* c = s->c;
  int64_t rows = c->groups * s->to_channels, area = c->kernel_h * c->kernel_w;
  int64_t words = area * (c->halves ? ceil_div(s->from_channels, 2) : s->from_channels);
  // An odd number of cache lines, so that rows do not compete for the same sets of a cache.
  weight_copy w = {c, weight, turned, (ceil_div(words, 16) | 1) * 64, NULL, false};
  w.data = hy__malloc((size_t)(rows * w.row + 1));
  if (!w.data) return HY__CONV_NO_MEMORY;
  hy__pool_run(copy_weight_row, &w, rows);
  s->weights = w.data;
  s->weight_row = w.row;
  hy__conv_outcome outcome = HY__CONV_NONFINITE;
  if (!atomic_load(&w.nonfinite)) outcome = run_bands(s) ? HY__CONV_DONE : HY__CONV_NO_MEMORY;
  hy__mfree(w.data);
  return outcome;
}

// ---- forward ----

static hy__conv_pass forward_pass(const hy__conv* c, const hy_tensor* x, const hy_tensor* y) {
  return (hy__conv_pass){.c = c,
                         .from = x,
                         .to = y,
                         .from_channels = c->in,
                         .to_channels = c->out,
                         .to_h = c->out_h,
                         .to_w = c->out_w,
                         .origin = c->padding,
                         .step = c->stride,
                         .layout = c->halves ? HY__FRAME_PAIRS : HY__FRAME_F32};
}

static hy_status status_of(const hy_call* call, hy__conv_outcome outcome) {
  if (outcome == HY__CONV_NONFINITE) return hy__backend_host->reference(call);
  return outcome == HY__CONV_DONE ? HY_OK : hy__cpu_no_memory(call);
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[1], *y = &call->out[0];
  hy__conv c = describe(kernels, call, x, weight, y);
  hy__conv_pass s = forward_pass(&c, x, y);
  s.bias = &call->in[2];
  return status_of(call, run_pass(&s, weight, false));
}

// ---- backward: dx ----

// Along an axis, places of dx of one remainder by the stride: `size` of them, from which every
// `step`-th tap from `first` on leads to an element of dy, as in a convolution of stride 1.
typedef struct remainder_taps {
  int64_t size, first, step, count;
  int64_t dilation, origin;
} remainder_taps;

static int64_t gcd(int64_t a, int64_t b) {
  while (b != 0) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static remainder_taps taps_of(int64_t remainder, int64_t size, int64_t kernel, int64_t stride,
                              int64_t dilation, int64_t padding) {
  int64_t common = gcd(stride, dilation), at = remainder + padding;
  remainder_taps t = {.size = ceil_div(max_i64(0, size - remainder), stride),
                      .step = stride / common,
                      .dilation = dilation / common};
  int64_t tried = min_i64(kernel, t.step);
  while (t.first < tried && (at - t.first * dilation) % stride != 0) t.first++;
  if (t.first == tried) return t;
  t.count = ceil_div(kernel - t.first, t.step);
  t.origin = (t.count - 1) * t.dilation - (at - t.first * dilation) / stride;
  return t;
}

// Every `step`-th of a dimension from `first` on.
static void take_every(hy_tensor* t, int dim, int64_t first, int64_t step, int64_t count) {
  t->data = (char*)t->data + first * t->stride[dim] * (int64_t)hy_dtype_size(t->dtype);
  t->stride[dim] *= step;
  t->shape[dim] = count;
}

static hy__conv_outcome run_dx_remainder(const hy__conv* c, const hy_tensor* dy, hy_tensor weight,
                                         hy_tensor dx, hy_pair remainder) {
  remainder_taps h =
      taps_of(remainder.h, c->h, c->kernel_h, c->stride.h, c->dilation.h, c->padding.h);
  remainder_taps w =
      taps_of(remainder.w, c->w, c->kernel_w, c->stride.w, c->dilation.w, c->padding.w);
  take_every(&weight, 2, h.first, h.step, h.count);
  take_every(&weight, 3, w.first, w.step, w.count);
  take_every(&dx, dx.ndim - 2, remainder.h, c->stride.h, h.size);
  take_every(&dx, dx.ndim - 1, remainder.w, c->stride.w, w.size);
  hy__conv part = *c;
  part.kernel_h = h.count;
  part.kernel_w = w.count;
  part.dilation = (hy_pair){h.dilation, w.dilation};
  hy__conv_pass s = {.c = &part,
                     .from = dy,
                     .to = &dx,
                     .from_channels = c->out,
                     .to_channels = c->in,
                     .to_h = h.size,
                     .to_w = w.size,
                     .origin = {h.origin, w.origin},
                     .step = {1, 1},
                     .layout = c->halves ? HY__FRAME_PAIRS : HY__FRAME_F32};
  return run_pass(&s, &weight, true);
}

static hy__conv_outcome run_dx(const hy__conv* c, const hy_tensor* dy, const hy_tensor* weight,
                               const hy_tensor* dx) {
  hy__conv_outcome outcome = HY__CONV_DONE;
  for (int64_t h = 0; h < min_i64(c->stride.h, c->h); h++) {
    for (int64_t w = 0; w < min_i64(c->stride.w, c->w) && outcome == HY__CONV_DONE; w++)
      outcome = run_dx_remainder(c, dy, *weight, *dx, (hy_pair){h, w});
  }
  return outcome;
}

// ---- backward: dbias ----

typedef struct dbias_context {
  const hy__conv* c;
  const hy_tensor *dy, *dbias;
} dbias_context;

static void sum_channel(void* context, int64_t o) {
  enum { PIECE = 256 };
  const dbias_context* d = context;
  const hy__conv* c = d->c;
  int64_t size = (int64_t)hy_dtype_size(d->dy->dtype), lines = c->images * c->out_h;
  double sum = 0;
  for (int64_t i = 0; i < lines; i++) {
    hy__planes p = hy__conv_planes(d->dy, i / c->out_h, o);
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
  hy__conv c = describe(kernels, call, x, weight, dy);
  hy__conv_outcome outcome = HY__CONV_DONE;
  if (dx->dtype != HY_NONE) outcome = run_dx(&c, dy, weight, dx);
  if (outcome == HY__CONV_DONE && dweight->dtype != HY_NONE) {
    hy__conv_pass s = forward_pass(&c, x, dy);
    outcome = hy__conv_dweight(&s, dweight);
  }
  dbias_context d = {&c, dy, dbias};
  if (outcome == HY__CONV_DONE && dbias->dtype != HY_NONE)
    hy__pool_run(sum_channel, &d, c.groups * c.out);
  return status_of(call, outcome);
}

static hy_support supports(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_conv = {supports, run};
const hy__cpu_family hy__cpu_conv_backward = {supports, run_backward};
