// Batch norm and its gradient: a channel is a plane of each image, and channels are the tasks.
#include <math.h>
#include <stdatomic.h>

#include "backends/cpu/rows/slices.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/half.h"

typedef struct job {
  const hy__cpu_kernels* kernels;
  const hy_call* call;
  hy__slices x, dy, out;  // planes; absent ones have no type
  int64_t images, channels;
  atomic_bool no_memory;
} job;

static bool present(const hy_tensor* t) {
  return t->dtype != HY_NONE;
}

static char* element(const hy_tensor* t, int64_t c) {
  return (char*)t->data + c * t->stride[0] * (int64_t)hy_dtype_size(t->dtype);
}

static double load_or(const hy_tensor* t, int64_t c, double otherwise) {
  return present(t) ? (double)hy__load1(element(t, c), t->dtype) : otherwise;
}

static void store_if_present(const hy_tensor* t, int64_t c, double value) {
  if (present(t)) hy__store1(element(t, c), t->dtype, (float)value);
}

static float* get_rows(job* j, int rows) {
  float* memory = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)(j->x.n * rows) * sizeof *memory);
  if (!memory) atomic_store(&j->no_memory, true);
  return memory;
}

// A plane as a row of `dtype` that kernels take: in place, or in `buffer` as floats.
static const void* plane_of(const job* j, const hy__slices* s, int64_t i, hy_dtype dtype,
                            float* buffer) {
  return dtype == s->t->dtype && hy__slices_are_rows(s)
             ? hy__slice_at(s, i)
             : (const void*)hy__slice_read(j->kernels, s, i, buffer);
}

static hy_dtype type_of_rows(const hy__slices* s) {
  return hy__slices_are_rows(s) ? s->t->dtype : HY_F32;
}

static void measure(const job* j, int64_t c, float* buffer, double* mean, double* var) {
  const hy__rows* rows = j->kernels->rows;
  double sum = 0, spread = 0, count = (double)(j->images * j->x.n);
  hy_dtype dtype = type_of_rows(&j->x);
  for (int64_t i = c; i < j->x.count; i += j->channels)
    sum += (double)rows->sum(j->x.n, plane_of(j, &j->x, i, dtype, buffer), dtype);
  *mean = sum / count;
  for (int64_t i = c; i < j->x.count; i += j->channels)
    spread +=
        (double)rows->sum_sq_dev(j->x.n, plane_of(j, &j->x, i, dtype, buffer), dtype, (float)*mean);
  *var = spread / count;
}

static void forward(void* context, int64_t c) {
  job* j = context;
  const hy_call* call = j->call;
  const hy__rows* rows = j->kernels->rows;
  float* buffer = get_rows(j, 2);
  if (!buffer) return;
  double mean = load_or(&call->in[3], c, 0), var = load_or(&call->in[4], c, 1);
  if (call->attrs.batch_norm.training) measure(j, c, buffer, &mean, &var);
  double scale = 1 / sqrt(var + call->attrs.batch_norm.eps);
  double factor = scale * load_or(&call->in[1], c, 1);
  double shift = load_or(&call->in[2], c, 0) - mean * factor;
  bool direct = hy__slices_are_rows(&j->x) && hy__slices_are_rows(&j->out);
  for (int64_t i = c; i < j->x.count; i += j->channels) {
    if (direct) {
      bool is_bf16 = j->x.t->dtype == HY_BF16;
      rows->affine[is_bf16 ? HY__ROW_BF16 : HY__ROW_F32](
          j->x.n, (const void*[]){hy__slice_at(&j->x, i)}, (float)factor, (float)shift,
          hy__slice_at(&j->out, i), false);
      continue;
    }
    const void* x = hy__slice_read(j->kernels, &j->x, i, buffer);
    float* out = hy__slice_target(&j->out, i, buffer + j->x.n);
    rows->affine[HY__ROW_F32](j->x.n, &x, (float)factor, (float)shift, out, false);
    hy__slice_write(j->kernels, &j->out, i, out);
  }
  store_if_present(&call->out[1], c, mean);
  store_if_present(&call->out[2], c, scale);
}

static void update(void* context, int64_t c) {
  job* j = context;
  const hy_call* call = j->call;
  float* buffer = get_rows(j, 1);
  if (!buffer) return;
  double momentum = call->attrs.batch_norm.momentum, mean, var;
  double n = (double)(j->images * j->x.n);
  measure(j, c, buffer, &mean, &var);
  store_if_present(&call->out[0], c,
                   (1 - momentum) * load_or(&call->in[0], c, 0) + momentum * mean);
  store_if_present(&call->out[1], c,
                   (1 - momentum) * load_or(&call->in[1], c, 1) + momentum * var * n / (n - 1));
}

