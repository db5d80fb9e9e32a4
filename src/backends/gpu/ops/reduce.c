// Reductions and running sums on a GPU: how the work is cut.
#include <stdio.h>
#include <string.h>

#include "backends/gpu/gpu.h"
#include "backends/gpu/rules.h"

// The type that sums of `dtype` have.
static hy_dtype math_of(hy_dtype dtype) {
  return dtype == HY_F64 ? HY_F64 : hy_dtype_is_float(dtype) ? HY_F32 : HY_I64;
}

// The dimensions of `t` outside the mask. A tensor that has none of the mask's keeps all.
static hy_tensor keep(const hy_tensor* t, int ndim, uint32_t mask) {
  hy_tensor view = *t;
  if (t->ndim != ndim) return view;
  view.ndim = 0;
  for (int d = 0; d < ndim; d++) {
    if (mask >> d & 1) continue;
    view.shape[view.ndim] = t->shape[d];
    view.stride[view.ndim++] = t->stride[d];
  }
  return view;
}

// What is reduced of x, with dimensions merged where their order allows it.
static hy_gpu_reduce plan(const hy_tensor* x, uint32_t mask) {
  hy_gpu_reduce r = {.length = 1, .splits = 1};
  for (int d = 0; d < x->ndim; d++) {
    if (!(mask >> d & 1) || x->shape[d] == 1) continue;
    r.length *= x->shape[d];
    bool merges = r.ndim > 0 && r.stride[r.ndim - 1] == x->stride[d] * x->shape[d];
    int at = merges ? r.ndim - 1 : r.ndim++;
    r.shape[at] = merges ? r.shape[at] * x->shape[d] : x->shape[d];
    r.stride[at] = x->stride[d];
  }
  if (r.ndim == 0) {
    r.ndim = 1;
    r.shape[0] = 1;
  }
  return r;
}

// How a plan is launched: blocks or threads for outputs, and in how many parts; by vectors where
// the kernels can.
typedef struct cut {
  bool by_thread, columns;
  unsigned threads;
  hy__gpu_dim3 grid;
} cut;

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

// Whether outputs that lie side by side fall into vectors of 16 bytes of x.
static bool has_columns(const hy_gpu_reduce* r, int64_t n) {
  const hy_gpu_walk* kept = &r->kept;
  int last = kept->ndim - 1;
  bool fits = r->ndim == 1 && kept->stride[1][last] == 1 && kept->shape[last] % n == 0 &&
              ((uintptr_t)kept->data[1] & 15) == 0;
  for (int d = 0; d < last; d++) fits = fits && kept->stride[1][d] % n == 0;
  for (int d = 0; d < r->ndim; d++) fits = fits && r->stride[d] % n == 0;
  return fits;
}

// Whether what an output has of x is one run, in vectors of 16 bytes.
static bool has_runs(const hy_gpu_reduce* r, int64_t n) {
  const hy_gpu_walk* kept = &r->kept;
  bool fits = r->ndim == 1 && r->stride[0] == 1 && ((uintptr_t)kept->data[1] & 15) == 0;
  for (int d = 0; d < kept->ndim; d++) fits = fits && kept->stride[1][d] % n == 0;
  return fits;
}

static cut cut_work(const hy__gpu_task* task, hy_gpu_reduce* r, bool vectors, bool columns) {
  const hy_gpu_walk* kept = &r->kept;
  int64_t n = 16 / (int64_t)hy_dtype_size((hy_dtype)kept->dtype[1]);
  int64_t outputs = kept->n, wanted = (int64_t)task->device->multiprocessors * 2048;
  int last = kept->ndim - 1;
  bool outputs_close =
      kept->stride[1][last] == 1 && kept->shape[last] >= 32 && r->stride[r->ndim - 1] != 1;
  cut c = {.by_thread = r->length <= 32 || outputs_close};
  if (outputs_close && columns && has_columns(r, n)) {
    // 64 rows a part at least; the parts are summed in a second launch.
    c.columns = true;
    c.threads = 64;
    r->out_step = kept->stride[0][last];
    r->splits = clamp(wanted / 2 / (outputs / n + 1), 1, clamp(r->length / 64, 1, 4096));
    c.grid = (hy__gpu_dim3){hy__gpu_blocks(task, outputs / n, (int)c.threads, 1),
                            (unsigned)r->splits, 1};
    return c;
  }
  if (c.by_thread) {
    c.threads = 128;
    r->splits = clamp(wanted / (outputs + 1), 1, clamp(r->length / 64, 1, 4096));
    c.grid = (hy__gpu_dim3){hy__gpu_blocks(task, outputs, 128, 1), (unsigned)r->splits, 1};
    return c;
  }
  // A vector or four a thread: few threads to a row, so that rows need not wait for one another.
  r->vectors = vectors && has_runs(r, n);
  int64_t each = r->vectors ? 4 * n : 8;
  c.threads = 32;
  while (c.threads < 512 && (int64_t)c.threads * each < r->length) c.threads *= 2;
  r->splits = clamp(wanted / c.threads / (outputs + 1), 1,
                    clamp(r->length / ((int64_t)c.threads * 2 * each), 1, 4096));
  if (r->vectors) {  // parts begin at vectors
    int64_t part = (r->length + r->splits - 1) / r->splits;
    part = (part + n - 1) / n * n;
    r->splits = (r->length + part - 1) / part;
    r->vectors = r->splits == 1 || ((r->length + r->splits - 1) / r->splits) % n == 0;
  }
  c.grid = hy__gpu_1d(hy__gpu_blocks(task, outputs * r->splits * c.threads, (int)c.threads, 1));
  return c;
}

