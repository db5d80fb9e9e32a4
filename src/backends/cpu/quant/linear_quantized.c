// linear_quantized: one row of x reads the quantised weights in place (GEMV), more rows dequantise
// them into packed GEMM panels.
//
// The arithmetic is float32 throughout. Rounding the activations to 8 bits, as VNNI and AMX need
// it, would lose two digits that the op's own error does not: the weights were rounded knowingly,
// the activations were not. linear_int8 is the op that does.
#include "backends/cpu/quant/dequant_linear.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"

enum { TASK_ROWS = 32 };

static hy_support describe(const hy_call* call, hy__dequant_linear* l, hy__quantized* w) {
  const hy_tensor *weight = &call->in[1], *scale = &call->in[2];
  int64_t n = weight->shape[0], k = weight->shape[1], groups = scale->shape[1];
  bool packed = weight->dtype == HY_I4;
  if ((!packed && k > 1 && weight->stride[1] != 1) || (groups > 1 && scale->stride[1] != 1))
    return HY_SUPPORT_NO_LAYOUT;
  *w = (hy__quantized){weight->data,
                       weight->dtype,
                       n,
                       k,
                       packed ? k / 2 : weight->stride[0],
                       scale->data,
                       scale->stride[0],
                       groups > 0 ? k / groups : 1};
  return hy__dequant_linear_describe(call, n, k, &call->in[3], l);
}

static void decode(const hy__dequant_linear* l, int64_t row, int64_t first, int64_t count,
                   float* out) {
  l->kernels->quant.dequantize(l->weights, row, first, count, out);
}

// ---- one line ----

typedef struct line {
  const hy__dequant_linear* l;
  const hy__quantized* w;
  const float* x;  // in the order that the kernel wants
} line;

static void dot_rows(void* context, int64_t task) {
  const line* one = context;
  float sums[TASK_ROWS];
  int64_t first = task * TASK_ROWS, left = one->w->n - first;
  int rows = (int)(left < TASK_ROWS ? left : TASK_ROWS);
  one->l->kernels->quant.gemv(one->w, first, rows, one->x, sums);
  hy__dequant_linear_epilogue(one->l, 0, first, 1, rows, sums, TASK_ROWS);
}

static bool run_line(const hy__dequant_linear* l, const hy__quantized* w) {
  float* x = hy__scratch_get(HY__SCRATCH_GEMV, (size_t)(2 * w->k) * sizeof *x);
  if (!x) return false;
  l->kernels->gemm.widen(w->k, l->x.data, l->x.column, l->x.dtype, x);
  l->kernels->quant.order_row(w, x, x + w->k);
  line one = {l, w, x + w->k};
  hy__pool_run(dot_rows, &one, (w->n + TASK_ROWS - 1) / TASK_ROWS);
  return true;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  hy__dequant_linear l;
  hy__quantized w;
  describe(call, &l, &w);
  l.kernels = kernels;
  l.decode = decode;
  l.weights = &w;
  bool in_place = l.m == 1 && w.k > 0 && kernels->quant.gemv && hy__quantized_is_even(&w);
  bool done = in_place ? run_line(&l, &w) : hy__dequant_linear_run(&l);
  return done ? HY_OK : hy__cpu_no_memory(call);
}

static hy_support supports(const hy_call* call) {
  hy__dequant_linear l;
  hy__quantized w;
  return describe(call, &l, &w);
}

const hy__cpu_family hy__cpu_linear_quantized = {supports, run};