// The bytes from a plane of x, and of dy, to the channel's next; 0 where they differ.
static int64_t next_plane(const job* j, int64_t i) {
  if (i + j->channels >= j->x.count) return 0;
  int64_t of_x = hy__slice_at(&j->x, i + j->channels) - hy__slice_at(&j->x, i);
  int64_t of_dy = hy__slice_at(&j->dy, i + j->channels) - hy__slice_at(&j->dy, i);
  return of_x == of_dy ? of_x : 0;
}

// With h = (x - mean) rstd: dw = sum(dy h), db = sum(dy), and dx = w rstd (dy - (db + h dw) / n)
// when the statistics were the batch's, w rstd dy when they were constants.
static void backward(void* context, int64_t c) {
  job* j = context;
  const hy_call* call = j->call;
  const hy__rows* rows = j->kernels->rows;
  int64_t n = j->x.n, planes = j->x.count, step = j->channels;
  float* buffer = get_rows(j, 3);
  if (!buffer) return;
  hy_dtype dtype = type_of_rows(&j->x);
  if (dtype != type_of_rows(&j->dy)) dtype = HY_F32;
  if (present(j->out.t) && dtype != type_of_rows(&j->out)) dtype = HY_F32;
  bool direct = present(j->out.t) && dtype == j->out.t->dtype && hy__slices_are_rows(&j->out);
  float mean = (float)load_or(&call->in[2], c, 0);
  double scale = load_or(&call->in[3], c, 1), factor = scale * load_or(&call->in[4], c, 1);
  double dot = 0, db = 0, share = 1 / (double)(j->images * n);
  for (int64_t i = c; i < planes; i += step) {
    const void* dy = plane_of(j, &j->dy, i, dtype, buffer);
    const void* x = plane_of(j, &j->x, i, dtype, buffer + n);
    float of_plane;
    db += (double)rows->grad_sums(n, dy, x, dtype, mean, next_plane(j, i), &of_plane);
    dot += (double)of_plane;
  }
  store_if_present(&call->out[1], c, dot * scale);
  store_if_present(&call->out[2], c, db);
  if (!call->attrs.batch_norm.training) share = 0;
  double of_x = -factor * scale * scale * dot * share, shift = -factor * db * share;
  for (int64_t i = c; i < planes && present(j->out.t); i += step) {
    const void* dy = plane_of(j, &j->dy, i, dtype, buffer);
    const void* x = plane_of(j, &j->x, i, dtype, buffer + n);
    void* out = direct ? (void*)hy__slice_at(&j->out, i)
                       : (void*)hy__slice_target(&j->out, i, buffer + 2 * n);
    rows->mix_grads(n, dy, x, dtype, mean, (float)factor, (float)of_x, (float)shift, out);
    if (!direct) hy__slice_write(j->kernels, &j->out, i, out);
  }
}

static bool describe(const hy_call* call, job* j) {
  static const hy_tensor none;
  bool is_update = call->op == HY_OP_batch_norm_update;
  bool is_backward = call->op == HY_OP_batch_norm_backward;
  const hy_tensor* x = &call->in[is_update ? 2 : is_backward ? 1 : 0];
  *j = (job){.call = call, .images = x->shape[0], .channels = x->shape[1]};
  const hy_tensor* planes[3] = {x, is_backward ? &call->in[0] : &none,
                                is_update ? &none : &call->out[0]};
  hy__slices* slices[3] = {&j->x, &j->dy, &j->out};
  for (int k = 0; k < 3; k++) {
    if (!hy__slices_init(slices[k], planes[k], 2, x->ndim - 2)) return false;
  }
  return x->ndim > 2;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j;
  describe(call, &j);
  j.kernels = kernels;
  hy__pool_run(call->op == HY_OP_batch_norm          ? forward
               : call->op == HY_OP_batch_norm_update ? update
                                                     : backward,
               &j, j.channels);
  return atomic_load(&j.no_memory) ? hy__cpu_no_memory(call) : HY_OK;
}

static bool is_wide(const hy_tensor* t) {
  return t->dtype != HY_NONE && t->dtype != HY_F32 && t->dtype != HY_BF16 && t->dtype != HY_F16;
}

static hy_support supports(const hy_call* call) {
  job j;
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    if (is_wide(i < call->n_in ? &call->in[i] : &call->out[i - call->n_in]))
      return HY_SUPPORT_NO_DTYPE;
  }
  return describe(call, &j) ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

const hy__cpu_family hy__cpu_batch_norm = {supports, run};
