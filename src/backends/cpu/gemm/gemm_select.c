// A product by the way that suits its shape: few rows against rows of weights are dot products,
// which read the weights once and in place; everything else is the packed GEMM.
#include <limits.h>

#include "backends/cpu/family.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/weight_prefetch.h"

// Weight rows of one task. A multiple of what the dot kernels take at once.
enum { TASK_ROWS = 32, MANY_LINES = 3 };  // MANY_LINES: more than reading the weights takes

typedef struct dots {
  const hy__cpu_kernels* kernels;
  const hy__gemm* g;
  hy__matrix w;  // b, transposed
  const float* x;
  int64_t x_line;
  const hy__gemm_kernel* packed;  // whose columns x is packed as; NULL where it lies in lines
} dots;

static void dot_rows(void* context, int64_t task) {
  const dots* d = context;
  const hy__gemm* g = d->g;
  float tile[HY__DOT_LINES * TASK_ROWS] __attribute__((aligned(64)));
  int64_t first = task * TASK_ROWS;
  int rows = (int)(g->n - first < TASK_ROWS ? g->n - first : TASK_ROWS);
  if (d->packed) d->packed->begin();
  for (int64_t line = 0; line < g->m; line += HY__DOT_LINES) {
    int lines = (int)(g->m - line < HY__DOT_LINES ? g->m - line : HY__DOT_LINES);
    bool direct = !g->finish;
    float* out = direct ? g->c + line * g->c_row + first : tile;
    int64_t stride = direct ? g->c_row : TASK_ROWS;
    if (d->packed)
      d->packed->dot(&d->w, first, rows, g->k, d->x, lines, out, stride);
    else
      d->kernels->dot(&d->w, first, rows, g->k, d->x + line * d->x_line, d->x_line, lines, out,
                      stride);
    if (!direct) g->finish(g->context, line, first, lines, rows, out, stride);
  }
  if (d->packed) d->packed->end();
}

// The lines as columns of B, for a kernel that takes rows of weights where they lie.
static bool pack_lines(dots* d, const hy__gemm_kernel* kernel) {
  const hy__gemm* g = d->g;
  size_t lanes = (size_t)hy__gemm_lanes(kernel, (int)g->k);
  float* packed =
      hy__scratch_get(HY__SCRATCH_LINES, lanes * (size_t)kernel->panel * sizeof *packed);
  if (!packed) return false;
  hy__matrix columns = {g->a.data, g->a.dtype, g->a.column, g->a.row};
  kernel->pack_b(&columns, 0, (int)g->k, 0, (int)g->m, packed);
  d->packed = kernel;
  d->x = packed;
  return true;
}

static bool run_dots(const hy__cpu_kernels* kernels, const hy__gemm* g) {
  dots d = {.kernels = kernels, .g = g, .w = g->b};
  d.w.row = g->b.column;
  d.w.column = 1;
  const hy__gemm_kernel* halves = kernels->gemm_bf16;
  bool both = g->a.dtype == HY_BF16 && g->b.dtype == HY_BF16;
  if (both && g->m >= MANY_LINES && g->k <= INT_MAX && halves && halves->dot) {
    if (!pack_lines(&d, halves)) return false;
  } else if (g->a.dtype == HY_F32 && g->a.column == 1) {
    d.x = g->a.data;
    d.x_line = g->a.row;
  } else {
    float* copy = hy__scratch_get(HY__SCRATCH_LINES, (size_t)(g->m * g->k) * sizeof *copy);
    if (!copy) return false;
    for (int64_t i = 0; i < g->m; i++)
      kernels->widen(g->k, hy__matrix_at(&g->a, i, 0), g->a.column, g->a.dtype, copy + i * g->k);
    d.x = copy;
    d.x_line = g->k;
  }
  size_t row = (size_t)g->k * hy_dtype_size(d.w.dtype);
  if (d.w.row == g->k) hy__ahead(&(hy__reading){.data = d.w.data, .bytes = row * (size_t)g->n});
  hy__pool_run(dot_rows, &d, (g->n + TASK_ROWS - 1) / TASK_ROWS);
  return true;
}

bool hy__multiply(const hy__cpu_kernels* kernels, const hy__gemm* g) {
  bool few = g->m <= HY__DOT_LINES && g->b.row == 1 && g->k > 0 && !g->pack_b;
  if (few) return run_dots(kernels, g);
  bool halves = g->a.dtype == HY_BF16 && g->b.dtype == HY_BF16 && !g->pack_b;
  return hy__gemm_run(halves && kernels->gemm_bf16 ? kernels->gemm_bf16 : kernels->gemm, g);
}
