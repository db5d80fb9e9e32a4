// Matrix products: mm, bmm, addmm, linear and int_mm. f16 and bf16 go to tensor cores, few rows
// against a weight to GEMV, the rest to the SIMT kernel. Kernels take operands whose neighbours are
// along one of their two dimensions; any other layout is copied first.
#include <stdio.h>

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/gemm_batch.h"
#include "backends/gpu/ops/gemm_skinny.h"
#include "backends/gpu/ops/gemm_wgmma.h"
#include "backends/gpu/ops/matmul.h"

// An operand [batch, rows, k]: rows are m of a, or n of b.
typedef struct operand {
  hy_tensor t;
  bool k_first;  // neighbours in memory run along k
} operand;

static hy_tensor batched(const hy_tensor* t, int rows_at, int k_at) {
  hy_tensor b = *t;
  b.ndim = 3;
  b.shape[0] = t->ndim == 3 ? t->shape[0] : 1;
  b.stride[0] = t->ndim == 3 ? t->stride[0] : 0;
  b.shape[1] = t->shape[rows_at];
  b.stride[1] = t->stride[rows_at];
  b.shape[2] = t->shape[k_at];
  b.stride[2] = t->stride[k_at];
  return b;
}

// All dimensions but the last as one; false where their strides do not allow it.
static bool flatten_rows(const hy_tensor* t, hy_tensor* rows) {
  *rows = *t;
  rows->ndim = 2;
  rows->shape[0] = 1;
  rows->stride[0] = 0;
  for (int d = t->ndim - 2; d >= 0; d--) {
    if (t->shape[d] == 1) continue;
    if (rows->shape[0] == 1)
      rows->stride[0] = t->stride[d];
    else if (t->stride[d] != rows->stride[0] * rows->shape[0])
      return false;
    rows->shape[0] *= t->shape[d];
  }
  rows->shape[1] = t->shape[t->ndim - 1];
  rows->stride[1] = t->stride[t->ndim - 1];
  return true;
}

static bool lines_are(const hy_tensor* t, int across, int along, int64_t multiple) {
  bool unit = t->stride[along] == 1 || t->shape[along] == 1;
  bool even = t->stride[across] % multiple == 0 || t->shape[across] == 1;
  return unit && even && (t->stride[0] % multiple == 0 || t->shape[0] == 1) &&
         (uintptr_t)t->data % ((uintptr_t)multiple * hy_dtype_size(t->dtype)) == 0;
}

// The operand as it is, or copied so that lines begin at multiples of `multiple` elements.
static operand operand_of(hy__gpu_task* task, hy_tensor t, int64_t multiple) {
  if (lines_are(&t, 1, 2, multiple)) return (operand){t, true};
  if (lines_are(&t, 2, 1, multiple)) return (operand){t, false};
  int64_t line = (t.shape[2] + multiple - 1) / multiple * multiple;
  hy_tensor copy = hy__gpu_temporary(task, t.dtype, 3, (int64_t[]){t.shape[0], t.shape[1], line});
  copy.shape[2] = t.shape[2];
  hy__gpu_copy(task, &copy, &t);
  return (operand){copy, true};
}

static void swap_operands(hy_gemm* g, operand* a, operand* b) {
  operand kept = *a;
  *a = *b;
  *b = kept;
  int m = g->m;
  g->m = g->n;
  g->n = m;
  int64_t step = g->out_row;
  g->out_row = g->out_column;
  g->out_column = step;
  step = g->addend_row;
  g->addend_row = g->addend_column;
  g->addend_column = step;
}

// The grid's z takes 65535 of a batch at once.
#define MOST_Z 65535

static void launch(hy__gpu_task* task, hy__gpu_function* kernel, hy__gpu_dim3 grid,
                   unsigned threads, size_t shared, hy_gemm g, const hy_tensor* a,
                   const hy_tensor* b, const hy_tensor* out, const hy_tensor* addend) {
  int batch = g.batch;
  for (int64_t first = 0; first < batch; first += MOST_Z) {
    g.batch = batch - first < MOST_Z ? (int)(batch - first) : MOST_Z;
    grid.z = (unsigned)g.batch;
    g.a = (char*)a->data + first * g.a_batch * (int64_t)hy_dtype_size(a->dtype);
    g.b = (char*)b->data + first * g.b_batch * (int64_t)hy_dtype_size(b->dtype);
    g.out = (char*)out->data + first * g.out_batch * (int64_t)hy_dtype_size(out->dtype);
    if (addend)
      g.addend =
          (char*)addend->data + first * g.addend_batch * (int64_t)hy_dtype_size(addend->dtype);
    hy__gpu_launch(task, kernel, grid, (hy__gpu_dim3){threads, 1, 1}, shared, HY__GPU_ARGS(&g));
  }
}

