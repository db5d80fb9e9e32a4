// layer_norm and rms_norm over the last dimensions, and their gradients.
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/rows/nditer.h"
#include "backends/cpu/rows/slices.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/simd/half.h"
#include "base/memory.h"

// Gradients of the parameters are summed in this many parts, however many threads there are.
enum { PARTS = 16 };

typedef struct job {
  const hy__cpu_kernels* kernels;
  bool is_layer;
  float eps;
  hy__slices x, dy, out, mean, rstd;  // absent ones have no type
  const void *weight, *bias;          // f32, or of the rows' type; NULL where absent
  float *dweight, *dbias;             // PARTS rows, NULL where absent
  bool as_rows, nontemporal;          // everything is taken in place; outputs pass the caches by
  atomic_bool no_memory;
} job;

static bool present(const hy_tensor* t) {
  return t->dtype != HY_NONE;
}

static void store_statistic(const hy__slices* s, int64_t i, float value) {
  if (present(s->t)) hy__store1(hy__slice_at(s, i), s->t->dtype, value);
}

static float load_statistic(const hy__slices* s, int64_t i) {
  return present(s->t) ? hy__load1(hy__slice_at(s, i), s->t->dtype) : 0;
}

static float* get_rows(job* j, int rows) {
  float* memory = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)(j->x.n * rows) * sizeof *memory);
  if (!memory) atomic_store(&j->no_memory, true);
  return memory;
}

static void forward(void* context, int64_t first, int64_t last) {
  job* j = context;
  const hy__rows* rows = j->kernels->rows;
  int64_t n = j->x.n;
  hy_dtype dtype = j->as_rows ? j->x.t->dtype : HY_F32;
  float* row = get_rows(j, 2);
  for (int64_t i = first; row && i < last; i++) {
    const void* x = hy__slice_at(&j->x, i);
    void* out = hy__slice_at(&j->out, i);
    if (!j->as_rows) {
      x = hy__slice_read(j->kernels, &j->x, i, row);
      out = hy__slice_target(&j->out, i, row + n);
    }
    float mean = j->is_layer ? rows->sum(n, x, dtype) / (float)n : 0;
    float scale = 1 / sqrtf(rows->sum_sq_dev(n, x, dtype, mean) / (float)n + j->eps);
    bool nontemporal = j->nontemporal && (uintptr_t)out % 64 == 0;
    rows->normalise(n, x, dtype, mean, scale, j->weight, j->bias, out, hy__slice_next(&j->x, i),
                    nontemporal);
    if (!j->as_rows) hy__slice_write(j->kernels, &j->out, i, out);
    store_statistic(&j->mean, i, mean);
    store_statistic(&j->rstd, i, scale);
  }
  if (j->nontemporal) rows->nontemporal_fence();
}

// The slices of one part, with its own sums of the parameters' gradients.
static void backward_part(job* j, int64_t part, float* row) {
  const hy__rows* rows = j->kernels->rows;
  int64_t n = j->x.n, first = j->x.count * part / PARTS, last = j->x.count * (part + 1) / PARTS;
  float *h = row + 2 * n, *g = row + 3 * n;
  float* dweight = j->dweight ? j->dweight + part * n : NULL;
  float* dbias = j->dbias ? j->dbias + part * n : NULL;
  for (int64_t i = first; i < last; i++) {
    const float* dy = hy__slice_read(j->kernels, &j->dy, i, row);
    const float* x = hy__slice_read(j->kernels, &j->x, i, row + n);
    float mean = load_statistic(&j->mean, i), scale = load_statistic(&j->rstd, i), g_h;
    float g_sum = rows->norm_grads(n, dy, x, mean, scale, j->weight, dweight, dbias, h, g, &g_h);
    if (!present(j->out.t)) continue;
    float* out = hy__slice_target(&j->out, i, row + 4 * n);
    rows->norm_backward(n, g, h, scale, j->is_layer ? g_sum / (float)n : 0, g_h / (float)n, out);
    hy__slice_write(j->kernels, &j->out, i, out);
  }
}

static void backward(void* context, int64_t first, int64_t last) {
  job* j = context;
  float* row = get_rows(j, 5);
  for (int64_t part = first; row && part < last; part++) backward_part(j, part, row);
}

// The parameter as a row of the type that the others have: its own memory or `memory`.
static const void* parameter(const job* j, const hy_tensor* t, float* memory) {
  hy__slices s;
  if (!present(t)) return NULL;
  if (j->as_rows) return t->data;
  hy__slices_init(&s, t, 0, t->ndim);
  return hy__slice_read(j->kernels, &s, 0, memory);
}

static void add_row(const job* j, int64_t n, float* total, const float* part) {
  const void* in[2] = {total, part};
  j->kernels->rows->add[HY__ROW_F32](n, in, 1, 0, total, false);
}

