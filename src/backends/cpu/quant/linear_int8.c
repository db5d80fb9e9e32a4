// linear_int8: int8 activations times int8 or int4 weights, scale groups on both sides.
#include "backends/cpu/quant/int8_kernel.h"
#include "base/math.h"

#include <stdatomic.h>

#include "backends/cpu/gemm/matmul.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/weight_prefetch.h"

// Bytes of weights that one task of dot products reads: long enough that the memory's prefetchers
// find their stride, short enough that no thread waits long for the last one.
enum {
  LEAST_TASK = 8 << 10,
  MOST_TASK = 48 << 10,
  THREAD_TASKS = 16,
  MAX_TASK_ROWS = 64,
  // Rows that a kernel may take together: a task begins with the first of them whatever the number
  // of threads, so that sums do not depend on it.
  TASK_ROWS_STEP = 4,
  MAX_TILE = 32 * 32
};

typedef struct job {
  const hy__cpu_kernels* kernels;
  const hy__int8_kernel* kernel;
  hy__int8_rows x;
  hy__quantized w;
  hy__matrix out, bias;  // bias.data is NULL where there is none
  int64_t k_group;
  int task_rows;  // of weights
  // Dot products.
  const char* lines;
  int64_t row_bytes;
  // Tiles.
  char* tiles;
  int64_t tile_bytes, panel_bytes;
  int64_t parts, part_lines;  // the rows of x divided among tasks, and those of one part
  uint64_t number;            // of the call, in this process
  atomic_bool no_memory;
} job;

// The panel that a thread packed last: neighbouring tasks multiply parts of x by the same.
static _Thread_local struct {
  uint64_t call;
  int64_t first;
} packed_last;

