// linear_quantized: one or two rows of x read the quantised weights in place (GEMV), more rows
// dequantise them into packed GEMM panels.
//
// The arithmetic is float32 throughout. Rounding the activations to 8 bits, as VNNI and AMX need
// it, would lose two digits that the op's own error does not: the weights were rounded knowingly,
// the activations were not. linear_int8 is the op that does.
#include "backends/cpu/quant/dequant_linear.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/weight_prefetch.h"
#include "base/math.h"

// Rows of x beyond which dequantising once is cheaper than once for each.
enum { TASK_ROWS = 32, GEMV_ROWS = 2 };

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

// ---- a few lines ----

typedef struct lines {
  const hy__dequant_linear* l;
  const hy__quantized* w;
  const hy__quantized_gemv* gemv;
  const float* x;  // in the kernel's order
  int64_t ldx;
} lines;

// One row of x after another: a task's weights stay in the caches.
static void dot_rows(void* context, int64_t task) {
  const lines* few = context;
  float sums[TASK_ROWS];
  int64_t first = task * TASK_ROWS;
  int rows = (int)min_i64(few->w->n - first, TASK_ROWS);
  for (int64_t i = 0; i < few->l->m; i++) {
    few->gemv->multiply(few->w, first, rows, few->x + i * few->ldx, sums);
    hy__dequant_linear_epilogue(few->l, i, first, 1, rows, sums, TASK_ROWS);
  }
}

// Brings x into the order of the first kernel that takes both; NULL where there is none.
static const hy__quantized_gemv* order_lines(const hy__dequant_linear* l, const hy__quantized* w,
                                             int64_t ldx, float* plain, float* x) {
  const hy__quantized_gemv* const* gemv = l->kernels->quant.gemv;
  for (; *gemv; gemv++) {
    bool ordered = (*gemv)->takes(w);
    for (int64_t i = 0; i < l->m && ordered; i++) {
      l->kernels->gemm.widen(w->k, hy__matrix_at(&l->x, i, 0), l->x.column, l->x.dtype, plain);
      ordered = (*gemv)->order(w, plain, x + i * ldx);
    }
    if (ordered) return *gemv;
  }
  return NULL;
}

static bool run_lines(const hy__dequant_linear* l, const hy__quantized* w) {
  int64_t room = ceil_div(w->k, HY__QUANTIZED_STEP) * HY__QUANTIZED_STEP;
  float* x = hy__scratch_get(HY__SCRATCH_GEMV, (size_t)((l->m + 1) * room) * sizeof *x);
  if (!x) return false;
  lines few = {l, w, order_lines(l, w, room, x + l->m * room, x), x, room};
  if (!few.gemv) return hy__dequant_linear_run(l);
  hy__weight_prefetch(
      &(hy__prefetch_range){.data = w->data,
                            .beside = w->scale,
                            .bytes = (size_t)(w->row * w->n),
                            .beside_bytes = (size_t)(w->scale_row * w->n) * sizeof(float)});
  hy__pool_run(dot_rows, &few, ceil_div(w->n, TASK_ROWS));
  return true;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  hy__dequant_linear l;
  hy__quantized w;
  describe(call, &l, &w);
  l.kernels = kernels;
  l.decode = decode;
  l.weights = &w;
  bool few = l.m > 0 && l.m <= GEMV_ROWS && w.k > 0;
  bool done = few ? run_lines(&l, &w) : hy__dequant_linear_run(&l);
  return done ? HY_OK : hy__cpu_no_memory(call);
}

static hy_support supports(const hy_call* call) {
  hy__dequant_linear l;
  hy__quantized w;
  return describe(call, &l, &w);
}

const hy__cpu_family hy__cpu_linear_quantized = {supports, run};
