// Layer norm, rms norm and batch norm on a GPU.
#include "backends/gpu/gpu.h"
#include "backends/gpu/ops/rows.h"

static bool strided(const hy_tensor* t) {
  return t->layout == HY_LAYOUT_STRIDED && hy_dtype_size(t->dtype) > 0;
}

static hy_dtype math_of(hy_dtype dtype) {
  return dtype == HY_F64 ? HY_F64 : HY_F32;
}

// ---- Layer norm and rms norm ----

// The rows of a contiguous tensor whose last `dims` dimensions are normalised.
static void set_rows(hy_gpu_norm* p, const hy_tensor* x, int64_t dims) {
  p->rows = p->columns = 1;
  for (int d = 0; d < x->ndim; d++) *(d < x->ndim - dims ? &p->rows : &p->columns) *= x->shape[d];
}

static const char* parameter(hy__gpu_task* task, const hy_tensor* t, hy_dtype x, int bit,
                             hy_gpu_norm* p) {
  if (!hy__gpu_present(t)) return NULL;
  if (t->dtype != x) p->wide |= bit;
  return hy__gpu_contiguous(task, t).data;
}

static long long vector_of(hy_dtype dtype) {
  return 16 / (long long)hy_dtype_size(dtype);
}

static void decide_vectors(hy_gpu_norm* p, hy_dtype dtype) {
  uintptr_t addresses = (uintptr_t)p->x | (uintptr_t)p->dy | (uintptr_t)p->out;
  p->vectors = p->columns % vector_of(dtype) == 0 && (addresses & 15) == 0;
}

// A row to a block, whatever its length.
static void launch_rows(hy__gpu_task* task, const char* entry, hy_gpu_norm* p, hy_dtype dtype) {
  long long each = p->vectors ? vector_of(dtype) : 1;
  unsigned threads = (unsigned)task->device->warp_size;
  while (threads < 512 && threads * each < p->columns) threads *= 2;
  hy__gpu_launch(task, hy__gpu_kernel(task, "norm", entry, hy__gpu_option(dtype)),
                 hy__gpu_1d(hy__gpu_blocks(task, p->rows * threads, (int)threads, 1)),
                 hy__gpu_1d(threads), 0, HY__GPU_ARGS(p));
}

enum { HELD = 4, BACKWARD_THREADS = 768 };  // as in norm.cu

// A warp for each row of a forward, where rows are short and enough to fill the device.
static bool launch_warps(hy__gpu_task* task, hy_gpu_norm* p, hy_dtype dtype) {
  enum { LEAST = 8, WARPS = 4 };  // LEAST: rows of a multiprocessor
  long long warp = task->device->warp_size;
  if (p->dy || p->rows < LEAST * (long long)task->device->multiprocessors || p->rows > INT32_MAX ||
      p->columns / vector_of(dtype) > HELD * warp)
    return false;
  hy__gpu_launch(task, hy__gpu_kernel(task, "norm", "norm_of_warp", hy__gpu_option(dtype)),
                 hy__gpu_1d(hy__gpu_tiles(p->rows, WARPS)),
                 (hy__gpu_dim3){(unsigned)warp, WARPS, 1}, 0, HY__GPU_ARGS(p));
  return true;
}

// In registers where the row and its parameters allow it. Those of a decoding step heed
// dependent.cuh, so that the product behind them has its weights under way.
static void launch(hy__gpu_task* task, const char* entry, const char* held_entry, hy_gpu_norm* p,
                   hy_dtype dtype) {
  enum { STEP_ROWS = 64 };
  const unsigned most = p->dy ? BACKWARD_THREADS : 1024;
  hy__gpu_lines lines;
  decide_vectors(p, dtype);
  bool lines_up = p->vectors && (((uintptr_t)p->weight | (uintptr_t)p->bias) & 15) == 0;
  if (lines_up && launch_warps(task, p, dtype)) return;
  if (!lines_up || !hy__gpu_hold_rows(task, p->rows, p->columns / vector_of(dtype), HELD, &lines) ||
      lines.block.x > most) {
    launch_rows(task, entry, p, dtype);
    return;
  }
  hy__gpu_function* kernel = hy__gpu_kernel(task, "norm", held_entry, hy__gpu_option(dtype));
  if (!p->dy && p->rows <= STEP_ROWS)
    hy__gpu_launch_dependent(task, kernel, lines.grid, lines.block, 0, HY__GPU_ARGS(p));
  else
    hy__gpu_launch(task, kernel, lines.grid, lines.block, 0, HY__GPU_ARGS(p));
}

