#include "backends/cpu/gemm.h"

#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/pool.h"
#include "backends/cpu/scratch.h"

// Rows of A in one packed block, which should stay in the cache that the cores share, and panels of
// B that one task packs at once, which should stay in its core's own. Sums kept aside are read and
// written once for each block of k, and should stay in the shared cache too.
enum { MAX_BLOCK_ROWS = 4096, MAX_GROUP = 8, MAX_OWN_SUMS = 1 << 21 };

typedef struct job {
  const hy__gemm_kernel* kernel;
  const hy__gemm* g;
  float *packed_a, *c;  // c: of the block's first row
  int64_t c_row;
  int64_t first_row, rows;  // of this block of A
  int64_t first_k;
  int depth, lanes;
  bool last;                         // the block ends the sums
  int64_t group;                     // panels of B to a task
  int64_t row_chunks, chunk_panels;  // the block's row panels, divided for more tasks
  atomic_bool failed;
} job;

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static void pack_rows(void* context, int64_t panel) {
  const job* j = context;
  int rows = j->kernel->rows;
  int64_t at = panel * rows;
  j->kernel->pack_a(&j->g->a, j->first_row + at, (int)least(rows, j->rows - at), j->first_k,
                    j->depth, j->packed_a + at * j->lanes);
}

static void multiply_tile(const job* j, int64_t row, int64_t column, const float* packed_b) {
  const hy__gemm* g = j->g;
  const hy__gemm_kernel* kernel = j->kernel;
  float tile[HY__GEMM_MAX_ROWS * HY__GEMM_MAX_PANEL] __attribute__((aligned(64)));
  int m = (int)least(kernel->rows, j->rows - row), n = (int)least(kernel->panel, g->n - column);
  float* c = j->c ? j->c + row * j->c_row + column : tile;
  int64_t stride = j->c ? j->c_row : kernel->panel;
  kernel->multiply(j->depth, j->packed_a + row * j->lanes, packed_b, c, stride, m, n,
                   j->first_k > 0 || g->accumulate);
  if (j->last && g->finish) g->finish(g->context, j->first_row + row, column, m, n, c, stride);
}

static void multiply_group(void* context, int64_t task) {
  job* j = context;
  const hy__gemm* g = j->g;
  const hy__gemm_kernel* kernel = j->kernel;
  int64_t first = task / j->row_chunks * j->group, chunk = task % j->row_chunks;
  int64_t panels = least(j->group, ceil_div(g->n, kernel->panel) - first);
  int64_t panel_size = (int64_t)kernel->panel * (j->lanes + kernel->extra);
  float* packed_b =
      hy__scratch_get(HY__SCRATCH_GEMM_B, (size_t)(j->group * panel_size) * sizeof *packed_b);
  if (!packed_b) {
    atomic_store(&j->failed, true);
    return;
  }
  for (int64_t p = 0; p < panels; p++) {
    int64_t column = (first + p) * kernel->panel;
    int n = (int)least(kernel->panel, g->n - column);
    float* to = packed_b + p * panel_size;
    if (g->pack_b)
      g->pack_b(g->context, j->first_k, j->depth, column, n, kernel->panel, to);
    else
      kernel->pack_b(&g->b, j->first_k, j->depth, column, n, to);
  }
  if (kernel->begin) kernel->begin();
  int64_t end = least((chunk + 1) * j->chunk_panels, ceil_div(j->rows, kernel->rows));
  for (int64_t r = chunk * j->chunk_panels; r < end; r++) {
    for (int64_t p = 0; p < panels; p++)
      multiply_tile(j, r * kernel->rows, (first + p) * kernel->panel, packed_b + p * panel_size);
  }
  if (kernel->end) kernel->end();
}

static void finish_empty(const hy__gemm* g) {
  for (int64_t i = 0; i < g->m && !g->accumulate; i++) {
    if (!g->finish) {
      memset(g->c + i * g->c_row, 0, (size_t)g->n * sizeof *g->c);
      continue;
    }
    for (int64_t j = 0; j < g->n; j += HY__GEMM_MAX_PANEL) {
      float zeros[HY__GEMM_MAX_PANEL] = {0};
      int n = (int)least(HY__GEMM_MAX_PANEL, g->n - j);
      g->finish(g->context, i, j, 1, n, zeros, HY__GEMM_MAX_PANEL);
    }
  }
}

// Enough tasks that no thread waits long for the last one. Rows are divided, and B packed more than
// once for it, only when there are not columns enough.
static void divide(job* j, int64_t row_panels, int64_t column_panels) {
  int64_t wanted = 4 * (int64_t)hy__pool_threads();
  j->group = least(MAX_GROUP, ceil_div(column_panels, wanted));
  int64_t chunks = least(ceil_div(wanted, ceil_div(column_panels, j->group)), row_panels);
  if (hy__pool_threads() == 1) chunks = 1;
  j->chunk_panels = ceil_div(row_panels, chunks);
  j->row_chunks = ceil_div(row_panels, j->chunk_panels);
}

static void multiply_block(job* j) {
  const hy__gemm* g = j->g;
  int64_t row_panels = ceil_div(j->rows, j->kernel->rows);
  int64_t column_panels = ceil_div(g->n, j->kernel->panel);
  divide(j, row_panels, column_panels);
  int64_t deepest = (int64_t)HY__GEMM_DEPTH * j->kernel->unit;
  for (j->first_k = 0; j->first_k < g->k; j->first_k += deepest) {
    j->depth = (int)least(deepest, g->k - j->first_k);
    j->lanes = hy__gemm_lanes(j->kernel, j->depth);
    j->last = j->first_k + j->depth == g->k;
    hy__pool_run(pack_rows, j, row_panels);
    hy__pool_run(multiply_group, j, ceil_div(column_panels, j->group) * j->row_chunks);
  }
}

bool hy__gemm_run(const hy__gemm_kernel* kernel, const hy__gemm* g) {
  if (g->m == 0 || g->n == 0) return true;
  if (g->k == 0) {
    finish_empty(g);
    return true;
  }
  int64_t deepest = (int64_t)HY__GEMM_DEPTH * kernel->unit;
  // Sums that span several blocks of k and have no place of their own need one.
  bool own_c = !g->c && g->k > deepest;
  int64_t most = own_c ? least(MAX_BLOCK_ROWS, ceil_div(MAX_OWN_SUMS, g->n)) : MAX_BLOCK_ROWS;
  int64_t block = least(ceil_div(g->m, kernel->rows), ceil_div(most, kernel->rows)) * kernel->rows;
  int lanes = hy__gemm_lanes(kernel, (int)least(deepest, g->k));
  job j = {.kernel = kernel, .g = g};
  j.packed_a = hy__scratch_get(HY__SCRATCH_GEMM_A, (size_t)(block * lanes) * sizeof(float));
  float* sums =
      own_c ? hy__scratch_get(HY__SCRATCH_GEMM_C, (size_t)(block * g->n) * sizeof *sums) : NULL;
  if (!j.packed_a || (own_c && !sums)) return false;
  for (int64_t i = 0; i < g->m; i += block) {
    j.first_row = i;
    j.rows = least(block, g->m - i);
    j.c_row = own_c ? g->n : g->c_row;
    j.c = own_c ? sums : g->c ? g->c + i * g->c_row : NULL;
    multiply_block(&j);
  }
  return !atomic_load(&j.failed);
}
