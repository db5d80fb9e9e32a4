// softmax, log_softmax and their gradients, along any dimension.
#include <math.h>
#include <stdatomic.h>

#include "backends/cpu/rows/nditer.h"
#include "backends/cpu/rows/slices.h"
#include "backends/cpu/runtime/scratch.h"

typedef struct job {
  const hy__cpu_kernels* kernels;
  hy_op op;
  hy__slices in[2], out;
  bool as_rows, nontemporal;  // input and output are taken in place; outputs pass the caches by
  atomic_bool no_memory;
} job;

// A row is read from memory once: its terms stay in the nearest cache until their sum is known.
static void forward(const job* j, int64_t i, float* row) {
  const hy__rows* rows = j->kernels->rows;
  int64_t n = j->out.n, next = hy__slice_next(&j->in[0], i);
  hy_dtype dtype = j->as_rows ? j->out.t->dtype : HY_F32;
  const void* x = hy__slice_at(&j->in[0], i);
  void* out = hy__slice_at(&j->out, i);
  if (!j->as_rows) {
    x = hy__slice_read(j->kernels, &j->in[0], i, row);
    out = hy__slice_target(&j->out, i, row + n);
  }
  float *terms = row + 2 * n, most = rows->max(n, x, dtype);
  bool nontemporal = j->nontemporal && (uintptr_t)out % 64 == 0;
  if (j->op == HY_OP_softmax) {
    float total = rows->exp_sum(n, x, dtype, most, terms, next);
    rows->scale_terms(n, terms, 1 / total, out, dtype, nontemporal);
  } else {
    float total = rows->exp_sum(n, x, dtype, most, NULL, next);
    rows->shift_twice(n, x, dtype, most, logf(total), out, nontemporal);
  }
  if (!j->as_rows) hy__slice_write(j->kernels, &j->out, i, out);
}

static void backward(const job* j, int64_t i, float* row) {
  const hy__rows* rows = j->kernels->rows;
  int64_t n = j->out.n;
  const float* dy = hy__slice_read(j->kernels, &j->in[0], i, row);
  const float* y = hy__slice_read(j->kernels, &j->in[1], i, row + n);
  float* out = hy__slice_target(&j->out, i, row + 2 * n);
  const void* in[2] = {dy, y};
  if (j->op == HY_OP_softmax_backward)
    rows->softmax_grad[HY__ROW_F32](n, in, rows->dot(n, dy, y), 0, out, false);
  else
    rows->log_softmax_grad[HY__ROW_F32](n, in, rows->sum(n, dy, HY_F32), 0, out, false);
  hy__slice_write(j->kernels, &j->out, i, out);
}

static void run_range(void* context, int64_t first, int64_t last) {
  job* j = context;
  float* row =
      hy__scratch_get(HY__SCRATCH_ROWS, (size_t)(j->out.n * 3 + HY__ROW_SPARE) * sizeof *row);
  if (!row) {
    atomic_store(&j->no_memory, true);
    return;
  }
  bool is_forward = j->op == HY_OP_softmax || j->op == HY_OP_log_softmax;
  for (int64_t i = first; i < last; i++) (is_forward ? forward : backward)(j, i, row);
  if (j->nontemporal) j->kernels->rows->nontemporal_fence();
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j = {.kernels = kernels, .op = call->op};
  int ndim = call->in[0].ndim;
  int dim = (int)call->attrs.dim.dim + (call->attrs.dim.dim < 0 ? ndim : 0);
  for (int k = 0; k < call->n_in; k++) hy__slices_init(&j.in[k], &call->in[k], dim, 1);
  hy__slices_init(&j.out, &call->out[0], dim, 1);
  j.as_rows = hy__slices_are_rows(&j.in[0]) && hy__slices_are_rows(&j.out);
  j.nontemporal = hy__use_nontemporal(call);
  hy__each_range(j.out.count, j.out.n, run_range, &j);
  return atomic_load(&j.no_memory) ? hy__cpu_no_memory(call) : HY_OK;
}

// Input and output have one type, and a slice of one dimension is always even.
static hy_support supports(const hy_call* call) {
  return call->out[0].dtype == call->in[0].dtype ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
}

const hy__cpu_family hy__cpu_softmax = {supports, run};
