// Softmax, its logarithm, and their gradients, along any dimension.
#include <math.h>
#include <stdatomic.h>

#include "backends/cpu/scratch.h"
#include "backends/cpu/strips.h"

typedef struct job {
  const hy__cpu_kernels* kernels;
  hy_op op;
  hy__strips in[2], out;
  atomic_bool no_memory;
} job;

static void forward(const job* j, int64_t i, float* row) {
  const hy__rows* rows = j->kernels->rows;
  int64_t n = j->out.n;
  const float* x = hy__strip_read(j->kernels, &j->in[0], i, row);
  float* out = hy__strip_target(&j->out, i, row + n);
  float most = rows->most(n, x);
  float total = rows->exp_sum(n, x, most, out), inverse = 1 / total;
  if (j->op == HY_OP_softmax)
    rows->scale(n, out, out, inverse, out);
  else
    rows->shift_twice(n, x, most, logf(total), out);
  hy__strip_write(j->kernels, &j->out, i, out);
}

static void backward(const job* j, int64_t i, float* row) {
  const hy__rows* rows = j->kernels->rows;
  int64_t n = j->out.n;
  const float* dy = hy__strip_read(j->kernels, &j->in[0], i, row);
  const float* y = hy__strip_read(j->kernels, &j->in[1], i, row + n);
  float* out = hy__strip_target(&j->out, i, row + 2 * n);
  if (j->op == HY_OP_softmax_backward)
    rows->softmax_slope(n, dy, y, rows->dot(n, dy, y), out);
  else
    rows->log_softmax_slope(n, dy, y, rows->sum(n, dy), out);
  hy__strip_write(j->kernels, &j->out, i, out);
}

static void run_range(void* context, int64_t first, int64_t last) {
  job* j = context;
  float* row = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)j->out.n * 3 * sizeof *row);
  if (!row) {
    atomic_store(&j->no_memory, true);
    return;
  }
  bool is_forward = j->op == HY_OP_softmax || j->op == HY_OP_log_softmax;
  for (int64_t i = first; i < last; i++) (is_forward ? forward : backward)(j, i, row);
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j = {.kernels = kernels, .op = call->op};
  int ndim = call->in[0].ndim;
  int dim = (int)call->attrs.dim.dim + (call->attrs.dim.dim < 0 ? ndim : 0);
  for (int k = 0; k < call->n_in; k++) hy__strips_init(&j.in[k], &call->in[k], dim, 1);
  hy__strips_init(&j.out, &call->out[0], dim, 1);
  hy__each_range(j.out.count, j.out.n, run_range, &j);
  return atomic_load(&j.no_memory) ? hy__cpu_no_memory(call) : HY_OK;
}

// Input and output have one type, and a strip of one dimension is always even.
static hy_support supports(const hy_call* call) {
  return call->out[0].dtype == call->in[0].dtype ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
}

const hy__cpu_family hy__cpu_softmax = {supports, run};
