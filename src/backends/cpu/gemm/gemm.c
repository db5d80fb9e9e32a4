#include "backends/cpu/gemm/gemm.h"

#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"

// Packed A lies in the cache that the cores share, the panels of B that a task packs at once in a
// core's second one. Sums kept aside over several passes should stay in the shared cache too.
enum {
  PACKED_LANES = 4 << 20,
  MAX_PASS = 9 << 10,
  OWN_SUMS = 2 << 20,
  GROUP_LANES = 192 << 10,  // of the panels of B
};

// Panels of rows of A, packed: block of k after block of k, in each panel after panel.
typedef struct packed_rows {
  float* data;
  int64_t first, count;  // panels
} packed_rows;

// Where a task has its rows of A from: packed by all tasks before, packed by itself, or as they
// lie.
typedef enum row_source { SHARED_ROWS, OWN_ROWS, ROWS_IN_PLACE } row_source;

// A block of rows, and a pass over part of the inner dimension: what is packed of A at once.
typedef struct job {
  const hy__gemm_kernel* kernel;
  const hy__gemm* g;
  packed_rows a;  // what all tasks share, if they do
  float* c;       // of the block's first row; NULL where each task has sums of its own
  int64_t c_row;
  int64_t first_row, rows, row_panels;
  int64_t first_k, end_k;  // of the pass
  int depth;               // of a block of k, but the last
  int64_t group;           // panels of B to a task
  int64_t parts, part;     // the row panels divided among tasks, and panels of one part
  row_source source;
  atomic_bool failed;
} job;

static int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int depth_at(const job* j, int64_t k) {
  return (int)least(j->depth, j->end_k - k);
}

static float* panel_of_a(const job* j, const packed_rows* a, int64_t k, int64_t panel) {
  int64_t rows = j->kernel->rows, lanes = hy__gemm_lanes(j->kernel, depth_at(j, k));
  return a->data + (k - j->first_k) / j->kernel->unit * a->count * rows +
         (panel - a->first) * rows * lanes;
}

static void pack_panel_of_a(const job* j, const packed_rows* a, int64_t k, int64_t panel) {
  int64_t row = panel * j->kernel->rows;
  int m = (int)least(j->kernel->rows, j->rows - row);
  j->kernel->pack_a(&j->g->a, j->first_row + row, m, k, depth_at(j, k), panel_of_a(j, a, k, panel));
}

// Neighbours in a row of A follow one another.
static void pack_rows(void* context, int64_t task) {
  const job* j = context;
  int64_t blocks = ceil_div(j->end_k - j->first_k, j->depth);
  pack_panel_of_a(j, &j->a, j->first_k + task % blocks * j->depth, task / blocks);
}

// The part of C that a task computes.
typedef struct region {
  packed_rows a;
  int64_t row, row_end;  // panels of rows
  int64_t column, width;
  float* c;  // of the first row and column
  int64_t stride;
} region;

static void pack_columns(const job* j, const region* t, int64_t k, int64_t lanes, float* packed) {
  const hy__gemm* g = j->g;
  int depth = depth_at(j, k), panel = j->kernel->panel;
  for (int64_t p = 0; p < t->width; p += panel, packed += panel * lanes) {
    int n = (int)least(panel, t->width - p);
    if (g->pack_b)
      g->pack_b(g->context, k, depth, t->column + p, n, panel, packed);
    else
      j->kernel->pack_b(&g->b, k, depth, t->column + p, n, packed);
  }
}

