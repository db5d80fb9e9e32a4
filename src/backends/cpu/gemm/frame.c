// Zero-padded frames of images, the implicit im2col of convolutions: see frame.h.
#include "backends/cpu/gemm/frame.h"

#include <string.h>

#include "backends/cpu/runtime/thread_pool.h"
#include "base/math.h"

enum {
  LINE = 16,
  BEHIND = 64
};  // words of a cache line, and that a kernel may read behind the end

static int64_t number_size(const hy__frame* f) {
  return f->layout == HY__FRAME_BF16 ? 2 : 4;
}

int64_t hy__frame_planes(const hy__frame* f) {
  return f->layout == HY__FRAME_PAIRS ? ceil_div(f->channels, 2) : f->channels;
}

// An odd number of cache lines, so that planes do not compete for the same sets of a cache.
int64_t hy__frame_plane(const hy__frame* f) {
  int64_t of_line = LINE * 4 / number_size(f);
  int64_t lines = ceil_div(f->step.h * f->step.w * f->h * f->w + f->tail, of_line);
  return (lines | 1) * of_line;
}

size_t hy__frame_bytes(const hy__frame* f) {
  return (size_t)(hy__frame_planes(f) * hy__frame_plane(f) * number_size(f) + BEHIND * 4);
}

int64_t hy__frame_place(const hy__frame* f, int64_t row, int64_t column) {
  int64_t part = row % f->step.h * f->step.w + column % f->step.w;
  return (part * f->h + row / f->step.h) * f->w + column / f->step.w;
}

typedef struct filling {
  const hy__gemm_kernels* kernels;
  const hy__frame* f;
  const hy__planes* from;
} filling;

static void fill_floats(const filling* t, const char* row, int64_t y, int64_t first, int64_t last,
                        float* plane) {
  enum { PIECE = 256 };
  const hy__frame* f = t->f;
  const hy__planes* from = t->from;
  int64_t size = (int64_t)hy_dtype_size(from->dtype);
  if (f->step.w == 1 && from->column == 1 && from->dtype == HY_F32) {
    memcpy(plane + hy__frame_place(f, y, f->origin.w + first), row + first * size,
           (size_t)((last - first) * size));
    return;
  }
  if (f->step.w == 1) {
    t->kernels->widen(last - first, row + first * from->column * size, from->column, from->dtype,
                      plane + hy__frame_place(f, y, f->origin.w + first));
    return;
  }
  for (int64_t x = first; x < last; x += PIECE) {
    float piece[PIECE];
    int n = (int)min_i64(last - x, PIECE);
    t->kernels->widen(n, row + x * from->column * size, from->column, from->dtype, piece);
    for (int i = 0; i < n; i++) plane[hy__frame_place(f, y, f->origin.w + x + i)] = piece[i];
  }
}

// Every `pitch`-th half of the plane, from `plane` on.
static void fill_halves(const filling* t, const uint16_t* row, int64_t y, int64_t first,
                        int64_t last, uint16_t* plane, int pitch) {
  const hy__frame* f = t->f;
  int64_t column = t->from->column;
  if (f->step.w != 1) {
    for (int64_t x = first; x < last; x++)
      plane[hy__frame_place(f, y, f->origin.w + x) * pitch] = row[x * column];
    return;
  }
  uint16_t* to = plane + hy__frame_place(f, y, f->origin.w + first) * pitch;
  if (column == 1 && pitch == 1) {
    memcpy(to, row + first, (size_t)(last - first) * sizeof *to);
    return;
  }
  for (int64_t x = first; x < last; x++) to[(x - first) * pitch] = row[x * column];
}

static void fill_pairs(const uint16_t* restrict even, const uint16_t* restrict odd, int64_t n,
                       uint32_t* restrict to) {
  for (int64_t i = 0; i < n; i++) to[i] = even[i] | (uint32_t)odd[i] << 16;
}

// A row of one channel, or of two.
static void fill_row(const filling* t, const char* row, bool two, int64_t y, void* plane) {
  const hy__frame* f = t->f;
  int64_t first = max_i64(0, -f->origin.w);
  int64_t last = min_i64(f->w * f->step.w - f->origin.w, t->from->w);
  if (first >= last) return;
  const uint16_t* halves = (const uint16_t*)row;
  int64_t size = (int64_t)hy_dtype_size(t->from->dtype), bytes = (last - first) * size;
  if (t->from->column == 1) hy__frame_prefetch(row, bytes);
  if (t->from->column == 1 && two) hy__frame_prefetch(row + t->from->plane * size, bytes);
  if (f->layout == HY__FRAME_F32) {
    fill_floats(t, row, y, first, last, plane);
  } else if (f->layout == HY__FRAME_BF16) {
    fill_halves(t, halves, y, first, last, plane, 1);
  } else if (two && f->step.w == 1 && t->from->column == 1) {
    fill_pairs(halves + first, halves + t->from->plane + first, last - first,
               (uint32_t*)plane + hy__frame_place(f, y, f->origin.w + first));
  } else {
    fill_halves(t, halves, y, first, last, plane, 2);
    if (two) fill_halves(t, halves + t->from->plane, y, first, last, (uint16_t*)plane + 1, 2);
  }
}

static void fill_plane(void* context, int64_t index) {
  const filling* t = context;
  const hy__frame* f = t->f;
  size_t bytes = (size_t)(hy__frame_plane(f) * number_size(f));
  char* plane = (char*)f->data + index * (int64_t)bytes;
  memset(plane, 0, bytes);
  int64_t size = (int64_t)hy_dtype_size(t->from->dtype);
  int64_t channel = f->layout == HY__FRAME_PAIRS ? 2 * index : index;
  for (int64_t i = 0; i < t->from->h; i++) {
    int64_t y = f->origin.h + i;
    if (y < 0 || y >= f->h * f->step.h) continue;
    fill_row(t, t->from->data + (channel * t->from->plane + i * t->from->row) * size,
             f->layout == HY__FRAME_PAIRS && channel + 1 < f->channels, y, plane);
  }
}

void hy__frame_fill(const hy__gemm_kernels* kernels, const hy__frame* f, const hy__planes* from) {
  filling t = {kernels, f, from};
  hy__pool_run(fill_plane, &t, hy__frame_planes(f));
}