hy_support hy__gpu_norm(hy__gpu_task* task, const hy_call* call) {
  bool centred = call->op == HY_OP_layer_norm;
  HY__GPU_NEED(strided(&call->in[0]), NO_LAYOUT);
  if (!task->stream || hy_tensor_numel(&call->in[0]) == 0) return HY_SUPPORT_YES;
  static const hy_tensor absent;
  const hy_tensor *mean = centred ? &call->out[1] : &absent,
                  *rstd = centred ? &call->out[2] : &call->out[1];
  hy_tensor x = hy__gpu_contiguous(task, &call->in[0]), mean_out = absent, rstd_out = absent;
  hy_tensor out = hy__gpu_out_begin(task, &call->out[0]);
  hy_gpu_norm p = {.x = x.data, .out = out.data, .eps = call->attrs.norm.eps, .centred = centred};
  set_rows(&p, &x, call->attrs.norm.norm_dims);
  p.weight = parameter(task, &call->in[1], x.dtype, 1, &p);
  p.bias = centred ? parameter(task, &call->in[2], x.dtype, 2, &p) : NULL;
  if (hy__gpu_present(mean)) mean_out = hy__gpu_out_begin(task, mean);
  if (hy__gpu_present(rstd)) rstd_out = hy__gpu_out_begin(task, rstd);
  p.mean = mean_out.data;
  p.rstd = rstd_out.data;
  launch(task, "norm_forward", "norm_forward_held", &p, x.dtype);
  hy__gpu_out_end(task, &call->out[0], &out);
  if (p.mean) hy__gpu_out_end(task, mean, &mean_out);
  if (p.rstd) hy__gpu_out_end(task, rstd, &rstd_out);
  return HY_SUPPORT_YES;
}

// Sums [splits, columns] over the splits into a parameter's gradient.
static void sum_splits(hy__gpu_task* task, const hy_gpu_norm* p, char* partial, hy_dtype math,
                       const hy_tensor* out) {
  hy_tensor parts, line, written = hy__gpu_out_begin(task, out);
  hy_tensor_init(&parts, partial, math, 2, (int64_t[]){p->splits, p->columns});
  hy_tensor_init(&line, written.data, written.dtype, 1, (int64_t[]){p->columns});
  hy__gpu_reduce(task, "sum", &parts, 1, &line, NULL, NULL);
  hy__gpu_out_end(task, out, &written);
}

