// dequantize: numbers in few bits, with a scale for each group along the rows, become floats. The
// product is rounded to float32 and then to the type of the result.
#include "backends/cpu/family.h"
#include "backends/cpu/gemm/matmul.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "base/math.h"

// Numbers that are worth a task, and that are where there are tasks anyway; numbers at once.
enum { TASK_NUMBERS = 1 << 15, LEAST_NUMBERS = 1 << 12, PIECE = 1 << 10 };

typedef struct job {
  const hy__cpu_kernels* kernels;
  hy__quantized q;
  hy__matrix out;
  int64_t task_rows;
} job;

static hy_support describe(const hy_call* call, job* j) {
  const hy_tensor *q = &call->in[0], *scale = &call->in[1], *out = &call->out[0];
  int last = q->ndim - 1;
  int64_t m, row = 0, scale_row, out_row, k = q->shape[last], groups = scale->shape[last];
  bool packed = q->dtype == HY_I4;
  *j = (job){0};
  if (out->dtype == HY_F64) return HY_SUPPORT_NO_DTYPE;
  if (!hy__collapse(out, &m, &out_row) || (!packed && !hy__collapse(q, &m, &row)) ||
      !hy__collapse(scale, &m, &scale_row) || (!packed && k > 1 && q->stride[last] != 1) ||
      (packed && k % 2 != 0) || (groups > 1 && scale->stride[last] != 1))
    return HY_SUPPORT_NO_LAYOUT;
  j->q = (hy__quantized){q->data,
                         q->dtype,
                         m,
                         k,
                         packed ? k / 2 : row,
                         scale->data,
                         scale_row,
                         groups > 0 ? k / groups : 1};
  j->out = (hy__matrix){out->data, out->dtype, out_row, out->stride[last]};
  return HY_SUPPORT_YES;
}

static void dequantize_rows(void* context, int64_t task) {
  const job* j = context;
  float floats[PIECE] __attribute__((aligned(64)));
  bool direct = j->out.dtype == HY_F32 && j->out.column == 1;
  int64_t end = min_i64((task + 1) * j->task_rows, j->q.n);
  for (int64_t row = task * j->task_rows; row < end; row++) {
    for (int64_t at = 0; at < j->q.k; at += PIECE) {
      int64_t count = min_i64(PIECE, j->q.k - at);
      char* to = hy__matrix_at(&j->out, row, at);
      j->kernels->quant.dequantize(&j->q, row, at, count, direct ? (float*)(void*)to : floats);
      if (!direct)
        j->kernels->gemm.epilogue(count, floats, 1, 0, NULL, 0, to, j->out.column, j->out.dtype);
    }
  }
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j;
  describe(call, &j);
  if (j.q.n == 0 || j.q.k == 0) return HY_OK;
  j.kernels = kernels;
  j.task_rows =
      hy__pool_grain(j.q.n, ceil_div(LEAST_NUMBERS, j.q.k), ceil_div(TASK_NUMBERS, j.q.k));
  hy__pool_run(dequantize_rows, &j, ceil_div(j.q.n, j.task_rows));
  return HY_OK;
}

static hy_support supports(const hy_call* call) {
  job j;
  return describe(call, &j);
}

const hy__cpu_family hy__cpu_dequantize = {supports, run};
