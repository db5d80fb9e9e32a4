// linear_quantized: one line reads the weights as they are, a few lines decode each row once, many
// decode the panels of a GEMM.
//
// The arithmetic is float32 throughout. Rounding the activations to 8 bits, as VNNI and AMX would
// want it, loses two digits that the op's own error does not: the weights were rounded knowingly,
// the activations were not.
#include <stdatomic.h>

#include "backends/cpu/matmul.h"
#include "backends/cpu/pool.h"
#include "backends/cpu/scratch.h"

enum { TASK_ROWS = 32, DECODED_ROWS = 4 };

typedef struct layer {
  const hy__cpu_kernels* kernels;
  hy__quantized w;
  hy__matrix x, out, bias;  // bias.data is NULL where there is none
  int64_t m;
  const float* lines;  // x in float32, [m, k]; ordered where the kernel wants that
  atomic_bool failed;  // no memory in a task
} layer;

static hy_support describe(const hy_call* call, layer* l) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[1], *scale = &call->in[2];
  const hy_tensor *bias = &call->in[3], *out = &call->out[0];
  int64_t x_row, out_row, rows;
  if (!hy__collapse(x, &l->m, &x_row) || !hy__collapse(out, &rows, &out_row))
    return HY_SUPPORT_NO_LAYOUT;
  int64_t n = weight->shape[0], k = weight->shape[1], groups = scale->shape[1];
  bool packed = weight->dtype == HY_I4;
  if ((!packed && k > 1 && weight->stride[1] != 1) || (groups > 1 && scale->stride[1] != 1))
    return HY_SUPPORT_NO_LAYOUT;
  l->w = (hy__quantized){weight->data,
                         weight->dtype,
                         n,
                         k,
                         packed ? k / 2 : weight->stride[0],
                         scale->data,
                         scale->stride[0],
                         groups > 0 ? k / groups : 1};
  l->x = (hy__matrix){x->data, x->dtype, x_row, x->stride[x->ndim - 1]};
  l->out = (hy__matrix){out->data, out->dtype, out_row, out->stride[out->ndim - 1]};
  l->bias = (hy__matrix){NULL, out->dtype, 0, 0};
  if (bias->dtype != HY_NONE) l->bias = (hy__matrix){bias->data, bias->dtype, 0, bias->stride[0]};
  return HY_SUPPORT_YES;
}

static void finish(const void* context, int64_t i, int64_t j, int m, int n, float* tile,
                   int64_t stride) {
  const layer* l = context;
  for (int r = 0; r < m; r++)
    l->kernels->finish(n, tile + r * stride, 1, 1,
                       l->bias.data ? hy__matrix_at(&l->bias, 0, j) : NULL, l->bias.column,
                       hy__matrix_at(&l->out, i + r, j), l->out.column, l->out.dtype);
}

// ---- one line ----

static void dot_in_place(void* context, int64_t task) {
  const layer* l = context;
  float sums[TASK_ROWS];
  int64_t first = task * TASK_ROWS;
  int rows = (int)(l->w.n - first < TASK_ROWS ? l->w.n - first : TASK_ROWS);
  l->kernels->dot_quantized(&l->w, first, rows, l->lines, sums);
  finish(l, 0, first, 1, rows, sums, TASK_ROWS);
}

// ---- a few lines ----

static void dot_decoded(void* context, int64_t task) {
  layer* l = context;
  float tile[HY__DOT_LINES * DECODED_ROWS];
  int64_t first = task * DECODED_ROWS, k = l->w.k;
  int rows = (int)(l->w.n - first < DECODED_ROWS ? l->w.n - first : DECODED_ROWS);
  float* decoded = hy__scratch_get(HY__SCRATCH_GEMM_B, (size_t)(DECODED_ROWS * k) * sizeof(float));
  if (!decoded) {
    atomic_store(&l->failed, true);
    return;
  }
  for (int r = 0; r < rows; r++) l->kernels->decode(&l->w, first + r, 0, k, decoded + r * k);
  hy__matrix w = {decoded, HY_F32, k, 1};
  l->kernels->dot(&w, 0, rows, k, l->lines, k, (int)l->m, tile, DECODED_ROWS);
  finish(l, 0, first, (int)l->m, rows, tile, DECODED_ROWS);
}

// ---- many lines ----

static void pack_decoded(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                         float* packed) {
  (void)panel;
  const layer* l = context;
  float rows[HY__GEMM_MAX_PANEL * HY__GEMM_DEPTH];
  for (int r = 0; r < n; r++) l->kernels->decode(&l->w, j + r, k, depth, rows + r * depth);
  hy__matrix b = {rows, HY_F32, 1, depth};
  l->kernels->gemm->pack_b(&b, 0, depth, 0, n, packed);
}

static bool multiply(layer* l) {
  hy__gemm g = {.m = l->m, .n = l->w.n, .k = l->w.k, .a = l->x};
  g.pack_b = pack_decoded;
  g.finish = finish;
  g.context = l;
  return hy__gemm_run(l->kernels->gemm, &g);
}

// x in float32; the kernel for one line may want it in an order of its own.
static bool widen_lines(layer* l, bool in_place) {
  int64_t k = l->w.k;
  float* lines = hy__scratch_get(HY__SCRATCH_LINES, (size_t)((l->m + 1) * k) * sizeof *lines);
  if (!lines) return false;
  for (int64_t i = 0; i < l->m; i++)
    l->kernels->widen(k, hy__matrix_at(&l->x, i, 0), l->x.column, l->x.dtype, lines + i * k);
  l->lines = lines;
  if (!in_place) return true;
  l->kernels->line_order(&l->w, lines, lines + k);
  l->lines = lines + k;
  return true;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  layer l = {.kernels = kernels};
  describe(call, &l);
  bool few = l.m <= HY__DOT_LINES && l.w.k > 0;
  bool in_place = l.m == 1 && l.w.k > 0 && kernels->dot_quantized && hy__quantized_is_even(&l.w);
  if (!few) {
    if (!multiply(&l)) return hy__cpu_no_memory(call);
    return HY_OK;
  }
  if (!widen_lines(&l, in_place)) return hy__cpu_no_memory(call);
  if (in_place)
    hy__pool_run(dot_in_place, &l, (l.w.n + TASK_ROWS - 1) / TASK_ROWS);
  else
    hy__pool_run(dot_decoded, &l, (l.w.n + DECODED_ROWS - 1) / DECODED_ROWS);
  return atomic_load(&l.failed) ? hy__cpu_no_memory(call) : HY_OK;
}

static hy_support supports(const hy_call* call) {
  layer l = {0};
  return describe(call, &l);
}

const hy__cpu_family hy__cpu_quantized = {supports, run};