// How many parts k falls into, so that few tiles fill the device.
static int splits_for(const hy__gpu_task* task, const hy_gemm* g, int64_t tile_count) {
  int64_t steps = (g->k + 63) / 64, splits = 2 * task->device->multiprocessors / tile_count;
  if (splits > steps / 4) splits = steps / 4;
  return splits < 2 || g->batch > MOST_Z ? 1 : splits > 32 ? 32 : (int)splits;
}

// Memory for their sums.
static void hold_partial(hy__gpu_task* task, hy_gemm* g, size_t size) {
  if (g->splits > 1)
    g->partial = (void*)(uintptr_t)hy__gpu_workspace(
        task, (size_t)g->splits * (size_t)g->m * (size_t)g->n * (size_t)g->batch * size);
}

static void add_partial(hy__gpu_task* task, hy_gemm* g, const char* module, const char* entry,
                        const char* options) {
  int64_t results = (int64_t)g->m * g->n * g->batch;
  hy__gpu_launch(task, hy__gpu_kernel(task, module, entry, options),
                 (hy__gpu_dim3){hy__gpu_blocks(task, results, 256, 1), 1, 1},
                 (hy__gpu_dim3){256, 1, 1}, 0, HY__GPU_ARGS(g));
}

static void run_simt(hy__gpu_task* task, hy_gemm* g, const operand* a, const operand* b,
                     const hy_tensor* out, const hy_tensor* addend) {
  int64_t large = (int64_t)hy__gpu_tiles(g->m, 128) * hy__gpu_tiles(g->n, 128) * g->batch;
  bool wide = out->dtype != HY_F32 || large < task->device->multiprocessors;
  int tile = wide ? 64 : 128;
  // Integers are summed in 4 or 8 bytes; they are not split.
  bool floats = HY_DTYPE_BIT(out->dtype) & HY_FLOATS;
  unsigned count = hy__gpu_tiles(g->m, tile);
  g->splits =
      floats ? splits_for(task, g, (int64_t)count * hy__gpu_tiles(g->n, tile) * g->batch) : 1;
  hold_partial(task, g, out->dtype == HY_F64 ? 8 : 4);  // halves are summed in f32
  char options[96];
  snprintf(options, sizeof options, "-DT=%s -DTO=%s -DA_K=%d -DB_K=%d -DTILE=%d",
           hy__gpu_type_name(a->t.dtype), hy__gpu_type_name(out->dtype), a->k_first, b->k_first,
           tile);
  hy__gpu_function* kernel = hy__gpu_kernel(task, "gemm", "gemm", options);
  launch(task, kernel, (hy__gpu_dim3){count * (unsigned)g->splits, hy__gpu_tiles(g->n, tile), 1},
         256, 0, *g, &a->t, &b->t, out, addend);
  if (g->splits > 1) add_partial(task, g, "gemm", "gemm_sum", options);
}

static void run_mma(hy__gpu_task* task, hy_gemm* g, const operand* a, const operand* b,
                    const hy_tensor* out, const hy_tensor* addend) {
  int64_t large = (int64_t)hy__gpu_tiles(g->m, 128) * hy__gpu_tiles(g->n, 128) * g->batch;
  int tile = large < task->device->multiprocessors ? 64 : 128;
  unsigned count = hy__gpu_tiles(g->m, tile) * hy__gpu_tiles(g->n, tile);
  unsigned threads = (unsigned)(tile / 16 * task->device->mma_lanes);
  g->splits = splits_for(task, g, (int64_t)count * g->batch);
  hold_partial(task, g, sizeof(float));
  char options[96];
  snprintf(options, sizeof options, "-DT=%s -DA_K=%d -DB_K=%d -DBM=%d -DBN=%d",
           hy__gpu_type_name(a->t.dtype), a->k_first, b->k_first, tile, tile);
  hy__gpu_function* kernel = hy__gpu_kernel(task, "gemm_mma", "gemm_mma", options);
  size_t stages = task->device->mma_lanes == 32 ? 3 : 2;
  size_t shared = stages * 2 * (size_t)tile * 64 * 2;  // stages, operands, rows, depth, bytes
  launch(task, kernel, (hy__gpu_dim3){count, (unsigned)g->splits, 1}, threads, shared, *g, &a->t,
         &b->t, out, addend);
  if (g->splits > 1) add_partial(task, g, "gemm_mma", "gemm_mma_sum", options);
}

