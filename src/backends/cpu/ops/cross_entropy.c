// Cross entropy of logits with class indices, and its gradient.
//
// With p = softmax(logits), w the class weights and s the smoothing over C classes, the loss of a
// slice with target t is  -(1 - s) w[t] log p[t] - s / C sum(w[c] log p[c]).
#include <math.h>
#include <stdatomic.h>

#include "backends/cpu/rows/slices.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/simd/half.h"
#include "base/memory.h"

typedef struct job {
  const hy__cpu_kernels* kernels;
  hy_attrs_cross_entropy attrs;
  hy__slices logits, target, each, out;  // each: losses or their gradients, one for every slice
  float* weight;                         // NULL: all 1
  double weight_sum, total;              // total: what a mean divides by, 1 otherwise
  float* losses;
  bool is_backward;
  atomic_bool no_memory;
} job;

static int64_t target_of(const job* j, int64_t i) {
  const char* at = hy__slice_at(&j->target, i);
  return j->target.t->dtype == HY_I64 ? *(const int64_t*)at : *(const int32_t*)at;
}

static float weight_of(const job* j, int64_t c) {
  return j->weight ? j->weight[c] : 1;
}

// x is a row of `dtype`, of f32 where labels are smoothed.
static float loss_of(const job* j, const void* x, hy_dtype dtype, int64_t next, int64_t t,
                     float* scratch) {
  const hy__rows* rows = j->kernels->rows;
  int64_t n = j->logits.n;
  float most = rows->max(n, x, dtype);
  float log_sum = logf(rows->exp_sum(n, x, dtype, most, NULL, next));
  float chosen = hy__load1((const char*)x + t * (int64_t)hy_dtype_size(dtype), dtype);
  float smoothing = (float)j->attrs.label_smoothing;
  float hard = -weight_of(j, t) * (chosen - most - log_sum);
  if (smoothing == 0) return hard;
  rows->shift_twice(n, x, HY_F32, most, log_sum, scratch, false);
  float smooth = j->weight ? rows->dot(n, j->weight, scratch) : rows->sum(n, scratch, HY_F32);
  return (1 - smoothing) * hard - smoothing / (float)n * smooth;
}

// g (hard w[t] (p[c] - (c == t)) + soft (sum(w) p[c] - w[c])), whose factor of p is one number.
static void slopes_of(const job* j, const float* x, int64_t t, float g, float* out) {
  const hy__rows* rows = j->kernels->rows;
  int64_t n = j->logits.n;
  float hard = (float)(1 - j->attrs.label_smoothing) * weight_of(j, t);
  float soft = (float)(j->attrs.label_smoothing / (double)n);
  float total = rows->exp_sum(n, x, HY_F32, rows->max(n, x, HY_F32), out, 0);
  rows->scale_terms(n, out, g * (hard + soft * (float)j->weight_sum) / total, out, HY_F32, false);
  if (soft != 0 && j->weight)
    rows->sub[HY__ROW_F32](n, (const void*[]){out, j->weight}, g * soft, 0, out, false);
  if (soft != 0 && !j->weight)
    for (int64_t c = 0; c < n; c++) out[c] -= g * soft;
  out[t] -= g * hard;
}

// A row is read in place unless labels are smoothed, which takes all its logarithms as floats.
static float loss_at(const job* j, int64_t i, int64_t t, float* row) {
  const hy__slices* x = &j->logits;
  if (j->attrs.label_smoothing == 0 && hy__slices_are_rows(x))
    return loss_of(j, hy__slice_at(x, i), x->t->dtype, hy__slice_next(x, i), t, NULL);
  return loss_of(j, hy__slice_read(j->kernels, x, i, row), HY_F32, 0, t, row + x->n);
}

static void slopes_at(const job* j, int64_t i, int64_t t, bool counts, float* row) {
  int64_t n = j->logits.n, at = j->each.count == 1 ? 0 : i;
  float* out = hy__slice_target(&j->out, i, row + n);
  double g = (double)hy__load1(hy__slice_at(&j->each, at), j->each.t->dtype);
  if (counts)
    slopes_of(j, hy__slice_read(j->kernels, &j->logits, i, row), t, (float)(g / j->total), out);
  else
    for (int64_t c = 0; c < n; c++) out[c] = 0;
  hy__slice_write(j->kernels, &j->out, i, out);
}

static void run_range(void* context, int64_t first, int64_t last) {
  job* j = context;
  float* row = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)j->logits.n * 2 * sizeof *row);
  if (!row) {
    atomic_store(&j->no_memory, true);
    return;
  }
  for (int64_t i = first; i < last; i++) {
    int64_t t = target_of(j, i);
    bool counts = t != j->attrs.ignore_index;
    if (j->is_backward)
      slopes_at(j, i, t, counts, row);
    else
      j->losses[i] = counts ? loss_at(j, i, t, row) : 0;
  }
}

static hy_status check_targets(const hy_call* call, job* j) {
  double total = 0;
  for (int64_t i = 0; i < j->logits.count; i++) {
    int64_t t = target_of(j, i);
    if (t == j->attrs.ignore_index) continue;
    if (t < 0 || t >= j->logits.n)
      return hy__backend_host->fail(HY_INDEX, "%s: target %lld is none of the %lld classes",
                                    hy__backend_host->op_name(call->op), (long long)t,
                                    (long long)j->logits.n);
    total += (double)weight_of(j, t);
  }
  j->total = j->attrs.reduction == HY_REDUCTION_MEAN ? total : 1;
  return HY_OK;
}

static void store_losses(const job* j) {
  bool reduces = j->attrs.reduction != HY_REDUCTION_NONE;
  hy_dtype dtype = j->each.t->dtype;
  double sum = 0;
  for (int64_t i = 0; i < j->logits.count; i++) {
    sum += (double)j->losses[i];
    if (!reduces) hy__store1(hy__slice_at(&j->each, i), dtype, j->losses[i]);
  }
  if (reduces) hy__store1(j->each.t->data, dtype, (float)(sum / j->total));
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor *logits = &call->in[0], *weight = &call->in[2];
  int dim = logits->ndim > 1;
  job j = {.kernels = kernels, .attrs = call->attrs.cross_entropy};
  j.is_backward = call->op == HY_OP_cross_entropy_backward;
  hy__slices_init(&j.logits, logits, dim, 1);
  hy__slices_init(&j.target, &call->in[1], 0, 0);
  hy__slices_init(&j.each, j.is_backward ? &call->in[3] : &call->out[0], 0, 0);
  hy__slices_init(&j.out, &call->out[0], dim, 1);
  int64_t n = j.logits.n;
  float* memory = hy__malloc((size_t)(n + j.logits.count) * sizeof *memory);
  if (!memory) return hy__cpu_no_memory(call);
  j.losses = memory + n;
  j.weight_sum = (double)n;
  if (weight->dtype != HY_NONE) {
    j.weight = memory;
    kernels->gemm.widen(n, weight->data, weight->stride[0], weight->dtype, memory);
    j.weight_sum = (double)kernels->rows->sum(n, memory, HY_F32);
  }
  hy_status status = check_targets(call, &j);
  if (status == HY_OK) {
    hy__each_range(j.logits.count, n, run_range, &j);
    if (atomic_load(&j.no_memory))
      status = hy__cpu_no_memory(call);
    else if (!j.is_backward)
      store_losses(&j);
  }
  hy__mfree(memory);
  return status;
}

static hy_support supports(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_cross_entropy = {supports, run};
