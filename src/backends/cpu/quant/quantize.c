// quantize: floats to int8 and packed int4 with a scale for each group along the rows.
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/gemm/matmul.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "base/math.h"

// Numbers that are worth a task, and that are where there are tasks anyway.
enum { TASK_NUMBERS = 1 << 15, LEAST_NUMBERS = 1 << 12 };

typedef struct job {
  const hy__cpu_kernels* kernels;
  hy__matrix x;
  int64_t m, k, group;
  hy_dtype dtype;  // of the result
  char* q;
  int64_t q_row;
  float* scale;
  int64_t scale_row;
  int64_t task_rows;
} job;

static hy_support describe(const hy_call* call, job* j) {
  const hy_tensor *x = &call->in[0], *q = &call->out[0], *scale = &call->out[1];
  int last = x->ndim - 1;
  int64_t m, x_row, q_row = 0, scale_row;
  bool packed = q->dtype == HY_I4;
  *j = (job){.k = x->shape[last], .dtype = q->dtype, .q = q->data, .scale = scale->data};
  if (q->dtype != HY_I8 && !packed) return HY_SUPPORT_NO_DTYPE;
  if (!hy__collapse(x, &m, &x_row) || (!packed && !hy__collapse(q, &m, &q_row)) ||
      !hy__collapse(scale, &m, &scale_row) || (j->k > 1 && x->stride[last] != 1) ||
      (!packed && j->k > 1 && q->stride[last] != 1) ||
      (scale->shape[last] > 1 && scale->stride[last] != 1))
    return HY_SUPPORT_NO_LAYOUT;
  int64_t groups = scale->shape[last];
  j->group = groups > 0 ? j->k / groups : 1;
  if (packed && j->group % 2 != 0) return HY_SUPPORT_NO_LAYOUT;
  j->m = m;
  j->x = (hy__matrix){x->data, x->dtype, x_row, 1};
  j->q_row = packed ? j->k / 2 : q_row;
  j->scale_row = scale_row;
  return HY_SUPPORT_YES;
}

static void quantize_rows(void* context, int64_t task) {
  const job* j = context;
  int64_t first = task * j->task_rows;
  int64_t end = first + j->task_rows < j->m ? first + j->task_rows : j->m;
  for (int64_t i = first; i < end; i++) {
    char* q = j->q + i * j->q_row;
    float* scale = j->scale + i * j->scale_row;
    if (j->k == 0 && j->group == 0) *scale = 1;
    for (int64_t at = 0; at < j->k; at += j->group)
      *scale++ = j->kernels->quant.quantize(j->group, hy__matrix_at(&j->x, i, at), j->x.dtype,
                                            j->dtype, q + (j->dtype == HY_I4 ? at / 2 : at));
  }
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j;
  describe(call, &j);
  j.kernels = kernels;
  int64_t k = j.k > 0 ? j.k : 1;
  j.task_rows = hy__pool_grain(j.m, ceil_div(LEAST_NUMBERS, k), ceil_div(TASK_NUMBERS, k));
  hy__pool_run(quantize_rows, &j, ceil_div(j.m, j.task_rows));
  return HY_OK;
}

static hy_support supports(const hy_call* call) {
  job j;
  return describe(call, &j);
}

const hy__cpu_family hy__cpu_quantize = {supports, run};
