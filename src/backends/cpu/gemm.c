#include "backends/cpu/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "backends/cpu/pool.h"

// Rows of A in one packed block: they should stay in the cache that the cores share.
enum { MAX_BLOCK_ROWS = 4096 };

typedef struct job {
  const hy__gemm_kernel* kernel;
  const hy__gemm* g;
  float *packed_a, *c;  // c: of the block's first row
  int64_t c_row;
  int64_t first_row, rows;  // of this block of A
  int64_t first_k;
  int depth;
  bool last;                         // the block ends the sums
  int64_t row_chunks, chunk_panels;  // the block's row panels, divided for more tasks than B has
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
                    j->depth, j->packed_a + at * j->depth);
}

static void multiply_panel(void* context, int64_t task) {
  const job* j = context;
  const hy__gemm* g = j->g;
  const hy__gemm_kernel* kernel = j->kernel;
  float packed_b[HY__GEMM_DEPTH * HY__GEMM_MAX_PANEL] __attribute__((aligned(64)));
  float tile[HY__GEMM_MAX_ROWS * HY__GEMM_MAX_PANEL] __attribute__((aligned(64)));
  int64_t column = task / j->row_chunks * kernel->panel, chunk = task % j->row_chunks;
  int n = (int)least(kernel->panel, g->n - column);
  if (g->pack_b)
    g->pack_b(g->context, j->first_k, j->depth, column, n, kernel->panel, packed_b);
  else
    kernel->pack_b(&g->b, j->first_k, j->depth, column, n, packed_b);
  int64_t end = least((chunk + 1) * j->chunk_panels, ceil_div(j->rows, kernel->rows));
  for (int64_t panel = chunk * j->chunk_panels; panel < end; panel++) {
    int64_t row = panel * kernel->rows;
    int m = (int)least(kernel->rows, j->rows - row);
    float* c = j->c ? j->c + row * j->c_row + column : tile;
    int64_t stride = j->c ? j->c_row : kernel->panel;
    kernel->multiply(j->depth, j->packed_a + row * j->depth, packed_b, c, stride, m, n,
                     j->first_k > 0);
    if (j->last && g->finish) g->finish(g->context, j->first_row + row, column, m, n, c, stride);
  }
}

static void finish_empty(const hy__gemm* g) {
  for (int64_t i = 0; i < g->m; i++) {
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

static void multiply_block(job* j, int64_t column_panels) {
  const hy__gemm* g = j->g;
  int64_t row_panels = ceil_div(j->rows, j->kernel->rows);
  int64_t wanted = 4 * (int64_t)hy__pool_threads();
  int64_t chunks = least(ceil_div(wanted, column_panels), row_panels);
  j->chunk_panels = ceil_div(row_panels, chunks);
  j->row_chunks = ceil_div(row_panels, j->chunk_panels);
  for (j->first_k = 0; j->first_k < g->k; j->first_k += HY__GEMM_DEPTH) {
    j->depth = (int)least(HY__GEMM_DEPTH, g->k - j->first_k);
    j->last = j->first_k + j->depth == g->k;
    hy__pool_run(pack_rows, j, row_panels);
    hy__pool_run(multiply_panel, j, column_panels * j->row_chunks);
  }
}

bool hy__gemm_run(const hy__gemm_kernel* kernel, const hy__gemm* g) {
  if (g->m == 0 || g->n == 0) return true;
  if (g->k == 0) {
    finish_empty(g);
    return true;
  }
  int64_t block = least(ceil_div(g->m, kernel->rows), MAX_BLOCK_ROWS / kernel->rows) * kernel->rows;
  // Sums that span several blocks and have no place of their own need one.
  bool own_c = !g->c && g->k > HY__GEMM_DEPTH;
  size_t a_bytes = (size_t)block * HY__GEMM_DEPTH * sizeof(float);
  size_t c_bytes = own_c ? (size_t)block * (size_t)g->n * sizeof(float) : 0;
  float* memory = aligned_alloc(64, (a_bytes + c_bytes + 63) / 64 * 64);
  if (!memory) return false;
  job j = {.kernel = kernel, .g = g, .packed_a = memory};
  for (int64_t i = 0; i < g->m; i += block) {
    j.first_row = i;
    j.rows = least(block, g->m - i);
    j.c_row = own_c ? g->n : g->c_row;
    j.c = own_c ? memory + a_bytes / sizeof(float) : g->c ? g->c + i * g->c_row : NULL;
    multiply_block(&j, ceil_div(g->n, kernel->panel));
  }
  free(memory);
  return true;
}