static void store_sum(const job* j, const hy_tensor* t, float* parts) {
  hy__slices s;
  if (!present(t)) return;
  hy__slices_init(&s, t, 0, t->ndim);
  float* total = hy__slice_target(&s, 0, parts);
  if (total != parts) memcpy(total, parts, (size_t)s.n * sizeof *total);
  for (int p = 1; p < PARTS; p++) add_row(j, s.n, total, parts + p * s.n);
  hy__slice_write(j->kernels, &s, 0, total);
}

// Where the tensors of each op are; NULL is absent.
typedef struct layout {
  const hy_tensor *x, *dy, *weight, *bias, *mean, *rstd, *out, *dweight, *dbias;
} layout;

static layout lay_out(const hy_call* call) {
  static const hy_tensor none;
  const hy_tensor *in = call->in, *out = call->out;
  switch (call->op) {
    case HY_OP_layer_norm:
      return (layout){&in[0], &none, &in[1], &in[2], &out[1], &out[2], &out[0], &none, &none};
    case HY_OP_rms_norm:
      return (layout){&in[0], &none, &in[1], &none, &none, &out[1], &out[0], &none, &none};
    case HY_OP_layer_norm_backward:
      return (layout){&in[1], &in[0], &in[4], &none, &in[2], &in[3], &out[0], &out[1], &out[2]};
    default: return (layout){&in[1], &in[0], &in[3], &none, &none, &in[2], &out[0], &out[1], &none};
  }
}

static bool describe(const hy_call* call, const layout* l, job* j) {
  int dims = (int)call->attrs.norm.norm_dims, first = l->x->ndim - dims;
  *j = (job){.eps = (float)call->attrs.norm.eps};
  j->is_layer = call->op == HY_OP_layer_norm || call->op == HY_OP_layer_norm_backward;
  const hy_tensor* parameters[4] = {l->weight, l->bias, l->dweight, l->dbias};
  hy__slices s;
  for (int i = 0; i < 4; i++) {
    if (!hy__slices_init(&s, parameters[i], 0, dims)) return false;
  }
  return hy__slices_init(&j->x, l->x, first, dims) && hy__slices_init(&j->dy, l->dy, first, dims) &&
         hy__slices_init(&j->out, l->out, first, dims) &&
         hy__slices_init(&j->mean, l->mean, first, dims) &&
         hy__slices_init(&j->rstd, l->rstd, first, dims);
}

// Whether t is absent or a plain row of that type.
static bool is_row(const hy_tensor* t, hy_dtype dtype) {
  return !present(t) || (t->dtype == dtype && hy_tensor_is_contiguous(t));
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  layout l = lay_out(call);
  job j;
  describe(call, &l, &j);
  j.kernels = kernels;
  bool is_backward = present(l.dy);
  hy_dtype dtype = l.x->dtype;
  j.as_rows = !is_backward && l.out->dtype == dtype && hy__slices_are_rows(&j.x) &&
              hy__slices_are_rows(&j.out) && is_row(l.weight, dtype) && is_row(l.bias, dtype);
  j.nontemporal = hy__use_nontemporal(call);
  // Parameters as floats; for the gradients, sums that start at 0.
  int64_t n = j.x.n, sums = is_backward ? 2 * PARTS : 0;
  float* memory = hy__malloc((size_t)((2 + sums) * n) * sizeof *memory);
  if (!memory) return hy__cpu_no_memory(call);
  memset(memory + 2 * n, 0, (size_t)(sums * n) * sizeof *memory);
  j.weight = parameter(&j, l.weight, memory);
  j.bias = parameter(&j, l.bias, memory + n);
  if (!is_backward) {
    hy__each_range(j.x.count, n, forward, &j);
  } else {
    if (present(l.dweight)) j.dweight = memory + 2 * n;
    if (present(l.dbias)) j.dbias = memory + (2 + PARTS) * n;
    hy__each_range(PARTS, j.x.count * n / PARTS, backward, &j);
    store_sum(&j, l.dweight, j.dweight);
    store_sum(&j, l.dbias, j.dbias);
  }
  hy__mfree(memory);
  return atomic_load(&j.no_memory) ? hy__cpu_no_memory(call) : HY_OK;
}

static bool is_f32_or_half(hy_dtype dtype) {
  return dtype == HY_F32 || dtype == HY_BF16 || dtype == HY_F16;
}

static hy_support supports(const hy_call* call) {
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const hy_tensor* t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    if (present(t) && !is_f32_or_half(t->dtype)) return HY_SUPPORT_NO_DTYPE;
  }
  layout l = lay_out(call);
  job j;
  return describe(call, &l, &j) ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

const hy__cpu_family hy__cpu_norm = {supports, run};
