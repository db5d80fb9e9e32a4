// Linear layers that dequantise their weights on the way: a row at a time for few rows of x, a
// packed GEMM panel at a time for many.
#include "backends/cpu/quant/dequant_linear.h"

#include <stdatomic.h>

#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"

enum { ROWS = 4 };  // decoded at once: what the dot kernels take

hy_support hy__dequant_linear_describe(const hy_call* call, int64_t n, int64_t k,
                                       const hy_tensor* bias, hy__dequant_linear* l) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  int64_t x_row, out_row, rows;
  *l = (hy__dequant_linear){.n = n, .k = k};
  if (!hy__collapse(x, &l->m, &x_row) || !hy__collapse(out, &rows, &out_row))
    return HY_SUPPORT_NO_LAYOUT;
  l->x = (hy__matrix){x->data, x->dtype, x_row, x->stride[x->ndim - 1]};
  l->out = (hy__matrix){out->data, out->dtype, out_row, out->stride[out->ndim - 1]};
  if (bias->dtype != HY_NONE) l->bias = (hy__matrix){bias->data, bias->dtype, 0, bias->stride[0]};
  return HY_SUPPORT_YES;
}

void hy__dequant_linear_epilogue(const void* layer, int64_t i, int64_t j, int m, int n, float* tile,
                                 int64_t stride) {
  const hy__dequant_linear* l = layer;
  for (int r = 0; r < m; r++)
    l->kernels->gemm.epilogue(n, tile + r * stride, 1, 1,
                              l->bias.data ? hy__matrix_at(&l->bias, 0, j) : NULL, l->bias.column,
                              hy__matrix_at(&l->out, i + r, j), l->out.column, l->out.dtype);
}

// ---- a few lines ----

typedef struct few {
  const hy__dequant_linear* l;
  const float* lines;  // x in float32, [m, k]
  atomic_bool failed;
} few;

static void dot_rows(void* context, int64_t task) {
  few* f = context;
  const hy__dequant_linear* l = f->l;
  float tile[HY__GEMV_MAX_M * ROWS];
  int64_t first = task * ROWS;
  int rows = (int)(l->n - first < ROWS ? l->n - first : ROWS);
  float* decoded = hy__scratch_get(HY__SCRATCH_GEMM_B, (size_t)(ROWS * l->k) * sizeof *decoded);
  if (!decoded) {
    atomic_store(&f->failed, true);
    return;
  }
  for (int r = 0; r < rows; r++) l->decode(l, first + r, 0, l->k, decoded + r * l->k);
  hy__matrix w = {decoded, HY_F32, l->k, 1};
  l->kernels->gemm.gemv(&w, 0, rows, l->k, f->lines, l->k, (int)l->m, tile, ROWS);
  hy__dequant_linear_epilogue(l, 0, first, (int)l->m, rows, tile, ROWS);
}

static bool run_few(const hy__dequant_linear* l) {
  float* lines = hy__scratch_get(HY__SCRATCH_GEMV, (size_t)(l->m * l->k) * sizeof *lines);
  if (!lines) return false;
  for (int64_t i = 0; i < l->m; i++)
    l->kernels->gemm.widen(l->k, hy__matrix_at(&l->x, i, 0), l->x.column, l->x.dtype,
                           lines + i * l->k);
  few f = {.l = l, .lines = lines};
  hy__pool_run(dot_rows, &f, (l->n + ROWS - 1) / ROWS);
  return !atomic_load(&f.failed);
}

// ---- many lines ----

static void pack(const void* context, int64_t k, int depth, int64_t j, int n, int panel,
                 float* packed) {
  (void)panel;
  const hy__dequant_linear* l = context;
  float rows[HY__GEMM_MAX_NR * HY__GEMM_MAX_KC];
  for (int r = 0; r < n; r++) l->decode(l, j + r, k, depth, rows + r * depth);
  hy__matrix b = {rows, HY_F32, 1, depth};
  l->kernels->gemm.f32->pack_b(&b, 0, depth, 0, n, packed);
}

bool hy__dequant_linear_run(const hy__dequant_linear* l) {
  if (l->m <= HY__GEMV_MAX_M && l->k > 0) return run_few(l);
  hy__gemm g = {.m = l->m, .n = l->n, .k = l->k, .a = l->x};
  g.pack_b = pack;
  g.epilogue = hy__dequant_linear_epilogue;
  g.context = l;
  return hy__gemm_run(l->kernels->gemm.f32, &g);
}
