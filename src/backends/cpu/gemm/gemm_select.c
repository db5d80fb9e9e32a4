// GEMV, skinny GEMM or packed GEMM, by shape: up to 16 rows of A against rows of weights read the
// weights once and in place, and up to 64 of f32 do, 16 at a time; everything else is packed.
#include <limits.h>

#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/weight_prefetch.h"
#include "base/math.h"

// Weight rows of one task, by g->tiles: multiples of what the dot kernels take at once.
static const int task_rows[HY__GEMM_TILES] = {32, 16, 64, 128};
enum { MAX_TASK_N = 128, MANY_ROWS = 3 };  // MANY_ROWS: more than reading the weights takes
enum { SHORT_TASK = 48 << 10 };  // bytes of weights that are read in less than a microsecond

// Short rows are taken twice as many at a time, where there are enough for every thread.
static int rows_of_task(const hy__gemm* g) {
  int rows = task_rows[g->m > HY__GEMV_MAX_M && g->tiles == 0 ? 1 : g->tiles];
  size_t bytes = (size_t)rows * (size_t)g->k * hy_dtype_size(g->b.dtype);
  bool is_short = g->tiles == 0 && bytes <= SHORT_TASK;
  return is_short && g->n >= 4 * rows * (int64_t)hy__pool_threads() ? 2 * rows : rows;
}

typedef struct gemv_job {
  const hy__gemm_kernels* kernels;
  const hy__gemm* g;
  hy__matrix w;  // b, transposed
  const float* x;
  int64_t ldx;
  const hy__gemm_kernel* packed;  // x is packed as its columns of B; NULL: rows of x
  const uint16_t* halves;         // x in bf16, as it is; NULL: one of the others
  int task_n;                     // weight rows of a task
} gemv_job;

static void gemv_task(void* context, int64_t task) {
  const gemv_job* d = context;
  const hy__gemm* g = d->g;
  float tile[HY__GEMV_MAX_M * MAX_TASK_N] __attribute__((aligned(64)));
  int task_n = d->task_n;
  int64_t first = task * task_n;
  int rows = (int)(g->n - first < task_n ? g->n - first : task_n);
  if (d->packed) d->packed->begin();
  for (int64_t line = 0; line < g->m; line += HY__GEMV_MAX_M) {
    int lines = (int)(g->m - line < HY__GEMV_MAX_M ? g->m - line : HY__GEMV_MAX_M);
    bool direct = !g->epilogue;
    float* out = direct ? g->c + line * g->ldc + first : tile;
    int64_t stride = direct ? g->ldc : task_n;
    if (d->halves)
      d->kernels->gemv_bf16(&d->w, first, rows, g->k, d->halves + line * d->ldx, d->ldx, lines, out,
                            stride);
    else if (d->packed)
      d->packed->skinny(&d->w, first, rows, g->k, d->x, lines, out, stride);
    else
      d->kernels->gemv(&d->w, first, rows, g->k, d->x + line * d->ldx, d->ldx, lines, out, stride);
    if (!direct) g->epilogue(g->context, line, first, lines, rows, out, stride);
  }
  if (d->packed) d->packed->end();
}

// The rows of x as columns of B, for a kernel that takes rows of weights in place.
static bool pack_rows(gemv_job* d, const hy__gemm_kernel* kernel) {
  const hy__gemm* g = d->g;
  size_t words = (size_t)hy__gemm_words(kernel, (int)g->k);
  float* packed = hy__scratch_get(HY__SCRATCH_GEMV, words * (size_t)kernel->nr * sizeof *packed);
  if (!packed) return false;
  hy__matrix columns = {g->a.data, g->a.dtype, g->a.column, g->a.row};
  kernel->pack_b(&columns, 0, (int)g->k, 0, (int)g->m, packed);
  d->packed = kernel;
  d->x = packed;
  return true;
}

static bool run_gemv(const hy__gemm_kernels* kernels, const hy__gemm* g) {
  gemv_job d = {.kernels = kernels, .g = g, .w = g->b, .task_n = rows_of_task(g)};
  d.w.row = g->b.column;
  d.w.column = 1;
  const hy__gemm_kernel* halves = kernels->bf16;
  bool both = g->a.dtype == HY_BF16 && g->b.dtype == HY_BF16;
  if (both && g->m >= MANY_ROWS && g->k <= INT_MAX && halves && halves->skinny) {
    if (!pack_rows(&d, halves)) return false;
  } else if (both && g->a.column == 1 && kernels->gemv_bf16) {
    d.halves = g->a.data;
    d.ldx = g->a.row;
  } else if (g->a.dtype == HY_F32 && g->a.column == 1) {
    d.x = g->a.data;
    d.ldx = g->a.row;
  } else {
    float* copy = hy__scratch_get(HY__SCRATCH_GEMV, (size_t)(g->m * g->k) * sizeof *copy);
    if (!copy) return false;
    for (int64_t i = 0; i < g->m; i++)
      kernels->widen(g->k, hy__matrix_at(&g->a, i, 0), g->a.column, g->a.dtype, copy + i * g->k);
    d.x = copy;
    d.ldx = g->k;
  }
  size_t row = (size_t)g->k * hy_dtype_size(d.w.dtype);
  if (d.w.row == g->k)
    hy__weight_prefetch(&(hy__prefetch_range){.data = d.w.data, .bytes = row * (size_t)g->n});
  hy__pool_run(gemv_task, &d, ceil_div(g->n, d.task_n));
  return true;
}

// Packing weights costs what multiplying 24 rows does. In place a task's weights stay in L2 for its
// next 16 rows. The number of threads has no say: sums must not depend on it.
static bool suits_gemv(const hy__gemm_kernels* kernels, const hy__gemm* g) {
  bool floats = g->a.dtype == HY_F32 && g->b.dtype == HY_F32;
  int most = floats ? kernels->gemv_f32_rows : HY__GEMV_MAX_M;
  return g->m <= most && g->b.row == 1 && g->k > 0 && !g->pack_b;
}

const hy__gemm_kernel* hy__gemm_packing_kernel(const hy__gemm_kernels* kernels, const hy__gemm* g) {
  if (suits_gemv(kernels, g)) return NULL;
  bool halves = g->a.dtype == HY_BF16 && g->b.dtype == HY_BF16 && !g->pack_b;
  return halves && kernels->bf16 ? kernels->bf16 : kernels->f32;
}

bool hy__gemm_any(const hy__gemm_kernels* kernels, const hy__gemm* g) {
  const hy__gemm_kernel* packing = hy__gemm_packing_kernel(kernels, g);
  return packing ? hy__gemm_run(packing, g) : run_gemv(kernels, g);
}
