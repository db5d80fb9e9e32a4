// conv2d and its gradients as GEMM, an implicit im2col: images are laid out in zero-padded frames
// (gemm/frame.h), a band of image rows at a time, and microkernels read frames in place
// (gemm/indirect.h), or panels of B are packed by copying rows of them. No column matrix is ever
// stored. bf16 images are multiplied as bf16 where there are instructions for it, else as f32.
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
#include "backends/cpu/gemm/frame.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/nonfinite.h"
#include "base/math.h"
#include "base/memory.h"

enum {
  BAND_BYTES = 512 << 10,  // of a frame that is worked on at once: it stays in a core's cache
  GROUP = 256,             // positions that a task multiplies at once
  KC = 512,                // words of a block of k
  PACK_WORDS = 256,        // likewise, of dy that is packed at once
  MAX_MR = 16,
};

typedef struct conv {
  const hy__cpu_kernels* kernels;
  bool halves;                          // bf16 is multiplied as bf16
  const hy__gemm_kernel* gemm;          // for that type
  const hy__indirect_kernel* indirect;  // likewise; NULL: B is packed
  int64_t images, groups, in, out;      // channels of one group
  int64_t h, w, out_h, out_w, kernel_h, kernel_w;
  hy_pair stride, padding, dilation;
} conv;