static void launch(hy__gpu_task* task, const hy_gpu_reduce* r, const cut* c, const char* function,
                   hy_dtype dtype) {
  char entry[32];
  snprintf(entry, sizeof entry, "%s_%s",
           c->columns     ? "columns"
           : c->by_thread ? "thread"
                          : "block",
           function);
  hy__gpu_launch(task, hy__gpu_kernel(task, "reduce", entry, hy__gpu_option(dtype)), c->grid,
                 hy__gpu_1d(c->threads), 0, HY__GPU_ARGS((void*)r));
}

void hy__gpu_reduce(hy__gpu_task* task, const char* function, const hy_tensor* x, uint32_t mask,
                    const hy_tensor* out, const double* divisor, const void* centre) {
  hy_gpu_reduce r = plan(x, mask);
  hy_tensor kept_x = keep(x, x->ndim, mask), kept_out = keep(out, x->ndim, mask);
  r.kept = hy__gpu_walk(&kept_x, 2, (const hy_tensor*[]){&kept_out, &kept_x});
  r.divides = divisor != NULL;
  r.divisor = divisor ? *divisor : 1;
  r.centre = centre;
  if (r.kept.n == 0) return;
  cut c = cut_work(task, &r, true, strcmp(function, "sum") == 0);
  if (r.splits == 1) {
    launch(task, &r, &c, function, x->dtype);
    return;
  }
  hy_dtype math = math_of(x->dtype);
  int64_t shape[HY_MAX_DIMS + 1];
  for (int d = 0; d < kept_x.ndim; d++) shape[d] = kept_x.shape[d];
  shape[kept_x.ndim] = r.splits;
  hy_tensor partial = hy__gpu_temporary(task, math, kept_x.ndim + 1, shape);
  r.partial = partial.data;
  launch(task, &r, &c, function, x->dtype);
  // Partial results meet as sums do, squares too.
  hy__gpu_reduce(task, strcmp(function, "squares") ? function : "sum", &partial, 1u << kept_x.ndim,
                 &kept_out, divisor, NULL);
}

static const char* function_of(hy_op op) {
  switch (op) {
    case HY_OP_prod: return "prod";
    case HY_OP_max: return "max";
    case HY_OP_min: return "min";
    case HY_OP_any: return "any";
    case HY_OP_all: return "all";
    default: return "sum";
  }
}

static bool strided(const hy_call* call) {
  return call->in[0].layout == HY_LAYOUT_STRIDED && hy_dtype_size(call->in[0].dtype) > 0;
}

