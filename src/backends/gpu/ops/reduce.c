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

// How a plan is launched: by kernels of which family (reduce.cu), and whether their parts meet in a
// second launch.
typedef struct cut {
  const char* how;
  bool meets;
  hy__gpu_dim3 grid, block;
} cut;

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

// Whether outputs that are adjacent fall into vectors of 16 bytes of x.
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
  for (int d = 0; d < kept->ndim; d++)
    fits = fits && (kept->shape[d] == 1 || kept->stride[1][d] % n == 0);
  return fits;
}

// In as near to `splits` parts as whole `unit`s of elements allow, none of them empty.
static void split(hy_gpu_reduce* r, int64_t splits, int64_t unit) {
  int64_t part = (r->length + splits - 1) / splits;
  r->part = (part + unit - 1) / unit * unit;
  r->splits = r->length > 0 ? (r->length + r->part - 1) / r->part : 1;
}

// Vectors of adjacent outputs: a thread each where that fills the device or rows are few; else in
// parts, for the lines of as many blocks as a device has at once.
static cut cut_columns(const hy__gpu_task* task, hy_gpu_reduce* r, int64_t vectors) {
  enum { LINE = 16, LINES_THREADS = 256 };  // as in reduce.cu
  enum { AT_ONCE = 4, LINE_ROWS = 4 };      // blocks of a multiprocessor; rows of a line, at least
  int64_t multiprocessors = task->device->multiprocessors;
  split(r, 1, 1);
  if (r->length < 64 || vectors >= multiprocessors * 256)
    return (cut){.how = "columns",
                 .grid = hy__gpu_1d(hy__gpu_blocks(task, vectors, 64, 1)),
                 .block = hy__gpu_1d(64)};
  int64_t width = 1;
  while (width < LINE && width < vectors) width *= 2;
  int64_t lines = LINES_THREADS / width, blocks = (vectors + width - 1) / width;
  int64_t most = clamp(r->length / (lines * LINE_ROWS), 1, 4096);
  split(r, clamp(multiprocessors * AT_ONCE / blocks, 1, most), 1);
  return (cut){.how = "lines",
               .grid = {(unsigned)blocks, (unsigned)r->splits, 1},
               .block = {(unsigned)width, (unsigned)lines, 1}};
}

static cut cut_work(const hy__gpu_task* task, hy_gpu_reduce* r, bool vectors, bool columns) {
  enum { SHORT_BLOCK = 128 };        // threads of a block that has several outputs
  enum { MANY = 16, FEW_EACH = 4 };  // outputs of a multiprocessor; vectors of a thread
  const hy_gpu_walk* kept = &r->kept;
  int64_t n = 16 / (int64_t)hy_dtype_size((hy_dtype)kept->dtype[1]);
  int64_t outputs = kept->n, wanted = (int64_t)task->device->multiprocessors * 1024;
  int last = kept->ndim - 1;
  bool outputs_close =
      kept->stride[1][last] == 1 && kept->shape[last] >= 32 && r->stride[r->ndim - 1] != 1;
  r->out_step = kept->stride[0][last];
  if (outputs_close && columns && has_columns(r, n)) return cut_columns(task, r, outputs / n);
  if (outputs_close || r->length <= 32) {
    split(r, clamp(wanted / outputs, 1, clamp(r->length / 32, 1, 4096)), 1);
    return (cut){.how = "thread",
                 .meets = r->splits > 1,
                 .grid = {hy__gpu_blocks(task, outputs, 128, 1), (unsigned)r->splits, 1},
                 .block = hy__gpu_1d(128)};
  }
  // Several vectors a thread: few threads to a row, so that rows need not wait for one another. Of
  // many rows a thread has as many as it has in flight.
  r->vectors = vectors && has_runs(r, n);
  bool many = outputs >= MANY * (int64_t)task->device->multiprocessors;
  int64_t each = r->vectors ? (many ? 2 * FEW_EACH : FEW_EACH) * n : 8;
  int64_t threads = task->device->warp_size;
  int64_t warp = threads;
  while (threads < 256 && threads * each < r->length) threads *= 2;
  split(r, clamp(wanted / threads / outputs, 1, clamp(r->length / (threads * 2 * each), 1, 4096)),
        r->vectors ? n : 1);
  int64_t at_once = vectors && threads == warp && r->splits == 1 ? SHORT_BLOCK / warp : 1;
  int64_t blocks = clamp((outputs + at_once - 1) / at_once, 1, INT32_MAX);
  return (cut){.how = r->vectors ? "run" : "block",
               .grid = {(unsigned)blocks, (unsigned)r->splits, 1},
               .block = {(unsigned)threads, (unsigned)at_once, 1}};
}

static bool has_columns_kernel(const char* function) {
  static const char* const names[] = {"sum", "squares", "max", "min"};
  for (int i = 0; i < 4; i++)
    if (strcmp(function, names[i]) == 0) return true;
  return false;
}

static void launch(hy__gpu_task* task, const hy_gpu_reduce* r, hy__gpu_dim3 grid,
                   hy__gpu_dim3 block, const char* how, const char* function, hy_dtype dtype) {
  char entry[32];
  snprintf(entry, sizeof entry, "%s_%s", how, function);
  hy__gpu_launch(task, hy__gpu_kernel(task, "reduce", entry, hy__gpu_option(dtype)), grid, block, 0,
                 HY__GPU_ARGS((void*)r));
}

void hy__gpu_reduce(hy__gpu_task* task, const char* function, const hy_tensor* x, uint32_t mask,
                    const hy_tensor* out, const double* divisor, const void* centre) {
  enum { MEET_X = 32, MEET_Y = 8 };  // as in reduce.cu
  hy_gpu_reduce r = plan(x, mask);
  hy_tensor kept_x = keep(x, x->ndim, mask), kept_out = keep(out, x->ndim, mask);
  r.kept = hy__gpu_walk(&kept_x, 2, (const hy_tensor*[]){&kept_out, &kept_x});
  r.divides = divisor != NULL;
  r.divisor = divisor ? *divisor : 1;
  r.centre = centre;
  if (r.kept.n == 0) return;
  cut c = cut_work(task, &r, true, has_columns_kernel(function));
  if (r.splits > 1) {
    size_t bytes = (size_t)(r.kept.n * r.splits) * hy_dtype_size(math_of(x->dtype));
    r.partial = (char*)(uintptr_t)hy__gpu_workspace(task, bytes);
    if (!c.meets) r.counters = (unsigned*)(uintptr_t)hy__gpu_counters(task);
  }
  launch(task, &r, c.grid, c.block, c.how, function, x->dtype);
  if (c.meets)
    launch(task, &r, hy__gpu_1d(hy__gpu_blocks(task, r.kept.n * MEET_Y, MEET_X * MEET_Y, 1)),
           (hy__gpu_dim3){MEET_X, MEET_Y, 1}, "meet", function, x->dtype);
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
  bool thread = strcmp(c.how, "thread") == 0;
  if (r.splits > 1) {
    size_t parts = (size_t)(r.kept.n * r.splits);
    r.partial = (char*)(uintptr_t)hy__gpu_workspace(task, parts * sizeof(int64_t));
    r.partial_at = (long long*)(uintptr_t)hy__gpu_workspace(task, parts * sizeof(int64_t));
  }
  hy__gpu_launch(task,
                 hy__gpu_kernel(task, "reduce", thread ? "thread_best" : "block_best", option),
                 c.grid, c.block, 0, HY__GPU_ARGS(&r, &greatest));
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