int64_t hy__int8_k_group(const hy__int8_rows* x, const hy__quantized* w) {
  int64_t a = x->group, b = w->group;
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static hy_support describe(const hy_call* call, job* j) {
  const hy_tensor *x = &call->in[0], *x_scale = &call->in[1], *w = &call->in[2],
                  *w_scale = &call->in[3], *bias = &call->in[4], *out = &call->out[0];
  int last = x->ndim - 1;
  int64_t m, n = w->shape[0], k = w->shape[1], x_groups = x_scale->shape[last],
             w_groups = w_scale->shape[1];
  bool packed = w->dtype == HY_I4;
  int64_t x_row, scale_row, out_row;
  *j = (job){0};
  if (!hy__collapse(x, &m, &x_row) || !hy__collapse(x_scale, &m, &scale_row) ||
      !hy__collapse(out, &m, &out_row) || (k > 1 && x->stride[last] != 1) ||
      (x_groups > 1 && x_scale->stride[last] != 1) || (!packed && k > 1 && w->stride[1] != 1) ||
      (w_groups > 1 && w_scale->stride[1] != 1))
    return HY_SUPPORT_NO_LAYOUT;
  j->x = (hy__int8_rows){
      x->data, m, k, x_row, x_scale->data, scale_row, x_groups > 0 ? k / x_groups : 1};
  j->w = (hy__quantized){w->data,
                         w->dtype,
                         n,
                         k,
                         packed ? k / 2 : w->stride[0],
                         w_scale->data,
                         w_scale->stride[0],
                         w_groups > 0 ? k / w_groups : 1};
  j->out = (hy__matrix){out->data, out->dtype, out_row, out->stride[last]};
  if (bias->dtype != HY_NONE) j->bias = (hy__matrix){bias->data, bias->dtype, 0, bias->stride[0]};
  j->k_group = hy__int8_k_group(&j->x, &j->w);
  return j->k_group <= HY__INT8_MAX_GROUP ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

static void finish(const job* j, int64_t line, int64_t column, int lines, int columns,
                   const float* sums, int64_t stride) {
  for (int i = 0; i < lines; i++)
    j->kernels->gemm.epilogue(
        columns, sums + i * stride, 1, 1, j->bias.data ? hy__matrix_at(&j->bias, 0, column) : NULL,
        j->bias.column, hy__matrix_at(&j->out, line + i, column), j->out.column, j->out.dtype);
}

// ---- dot products ----

static void dot_rows(void* context, int64_t task) {
  const job* j = context;
  float sums[HY__INT8_MAX_M * MAX_TASK_ROWS];
  int64_t first = task * j->task_rows;
  int rows = (int)min_i64(j->task_rows, j->w.n - first);
  for (int64_t line = 0; line < j->x.m; line += HY__INT8_MAX_M) {
    int lines = (int)min_i64(HY__INT8_MAX_M, j->x.m - line);
    j->kernel->gemv(&j->x, &j->w, first, rows, j->lines + line * j->row_bytes, lines, sums,
                    MAX_TASK_ROWS);
    finish(j, line, first, lines, rows, sums, MAX_TASK_ROWS);
  }
}

static bool run_dots(job* j) {
  j->row_bytes = j->kernel->row_bytes(&j->x, &j->w);
  char* lines = hy__scratch_get(HY__SCRATCH_GEMV, (size_t)(j->x.m * j->row_bytes) + 64);
  if (!lines) return false;
  for (int64_t i = 0; i < j->x.m; i++) j->kernel->order(&j->x, &j->w, i, lines + i * j->row_bytes);
  j->lines = lines;
  int64_t row = j->w.row > 0 ? j->w.row : 1;
  int64_t bytes = row * j->w.n / (THREAD_TASKS * (int64_t)hy__pool_threads());
  bytes = bytes < LEAST_TASK ? LEAST_TASK : min_i64(bytes, MOST_TASK);
  int64_t steps = ceil_div(ceil_div(bytes, row), TASK_ROWS_STEP);
  j->task_rows = (int)min_i64(steps * TASK_ROWS_STEP, MAX_TASK_ROWS);
  hy__weight_prefetch(
      &(hy__prefetch_range){.data = j->w.data,
                            .beside = j->w.scale,
                            .bytes = (size_t)(row * j->w.n),
                            .beside_bytes = (size_t)(j->w.scale_row * j->w.n) * sizeof(float)});
  hy__pool_run(dot_rows, j, ceil_div(j->w.n, j->task_rows));
  return true;
}

// ---- tiles ----

static void pack_tile(void* context, int64_t tile) {
  const job* j = context;
  int64_t first = tile * j->kernel->mr;
  j->kernel->pack_rows(&j->x, j->w.dtype, first, (int)min_i64(j->kernel->mr, j->x.m - first),
                       j->k_group, j->tiles + tile * j->tile_bytes);
}

static void prefetch_part(const void* data, int64_t bytes, int64_t part, int64_t parts) {
  int64_t lines = ceil_div(ceil_div(bytes, 64), parts);
  const char* at = (const char*)data + part * lines * 64;
  for (int64_t i = 0; i < lines; i++) __builtin_prefetch(at + i * 64, 0, 2);
}

// A part of the weights of the panel at `first`, while tiles are multiplied: asked for all at once,
// packing waits for them. Rows with gaps between them are left to the hardware.
static void prefetch_panel(const job* j, int64_t first, int64_t part, int64_t parts) {
  const hy__quantized* w = &j->w;
  int64_t rows = min_i64(j->kernel->nr, w->n - first);
  bool gaps = w->row * 8 != w->k * hy_dtype_bits(w->dtype) || w->scale_row * w->group != w->k;
  if (rows <= 0 || gaps) return;
  prefetch_part(w->data + first * w->row, rows * w->row, part, parts);
  prefetch_part(w->scale + first * w->scale_row, rows * w->scale_row * (int64_t)sizeof(float), part,
                parts);
}

static void multiply_panel(const job* j, int64_t begin, int64_t end, int64_t first, char* packed) {
  const hy__int8_kernel* kernel = j->kernel;
  float sums[MAX_TILE] __attribute__((aligned(64)));
  int n = (int)min_i64(kernel->nr, j->w.n - first);
  if (packed_last.call != j->number || packed_last.first != first) {
    kernel->pack_weights(&j->w, first, n, j->k_group, packed);
    packed_last.call = j->number;
    packed_last.first = first;
  }
  const char* tile = j->tiles + begin / kernel->mr * j->tile_bytes;
  int64_t tiles = ceil_div(end - begin, kernel->mr);
  for (int64_t line = begin; line < end; line += kernel->mr, tile += j->tile_bytes) {
    int m = (int)min_i64(kernel->mr, end - line);
    prefetch_panel(j, first + kernel->nr, (line - begin) / kernel->mr, tiles);
    kernel->multiply(&j->x, line, &j->w, j->k_group, tile, packed, m, sums);
    finish(j, line, first, m, n, sums, kernel->nr);
  }
}

static void multiply_panels(void* context, int64_t task) {
  job* j = context;
  const hy__int8_kernel* kernel = j->kernel;
  int64_t row = task / j->parts * j->task_rows, row_end = min_i64(row + j->task_rows, j->w.n);
  int64_t line = task % j->parts * j->part_lines, line_end = min_i64(line + j->part_lines, j->x.m);
  char* packed = hy__scratch_get(HY__SCRATCH_GEMM_B, (size_t)j->panel_bytes);
  if (!packed) {
    atomic_store(&j->no_memory, true);
    return;
  }
  if (kernel->begin) kernel->begin(j->k_group);
  for (int64_t first = row; first < row_end; first += kernel->nr)
    multiply_panel(j, line, line_end, first, packed);
  if (kernel->end) kernel->end();
}

// Packing a panel costs about what so many tiles do.
enum { PACKING = 3 };

// Cores of a large machine are not equally fast, and one that has a whole panel may keep the others
// waiting for as long as they have worked: long products are cut into parts of the rows of x too
// small to be waited for, but worth packing a panel for whoever takes another thread's.
static bool divide_for_many(job* j, int64_t threads) {
  enum { MANY_THREADS = 8, LONG_SHARE = 1 << 24 };  // multiply-adds of a thread
  if (threads < MANY_THREADS || j->x.m * j->w.n / threads * j->w.k < LONG_SHARE) return false;
  int64_t tiles = ceil_div(j->x.m, j->kernel->mr), most = tiles / (PACKING + 1);
  j->part_lines = ceil_div(tiles, most > 1 ? most : 1) * j->kernel->mr;
  j->parts = ceil_div(j->x.m, j->part_lines);
  j->task_rows = j->kernel->nr;
  return true;
}

// Tasks such that the thread with the most of them is done soonest: panels of weights, and where
// those do not come out even, parts of the rows of x too, for each of which its panels may have to
// be packed again.
static void divide(job* j) {
  int64_t threads = hy__pool_threads(), soonest = INT64_MAX;
  int64_t panels = ceil_div(j->w.n, j->kernel->nr), tiles = ceil_div(j->x.m, j->kernel->mr);
  if (divide_for_many(j, threads)) return;
  for (int64_t parts = 1; parts <= min_i64(threads, tiles); parts++) {
    int64_t part = ceil_div(tiles, parts);
    int64_t takes = ceil_div(panels * ceil_div(tiles, part), threads) * (part + PACKING);
    if (takes >= soonest) continue;
    soonest = takes;
    j->part_lines = part * j->kernel->mr;
  }
  j->parts = ceil_div(j->x.m, j->part_lines);
  // Panels of a task: as many as leave each thread some tasks, or fewer where those come out even.
  int64_t most = ceil_div(panels * j->parts, THREAD_TASKS * threads), best = most;
  soonest = INT64_MAX;
  for (int64_t together = most; together >= ceil_div(most, 2); together--) {
    int64_t takes = ceil_div(ceil_div(panels, together) * j->parts, threads) * together;
    if (takes >= soonest) continue;
    soonest = takes;
    best = together;
  }
  j->task_rows = (int)(best * j->kernel->nr);
}

static bool run_tiles(job* j) {
  int64_t tiles = ceil_div(j->x.m, j->kernel->mr);
  j->tile_bytes = j->kernel->tile_bytes(j->x.k, j->k_group);
  j->panel_bytes = j->kernel->panel_bytes(&j->w, j->k_group);
  j->tiles = hy__scratch_get(HY__SCRATCH_GEMM_A, (size_t)(tiles * j->tile_bytes));
  if (!j->tiles) return false;
  hy__pool_run(pack_tile, j, tiles);
  divide(j);
  static _Atomic uint64_t calls;
  j->number = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
  hy__pool_run(multiply_panels, j, ceil_div(j->w.n, j->task_rows) * j->parts);
  return !atomic_load(&j->no_memory);
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j;
  describe(call, &j);
  if (j.x.m == 0 || j.w.n == 0) return HY_OK;
  j.kernels = kernels;
  const hy__int8_kernel *few = kernels->quant.int8, *many = kernels->quant.int8_tiles;
  bool dots = few->takes(&j.x, &j.w);
  bool tiles = (j.x.m > HY__INT8_MAX_M || !dots) && many->mr > 0 && j.x.k > 0 &&
               j.k_group % many->multiple == 0;
  j.kernel = tiles ? many : dots ? few : &hy__int8_generic;
  return (tiles ? run_tiles(&j) : run_dots(&j)) ? HY_OK : hy__cpu_no_memory(call);
}

static hy_support supports(const hy_call* call) {
  job j;
  return describe(call, &j);
}

const hy__cpu_family hy__cpu_linear_int8 = {supports, run};