static conv describe(const hy__cpu_kernels* kernels, const hy_call* call, const hy_tensor* x,
                     const hy_tensor* weight, const hy_tensor* y) {
  hy_attrs_conv a = call->attrs.conv;
  const hy__gemm_kernels* k = &kernels->gemm;
  bool halves = x->dtype == HY_BF16 && weight->dtype == HY_BF16 && y->dtype == HY_BF16 && k->bf16;
  int n = x->ndim;
  return (conv){.kernels = kernels,
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

static hy_dtype number_type(const conv* c) {
  return c->halves ? HY_BF16 : HY_F32;
}

static hy__planes planes_of(const hy_tensor* t, int64_t image, int64_t channel) {
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

// A convolution of planes, forward or turned, with `weights` [group][to][row, column, from].
typedef struct pass {
  const conv* c;
  const hy_tensor *from, *to, *bias;
  int64_t from_channels, to_channels;  // of a group
  int64_t to_h, to_w;
  hy_pair origin, gap, step;
  hy__frame_layout layout;
  int64_t lines, bands;  // of the target, to a band; bands to a plane
  const char* weights;
  int64_t weight_row;  // bytes
  atomic_bool failed;
} pass;

// The frame of lines first .. first + lines - 1 of positions. Where both sides are padded, the
// zeros before a row are those behind the row above.
static hy__frame frame_of(const pass* s, int64_t first, int64_t lines) {
  const conv* c = s->c;
  hy__frame f = {.layout = s->layout,
                 .origin = s->origin,
                 .gap = s->gap,
                 .step = s->step,
                 .channels = s->from_channels};
  int64_t reach = (c->kernel_w - 1) * c->dilation.w / s->step.w;
  f.origin.h -= first * s->step.h;
  f.h = lines + (c->kernel_h - 1) * c->dilation.h / s->step.h;
  f.w = s->to_w + reach;
  int64_t width = (s->from->shape[s->from->ndim - 1] - 1) * f.gap.w + 1;
  int64_t shared = min_i64(reach, min_i64(f.origin.w, f.w - f.origin.w - width));
  if (s->step.w > 1 || shared < 0) shared = 0;
  f.w -= shared;
  f.tail = shared + 1;  // a word of bf16 may begin with the last number
  return f;
}

static void cut_into_bands(pass* s) {
  hy__frame one = frame_of(s, 0, 0);
  int64_t line = hy__frame_planes(&one) * s->step.h * s->step.w * one.w * (int64_t)sizeof(float);
  int64_t lines = BAND_BYTES / (line + 1) - one.h;
  if (lines < one.h + 1) lines = one.h + 1;
  s->bands = (s->to_h + lines - 1) / lines;
  s->lines = s->bands > 0 ? (s->to_h + s->bands - 1) / s->bands : 0;
}

// Where the first channel of what a tap reads is in a plane.
static int64_t tap_place(const conv* c, const hy__frame* f, int64_t area) {
  return hy__frame_place(f, area / c->kernel_w * c->dilation.h, area % c->kernel_w * c->dilation.w);
}

// ---- products with weights ----

// A band of lines of positions, of one image and group.
typedef struct product {
  const conv* c;
  hy__frame f;
  const int64_t* rows;  // word (row, column, channel) of the kernel in the frame
  int64_t words;
  const char* weights;
  int64_t weight_row;  // bytes
  int64_t m, n;
  int64_t part, parts;  // rows of a tile, and tiles of a task
  hy__planes target;    // where sums go, [channel][line][column]
  const hy_tensor* bias;
  int64_t first_channel;
} product;

static void list_rows(const conv* c, const hy__frame* f, int64_t* rows) {
  int64_t planes = hy__frame_planes(f), plane = hy__frame_plane(f);
  for (int64_t area = 0; area < c->kernel_h * c->kernel_w; area++) {
    int64_t place = tap_place(c, f, area);
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

static void finish(const void* context, int64_t i, int64_t j, int m, int n, float* tile,
                   int64_t stride) {
  const product* p = context;
  const hy__planes* t = &p->target;
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

// Some row tiles of a group of positions. The weights of a tile stay in L1 while positions pass.
static void multiply_group(void* context, int64_t task) {
  const product* p = context;
  const hy__indirect_kernel* kernel = p->c->indirect;
  float sums[MAX_MR * GROUP] __attribute__((aligned(64)));
  int64_t chunk = p->part * p->parts, chunks = ceil_div(p->m, chunk);
  int64_t j = task / chunks * GROUP, first = task % chunks * chunk;
  int width = (int)min_i64(GROUP, p->n - j);
  const float* b = (const float*)p->f.data + j;
  for (int64_t i = first; i < min_i64(p->m, first + chunk); i += p->part) {
    int m = (int)min_i64(p->part, p->m - i);
    int64_t k = 0;
    do {
      int words = (int)min_i64(KC, p->words - k);
      for (int v = 0; v < width; v += kernel->nr)
        kernel->multiply(words, p->weights + i * p->weight_row + k * 4, p->weight_row, b + v,
                         p->rows + k, sums + v, GROUP, m, (int)min_i64(kernel->nr, width - v),
                         k > 0);
      k += words;
    } while (k < p->words);
    finish(p, i, j, m, width, sums, GROUP);
  }
}

static void multiply_in_place(product* p) {
  int64_t tiles = ceil_div(p->m, p->c->indirect->mr), groups = ceil_div(p->n, GROUP);
  int64_t chunks = min_i64(tiles, ceil_div(4 * (int64_t)hy__pool_threads(), groups));
  p->part = ceil_div(p->m, tiles);
  p->parts = ceil_div(tiles, chunks);
  hy__pool_run(multiply_group, p, groups * ceil_div(p->m, p->part * p->parts));
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

static bool multiply_packed(const product* p) {
  const conv* c = p->c;
  int64_t size = (int64_t)hy_dtype_size(number_type(c));
  hy__gemm g = {.m = p->m, .n = p->n, .k = p->words * c->gemm->unit};
  g.a = (hy__matrix){(void*)p->weights, number_type(c), p->weight_row / size, 1};
  g.epilogue = finish;
  g.pack_b = pack_taps;
  g.context = p;
  return hy__gemm_run(c->gemm, &g);
}

static bool run_band(const pass* s, int64_t image, int64_t group, int64_t band) {
  const conv* c = s->c;
  int64_t first = band * s->lines, lines = min_i64(s->to_h - first, s->lines);
  if (lines <= 0 || s->to_w <= 0) return true;
  product p = {.c = c, .f = frame_of(s, first, lines), .bias = s->bias};
  p.words = hy__frame_planes(&p.f) * c->kernel_h * c->kernel_w;
  size_t frame = hy__frame_bytes(&p.f);
  p.f.data = hy__scratch_get(HY__SCRATCH_ROWS, frame + (size_t)p.words * sizeof *p.rows);
  if (!p.f.data) return false;
  int64_t* rows = (int64_t*)((char*)p.f.data + frame);
  list_rows(c, &p.f, rows);
  p.rows = rows;
  hy__planes from = planes_of(s->from, image, group * s->from_channels);
  hy__frame_fill(&c->kernels->gemm, &p.f, &from);
  p.target = planes_of(s->to, image, group * s->to_channels);
  p.target.data += first * p.target.row * (int64_t)hy_dtype_size(p.target.dtype);
  p.first_channel = group * s->to_channels;
  p.weights = s->weights + p.first_channel * s->weight_row;
  p.weight_row = s->weight_row;
  p.m = s->to_channels;
  p.n = (lines - 1) * p.f.w + s->to_w;
  if (!c->indirect) return multiply_packed(&p);
  multiply_in_place(&p);
  return true;
}

static void run_task(void* context, int64_t i) {
  pass* s = context;
  int64_t band = i % s->bands, image = i / s->bands / s->c->groups;
  if (!run_band(s, image, i / s->bands % s->c->groups, band)) atomic_store(&s->failed, true);
}

// Bands are divided among the threads where there are enough of them, else each product is.
static bool run_bands(pass* s) {
  cut_into_bands(s);
  int64_t count = s->c->images * s->c->groups * s->bands;
  if (count >= 2 * (int64_t)hy__pool_threads()) {
    hy__pool_run(run_task, s, count);
  } else {
    for (int64_t i = 0; i < count; i++) run_task(s, i);
  }
  return !atomic_load(&s->failed);
}

// ---- weights ----

// The weights as rows of A, [group][out][row, column, in]; or turned: [group][in][row, column,
// out], rows and columns backwards. In bf16 the channels of a tap are even in number, the last 0.
typedef struct weight_copy {
  const conv* c;
  const hy_tensor* weight;
  bool turned;
  int64_t row;  // bytes
  char* data;
} weight_copy;

static void copy_weight_row(void* context, int64_t r) {
  const weight_copy* w = context;
  const conv* c = w->c;
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
}

// Runs the pass with a copy of the weights; false: no memory.
static bool run_pass(pass* s, const hy_tensor* weight, bool turned) {
  const conv* c = s->c;
  int64_t rows = c->groups * s->to_channels, area = c->kernel_h * c->kernel_w;
  int64_t words = area * (c->halves ? ceil_div(s->from_channels, 2) : s->from_channels);
  // An odd number of cache lines, so that rows do not compete for the same sets of a cache.
  weight_copy w = {c, weight, turned, (ceil_div(words, 16) | 1) * 64, NULL};
  w.data = hy__malloc((size_t)(rows * w.row + 1));
  if (!w.data) return false;
  hy__pool_run(copy_weight_row, &w, rows);
  s->weights = w.data;
  s->weight_row = w.row;
  bool done = run_bands(s);
  hy__mfree(w.data);
  return done;
}

// ---- forward ----

static pass forward_pass(const conv* c, const hy_tensor* x, const hy_tensor* y) {
  return (pass){.c = c,
                .from = x,
                .to = y,
                .from_channels = c->in,
                .to_channels = c->out,
                .to_h = c->out_h,
                .to_w = c->out_w,
                .origin = c->padding,
                .gap = {1, 1},
                .step = c->stride,
                .layout = c->halves ? HY__FRAME_PAIRS : HY__FRAME_F32};
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[1], *y = &call->out[0];
  if (!hy__tensor_is_finite(weight)) return hy__backend_host->reference(call);
  conv c = describe(kernels, call, x, weight, y);
  pass s = forward_pass(&c, x, y);
  s.bias = &call->in[2];
  return run_pass(&s, weight, false) ? HY_OK : hy__cpu_no_memory(call);
}

// ---- backward: dx ----

static bool run_dx(const conv* c, const hy_tensor* dy, const hy_tensor* weight,
                   const hy_tensor* dx) {
  pass s = {.c = c,
            .from = dy,
            .to = dx,
            .from_channels = c->out,
            .to_channels = c->in,
            .to_h = c->h,
            .to_w = c->w,
            .origin = {(c->kernel_h - 1) * c->dilation.h - c->padding.h,
                       (c->kernel_w - 1) * c->dilation.w - c->padding.w},
            .gap = c->stride,
            .step = {1, 1},
            .layout = c->halves ? HY__FRAME_PAIRS : HY__FRAME_F32};
  return run_pass(&s, weight, true);
}

// ---- backward: dweight ----

// A band of one image and group; positions are along the sum. Microkernels that read in place take
// the frame of x as A, a tap at a time, and dy packed as B, once for all taps: sums [tap][in][out].
// Otherwise dy is A, and panels of taps are packed: sums [out][tap][in].
typedef struct dweight_band {
  const conv* c;
  hy__frame x;
  hy__planes dy;
  int64_t k;  // positions
  float *packed, *sums;
  int64_t rows[KC];     // of a panel of packed dy
  int64_t part, parts;  // rows of a tile, and tiles of a tap
  atomic_bool failed;
} dweight_band;

// What a tap reads from channel `first` on: channels in columns.
static hy__matrix taken(const dweight_band* d, int64_t area, int64_t first) {
  int64_t plane = hy__frame_plane(&d->x), size = (int64_t)hy_dtype_size(number_type(d->c));
  char* data = (char*)d->x.data + (first * plane + tap_place(d->c, &d->x, area)) * size;
  return (hy__matrix){data, number_type(d->c), 1, plane};
}

// Positions k .. k + depth - 1 of a plane of dy, with zeros where a line of the frame is longer
// than its own.
static void copy_positions(const dweight_band* d, int64_t channel, int64_t k, int64_t depth,
                           char* to) {
  const hy__planes* dy = &d->dy;
  int64_t size = (int64_t)hy_dtype_size(dy->dtype);
  int64_t number = (int64_t)hy_dtype_size(number_type(d->c));
  for (int64_t end = k + depth, count; k < end; k += count, to += count * number) {
    int64_t y = k / d->x.w, x = k % d->x.w;
    count = min_i64(d->x.w - x, end - k);
    int64_t n = max_i64(0, min_i64(dy->w - x, count));
    const char* from = dy->data + (channel * dy->plane + y * dy->row + x * dy->column) * size;
    if (number == size && dy->column == 1)
      memcpy(to, from, (size_t)(n * size));
    else if (d->c->halves)
      for (int64_t i = 0; i < n; i++) memcpy(to + i * 2, from + i * dy->column * 2, 2);
    else
      d->c->kernels->gemm.widen(n, from, dy->column, dy->dtype, (float*)to);
    memset(to + n * number, 0, (size_t)((count - n) * number));
  }
}

static void pack_dy(void* context, int64_t task) {
  dweight_band* d = context;
  const hy__gemm_kernel* gemm = d->c->gemm;
  int64_t depth = (int64_t)PACK_WORDS * gemm->unit, blocks = ceil_div(d->k, depth);
  int64_t k = task % blocks * depth, j = task / blocks * gemm->nr;
  int64_t row = PACK_WORDS * 4 + 64;  // bytes; an odd number of cache lines
  int n = (int)min_i64(gemm->nr, d->c->out - j);
  depth = min_i64(depth, d->k - k);
  char* lines = hy__scratch_get(HY__SCRATCH_GEMM_A, (size_t)(n * row));
  if (!lines) {
    atomic_store(&d->failed, true);
    return;
  }
  for (int i = 0; i < n; i++) copy_positions(d, j + i, k, depth, lines + i * row);
  hy__matrix b = {lines, number_type(d->c), 1, row / (4 / gemm->unit)};
  gemm->pack_b(&b, 0, (int)depth, 0, n,
               d->packed + j * ceil_div(d->k, gemm->unit) + k / gemm->unit * gemm->nr);
}

static void multiply_tap(void* context, int64_t task) {
  const dweight_band* d = context;
  const conv* c = d->c;
  const hy__indirect_kernel* kernel = c->indirect;
  int64_t panel = c->gemm->nr, words = ceil_div(d->k, kernel->unit);
  int64_t area = task / d->parts, first = task % d->parts * d->part;
  int m = (int)min_i64(d->part, c->in - first);
  if (m <= 0) return;
  hy__matrix x = taken(d, area, first);
  int64_t x_row = x.column * (int64_t)hy_dtype_size(x.dtype);
  float* sums = d->sums + (area * c->in + first) * c->out;
  for (int64_t k = 0; k < words; k += KC) {
    int depth = (int)min_i64(KC, words - k);
    for (int64_t j = 0; j < c->out;) {
      int64_t n = min_i64(min_i64(kernel->nr, panel - j % panel), c->out - j);
      kernel->multiply(depth, (const char*)x.data + k * 4, x_row,
                       d->packed + j / panel * panel * words + k * panel + j % panel, d->rows,
                       sums + j, c->out, m, (int)n, true);
      j += n;
    }
  }
}

static bool add_in_place(dweight_band* d) {
  const conv* c = d->c;
  const hy__gemm_kernel* gemm = c->gemm;
  int64_t panels = ceil_div(c->out, gemm->nr), words = ceil_div(d->k, gemm->unit);
  d->packed =
      hy__scratch_get(HY__SCRATCH_GEMM_B, (size_t)(panels * gemm->nr * words) * sizeof *d->packed);
  if (!d->packed) return false;
  hy__pool_run(pack_dy, d, panels * ceil_div(words, PACK_WORDS));
  if (atomic_load(&d->failed)) return false;
  for (int k = 0; k < KC; k++) d->rows[k] = (int64_t)k * gemm->nr;
  d->parts = ceil_div(c->in, c->indirect->mr);
  d->part = ceil_div(c->in, d->parts);
  hy__pool_run(multiply_tap, d, c->kernel_h * c->kernel_w * d->parts);
  return true;
}

// Those of several places of the kernel are brought together first.
static void pack_positions(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                           float* packed) {
  (void)panel;
  const dweight_band* d = context;
  int64_t in = d->c->in, size = (int64_t)hy_dtype_size(number_type(d->c));
  hy__matrix b = taken(d, j / in, j % in);
  if (j % in + n <= in) {
    d->c->gemm->pack_b(&b, k, depth, 0, n, packed);
    return;
  }
  float lines[HY__GEMM_MAX_NR * HY__GEMM_MAX_KC];
  for (int i = 0; i < n; i++) {
    b = taken(d, (j + i) / in, (j + i) % in);
    memcpy((char*)lines + i * depth * size, (char*)b.data + k * size, (size_t)(depth * size));
  }
  b = (hy__matrix){lines, b.dtype, 1, depth};
  d->c->gemm->pack_b(&b, 0, depth, 0, n, packed);
}

static bool add_packed(const dweight_band* d) {
  const conv* c = d->c;
  int64_t taps = c->in * c->kernel_h * c->kernel_w;
  int64_t row = round_up(d->k, 16), size = (int64_t)hy_dtype_size(number_type(c));
  char* dy = hy__scratch_get(HY__SCRATCH_KEYS, (size_t)(c->out * row * size));
  if (!dy) return false;
  for (int64_t o = 0; o < c->out; o++) copy_positions(d, o, 0, d->k, dy + o * row * size);
  hy__gemm g = {.m = c->out, .n = taps, .k = d->k, .c = d->sums, .ldc = taps, .accumulate = true};
  g.a = (hy__matrix){dy, number_type(c), row, 1};
  g.pack_b = pack_positions;
  g.context = d;
  return hy__gemm_run(c->gemm, &g);
}

static bool add_dweight(const pass* s, int64_t image, int64_t group, int64_t band, float* sums) {
  const conv* c = s->c;
  int64_t first = band * s->lines, lines = min_i64(s->to_h - first, s->lines);
  if (lines <= 0 || s->to_w <= 0) return true;
  dweight_band d = {.c = c, .x = frame_of(s, first, lines), .sums = sums};
  d.k = (lines - 1) * d.x.w + c->out_w;
  d.x.data = hy__scratch_get(HY__SCRATCH_ROWS, hy__frame_bytes(&d.x));
  if (!d.x.data) return false;
  hy__planes from = planes_of(s->from, image, group * c->in);
  hy__frame_fill(&c->kernels->gemm, &d.x, &from);
  d.dy = planes_of(s->to, image, group * c->out);
  d.dy.data += first * d.dy.row * (int64_t)hy_dtype_size(d.dy.dtype);
  return c->indirect ? add_in_place(&d) : add_packed(&d);
}

typedef struct dweight_context {
  const conv* c;
  const float* sums;
  const hy_tensor* dweight;
} dweight_context;

static void store_dweight(void* context, int64_t o) {
  enum { PIECE = 256 };
  const dweight_context* d = context;
  const conv* c = d->c;
  const hy_tensor* t = d->dweight;
  int64_t area = c->kernel_h * c->kernel_w, size = (int64_t)hy_dtype_size(t->dtype);
  // Of sums [tap][in][out], or [out][tap][in].
  int64_t step = c->indirect ? c->out : 1,
          from = c->indirect ? o % c->out : o % c->out * area * c->in;
  const float* sums = d->sums + o / c->out * c->out * area * c->in + from;
  for (int64_t k = 0; k < area; k++) {
    for (int64_t i = 0; i < c->in; i += PIECE) {
      float piece[PIECE];
      int64_t n = min_i64(PIECE, c->in - i);
      for (int64_t at = 0; at < n; at++) piece[at] = sums[(k * c->in + i + at) * step];
      int64_t to = o * t->stride[0] + i * t->stride[1] + k / c->kernel_w * t->stride[2] +
                   k % c->kernel_w * t->stride[3];
      c->kernels->gemm.epilogue(n, piece, 1, 0, NULL, 0, (char*)t->data + to * size, t->stride[1],
                                t->dtype);
    }
  }
}

// A band of an image after the other. `odd`: something that is not finite came out.
static bool run_dweight(const conv* c, const hy_tensor* x, const hy_tensor* dy,
                        const hy_tensor* dweight, bool* odd) {
  int64_t of_group = c->out * c->in * c->kernel_h * c->kernel_w, count = c->groups * of_group;
  float* sums = hy__calloc((size_t)(count + 1), sizeof *sums);
  if (!sums) return false;
  pass s = forward_pass(c, x, dy);
  if (c->halves) s.layout = HY__FRAME_BF16;
  cut_into_bands(&s);
  bool done = true;
  for (int64_t i = 0; done && i < c->images * c->groups * s.bands; i++) {
    int64_t group = i / s.bands % c->groups;
    done = add_dweight(&s, i / s.bands / c->groups, group, i % s.bands, sums + group * of_group);
  }
  *odd = done && !hy__is_finite(sums, count, 1);
  dweight_context d = {c, sums, dweight};
  if (done) hy__pool_run(store_dweight, &d, c->groups * c->out);
  hy__mfree(sums);
  return done;
}

// ---- backward: dbias ----

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
    hy__planes p = planes_of(d->dy, i / c->out_h, o);
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
