#include "backends/cpu/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "backends/cpu/pool.h"

// Rows of A that one packed block may have: 4 MiB of it.
enum { MAX_BLOCK_ROWS = 4096 };

typedef struct job {
  const hy__gemm_kernel* kernel;
  const hy__matrix *a, *b;
  float *packed_a, *c;
  int64_t c_row;
  int64_t first_row, rows, n;  // of this block of A
  int64_t first_k;
  int depth;
  bool accumulate;
  int64_t row_chunks,
      chunk_panels;  // the block's row panels, divided for more tasks than B has panels
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
  j->kernel->pack_a(j->a, j->first_row + at, (int)least(rows, j->rows - at), j->first_k, j->depth,
                    j->packed_a + panel * rows * j->depth);
}

static void multiply_panel(void* context, int64_t task) {
  const job* j = context;
  const hy__gemm_kernel* kernel = j->kernel;
  float packed_b[HY__GEMM_DEPTH * HY__GEMM_MAX_PANEL] __attribute__((aligned(64)));
  int64_t column = task / j->row_chunks * kernel->panel, chunk = task % j->row_chunks;
  int n = (int)least(kernel->panel, j->n - column);
  kernel->pack_b(j->b, j->first_k, j->depth, column, n, packed_b);
  int64_t last = least((chunk + 1) * j->chunk_panels, ceil_div(j->rows, kernel->rows));
  for (int64_t panel = chunk * j->chunk_panels; panel < last; panel++) {
    int64_t row = panel * kernel->rows;
    kernel->multiply(j->depth, j->packed_a + row * j->depth, packed_b,
                     j->c + (j->first_row + row) * j->c_row + column, j->c_row,
                     (int)least(kernel->rows, j->rows - row), n, j->accumulate);
  }
}

static void clear(int64_t m, int64_t n, float* c, int64_t c_row) {
  for (int64_t i = 0; i < m; i++) memset(c + i * c_row, 0, (size_t)n * sizeof *c);
}

bool hy__gemm(const hy__gemm_kernel* kernel, int64_t m, int64_t n, int64_t k, const hy__matrix* a,
              const hy__matrix* b, float* c, int64_t c_row, bool accumulate) {
  if (m == 0 || n == 0) return true;
  if (k == 0) {
    if (!accumulate) clear(m, n, c, c_row);
    return true;
  }
  int64_t block_rows =
      least(ceil_div(m, kernel->rows) * kernel->rows, MAX_BLOCK_ROWS / kernel->rows * kernel->rows);
  float* packed_a = aligned_alloc(
      64, (size_t)ceil_div(block_rows * HY__GEMM_DEPTH * (int64_t)sizeof *packed_a, 64) * 64);
  if (!packed_a) return false;
  int64_t column_panels = ceil_div(n, kernel->panel),
          wanted_tasks = 4 * (int64_t)hy__pool_threads();
  for (int64_t i = 0; i < m; i += block_rows) {
    job j = {
        .kernel = kernel, .a = a, .b = b, .packed_a = packed_a, .c = c, .c_row = c_row, .n = n};
    j.first_row = i;
    j.rows = least(block_rows, m - i);
    int64_t row_panels = ceil_div(j.rows, kernel->rows);
    int64_t chunks = least(ceil_div(wanted_tasks, column_panels), row_panels);
    j.chunk_panels = ceil_div(row_panels, chunks);
    j.row_chunks = ceil_div(row_panels, j.chunk_panels);
    for (j.first_k = 0; j.first_k < k; j.first_k += HY__GEMM_DEPTH) {
      j.depth = (int)least(HY__GEMM_DEPTH, k - j.first_k);
      j.accumulate = accumulate || j.first_k > 0;
      hy__pool_run(pack_rows, &j, row_panels);
      hy__pool_run(multiply_panel, &j, column_panels * j.row_chunks);
    }
  }
  free(packed_a);
  return true;
}
