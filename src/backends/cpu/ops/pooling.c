// max_pool2d, avg_pool2d and their gradients: planes of images are the tasks.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/rows/slices.h"
#include "backends/cpu/runtime/scratch.h"

typedef struct plane {
  int64_t h, w;
} plane;

typedef struct job {
  const hy__cpu_kernels* kernels;
  const hy_call* call;
  hy__slices from, to, index;  // planes that are read and written; an absent index has no type
  plane large, small;          // of the images, and of what is pooled from them
  atomic_bool no_memory, bad_index;
} job;

// Windows clipped to a line: the first place that counts, and the end.
typedef struct window {
  int64_t first, end;
} window;

static int64_t at_most(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// Outputs first .. end - 1 of a line whose window, from `begin` on for output 0, covers place
// begin + c * step for output c.
static window covered(int64_t begin, int64_t step, int64_t size, int64_t outputs) {
  int64_t first = begin < 0 ? (-begin + step - 1) / step : 0;
  int64_t end = begin < size ? (size - 1 - begin) / step + 1 : 0;
  return (window){first, at_most(end, outputs)};
}

// ---- maximum ----

// One place of the windows of a line of outputs, `step` apart in x, the first being `place`.
// Without branches, which could not be foreseen, and by constant steps, by which the compiler
// vectorises.
static inline void take_larger(const float* x, int64_t n, int64_t step, int32_t place,
                               float* restrict most, int32_t* restrict index) {
  for (int64_t c = 0; c < n; c++) {
    float value = x[c * step];
    // The first of the largest; the last NaN where there is one.
    bool takes = (value > most[c]) | (value != value) | (index[c] < 0);
    most[c] = takes ? value : most[c];
    index[c] = takes ? place + (int32_t)(c * step) : index[c];
  }
}

// -1 where nothing but padding is seen. `index` has room for a line of outputs.
static void most_of(const job* j, const float* x, float* out, int64_t* places, int32_t* index) {
  const hy_attrs_max_pool* a = &j->call->attrs.max_pool;
  for (int64_t r = 0; r < j->small.h; r++, out += j->small.w) {
    for (int64_t c = 0; c < j->small.w; c++) {
      out[c] = -INFINITY;
      index[c] = -1;
    }
    for (int64_t kr = 0; kr < a->kernel.h; kr++) {
      int64_t row = r * a->stride.h - a->padding.h + kr * a->dilation.h;
      if (row < 0 || row >= j->large.h) continue;
      for (int64_t kc = 0; kc < a->kernel.w; kc++) {
        int64_t begin = kc * a->dilation.w - a->padding.w, step = a->stride.w;
        window u = covered(begin, step, j->large.w, j->small.w);
        int64_t place = row * j->large.w + begin + u.first * step, n = u.end - u.first;
        if (step == 1)
          take_larger(x + place, n, 1, (int32_t)place, out + u.first, index + u.first);
        else if (step == 2)
          take_larger(x + place, n, 2, (int32_t)place, out + u.first, index + u.first);
        else
          take_larger(x + place, n, step, (int32_t)place, out + u.first, index + u.first);
      }
    }
    for (int64_t c = 0; places && c < j->small.w; c++) *places++ = index[c];
  }
}

static void most_backward(job* j, const float* dy, const int64_t* index, float* dx) {
  int64_t places = j->large.h * j->large.w;
  for (int64_t i = 0; i < j->small.h * j->small.w; i++) {
    if (index[i] < -1 || index[i] >= places)
      atomic_store(&j->bad_index, true);
    else if (index[i] >= 0)
      dx[index[i]] += dy[i];
  }
}

// ---- average ----

typedef struct area {
  window rows, columns;
  float share;  // of an element in the average
} area;

static area area_at(const job* j, int64_t r, int64_t c) {
  const hy_attrs_avg_pool* a = &j->call->attrs.avg_pool;
  int64_t top = r * a->stride.h - a->padding.h, left = c * a->stride.w - a->padding.w;
  int64_t bottom = at_most(top + a->kernel.h, j->large.h + a->padding.h);
  int64_t right = at_most(left + a->kernel.w, j->large.w + a->padding.w);
  area s = {{top < 0 ? 0 : top, at_most(bottom, j->large.h)},
            {left < 0 ? 0 : left, at_most(right, j->large.w)},
            0};
  int64_t padded = (bottom - top) * (right - left);
  int64_t inside = (s.rows.end - s.rows.first) * (s.columns.end - s.columns.first);
  s.share = 1 / (float)(a->divisor != 0 ? a->divisor : a->count_padding ? padded : inside);
  return s;
}

static inline void add_places(const float* x, int64_t n, int64_t step, float* restrict sums) {
  for (int64_t c = 0; c < n; c++) sums[c] += x[c * step];
}

// The sum of image rows first .. end - 1: the row itself, or in `sums`.
static const float* add_rows(const job* j, const float* x, window rows, float* sums) {
  const float* line = x + rows.first * j->large.w;
  for (int64_t row = rows.first + 1; row < rows.end; row++) {
    const void* both[2] = {line, x + row * j->large.w};
    j->kernels->rows->add[HY__ROW_F32](j->large.w, both, 1, 0, sums, false);
    line = sums;
  }
  return line;
}

// Outputs whose windows the plane's sides may clip.
static void scale_edge(const job* j, int64_t r, int64_t first, int64_t end, float* out) {
  for (int64_t c = first; c < end; c++) {
    area s = area_at(j, r, c);
    out[c] = s.columns.first >= s.columns.end ? 0 : out[c] * s.share;
  }
}

// Rows are added first, in whole vectors, then columns. `sums` has room for a row of the image.
static void average(const job* j, const float* x, float* out, float* sums) {
  const hy_attrs_avg_pool* a = &j->call->attrs.avg_pool;
  int64_t step = a->stride.w, last = j->large.w + a->padding.w - a->kernel.w;
  // Outputs whose windows see no padding beside them; all of a row have the same share.
  window whole = {at_most((a->padding.w + step - 1) / step, j->small.w), 0};
  whole.end = last < 0 ? 0 : at_most(last / step + 1, j->small.w);
  if (whole.end < whole.first) whole.end = whole.first;
  for (int64_t r = 0; r < j->small.h; r++, out += j->small.w) {
    memset(out, 0, (size_t)j->small.w * sizeof *out);
    window rows = area_at(j, r, 0).rows;
    if (rows.first >= rows.end) continue;
    const float* line = add_rows(j, x, rows, sums);
    for (int64_t kc = 0; kc < a->kernel.w; kc++) {
      window u = covered(kc - a->padding.w, step, j->large.w, j->small.w);
      const float* from = line + kc - a->padding.w + u.first * step;
      if (step == 1)
        add_places(from, u.end - u.first, 1, out + u.first);
      else if (step == 2)
        add_places(from, u.end - u.first, 2, out + u.first);
      else
        add_places(from, u.end - u.first, step, out + u.first);
    }
    scale_edge(j, r, 0, whole.first, out);
    float share = area_at(j, r, whole.first).share;
    for (int64_t c = whole.first; c < whole.end; c++) out[c] *= share;
    scale_edge(j, r, whole.end, j->small.w, out);
  }
}

static void average_backward(const job* j, const float* dy, float* dx) {
  for (int64_t r = 0; r < j->small.h; r++) {
    for (int64_t c = 0; c < j->small.w; c++) {
      area s = area_at(j, r, c);
      float share = dy[r * j->small.w + c] * s.share;
      for (int64_t row = s.rows.first; row < s.rows.end; row++) {
        for (int64_t column = s.columns.first; column < s.columns.end; column++)
          dx[row * j->large.w + column] += share;
      }
    }
  }
}

// ---- calls ----

static void run_range(void* context, int64_t first, int64_t last) {
  job* j = context;
  int64_t line = j->small.w > j->large.w ? j->small.w : j->large.w;
  size_t floats = (size_t)(j->from.n + j->to.n + line);
  float* memory = hy__scratch_get(HY__SCRATCH_ROWS, floats * sizeof *memory);
  if (!memory) {
    atomic_store(&j->no_memory, true);
    return;
  }
  for (int64_t i = first; i < last; i++) {
    const float* from = hy__slice_read(j->kernels, &j->from, i, memory);
    float *to = hy__slice_target(&j->to, i, memory + j->from.n),
          *row = memory + j->from.n + j->to.n;
    int64_t* index =
        j->index.t->dtype == HY_NONE ? NULL : (int64_t*)(void*)hy__slice_at(&j->index, i);
    hy_op op = j->call->op;
    if (op == HY_OP_max_pool2d_backward || op == HY_OP_avg_pool2d_backward)
      memset(to, 0, (size_t)j->to.n * sizeof *to);
    switch (op) {
      case HY_OP_max_pool2d: most_of(j, from, to, index, (int32_t*)row); break;
      case HY_OP_max_pool2d_backward:
        if (index) most_backward(j, from, index, to);
        break;
      case HY_OP_avg_pool2d: average(j, from, to, row); break;
      default: average_backward(j, from, to);
    }
    hy__slice_write(j->kernels, &j->to, i, to);
  }
}

static plane plane_of(const hy_tensor* t) {
  return (plane){t->shape[t->ndim - 2], t->shape[t->ndim - 1]};
}

static bool describe(const hy_call* call, job* j) {
  static const hy_tensor none;
  const hy_tensor *from = &call->in[0], *to = &call->out[0], *index = &none;
  bool is_backward = call->op == HY_OP_max_pool2d_backward || call->op == HY_OP_avg_pool2d_backward;
  if (call->op == HY_OP_max_pool2d) index = &call->out[1];
  if (call->op == HY_OP_max_pool2d_backward) index = &call->in[1];
  *j = (job){.call = call};
  j->large = plane_of(is_backward ? to : from);
  j->small = plane_of(is_backward ? from : to);
  bool even = hy__slices_init(&j->from, from, from->ndim - 2, 2) &&
              hy__slices_init(&j->to, to, to->ndim - 2, 2) &&
              hy__slices_init(&j->index, index, index->ndim - 2, 2);
  bool has_index = index->dtype == HY_I64 && (j->index.step == 1 || j->index.n == 1);
  return even && (has_index || index->dtype == HY_NONE);
}

// A wrong index is the reference's to report.
static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j;
  describe(call, &j);
  j.kernels = kernels;
  hy__each_range(j.from.count, j.from.n + j.to.n, run_range, &j);
  if (atomic_load(&j.bad_index)) return hy__backend_host->reference(call);
  return atomic_load(&j.no_memory) ? hy__cpu_no_memory(call) : HY_OK;
}

// Places in a plane are counted in 32 bits.
static hy_support supports(const hy_call* call) {
  job j;
  if (!describe(call, &j)) return HY_SUPPORT_NO_LAYOUT;
  return j.large.h * j.large.w <= INT32_MAX ? HY_SUPPORT_YES : HY_SUPPORT_NO_SHAPE;
}

const hy__cpu_family hy__cpu_pooling = {supports, run};