// Few rows of halves against a weight that runs along k, and a matrix to be added as it is: a
// residual.
static bool run_residual(hy__gpu_task* task, const hy_gemm* g, const operand* a, const operand* b,
                         const hy_tensor* out, const hy_tensor* addend) {
  if (!addend || g->batch != 1 || !a->k_first || !b->k_first || b->t.stride[1] != g->k ||
      g->alpha != 1 || g->beta != 1 || g->addend_row == 0 || g->addend_column != 1 ||
      g->out_column != 1)
    return false;
  hy_fused_linear p = {.x = a->t.data,
                       .weight = b->t.data,
                       .residual = addend->data,
                       .out = out->data,
                       .m = g->m,
                       .n = g->n,
                       .k = g->k,
                       .rows = g->n,
                       .x_row = a->t.stride[1],
                       .out_row = g->out_row,
                       .residual_row = g->addend_row};
  return hy__gpu_gemm_batch(task, &p, a->t.dtype, b->t.dtype);
}

// Few rows of halves against many that run along k, with at most a bias; either operand may be the
// one of few rows.
static bool run_skinny(hy__gpu_task* task, hy_gemm g, operand a, operand b, const hy_tensor* out,
                       const hy_tensor* addend) {
  if (g.m > 64 && g.n <= 64) swap_operands(&g, &a, &b);
  bool bias = !addend || (g.beta == 1 && g.addend_row == 0);
  if (!hy__gpu_mma_sync(task) || g.m > 64 || g.batch != 1 || !a.k_first || !b.k_first ||
      g.alpha != 1 || !bias)
    return false;
  hy_quantized_linear p = {.x = a.t.data, .q = b.t.data, .out = out->data};
  p.m = g.m;
  p.n = g.n;
  p.k = g.k;
  p.x_row = a.t.stride[1];
  p.q_row = b.t.stride[1];
  p.out_row = g.out_row;
  p.out_column = g.out_column;
  if (addend) {
    p.bias = addend->data;
    p.bias_step = g.addend_column;
  }
  if (!hy__gpu_skinny_takes(&p, a.t.dtype, b.t.dtype)) return false;
  hy__gpu_skinny(task, &p, a.t.dtype, b.t.dtype, out->dtype);
  return true;
}

// A row or a few of floats against rows that run along k: halves up to 4, wider ones up to 8.
static bool run_gemv(hy__gpu_task* task, const hy_gemm* g, const operand* a, const operand* b) {
  bool half = a->t.dtype == HY_F16 || a->t.dtype == HY_BF16;
  int most = half ? 4 : a->t.dtype == HY_F32 || a->t.dtype == HY_F64 ? 8 : 0;
  if (g->m > most || !a->k_first || !b->k_first || g->batch > MOST_Z) return false;
  int64_t each = 16 / (int64_t)hy_dtype_size(a->t.dtype);
  bool wide = lines_are(&a->t, 1, 2, each) && lines_are(&b->t, 1, 2, each);
  // A whole block for a row that is long, where there are too few of them to fill the device.
  bool shared = g->k >= 2048 && (int64_t)g->n * g->batch < 64 * task->device->multiprocessors;
  char options[64];
  snprintf(options, sizeof options, "-DT=%s -DROWS=%d -DWARPS=%d -DWIDE=%d",
           hy__gpu_type_name(a->t.dtype), g->m == 1 ? 1 : most, shared ? 4 : 1, wide);
  hy_gemm gemm = *g;
  hy__gpu_launch(task, hy__gpu_kernel(task, "gemv", "gemv", options),
                 (hy__gpu_dim3){hy__gpu_tiles(g->n, shared ? 1 : 4), (unsigned)g->batch, 1},
                 (hy__gpu_dim3){4 * (unsigned)task->device->warp_size, 1, 1}, 0,
                 HY__GPU_ARGS(&gemm));
  return true;
}

static bool fits_int(int64_t n) {
  return n >= 0 && n < INT32_MAX - 256;
}

