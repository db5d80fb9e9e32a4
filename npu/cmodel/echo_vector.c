// echo_vector.c - the vector unit: runs the microcode passes of a function over rows.
#include <stdlib.h>
#include <string.h>

#include "echo_npu_hw.h"
#include "echo_units.h"

typedef struct job {
  const echo_kernels* kernels;
  const echo_ucode_function* fn;
  const char *x, *y;  // y is NULL for SRC2_IMM or no operand
  char* d;
  int type_x, type_y, type_d;
  int bcast, swap, causal;
  int64_t rows, cols, stride_x, stride_y, stride_d;
  uint32_t alpha, beta;
  int by_row;  // a task is a range of rows; else a range of columns of the single row
  int64_t per_task;
} job;

static int64_t min64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static void splat(uint32_t* out, uint32_t value, int n) {
  for (int j = 0; j < n; ++j) out[j] = value;
}

static void load_block(const job* w, const echo_ucode_pass* pass, int64_t row, int64_t col, int n,
                       echo_lanes* lanes) {
  const uint32_t sx = echo_type_size(w->type_x), sy = echo_type_size(w->type_y);
  uint32_t(*r)[ECHO_BLOCK] = lanes->r;
  uint32_t* to_x = r[w->swap ? 1 : 0];
  uint32_t* to_y = r[w->swap ? 0 : 1];
  const char* x = w->x + (row * w->stride_x + col) * sx;
  if (pass->load & ECHO_NPU_LOAD_X0) w->kernels->load(to_x, x, w->type_x, n);
  if (pass->load & ECHO_NPU_LOAD_X1) w->kernels->load(r[2], x + w->cols * sx, w->type_x, n);
  if (!(pass->load & ECHO_NPU_LOAD_Y0)) return;
  if (!w->y) {
    splat(to_y, w->alpha, n);
    return;
  }
  const char* y = w->y + (row * w->stride_y + (w->bcast ? 0 : col)) * sy;
  if (w->bcast) {
    uint32_t value;
    w->kernels->load(&value, y, w->type_y, 1);
    splat(to_y, value, n);
    return;
  }
  w->kernels->load(to_y, y, w->type_y, n);
  if (pass->load & ECHO_NPU_LOAD_Y1) w->kernels->load(r[3], y + w->cols * sy, w->type_y, n);
}

static void run_row(const job* w, int64_t row, int64_t from, int64_t to, echo_lanes* lanes) {
  uint32_t scalars[8] = {w->alpha, w->beta};
  const uint32_t sd = echo_type_size(w->type_d);
  char* d = w->d + row * w->stride_d * sd;
  const int64_t valid = w->causal ? min64(to, (int64_t)w->beta + row) : to;
  for (int t = 0; t < w->fn->passes; ++t) {
    const echo_ucode_pass* pass = &w->fn->pass[t];
    uint32_t partials[ECHO_NPU_PARTIALS] __attribute__((aligned(64)));
    splat(partials, pass->reduce == ECHO_NPU_REDUCE_MAX ? 0xff800000u : 0, ECHO_NPU_PARTIALS);
    for (int64_t col = from; col < valid; col += ECHO_BLOCK) {
      const int n = (int)min64(ECHO_BLOCK, valid - col);
      load_block(w, pass, row, col, n, lanes);
      w->kernels->run(lanes, pass->lane, pass->lane_len, scalars, n);
      if (pass->reduce) w->kernels->reduce(partials, lanes->r[0], pass->reduce, n);
      if (pass->store & ECHO_NPU_STORE_D0)
        w->kernels->store(d + col * sd, lanes->r[0], w->type_d, n);
      if (pass->store & ECHO_NPU_STORE_D1)
        w->kernels->store(d + (w->cols + col) * sd, lanes->r[1], w->type_d, n);
    }
    if (pass->reduce) {
      lanes->r[0][0] = w->kernels->tree(partials, pass->reduce);
      w->kernels->run(lanes, pass->post, pass->post_len, scalars, 1);
      scalars[2 + t] = lanes->r[0][0];
      if (pass->store & ECHO_NPU_STORE_SCALAR) w->kernels->store(d, lanes->r[0], w->type_d, 1);
    }
  }
  if (valid < to) memset(d + valid * sd, 0, (size_t)(to - valid) * sd);
}

static void run_task(void* context, int index, echo_scratch* scratch) {
  const job* w = context;
  int64_t from = index * w->per_task;
  if (w->by_row)
    for (int64_t row = from; row < min64(from + w->per_task, w->rows); ++row)
      run_row(w, row, 0, w->cols, &scratch->lanes);
  else
    run_row(w, 0, from, min64(from + w->per_task, w->cols), &scratch->lanes);
}

// A contiguous elementwise command is one long row.
static void merge_rows(job* w) {
  if (w->fn->passes > 1 || w->fn->pass[0].reduce || echo_ucode_is_paired(w->fn)) return;
  if (w->stride_x != w->cols || w->stride_d != w->cols) return;
  if (w->y && (w->bcast || w->stride_y != w->cols)) return;
  w->cols *= w->rows;
  w->rows = 1;
}

void echo_vector(const echo_context* x, const echo_command* c, void* const at[ECHO_OPERANDS]) {
  job w = {.kernels = x->kernels,
           .fn = c->fn,
           .x = at[ECHO_SRC1],
           .y = at[ECHO_SRC2],
           .d = at[ECHO_DST],
           .type_x = c->type1,
           .type_y = c->type2,
           .type_d = c->type_dst,
           .bcast = (c->flags & ECHO_NPU_FLAG_SRC2_BCAST) != 0,
           .swap = (c->flags & ECHO_NPU_FLAG_SWAP) != 0,
           .causal = (c->flags & ECHO_NPU_FLAG_CAUSAL) != 0,
           .rows = c->p[ECHO_NPU_P_ROWS],
           .cols = c->p[ECHO_NPU_P_COLS],
           .stride_x = c->p[ECHO_NPU_P_STRIDE1],
           .stride_y = c->p[ECHO_NPU_P_STRIDE2],
           .stride_d = c->p[ECHO_NPU_P_STRIDE_DST],
           .alpha = c->p[ECHO_NPU_P_ALPHA],
           .beta = c->p[ECHO_NPU_P_BETA]};
  merge_rows(&w);
  int threads = w.rows * w.cols < 16384 || echo_overlaps(c) ? 1 : echo_pool_threads();
  int single = w.rows == 1 && w.fn->passes == 1 && !w.fn->pass[0].reduce;
  w.by_row = !single;
  int64_t unit = single ? ECHO_BLOCK : 1, length = single ? w.cols : w.rows;
  int64_t units = (length + unit - 1) / unit;
  w.per_task = (units + threads - 1) / threads * unit;
  echo_pool_run(run_task, &w, (int)((length + w.per_task - 1) / w.per_task), x->scratch);
}
