// The GEMM driver: blocking, packing, and dividing the tiles of C among the threads.
#include "backends/cpu/gemm/gemm.h"
#include "base/math.h"

#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"

// Packed A is kept in the cache that the cores share, the panels of B that a task packs at once in
// a core's second one. Sums kept aside over several passes should stay in the shared cache too.
enum {
  PACKED_WORDS = 4 << 20,
  MAX_PASS = 9 << 10,
  OWN_SUMS = 2 << 20,
  GROUP_WORDS = 192 << 10,  // of the panels of B
};

// Tile choices, by g->tiles: blocks of k, and groups of panels of B, a part of what they are else.
static const struct { int kc, group; } divisors[HY__GEMM_TILES] = {{1, 1}, {1, 2}, {2, 1}, {2, 4}};

// Panels of rows of A, packed: block of k after block of k, in each panel after panel.
typedef struct packed_rows {
  float* data;
  int64_t first, count;  // panels
} packed_rows;

// Where a task has its rows of A from: packed by all tasks before, packed by itself, or in place.
typedef enum row_source { SHARED_ROWS, OWN_ROWS, ROWS_IN_PLACE } row_source;

// A block of rows, and a pass over part of the inner dimension: what is packed of A at once.
typedef struct job {
  const hy__gemm_kernel* kernel;
  const hy__gemm* g;
  packed_rows a;  // what all tasks share, if they do
  float* c;       // of the block's first row; NULL where each task has sums of its own
  int64_t ldc;
  int64_t first_row, rows, row_panels;
  int64_t first_k, end_k;  // of the pass
  int depth;               // of a block of k, but the last
  int64_t group;           // panels of B to a task
  int64_t parts, part;     // the row panels divided among tasks, and panels of one part
  row_source source;
  atomic_bool failed;
} job;

static int depth_at(const job* j, int64_t k) {
  return (int)min_i64(j->depth, j->end_k - k);
}

static float* panel_of_a(const job* j, const packed_rows* a, int64_t k, int64_t panel) {
  int64_t rows = j->kernel->mr, words = hy__gemm_words(j->kernel, depth_at(j, k));
  return a->data + (k - j->first_k) / j->kernel->unit * a->count * rows +
         (panel - a->first) * rows * words;
}

