// The gradient of conv2d's weights: dweight[o, t] = sum over images and positions p of dy[o, p]
// x[t at p], a GEMM along positions, on frames of x (gemm/frame.h). Deterministic: bands of images
// are added in their order, threads divide the taps.
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/ops/conv.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/nonfinite.h"
#include "base/math.h"
#include "base/memory.h"

enum {
  KC = HY__CONV_KC,
  PACK_WORDS = 256,  // words of a block of k of dy that is packed at once
  STORED_OUT = 16,
  STORED_IN = 256,
};

// A band of some images and one group; positions are along the sum. Microkernels that read in place
// take the frame of x as A, a tap at a time, and dy packed as B, once for all taps: sums
// [tap][in][out]. Otherwise dy is A, and panels of taps are packed: sums [out][tap][in].
typedef struct dweight_band {
  const hy__conv* c;
  int64_t images;
  hy__frame x;  // of the first image, as is dy
  hy__planes dy;
  int64_t dy_step;
  int64_t k;  // positions
  float *packed, *sums;
  int64_t rows[KC];     // of a panel of packed dy
  int64_t part, parts;  // rows of a tile, and tiles of a tap
  atomic_bool failed;
} dweight_band;

// Output channels are SIMD lanes of what reads in place.
static bool dweight_in_place(const hy__conv* c) {
  return c->indirect && c->out >= HY__INDIRECT_VECTOR;
}

// Floats of an image's packed dy.
static int64_t packed_size(const dweight_band* d) {
  const hy__gemm_kernel* gemm = d->c->gemm;
  return round_up(d->c->out, gemm->nr) * ceil_div(d->k, gemm->unit);
}

// What a tap reads from channel `first` on: channels in columns.
static hy__matrix taken(const dweight_band* d, int64_t area, int64_t first) {
  int64_t plane = hy__frame_plane(&d->x), size = (int64_t)hy_dtype_size(hy__conv_number_type(d->c));
  char* data = (char*)d->x.data + (first * plane + hy__conv_tap_place(d->c, &d->x, area)) * size;
  return (hy__matrix){data, hy__conv_number_type(d->c), 1, plane};
}

// Positions k .. k + depth - 1 of a plane of dy, with zeros where a line of the frame is longer
// than its own.
static void copy_positions(const dweight_band* d, const hy__planes* dy, int64_t channel, int64_t k,
                           int64_t depth, char* to) {
  int64_t size = (int64_t)hy_dtype_size(dy->dtype);
  int64_t number = (int64_t)hy_dtype_size(hy__conv_number_type(d->c));
  for (int64_t end = k + depth, count; k < end; k += count, to += count * number) {
    int64_t y = k / d->x.w, x = k % d->x.w;
    count = min_i64(d->x.w - x, end - k);
    int64_t n = max_i64(0, min_i64(dy->w - x, count));
    const char* from = dy->data + (channel * dy->plane + y * dy->row + x * dy->column) * size;
    if (dy->column == 1) hy__frame_prefetch(from, n * size);
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
  int64_t panels = ceil_div(d->c->out, gemm->nr), image = task / blocks / panels;
  int64_t k = task % blocks * depth, j = task / blocks % panels * gemm->nr;
  hy__planes dy = d->dy;
  dy.data += image * d->dy_step;
  int64_t row = PACK_WORDS * 4 + 64;  // bytes; an odd number of cache lines
  int n = (int)min_i64(gemm->nr, d->c->out - j);
  depth = min_i64(depth, d->k - k);
  char* lines = hy__scratch_get(HY__SCRATCH_GEMM_A, (size_t)(n * row));
  if (!lines) {
    atomic_store(&d->failed, true);
    return;
  }
  for (int i = 0; i < n; i++) copy_positions(d, &dy, j + i, k, depth, lines + i * row);
  hy__matrix b = {lines, hy__conv_number_type(d->c), 1, row / (4 / gemm->unit)};
  float* packed = d->packed + image * packed_size(d) + j * ceil_div(d->k, gemm->unit);
  gemm->pack_b(&b, 0, (int)depth, 0, n, packed + k / gemm->unit * gemm->nr);
}

// A tile of rows of x, as a tap takes them, with one image's dy.
static void multiply_tile(const dweight_band* d, const char* x, int64_t x_row, int m,
                          const float* dy, float* sums) {
  const hy__conv* c = d->c;
  const hy__indirect_kernel* kernel = c->indirect;
  int64_t panel = c->gemm->nr, words = ceil_div(d->k, kernel->unit);
  for (int64_t k = 0; k < words; k += KC) {
    int depth = (int)min_i64(KC, words - k);
    for (int64_t j = 0; j < c->out;) {
      int64_t n = min_i64(min_i64(kernel->nr, panel - j % panel), c->out - j);
      kernel->multiply(depth, x + k * 4, x_row,
                       dy + j / panel * panel * words + k * panel + j % panel, d->rows, sums + j,
                       c->out, m, (int)n, true);
      j += n;
    }
  }
}

static void multiply_tap(void* context, int64_t task) {
  const dweight_band* d = context;
  const hy__conv* c = d->c;
  int64_t area = task / d->parts, first = task % d->parts * d->part;
  int m = (int)min_i64(d->part, c->in - first);
  if (m <= 0) return;
  hy__matrix x = taken(d, area, first);
  for (int64_t i = 0; i < d->images; i++)
    multiply_tile(d, (const char*)x.data + i * (int64_t)hy__frame_bytes(&d->x),
                  x.column * (int64_t)hy_dtype_size(x.dtype), m, d->packed + i * packed_size(d),
                  d->sums + (area * c->in + first) * c->out);
}

static bool add_in_place(dweight_band* d) {
  const hy__conv* c = d->c;
  const hy__gemm_kernel* gemm = c->gemm;
  int64_t panels = ceil_div(c->out, gemm->nr), words = ceil_div(d->k, gemm->unit);
  d->packed =
      hy__scratch_get(HY__SCRATCH_GEMM_B, (size_t)(d->images * packed_size(d)) * sizeof *d->packed);
  if (!d->packed) return false;
  hy__pool_run(pack_dy, d, d->images * panels * ceil_div(words, PACK_WORDS));
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
  int64_t in = d->c->in, size = (int64_t)hy_dtype_size(hy__conv_number_type(d->c));
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

static bool add_packed(dweight_band d) {
  const hy__conv* c = d.c;
  int64_t taps = c->in * c->kernel_h * c->kernel_w;
  int64_t row = round_up(d.k, 16), size = (int64_t)hy_dtype_size(hy__conv_number_type(c));
  char* dy = hy__scratch_get(HY__SCRATCH_KEYS, (size_t)(c->out * row * size));
  if (!dy) return false;
  hy__gemm g = {.m = c->out, .n = taps, .k = d.k, .c = d.sums, .ldc = taps, .accumulate = true};
  g.a = (hy__matrix){dy, hy__conv_number_type(c), row, 1};
  g.pack_b = pack_positions;
  g.context = &d;
  bool done = true;
  for (int64_t i = 0; i < d.images && done; i++) {
    for (int64_t o = 0; o < c->out; o++) copy_positions(&d, &d.dy, o, 0, d.k, dy + o * row * size);
    done = hy__gemm_run(c->gemm, &g);
    d.x.data = (char*)d.x.data + hy__frame_bytes(&d.x);
    d.dy.data += d.dy_step;
  }
  return done;
}

static bool add_dweight(const hy__conv_pass* s, int64_t image, int64_t group, int64_t band,
                        float* sums) {
  const hy__conv* c = s->c;
  int64_t first = band * s->lines, lines = min_i64(s->to_h - first, s->lines);
  if (lines <= 0 || s->to_w <= 0) return true;
  dweight_band d = {.c = c, .x = hy__conv_frame(s, first, lines), .sums = sums};
  d.images = min_i64(s->batch, c->images - image);
  d.k = (lines - 1) * d.x.w + c->out_w;
  d.x.data = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)d.images * hy__frame_bytes(&d.x));
  if (!d.x.data) return false;
  hy__conv_fill_frames(s, d.x, image, d.images, group);
  d.dy = hy__conv_planes(s->to, image, group * c->out);
  d.dy.data += first * d.dy.row * (int64_t)hy_dtype_size(d.dy.dtype);
  d.dy_step = hy__conv_image_step(s->to);
  return dweight_in_place(c) ? add_in_place(&d) : add_packed(d);
}