// A panel of `m` rows with all columns of the region.
static void multiply_rows(const job* j, const region* t, int64_t k, int64_t row_panel, int m,
                          const float* packed_b, float* c) {
  const hy__gemm* g = j->g;
  const hy__gemm_kernel* kernel = j->kernel;
  int depth = depth_at(j, k), panel = kernel->panel;
  int64_t lanes = hy__gemm_lanes(kernel, depth) + kernel->extra;
  int64_t row = row_panel * kernel->rows;
  bool add = k > 0 || g->accumulate;
  for (int64_t p = 0; p < t->width; p += panel) {
    int n = (int)least(panel, t->width - p);
    const float* columns = packed_b + p * lanes;
    if (j->source == ROWS_IN_PLACE)
      kernel->multiply_in_place(&g->a, j->first_row + row, k, depth, columns, c + p, t->stride, m,
                                n, add);
    else
      kernel->multiply(depth, panel_of_a(j, &t->a, k, row_panel), columns, c + p, t->stride, m, n,
                       add);
  }
}

static void multiply_block(const job* j, const region* t, int64_t k, float* packed_b) {
  const hy__gemm* g = j->g;
  const hy__gemm_kernel* kernel = j->kernel;
  int depth = depth_at(j, k);
  pack_columns(j, t, k, hy__gemm_lanes(kernel, depth) + kernel->extra, packed_b);
  // Sums of its own that a block of k completes need not outlast a panel.
  int64_t next = !j->c && depth == g->k ? 0 : kernel->rows * t->stride;
  float* c = t->c;
  for (int64_t r = t->row; r < t->row_end; r++, c += next) {
    int m = (int)least(kernel->rows, j->rows - r * kernel->rows);
    multiply_rows(j, t, k, r, m, packed_b, c);
    if (g->finish && k + depth == g->k)
      g->finish(g->context, j->first_row + r * kernel->rows, t->column, m, (int)t->width, c,
                t->stride);
  }
}

// What panels of rows take packed, over the blocks of k of a pass.
static size_t rows_bytes(const job* j, int64_t panels) {
  int64_t blocks = ceil_div(j->end_k - j->first_k, j->depth);
  return (size_t)(panels * j->kernel->rows * blocks * hy__gemm_lanes(j->kernel, j->depth)) *
         sizeof(float);
}