static void pack_panel_of_a(const job* j, const packed_rows* a, int64_t k, int64_t panel) {
  int64_t row = panel * j->kernel->mr;
  int m = (int)min_i64(j->kernel->mr, j->rows - row);
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

// Panels of columns of B, packed for a block of k, and the words from one to the next.
typedef struct packed_columns {
  const float* data;
  int64_t panel;
} packed_columns;

// Those of the region in B that is packed already.
static packed_columns columns_at(const job* j, const region* t, int64_t k) {
  int64_t nr = j->kernel->nr, panel = hy__gemm_words(j->kernel, (int)j->g->k) * nr;
  return (packed_columns){j->g->packed_b + t->column / nr * panel + k / j->kernel->unit * nr,
                          panel};
}

static void pack_columns(const job* j, const region* t, int64_t k, int64_t words, float* packed) {
  const hy__gemm* g = j->g;
  int depth = depth_at(j, k), panel = j->kernel->nr;
  for (int64_t p = 0; p < t->width; p += panel, packed += panel * words) {
    int n = (int)min_i64(panel, t->width - p);
    if (g->pack_b)
      g->pack_b(g->context, k, depth, t->column + p, n, panel, packed);
    else
      j->kernel->pack_b(&g->b, k, depth, t->column + p, n, packed);
  }
}

// A panel of `m` rows with all columns of the region.
static void multiply_rows(const job* j, const region* t, int64_t k, int64_t row_panel, int m,
                          packed_columns b, float* c) {
  const hy__gemm* g = j->g;
  const hy__gemm_kernel* kernel = j->kernel;
  int depth = depth_at(j, k), panel = kernel->nr;
  const float* columns = b.data;
  int64_t row = row_panel * kernel->mr;
  bool add = k > 0 || g->accumulate;
  for (int64_t p = 0; p < t->width; p += panel, columns += b.panel) {
    int n = (int)min_i64(panel, t->width - p);
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
  int64_t words = hy__gemm_words(kernel, depth) + kernel->extra;
  packed_columns b = {packed_b, words * kernel->nr};
  if (g->packed_b)
    b = columns_at(j, t, k);
  else
    pack_columns(j, t, k, words, packed_b);
  // Sums of its own that a block of k completes need not outlast a panel.
  int64_t next = !j->c && depth == g->k ? 0 : kernel->mr * t->stride;
  float* c = t->c;
  for (int64_t r = t->row; r < t->row_end; r++, c += next) {
    int m = (int)min_i64(kernel->mr, j->rows - r * kernel->mr);
    multiply_rows(j, t, k, r, m, b, c);
    if (g->epilogue && k + depth == g->k)
      g->epilogue(g->context, j->first_row + r * kernel->mr, t->column, m, (int)t->width, c,
                  t->stride);
  }
}

// What panels of rows take packed, over the blocks of k of a pass.
static size_t rows_bytes(const job* j, int64_t panels) {
  int64_t blocks = ceil_div(j->end_k - j->first_k, j->depth);
  return (size_t)(panels * j->kernel->mr * blocks * hy__gemm_words(j->kernel, j->depth)) *
         sizeof(float);
}

static void multiply_region(void* context, int64_t task) {
  job* j = context;
  const hy__gemm* g = j->g;
  const hy__gemm_kernel* kernel = j->kernel;
  int64_t row = task % j->parts * j->part, width = j->group * kernel->nr;
  region t = {.a = j->a,
              .row = row,
              .row_end = min_i64(row + j->part, j->row_panels),
              .column = task / j->parts * width,
              .stride = j->c ? j->ldc : width};
  t.width = min_i64(width, g->n - t.column);
  size_t words = (size_t)(hy__gemm_words(kernel, j->depth) + kernel->extra);
  size_t sums = (size_t)(j->part * kernel->mr * width) * sizeof *t.c;
  float* packed_b = NULL;
  if (!g->packed_b)
    packed_b = hy__scratch_get(HY__SCRATCH_GEMM_B, (size_t)width * words * sizeof *packed_b);
  t.c = j->c ? j->c + row * kernel->mr * j->ldc + t.column
             : hy__scratch_get(HY__SCRATCH_GEMM_C, sums);
  if (j->source == OWN_ROWS)
    t.a = (packed_rows){hy__scratch_get(HY__SCRATCH_GEMM_A, rows_bytes(j, j->part)), row, j->part};
  if ((!packed_b && !g->packed_b) || !t.c || (j->source == OWN_ROWS && !t.a.data)) {
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

static void epilogue_empty(const hy__gemm* g) {
  for (int64_t i = 0; i < g->m && !g->accumulate; i++) {
    if (!g->epilogue) {
      memset(g->c + i * g->ldc, 0, (size_t)g->n * sizeof *g->c);
      continue;
    }
    for (int64_t j = 0; j < g->n; j += HY__GEMM_MAX_NR) {
      float zeros[HY__GEMM_MAX_NR] = {0};
      int n = (int)min_i64(HY__GEMM_MAX_NR, g->n - j);
      g->epilogue(g->context, i, j, 1, n, zeros, HY__GEMM_MAX_NR);
    }
  }
}

// Cores of a large machine are not equally fast, and a thread with one long task keeps all others
// waiting: on 16 virtual cores the busiest took 1.4 times the average. Long products of f32 are
// therefore cut so that they end soonest although one thread needs twice as long for its tasks.
enum { MANY_THREADS = 8, LONG_SHARE = 1 << 26 };  // LONG_SHARE: multiply-adds of a thread

static bool allows_for_a_slow_thread(const job* j, int64_t threads) {
  return threads >= MANY_THREADS && j->kernel->unit == 1 &&
         j->rows * j->g->n / threads * j->g->k >= LONG_SHARE;
}

// When the last of equal tasks is done: a thread that is slow still has one when the others end.
static int64_t done_after(int64_t tasks, int64_t takes, int64_t threads, bool one_is_slow) {
  if (!one_is_slow) return ceil_div(tasks, threads) * takes;
  return 2 * tasks * takes / (2 * threads - 1) + takes;
}

// Tasks such that the thread with the most of them is done soonest. Packing a panel of B costs
// about what four tiles do, and is done again for each part of the rows; reading a panel of A in
// place, or packing it, costs about a quarter of one, and is done again for each group of columns.
// Where B is packed already, its panels still have to come from memory.
// With no more tasks than threads, and rows divided, each packs its own rows: no thread waits for
// another before it multiplies, and what it packed is in its own cache. A panel that another thread
// packed has to come from that one's cache the first time, for a tile and a quarter more. Where
// many threads read at once, packing costs six tiles.
static void divide(job* j) {
  int64_t threads = hy__pool_threads(), panels = ceil_div(j->g->n, j->kernel->nr);
  int64_t fit = GROUP_WORDS / divisors[j->g->tiles].group /
                (hy__gemm_words(j->kernel, j->depth) * j->kernel->nr);
  int64_t soonest = INT64_MAX;
  bool in_place = j->source == ROWS_IN_PLACE;
  bool one_is_slow = allows_for_a_slow_thread(j, threads);
  int64_t packing = j->g->packed_b ? 1 : one_is_slow ? 6 : 4;
  j->group = 1;
  j->part = j->row_panels;
  for (int64_t parts = 1; parts <= min_i64(threads, j->row_panels); parts++) {
    int64_t part = ceil_div(j->row_panels, parts);
    for (int64_t group = min_i64(fit > 0 ? fit : 1, panels); group > 0; group--) {
      int64_t tasks = ceil_div(panels, group) * ceil_div(j->row_panels, part);
      bool own = !in_place && tasks <= threads && part < j->row_panels;
      int64_t turns = ceil_div(tasks, threads);
      int64_t takes = done_after(tasks, 4 * group * (part + packing) + part, threads, one_is_slow);
      if (!own && !in_place && threads > 1) takes += 5 * min_i64(turns * part, j->row_panels);
      if (takes >= soonest) continue;
      soonest = takes;
      if (!in_place) j->source = own ? OWN_ROWS : SHARED_ROWS;
      j->group = group;
      j->part = part;
    }
  }
  j->parts = ceil_div(j->row_panels, j->part);
}

size_t hy__gemm_packed_bytes(const hy__gemm_kernel* kernel, int64_t k, int64_t n) {
  return (size_t)(ceil_div(n, kernel->nr) * kernel->nr * hy__gemm_words(kernel, (int)k)) *
         sizeof(float);
}

typedef struct packing {
  const hy__gemm_kernel* kernel;
  const hy__matrix* b;
  int64_t k, n;
  float* packed;
} packing;

static void pack_panel_of_b(void* context, int64_t panel) {
  const packing* p = context;
  int64_t nr = p->kernel->nr, unit = p->kernel->unit, column = panel * nr;
  float* to = p->packed + column * hy__gemm_words(p->kernel, (int)p->k);
  int64_t depth = p->kernel->kc * unit;
  for (int64_t k = 0; k < p->k; k += depth, to += depth / unit * nr)
    p->kernel->pack_b(p->b, k, (int)min_i64(depth, p->k - k), column,
                      (int)min_i64(nr, p->n - column), to);
}

void hy__gemm_pack_b(const hy__gemm_kernel* kernel, const hy__matrix* b, int64_t k, int64_t n,
                     float* packed) {
  packing p = {kernel, b, k, n, packed};
  hy__pool_run(pack_panel_of_b, &p, ceil_div(n, kernel->nr));
}

bool hy__gemm_run(const hy__gemm_kernel* kernel, const hy__gemm* g) {
  if (g->m == 0 || g->n == 0) return true;
  if (g->k == 0) {
    epilogue_empty(g);
    return true;
  }
  bool in_place = kernel->in_place && kernel->in_place(g);
  job j = {.kernel = kernel, .g = g, .source = in_place ? ROWS_IN_PLACE : SHARED_ROWS};
  // Blocks of k of about equal depth, each of as many whole words as any kernel aligns to.
  // A kernel's depth is for rows in place. Where they must be packed, half of it lets a task have
  // all panels of B beside rows of its own: f16 of 512 is 4% faster on two threads of a Zen 4.
  bool packs = kernel->in_place && !in_place && kernel->unit == 1;
  int64_t kc = kernel->kc / (packs ? 2 : 1) / divisors[g->tiles].kc;
  int64_t blocks = ceil_div(g->k, kc * kernel->unit);
  int64_t whole = 16 * kernel->unit;
  j.depth = (int)(ceil_div(ceil_div(g->k, blocks), whole) * whole);
  int64_t pass = (int64_t)MAX_PASS * kernel->unit / j.depth * j.depth;
  int64_t words = hy__gemm_words(kernel, j.depth) * ceil_div(min_i64(g->k, pass), j.depth);
  // Sums that span several passes and have no place of their own need one.
  bool own_c = !g->c && g->k > pass;
  int64_t most = PACKED_WORDS / words;
  if (own_c) most = min_i64(most, OWN_SUMS / g->n);
  int64_t panels = ceil_div(g->m, kernel->mr);
  int64_t fit = in_place && g->c ? panels : ceil_div(most, kernel->mr);
  int64_t block = (fit > 0 ? ceil_div(panels, ceil_div(panels, fit)) : 1) * kernel->mr;
  float* sums =
      own_c ? hy__scratch_get(HY__SCRATCH_GEMM_C, (size_t)(block * g->n) * sizeof *sums) : NULL;
  if (own_c && !sums) return false;
  for (int64_t i = 0; i < g->m; i += block) {
    j.first_row = i;
    j.rows = min_i64(block, g->m - i);
    j.row_panels = ceil_div(j.rows, kernel->mr);
    j.ldc = own_c ? g->n : g->ldc;
    j.c = own_c ? sums : g->c ? g->c + i * g->ldc : NULL;
    divide(&j);
    int64_t tasks = ceil_div(ceil_div(g->n, kernel->nr), j.group) * j.parts;
    for (j.first_k = 0; j.first_k < g->k; j.first_k = j.end_k) {
      j.end_k = min_i64(j.first_k + pass, g->k);
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
