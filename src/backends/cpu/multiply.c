// A product by the way that suits its shape: few rows against rows of weights are dot products,
// which read the weights once and in place; everything else is the packed GEMM.
#include "backends/cpu/kernels.h"
#include "backends/cpu/pool.h"
#include "backends/cpu/scratch.h"

// Weight rows of one task. A multiple of what the dot kernels take at once.
enum { TASK_ROWS = 32 };

typedef struct dots {
  const hy__cpu_kernels* kernels;
  const hy__gemm* g;
  hy__matrix w;  // b, transposed
  const float* x;
  int64_t x_line;
} dots;

static void dot_rows(void* context, int64_t task) {
  const dots* d = context;
  const hy__gemm* g = d->g;
  float tile[HY__DOT_LINES * TASK_ROWS] __attribute__((aligned(64)));
  int64_t first = task * TASK_ROWS;
  int rows = (int)(g->n - first < TASK_ROWS ? g->n - first : TASK_ROWS);
  for (int64_t line = 0; line < g->m; line += HY__DOT_LINES) {
    int lines = (int)(g->m - line < HY__DOT_LINES ? g->m - line : HY__DOT_LINES);
    bool direct = !g->finish;
    float* out = direct ? g->c + line * g->c_row + first : tile;
    int64_t stride = direct ? g->c_row : TASK_ROWS;
    d->kernels->dot(&d->w, first, rows, g->k, d->x + line * d->x_line, d->x_line, lines, out,
                    stride);
    if (!direct) g->finish(g->context, line, first, lines, rows, out, stride);
  }
}

static bool run_dots(const hy__cpu_kernels* kernels, const hy__gemm* g) {
  dots d = {.kernels = kernels, .g = g, .w = g->b};
  d.w.row = g->b.column;
  d.w.column = 1;
  if (g->a.dtype == HY_F32 && g->a.column == 1) {
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
  hy__pool_run(dot_rows, &d, (g->n + TASK_ROWS - 1) / TASK_ROWS);
  return true;
}

bool hy__multiply(const hy__cpu_kernels* kernels, const hy__gemm* g) {
  bool few = g->m <= HY__DOT_LINES && g->b.row == 1 && g->k > 0 && !g->pack_b;
  if (few) return run_dots(kernels, g);
  bool halves = g->a.dtype == HY_BF16 && g->b.dtype == HY_BF16 && !g->pack_b;
  return hy__gemm_run(halves && kernels->gemm_bf16 ? kernels->gemm_bf16 : kernels->gemm, g);
}