hy_support hy__gpu_norm_backward(hy__gpu_task* task, const hy_call* call) {
  bool centred = call->op == HY_OP_layer_norm_backward;
  const hy_tensor* in = call->in;
  HY__GPU_NEED(strided(&in[0]) && strided(&in[1]), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  static const hy_tensor absent;
  const hy_tensor *rstd = centred ? &in[3] : &in[2], *weight = centred ? &in[4] : &in[3];
  const hy_tensor *dweight = &call->out[1], *dbias = centred ? &call->out[2] : &absent;
  hy_tensor dy = hy__gpu_contiguous(task, &in[0]), x = hy__gpu_contiguous(task, &in[1]);
  hy_gpu_norm p = {.x = x.data, .dy = dy.data, .centred = centred};
  set_rows(&p, &x, call->attrs.norm.norm_dims);
  p.weight = parameter(task, weight, x.dtype, 1, &p);
  if (centred) p.mean = hy__gpu_contiguous(task, &in[2]).data;
  p.rstd = hy__gpu_contiguous(task, rstd).data;
  if (hy__gpu_present(&call->out[0]) && p.rows * p.columns > 0) {
    hy_tensor dx = hy__gpu_out_begin(task, &call->out[0]);
    p.out = dx.data;
    launch(task, "norm_backward", "norm_backward_held", &p, x.dtype);
    hy__gpu_out_end(task, &call->out[0], &dx);
  }
  bool has_weight = hy__gpu_present(dweight), has_bias = hy__gpu_present(dbias);
  if ((!has_weight && !has_bias) || p.columns == 0) return HY_SUPPORT_YES;
  hy_dtype math = math_of(x.dtype);
  decide_vectors(&p, x.dtype);
  long long columns = p.vectors ? p.columns / vector_of(x.dtype) : p.columns;
  long long wanted = (long long)task->device->multiprocessors * 1024 / (columns + 1);
  if (wanted > 4096) wanted = 4096;
  p.splits = wanted < p.rows / 16 ? wanted : p.rows / 16;
  if (p.splits < 1) p.splits = 1;
  size_t bytes = (size_t)(p.splits * p.columns) * hy_dtype_size(math);
  if (has_weight) p.partial_weight = (char*)(uintptr_t)hy__gpu_workspace(task, bytes);
  if (has_bias) p.partial_bias = (char*)(uintptr_t)hy__gpu_workspace(task, bytes);
  const char* entry = p.vectors ? "norm_parameters_vectors" : "norm_parameters";
  hy__gpu_dim3 grid = {hy__gpu_blocks(task, columns, 64, 1), (unsigned)p.splits, 1};
  hy__gpu_launch(task, hy__gpu_kernel(task, "norm", entry, hy__gpu_option(x.dtype)), grid,
                 hy__gpu_1d(64), 0, HY__GPU_ARGS(&p));
  if (has_weight) sum_splits(task, &p, p.partial_weight, math, dweight);
  if (has_bias) sum_splits(task, &p, p.partial_bias, math, dbias);
  return HY_SUPPORT_YES;
}

// ---- Batch norm ----

static hy_gpu_batch_norm begin(hy__gpu_task* task, const hy_tensor* x, const hy_attrs* attrs) {
  hy_gpu_batch_norm p = {.x = x->data,
                         .outer = x->shape[0],
                         .channels = x->shape[1],
                         .inner = 1,
                         .eps = attrs->batch_norm.eps,
                         .momentum = attrs->batch_norm.momentum,
                         .training = attrs->batch_norm.training};
  for (int d = 2; d < x->ndim; d++) p.inner *= x->shape[d];
  long long n = p.outer * p.inner, wanted = (long long)task->device->multiprocessors * 8;
  p.splits = wanted / (p.channels + 1) < n / 4096 ? wanted / (p.channels + 1) : n / 4096;
  if (p.splits < 1) p.splits = 1;
  size_t numbers = (size_t)(p.channels * p.splits) * 3;
  p.partial = (char*)(uintptr_t)hy__gpu_workspace(task, numbers * hy_dtype_size(math_of(x->dtype)));
  return p;
}

static void launch_parts(hy__gpu_task* task, const char* entry, hy_gpu_batch_norm* p,
                         hy_dtype dtype) {
  long long rows = p->channels < 65535 ? p->channels : 65535;
  hy__gpu_launch(task, hy__gpu_kernel(task, "batch_norm", entry, hy__gpu_option(dtype)),
                 (hy__gpu_dim3){(unsigned)p->splits, (unsigned)rows, 1}, hy__gpu_1d(256), 0,
                 HY__GPU_ARGS(p));
}

static void launch_each(hy__gpu_task* task, const char* entry, hy_gpu_batch_norm* p, hy_dtype dtype,
                        long long n) {
  hy__gpu_launch(task, hy__gpu_kernel(task, "batch_norm", entry, hy__gpu_option(dtype)),
                 hy__gpu_1d(hy__gpu_blocks(task, n, 256, 1)), hy__gpu_1d(256), 0, HY__GPU_ARGS(p));
}

hy_support hy__gpu_batch_norm(hy__gpu_task* task, const hy_call* call) {
  HY__GPU_NEED(strided(&call->in[0]), NO_LAYOUT);
  int64_t n = hy_tensor_numel(&call->in[0]);
  if (!task->stream) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor out = hy__gpu_out_begin(task, &call->out[0]);
  hy_gpu_batch_norm p = begin(task, &x, &call->attrs);
  p.out = out.data;
  p.weight = hy__gpu_view(&call->in[1]);
  p.bias = hy__gpu_view(&call->in[2]);
  p.mean = hy__gpu_view(&call->in[3]);
  p.var = hy__gpu_view(&call->in[4]);
  p.out_mean = hy__gpu_view(&call->out[1]);
  p.out_var = hy__gpu_view(&call->out[2]);
  if (p.training) launch_parts(task, "batch_moments", &p, x.dtype);
  launch_each(task, "batch_statistics", &p, x.dtype, p.channels);
  launch_each(task, "batch_normalize", &p, x.dtype, n);
  hy__gpu_out_end(task, &call->out[0], &out);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_batch_norm_update(hy__gpu_task* task, const hy_call* call) {
  HY__GPU_NEED(strided(&call->in[2]), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, &call->in[2]);
  hy_gpu_batch_norm p = begin(task, &x, &call->attrs);
  p.mean = hy__gpu_view(&call->in[0]);
  p.var = hy__gpu_view(&call->in[1]);
  p.out_mean = hy__gpu_view(&call->out[0]);
  p.out_var = hy__gpu_view(&call->out[1]);
  launch_parts(task, "batch_moments", &p, x.dtype);
  launch_each(task, "batch_update", &p, x.dtype, p.channels);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_batch_norm_backward(hy__gpu_task* task, const hy_call* call) {
  HY__GPU_NEED(strided(&call->in[0]) && strided(&call->in[1]), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  hy_tensor dy = hy__gpu_contiguous(task, &call->in[0]), x = hy__gpu_contiguous(task, &call->in[1]);
  hy_gpu_batch_norm p = begin(task, &x, &call->attrs);
  p.dy = dy.data;
  p.mean = hy__gpu_view(&call->in[2]);
  p.var = hy__gpu_view(&call->in[3]);
  p.weight = hy__gpu_view(&call->in[4]);
  p.out_mean = hy__gpu_view(&call->out[1]);
  p.out_var = hy__gpu_view(&call->out[2]);
  launch_parts(task, "batch_gradient_sums", &p, x.dtype);
  launch_each(task, "batch_gradients", &p, x.dtype, p.channels);
  if (!hy__gpu_present(&call->out[0])) return HY_SUPPORT_YES;
  hy_tensor dx = hy__gpu_out_begin(task, &call->out[0]);
  p.out = dx.data;
  launch_each(task, "batch_backward", &p, x.dtype, hy_tensor_numel(&x));
  hy__gpu_out_end(task, &call->out[0], &dx);
  return HY_SUPPORT_YES;
}
