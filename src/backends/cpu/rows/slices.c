// Slices of a tensor along an axis, read and written as contiguous rows of floats.
#include "backends/cpu/rows/slices.h"

#include "backends/cpu/runtime/thread_pool.h"

// Elements that are worth a task, and that are where there are tasks anyway; tasks at most, and
// bytes.
enum { GRAIN = 16384, LEAST_GRAIN = 4096, MOST_RANGES = 256, SHORT_ROW = 64 << 10 };

bool hy__slices_init(hy__slices* s, const hy_tensor* t, int first, int dims) {
  *s = (hy__slices){t, first, dims, 1, 1, 1, (int64_t)hy_dtype_size(t->dtype)};
  if (t->dtype == HY_NONE) return true;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (d < first || d >= first + dims) {
      s->count *= t->shape[d];
      continue;
    }
    if (t->shape[d] == 1) continue;
    if (s->n > 1 && t->stride[d] != s->n * s->step) return false;
    if (s->n == 1) s->step = t->stride[d];
    s->n *= t->shape[d];
  }
  return true;
}

char* hy__slice_at(const hy__slices* s, int64_t i) {
  const hy_tensor* t = s->t;
  int64_t offset = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (d >= s->first && d < s->first + s->dims) continue;
    offset += i % t->shape[d] * t->stride[d];
    i /= t->shape[d];
  }
  return (char*)t->data + offset * s->size;
}

static bool in_place(const hy__slices* s) {
  return s->t->dtype == HY_F32 && s->step == 1;
}

const float* hy__slice_read(const hy__cpu_kernels* kernels, const hy__slices* s, int64_t i,
                            float* buffer) {
  char* at = hy__slice_at(s, i);
  if (in_place(s)) return (float*)at;
  kernels->gemm.widen(s->n, at, s->step, s->t->dtype, buffer);
  return buffer;
}

float* hy__slice_target(const hy__slices* s, int64_t i, float* buffer) {
  return in_place(s) ? (float*)hy__slice_at(s, i) : buffer;
}

void hy__slice_write(const hy__cpu_kernels* kernels, const hy__slices* s, int64_t i,
                     const float* row) {
  if (!in_place(s))
    kernels->gemm.epilogue(s->n, row, 1, 0, NULL, 0, hy__slice_at(s, i), s->step, s->t->dtype);
}

bool hy__slices_are_rows(const hy__slices* s) {
  return (s->step == 1 || s->n == 1) && (s->t->dtype == HY_F32 || s->t->dtype == HY_BF16);
}

int64_t hy__slice_next(const hy__slices* s, int64_t i) {
  if (i + 1 >= s->count || s->n * s->size > SHORT_ROW) return 0;
  return hy__slice_at(s, i + 1) - hy__slice_at(s, i);
}

typedef struct ranges {
  hy__range_task* task;
  void* context;
  int64_t count, length;
} ranges;

static void run_range(void* context, int64_t i) {
  const ranges* r = context;
  int64_t first = i * r->length, last = first + r->length;
  r->task(r->context, first, last < r->count ? last : r->count);
}

void hy__each_range(int64_t count, int64_t n, hy__range_task* task, void* context) {
  int64_t each = n > 0 ? n : 1;
  ranges r = {task, context, count, 0};
  r.length = hy__pool_grain(count, each >= LEAST_GRAIN ? 1 : LEAST_GRAIN / each,
                            each >= GRAIN ? 1 : GRAIN / each);
  // Rows bring the next one of their range nearer: the longer it is, the fewer come unannounced.
  int64_t least = (count + MOST_RANGES - 1) / MOST_RANGES;
  if (r.length < least) r.length = least;
  hy__pool_run(run_range, &r, (count + r.length - 1) / r.length);
}