hy_support hy__gpu_reduction(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  uint32_t mask = hy__gpu_dims_mask(&call->attrs.reduce.dims, x->ndim);
  HY__GPU_NEED(strided(call) && (x->ndim < HY_MAX_DIMS || mask), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  double n = (double)plan(x, mask).length;
  hy__gpu_reduce(task, function_of(call->op), x, mask, &call->out[0],
                 call->op == HY_OP_mean ? &n : NULL, NULL);
  return HY_SUPPORT_YES;
}

// In two passes: the mean, then the squares around it.
hy_support hy__gpu_var(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  uint32_t mask = hy__gpu_dims_mask(&call->attrs.var.dims, x->ndim);
  HY__GPU_NEED(strided(call) && (x->ndim < HY_MAX_DIMS || mask), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  hy_tensor kept = keep(x, x->ndim, mask);
  hy_tensor mean = hy__gpu_temporary(task, math_of(x->dtype), kept.ndim, kept.shape);
  double n = (double)plan(x, mask).length, freedom = n - call->attrs.var.correction;
  if (freedom < 0) freedom = 0;
  hy__gpu_reduce(task, "sum", x, mask, &mean, &n, NULL);
  hy__gpu_reduce(task, "squares", x, mask, &call->out[0], &freedom, mean.data);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_extremum(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  bool values = call->op == HY_OP_max_dim || call->op == HY_OP_min_dim;
  int greatest = call->op == HY_OP_max_dim || call->op == HY_OP_argmax;
  uint32_t mask = hy__gpu_dims_mask(&call->attrs.reduce.dims, x->ndim);
  HY__GPU_NEED(strided(call) && (x->ndim < HY_MAX_DIMS || mask), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  hy_gpu_reduce r = plan(x, mask);
  hy_tensor kept_x = keep(x, x->ndim, mask);
  hy_tensor index = keep(&call->out[values], x->ndim, mask);
  hy_tensor out = keep(&call->out[0], x->ndim, mask);
  r.kept = hy__gpu_walk(&kept_x, 3, (const hy_tensor*[]){&out, &kept_x, &index});
  if (!values) r.kept.data[0] = NULL;
  if (r.kept.n == 0) return HY_SUPPORT_YES;
  cut c = cut_work(task, &r, false, false);
  const char* option = hy__gpu_option(x->dtype);
  if (r.splits > 1) {
    size_t parts = (size_t)(r.kept.n * r.splits);
    r.partial = (char*)(uintptr_t)hy__gpu_workspace(task, parts * sizeof(int64_t));
    r.partial_at = (long long*)(uintptr_t)hy__gpu_workspace(task, parts * sizeof(int64_t));
  }
  hy__gpu_launch(task,
                 hy__gpu_kernel(task, "reduce", c.by_thread ? "thread_best" : "block_best", option),
                 c.grid, hy__gpu_1d(c.threads), 0, HY__GPU_ARGS(&r, &greatest));
  if (r.splits > 1)
    hy__gpu_launch(task, hy__gpu_kernel(task, "reduce", "finish_splits", option),
                   hy__gpu_1d(hy__gpu_blocks(task, r.kept.n, 128, 1)), hy__gpu_1d(128), 0,
                   HY__GPU_ARGS(&r, &greatest));
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_cumsum(hy__gpu_task* task, const hy_call* call) {
  enum { THREADS = 256, CHUNK = 2048 };  // as in reduce.cu
  HY__GPU_NEED(strided(call), NO_LAYOUT);
  int64_t n = hy_tensor_numel(&call->in[0]);
  if (!task->stream || n == 0) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor out = hy__gpu_out_begin(task, &call->out[0]);
  hy_gpu_scan s = {.x = x.data,
                   .out = out.data,
                   .out_dtype = (int)out.dtype,
                   .reverse = call->attrs.scan.reverse,
                   .length = 1,
                   .inner = 1};
  if (x.ndim > 0) {
    int dim = hy__gpu_wrap_dim(call->attrs.scan.dim, x.ndim);
    s.length = x.shape[dim];
    for (int d = dim + 1; d < x.ndim; d++) s.inner *= x.shape[d];
  }
  s.lanes = n / s.length;
  s.chunks = (s.length + CHUNK - 1) / CHUNK;
  s.sums = (char*)(uintptr_t)hy__gpu_workspace(task, (size_t)(s.lanes * s.chunks) * 8);
  const char* option = hy__gpu_option(x.dtype);
  hy__gpu_dim3 parts = hy__gpu_1d(hy__gpu_blocks(task, s.lanes * s.chunks * THREADS, THREADS, 1));
  if (s.chunks > 1) {
    hy__gpu_launch(task, hy__gpu_kernel(task, "reduce", "scan_chunk_sums", option), parts,
                   hy__gpu_1d(THREADS), 0, HY__GPU_ARGS(&s));
    hy__gpu_launch(task, hy__gpu_kernel(task, "reduce", "scan_chunks", option),
                   hy__gpu_1d(hy__gpu_blocks(task, s.lanes * THREADS, THREADS, 1)),
                   hy__gpu_1d(THREADS), 0, HY__GPU_ARGS(&s));
  } else {
    hy__gpu_set(task, (uintptr_t)s.sums, 0, (size_t)s.lanes * 8);
  }
  hy__gpu_launch(task, hy__gpu_kernel(task, "reduce", "scan_write", option), parts,
                 hy__gpu_1d(THREADS), 0, HY__GPU_ARGS(&s));
  hy__gpu_out_end(task, &call->out[0], &out);
  return HY_SUPPORT_YES;
}