hy_support hy__gpu_product(hy__gpu_task* task, const hy__gpu_matmul* m) {
  const hy_tensor* out = &m->out;
  HY__GPU_NEED(fits_int(m->a.shape[1]) && fits_int(m->b.shape[1]) && fits_int(m->a.shape[2]) &&
                   fits_int(m->a.shape[0]),
               NO_SHAPE);
  if (!task->stream || hy_tensor_numel(out) == 0) return HY_SUPPORT_YES;
  hy_gemm g = {.m = (int)m->a.shape[1], .n = (int)m->b.shape[1], .k = (int)m->a.shape[2]};
  g.batch = (int)m->a.shape[0];
  g.alpha = hy_scalar_f(m->alpha);
  g.alpha_int = hy_scalar_i(m->alpha);
  g.out_batch = out->stride[0];
  g.out_row = out->stride[1];
  g.out_column = out->stride[2];
  const hy_tensor* addend = hy__gpu_present(&m->addend) ? &m->addend : NULL;
  if (addend) {
    g.beta = hy_scalar_f(m->beta);
    g.beta_int = hy_scalar_i(m->beta);
    g.addend_batch = addend->stride[0];
    g.addend_row = addend->stride[1];
    g.addend_column = addend->stride[2];
  }
  bool half = m->a.dtype == HY_F16 || m->a.dtype == HY_BF16;
  operand a = operand_of(task, m->a, half ? 8 : 1), b = operand_of(task, m->b, half ? 8 : 1);
  if (g.out_column != 1 && g.out_row == 1) swap_operands(&g, &a, &b);
  g.a_step = a.t.stride[a.k_first ? 1 : 2];
  g.a_batch = a.t.stride[0];
  g.b_step = b.t.stride[b.k_first ? 1 : 2];
  g.b_batch = b.t.stride[0];
  g.a = a.t.data;
  g.b = b.t.data;
  g.out = out->data;
  g.addend = addend ? addend->data : NULL;
  if (run_gemv(task, &g, &a, &b)) return HY_SUPPORT_YES;
  if (!half || !task->device->mma_lanes)
    run_simt(task, &g, &a, &b, out, addend);
  else if (!run_residual(task, &g, &a, &b, out, addend) &&
           !run_skinny(task, g, a, b, out, addend) &&
           !hy__gpu_wgmma(task, &g, a.t.dtype, a.k_first, b.k_first))
    run_mma(task, &g, &a, &b, out, addend);
  return HY_SUPPORT_YES;
}

// ---- ops ----

// The addend broadcast to the output's shape.
static hy_tensor expanded(const hy_tensor* t, const hy_tensor* like) {
  hy_tensor e = *t;
  int skip = like->ndim - t->ndim;
  e.ndim = like->ndim;
  for (int d = 0; d < like->ndim; d++) {
    bool has = d >= skip && t->shape[d - skip] == like->shape[d];
    e.shape[d] = like->shape[d];
    e.stride[d] = has ? t->stride[d - skip] : 0;
  }
  return e;
}

hy_support hy__gpu_mm(hy__gpu_task* task, const hy_call* call) {
  int lead = call->op == HY_OP_bmm;
  hy__gpu_matmul m = {.alpha = hy_int(1)};
  m.a = batched(&call->in[0], lead, lead + 1);
  m.b = batched(&call->in[1], lead + 1, lead);
  m.out = batched(&call->out[0], lead, lead + 1);
  return hy__gpu_product(task, &m);
}

hy_support hy__gpu_addmm(hy__gpu_task* task, const hy_call* call) {
  hy__gpu_matmul m = {.alpha = call->attrs.addmm.alpha, .beta = call->attrs.addmm.beta};
  m.a = batched(&call->in[1], 0, 1);
  m.b = batched(&call->in[2], 1, 0);
  m.out = batched(&call->out[0], 0, 1);
  // As in BLAS, a beta of 0 means that the addend is not read.
  if (hy_scalar_f(m.beta) != 0) {
    hy_tensor addend = expanded(&call->in[0], &call->out[0]);
    m.addend = batched(&addend, 0, 1);
  }
  return hy__gpu_product(task, &m);
}

hy_support hy__gpu_linear(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *bias = &call->in[2], *out = &call->out[0];
  hy__gpu_matmul m = {.alpha = hy_int(1), .beta = hy_int(1)};
  hy_tensor x_rows, out_rows, held_x, held_out = *out;
  if (!flatten_rows(x, &x_rows) && task->stream) {
    held_x = hy__gpu_contiguous(task, x);
    flatten_rows(&held_x, &x_rows);
  }
  bool in_place = flatten_rows(out, &out_rows);
  if (!in_place && task->stream) {
    held_out = hy__gpu_temporary(task, out->dtype, out->ndim, out->shape);
    flatten_rows(&held_out, &out_rows);
  }
  if (!task->stream) {
    x_rows.shape[0] = out_rows.shape[0] = 1;
    for (int d = 0; d < x->ndim - 1; d++) x_rows.shape[0] *= x->shape[d];
    x_rows.shape[1] = x->shape[x->ndim - 1];
  }
  m.a = batched(&x_rows, 0, 1);
  m.b = batched(&call->in[1], 0, 1);
  m.out = batched(&out_rows, 0, 1);
  if (hy__gpu_present(bias)) {
    m.addend = m.out;
    m.addend.data = bias->data;
    m.addend.stride[0] = m.addend.stride[1] = 0;
    m.addend.stride[2] = bias->stride[0];
  }
  hy_support answer = hy__gpu_product(task, &m);
  if (!in_place && task->stream) hy__gpu_copy(task, out, &held_out);
  return answer;
}