static void multiply_region(void* context, int64_t task) {
  job* j = context;
  const hy__gemm* g = j->g;
  const hy__gemm_kernel* kernel = j->kernel;
  int64_t row = task % j->parts * j->part, width = j->group * kernel->panel;
  region t = {.a = j->a,
              .row = row,
              .row_end = least(row + j->part, j->row_panels),
              .column = task / j->parts * width,
              .stride = j->c ? j->c_row : width};
  t.width = least(width, g->n - t.column);
  size_t lanes = (size_t)(hy__gemm_lanes(kernel, j->depth) + kernel->extra);
  size_t sums = (size_t)(j->part * kernel->rows * width) * sizeof *t.c;
  float* packed_b = hy__scratch_get(HY__SCRATCH_GEMM_B, (size_t)width * lanes * sizeof *packed_b);
  t.c = j->c ? j->c + row * kernel->rows * j->c_row + t.column
             : hy__scratch_get(HY__SCRATCH_GEMM_C, sums);
  if (j->source == OWN_ROWS)
    t.a = (packed_rows){hy__scratch_get(HY__SCRATCH_GEMM_A, rows_bytes(j, j->part)), row, j->part};
  if (!packed_b || !t.c || (j->source == OWN_ROWS && !t.a.data)) {
    atomic_store(&j->failed, true);
    return;
  }
  for (int64_t r = row; j->source == OWN_ROWS && r < t.row_end; r++) {
    for (int64_t k = j->first_k; k < j->end_k; k += j->depth) pack_panel_of_a(j, &t.a, k, r);
  }
  if (kernel->begin) kernel->begin();
  for (int64_t k = j->first_k; k < j->end_k; k += j->depth) multiply_block(j, &t, k, packed_b);
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

// Tasks such that the thread with the most of them is done soonest. Packing a panel of B costs
// about what four tiles do, and is done again for each part of the rows; bringing a panel of A from
// the shared cache costs about a quarter of one, and is done again for each group of columns. With
// no more tasks than threads, and rows divided, each packs its own rows: no thread waits for
// another before it multiplies, and what it packed is in its own cache.
static void divide(job* j) {
  int64_t threads = hy__pool_threads(), panels = ceil_div(j->g->n, j->kernel->panel);
  int64_t fit = GROUP_LANES / (hy__gemm_lanes(j->kernel, j->depth) * j->kernel->panel);
  int64_t soonest = INT64_MAX;
  bool in_place = j->source == ROWS_IN_PLACE;
  j->group = 1;
  j->part = j->row_panels;
  for (int64_t parts = 1; parts <= least(threads, j->row_panels); parts++) {
    int64_t part = ceil_div(j->row_panels, parts);
    for (int64_t group = least(fit > 0 ? fit : 1, panels); group > 0; group--) {
      int64_t tasks = ceil_div(panels, group) * ceil_div(j->row_panels, part);
      bool own = !in_place && tasks <= threads && part < j->row_panels;
      int64_t takes = ceil_div(tasks, threads) * (4 * group * (part + 4) + (own ? 0 : part));
      if (takes >= soonest) continue;
      soonest = takes;
      if (!in_place) j->source = own ? OWN_ROWS : SHARED_ROWS;
      j->group = group;
      j->part = part;
    }
  }
  j->parts = ceil_div(j->row_panels, j->part);
}

bool hy__gemm_run(const hy__gemm_kernel* kernel, const hy__gemm* g) {
  if (g->m == 0 || g->n == 0) return true;
  if (g->k == 0) {
    finish_empty(g);
    return true;
  }
  bool in_place = kernel->in_place && kernel->in_place(g);
  job j = {.kernel = kernel, .g = g, .source = in_place ? ROWS_IN_PLACE : SHARED_ROWS};
  // Blocks of k of about equal depth, each of as many whole lanes as any kernel aligns to.
  int64_t blocks = ceil_div(g->k, (int64_t)kernel->depth * kernel->unit);
  int64_t whole = 16 * kernel->unit;
  j.depth = (int)(ceil_div(ceil_div(g->k, blocks), whole) * whole);
  int64_t pass = (int64_t)MAX_PASS * kernel->unit / j.depth * j.depth;
  int64_t lanes = hy__gemm_lanes(kernel, j.depth) * ceil_div(least(g->k, pass), j.depth);
  // Sums that span several passes and have no place of their own need one.
  bool own_c = !g->c && g->k > pass;
  int64_t most = PACKED_LANES / lanes;
  if (own_c) most = least(most, OWN_SUMS / g->n);
  int64_t panels = ceil_div(g->m, kernel->rows);
  int64_t fit = in_place && g->c ? panels : most / kernel->rows;
  int64_t block = (fit > 0 ? ceil_div(panels, ceil_div(panels, fit)) : 1) * kernel->rows;
  float* sums =
      own_c ? hy__scratch_get(HY__SCRATCH_GEMM_C, (size_t)(block * g->n) * sizeof *sums) : NULL;
  if (own_c && !sums) return false;
  for (int64_t i = 0; i < g->m; i += block) {
    j.first_row = i;
    j.rows = least(block, g->m - i);
    j.row_panels = ceil_div(j.rows, kernel->rows);
    j.c_row = own_c ? g->n : g->c_row;
    j.c = own_c ? sums : g->c ? g->c + i * g->c_row : NULL;
    divide(&j);
    int64_t tasks = ceil_div(ceil_div(g->n, kernel->panel), j.group) * j.parts;
    for (j.first_k = 0; j.first_k < g->k; j.first_k = j.end_k) {
      j.end_k = least(j.first_k + pass, g->k);
      if (j.source == SHARED_ROWS) {
        float* rows = hy__scratch_get(HY__SCRATCH_GEMM_A, rows_bytes(&j, j.row_panels));
        if (!rows) return false;
        j.a = (packed_rows){rows, 0, j.row_panels};
        hy__pool_run(pack_rows, &j, j.row_panels * ceil_div(j.end_k - j.first_k, j.depth));
      }
      hy__pool_run(multiply_region, &j, tasks);
    }
  }
  return !atomic_load(&j.failed);
}