typedef struct dweight_context {
  const hy__conv* c;
  const float* sums;
  const hy_tensor* dweight;
} dweight_context;

// A block of output channels, which may share cache lines of the sums.
static void store_block(void* context, int64_t block) {
  const dweight_context* d = context;
  const hy__conv* c = d->c;
  const hy_tensor* t = d->dweight;
  int64_t area = c->kernel_h * c->kernel_w, size = (int64_t)hy_dtype_size(t->dtype);
  bool in_place = dweight_in_place(c);
  int64_t first = block * STORED_OUT, end = min_i64(c->groups * c->out, first + STORED_OUT);
  for (int64_t k = 0; k < area; k++) {
    for (int64_t i = 0; i < c->in; i += STORED_IN) {
      int64_t n = min_i64(STORED_IN, c->in - i);
      for (int64_t o = first; o < end; o++) {
        const float* group = d->sums + o / c->out * c->out * area * c->in;
        const float* from = in_place ? group + (k * c->in + i) * c->out + o % c->out
                                     : group + (o % c->out * area + k) * c->in + i;
        float line[STORED_IN];
        for (int64_t at = 0; at < n; at++) line[at] = from[at * (in_place ? c->out : 1)];
        int64_t to = o * t->stride[0] + i * t->stride[1] + k / c->kernel_w * t->stride[2] +
                     k % c->kernel_w * t->stride[3];
        c->kernels->gemm.epilogue(n, line, 1, 0, NULL, 0, (char*)t->data + to * size, t->stride[1],
                                  t->dtype);
      }
    }
  }
}

hy__conv_outcome hy__conv_dweight(hy__conv_pass* s, const hy_tensor* dweight) {
  const hy__conv* c = s->c;
  int64_t of_group = c->out * c->in * c->kernel_h * c->kernel_w, count = c->groups * of_group;
  float* sums = hy__calloc((size_t)(count + 1), sizeof *sums);
  if (!sums) return HY__CONV_NO_MEMORY;
  if (c->halves) s->layout = HY__FRAME_BF16;
  hy__conv_cut_into_bands(s);
  bool done = true;
  for (int64_t i = 0; i < c->images && done; i += s->batch) {
    for (int64_t b = 0; b < c->groups * s->bands && done; b++) {
      int64_t group = b / s->bands;
      done = add_dweight(s, i, group, b % s->bands, sums + group * of_group);
    }
  }
  bool finite = !done || hy__is_finite(sums, count, 1) ||
                (hy__tensor_is_finite(s->from) && hy__tensor_is_finite(s->to));
  dweight_context d = {c, sums, dweight};
  if (done && finite) hy__pool_run(store_block, &d, ceil_div(c->groups * c->out, STORED_OUT));
  hy__mfree(sums);
  return !done ? HY__CONV_NO_MEMORY : finite ? HY__CONV_DONE : HY__CONV_NONFINITE;
}
