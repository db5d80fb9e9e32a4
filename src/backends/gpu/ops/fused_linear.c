// fused_linear: by GEMV where rows of x are few and those of the weight are whole lines of 16
// bytes (one row of x in registers or, for 4 bits, a weight from shared memory; more rows meet
// quantised weights on tensor cores), by skinny GEMM up to 64 rows without a norm, else by GEMV for
// a few rows at a time, or a kernel for anything.
#include <stdio.h>

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/gemm_batch.h"

enum { X, NORM, WEIGHT, SCALE, BIAS, RESIDUAL };
enum { FEW = 4, WARPS = 4, WARP = 32, MOST_STEPS = 24 };

// Numbers of 16 bytes.
static int line_of(hy_dtype dtype) {
  return dtype == HY_I4 ? 32 : 16 / (int)hy_dtype_size(dtype);
}

static bool aligned(const hy_tensor* t) {
  return t->dtype == HY_NONE || (uintptr_t)t->data % 16 == 0;
}

static bool takes_gemv(const hy__gpu_task* task, const hy_fused_linear* p, const hy_tensor* t,
                       hy_dtype x, hy_dtype w) {
  bool x_fits = x == HY_BF16 || x == HY_F16 || x == HY_F32;
  bool w_fits = w == x || w == HY_I8 || w == HY_I4;
  int each = line_of(w);
  return x_fits && w_fits && p->k > 0 && p->k % each == 0 && p->k % 8 == 0 &&
         p->group % each == 0 && p->x_row % 4 == 0 && aligned(&t[X]) && aligned(&t[NORM]) &&
         aligned(&t[WEIGHT]) && (p->k / each + WARP - 1) / WARP <= MOST_STEPS &&
         p->k * 4 * FEW <= 160 * 1024 && p->k * 4 * FEW <= task->device->max_shared;
}

static void run_gemv(hy__gpu_task* task, hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  enum { BLOCKS = 5 };    // of a multiprocessor
  enum { HOLDABLE = 4 };  // lines of a lane, of which a warp has twice as many at no loss
  int lines = p->k / line_of(w);
  // Two rows at once where one would leave lanes idle.
  int per = p->gated || (lines % WARP != 0 && lines <= 8 * WARP) ? 2 : 1;
  int steps = (per * lines + WARP - 1) / WARP;
  int64_t groups = p->gated ? p->n : (p->rows + per - 1) / per;
  int64_t room = (int64_t)task->device->multiprocessors * (steps > 12 ? BLOCKS - 1 : BLOCKS);
  int64_t rounds = (groups + room * WARPS - 1) / (room * WARPS);
  int64_t warps = (groups + rounds - 1) / rounds;
  int rows = p->m == 1 ? 1 : p->m == 2 ? 2 : FEW;
  int held = rounds == 2 && rows == 1 && steps <= HOLDABLE ? 2 : 1;
  char options[128];
  snprintf(options, sizeof options,
           "-DT=%s -DW=%s -DDEPTH=%d -DROWS=%d -DPER=%d -DGATED=%d -DHELD=%d -DLOOP=%d -DNORM=%d",
           hy__gpu_type_name(x), hy__gpu_type_name(w), p->k, rows, per, p->gated, held,
           rounds > held && steps <= 12, p->norm != NULL);
  hy__gpu_launch_dependent(task, hy__gpu_kernel(task, "fused_gemv", "fused_gemv", options),
                           hy__gpu_1d((unsigned)((warps + WARPS - 1) / WARPS)),
                           hy__gpu_1d(WARPS * WARP), (size_t)rows * (size_t)p->k * 4,
                           HY__GPU_ARGS(p));
}

// A row to a block: long rows, few of them, and no norm to compute from all of x.
static void run_split(hy__gpu_task* task, hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  char options[96];
  snprintf(options, sizeof options, "-DT=%s -DW=%s -DDEPTH=%d -DROWS=%d", hy__gpu_type_name(x),
           hy__gpu_type_name(w), p->k, p->m == 1 ? 1 : FEW);
  hy__gpu_launch_dependent(
      task, hy__gpu_kernel(task, "fused_gemv_split", "fused_gemv_split", options),
      hy__gpu_1d((unsigned)p->rows), hy__gpu_1d(WARPS * WARP), 0, HY__GPU_ARGS(p));
}

// Lines that a lane would hold of a row alone, and whether all rows are under way at once.
static bool takes_split(const hy__gpu_task* task, const hy_fused_linear* p, hy_dtype x,
                        hy_dtype w) {
  enum { LONG = 8, BLOCKS = 8 };
  int lines = p->k / line_of(w);
  return !p->norm && !p->gated && x != HY_F32 && lines >= LONG * WARP &&
         p->rows <= BLOCKS * task->device->multiprocessors;
}

static bool takes_tiles(const hy__gpu_task* task, const hy_fused_linear* p) {
  enum { TILES = 8, OUTS = 16 };  // of a multiprocessor at least; of a tile
  return p->n > TILES * (p->gated ? OUTS / 2 : OUTS) * task->device->multiprocessors;
}

// Bytes of few rows are faster by GEMV: unpacking them takes less than sharing out x to halves.
static bool takes_mma(const hy__gpu_task* task, const hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  int each = line_of(w);
  return (w == HY_I8 || w == HY_I4) && x == HY_BF16 && hy__gpu_mma_sync(task) &&
         p->k % (4 * each) == 0 && p->group * p->groups == p->k &&
         (w == HY_I4 || p->n > 8 * 16 * task->device->multiprocessors);
}

// What fused_pairs.cuh has in shared memory: x, and what it left over; zeros for two steps.
static size_t pairs_bytes(const hy_fused_linear* p, int rows, hy_dtype w) {
  return (size_t)rows * (size_t)p->k * 4 + (size_t)line_of(w) * 16;
}

// Quantised weights on tensor cores: small tiles, whose lines many warps share.
static void run_mma(hy__gpu_task* task, hy_fused_linear* p, hy_dtype w) {
  enum { LINES = 12, LINES_PIPELINED = 4 };  // of a lane, under way at once
  int processors = task->device->multiprocessors, steps = p->k / line_of(w) / 4;
  int tile = p->gated || p->n >= 16 * processors ? 16 : 8, outs = p->gated ? 8 : tile;
  int tiles = (p->n + outs - 1) / outs, warps = tiles > 2 * processors ? 4 : 8;
  int mine = (steps + warps - 1) / warps, lines = tile / 8 * mine;
  int chunk = lines <= LINES ? mine : LINES_PIPELINED / (tile / 8);
  int rows = p->m == 1 ? 1 : p->m == 2 ? 2 : FEW;
  char options[192];
  snprintf(options, sizeof options,
           "-DW=%s -DDEPTH=%d -DROWS=%d -DGATED=%d -DNORM=%d -DGROUP=%d -DTILE=%d -DWARPS=%d "
           "-DCHUNK=%d",
           hy__gpu_type_name(w), p->k, rows, p->gated, p->norm != NULL, p->group, tile, warps,
           chunk);
  hy__gpu_launch_dependent(task, hy__gpu_kernel(task, "fused_gemv_mma", "fused_gemv_mma", options),
                           hy__gpu_1d((unsigned)tiles), hy__gpu_1d((unsigned)(warps * WARP)),
                           pairs_bytes(p, rows, w), HY__GPU_ARGS(p));
}

// The same for very many rows: each warp has tiles of its own, and blocks stay.
static void run_tiles(hy__gpu_task* task, hy_fused_linear* p, hy_dtype w) {
  enum { TILE_WARPS = 8 };
  int rows = p->m == 1 ? 1 : p->m == 2 ? 2 : FEW, outs = p->gated ? 16 : 32;
  int blocks = task->device->multiprocessors * (rows == 1 ? 3 : rows == 2 ? 2 : 1);
  int most = ((p->n + outs - 1) / outs + TILE_WARPS - 1) / TILE_WARPS;
  char options[160];
  snprintf(options, sizeof options,
           "-DW=%s -DDEPTH=%d -DROWS=%d -DGATED=%d -DNORM=%d -DGROUP=%d -DWARPS=%d",
           hy__gpu_type_name(w), p->k, rows, p->gated, p->norm != NULL, p->group, TILE_WARPS);
  hy__gpu_launch_dependent(task,
                           hy__gpu_kernel(task, "fused_gemv_tiles", "fused_gemv_tiles", options),
                           hy__gpu_1d((unsigned)(blocks < most ? blocks : most)),
                           hy__gpu_1d(TILE_WARPS * WARP), pairs_bytes(p, rows, w), HY__GPU_ARGS(p));
}

// Rows of a byte weight that a warp of fused_gemv_int8.cu has at once; 0 where it does not take it.
static int unit_of(const hy__gpu_task* task, const hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  enum { EACH = 16, MOST_OWN = 8 };  // weights of a line; lines of a lane
  int lines = p->k / EACH;
  if (p->m != 1 || p->gated || w != HY_I8 || (x != HY_BF16 && x != HY_F16) || lines < WARP ||
      p->k % EACH != 0 || p->group % EACH != 0 || p->group * p->groups != p->k ||
      !hy__gpu_mma_sync(task) || !takes_tiles(task, p))
    return 0;
  for (int unit = 8; unit > 0; unit /= 2)
    if (unit * lines % WARP == 0 && unit * lines / WARP <= MOST_OWN && unit * p->groups <= WARP)
      return unit;
  return 0;
}

// Bytes of very many rows for one row of x, by dp4a. Blocks stay.
static void run_int8(hy__gpu_task* task, hy_fused_linear* p, hy_dtype x, int unit) {
  enum { BLOCKS = 3 };  // of a multiprocessor
  char options[96];
  snprintf(options, sizeof options, "-DT=%s -DDEPTH=%d -DGROUP=%d -DUNIT=%d -DNORM=%d",
           hy__gpu_type_name(x), p->k, p->group, unit, p->norm != NULL);
  hy__gpu_launch_dependent(task,
                           hy__gpu_kernel(task, "fused_gemv_int8", "fused_gemv_int8", options),
                           hy__gpu_1d((unsigned)(task->device->multiprocessors * BLOCKS)),
                           hy__gpu_1d(WARPS * WARP), 0, HY__GPU_ARGS(p));
}

// How blocks share out the outputs of one row of x where lanes keep x in registers.
typedef struct rows_shape {
  int warps, own, blocks;  // warps of a block; outputs of one
} rows_shape;

// Numbers of x that a lane has at once.
static int unit_numbers(hy_dtype w) {
  return w == HY_I8 || w == HY_I4 ? 16 : 8;
}

// About as many threads as hide the latency of x; few rows a lane, whose weights are in registers.
static rows_shape rows_shape_for(const hy__gpu_task* task, const hy_fused_linear* p, hy_dtype w) {
  enum { MOST_WARPS = 16, MOST_ROWS = 8, NARROW = 4 };
  int warps = (p->k / unit_numbers(w) + WARP - 1) / WARP;
  int steps = (warps + MOST_WARPS - 1) / MOST_WARPS;
  rows_shape s = {.warps = (warps + steps - 1) / steps};
  int places = task->device->multiprocessors * (s.warps <= NARROW ? 2 : 1);
  int most = MOST_ROWS / steps / (p->gated ? 2 : 1);
  s.own = (p->n + places - 1) / places;
  if (s.own > most) s.own = most > 0 ? most : 1;
  s.blocks = (p->n + s.own - 1) / s.own;
  return s;
}

// All lines of the weight are under way at once, as far as registers reach. Short rows of a
// quantised weight without a norm have too few numbers to be worth fixed point; gated halves are
// too many.
static bool takes_rows(const hy__gpu_task* task, const hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  enum { LONG = 4 * WARP, REGISTERS = 65536, OF_THREAD = 96 };
  int numbers = unit_numbers(w);
  if (p->m != 1 || (x != HY_BF16 && x != HY_F16) || p->k % numbers != 0 || !hy__gpu_mma_sync(task))
    return false;
  if (w == x ? p->gated
             : p->group % numbers != 0 || p->group * p->groups != p->k ||
                   (!p->norm && p->k / numbers < LONG))
    return false;
  rows_shape s = rows_shape_for(task, p, w);
  return s.blocks <= REGISTERS / (s.warps * WARP * OF_THREAD) * task->device->multiprocessors;
}

static void run_rows(hy__gpu_task* task, hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  rows_shape s = rows_shape_for(task, p, w);
  char options[160];
  snprintf(options, sizeof options,
           "-DT=%s -DW=%s -DDEPTH=%d -DGROUP=%d -DNORM=%d -DGATED=%d -DWARPS=%d -DOWN=%d",
           hy__gpu_type_name(x), hy__gpu_type_name(w), p->k, w == x ? 1 : p->group, p->norm != NULL,
           p->gated, s.warps, s.own);
  hy__gpu_launch_dependent(
      task, hy__gpu_kernel(task, "fused_gemv_rows", "fused_gemv_rows", options),
      hy__gpu_1d((unsigned)s.blocks), hy__gpu_1d((unsigned)(s.warps * WARP)), 0, HY__GPU_ARGS(p));
}

// How blocks share out the outputs of one row of x where shared memory holds all of a 4-bit weight.
typedef struct sharing {
  int warps, own, split;  // own: outputs of a warp, or with split of a block
  size_t bytes;           // of shared memory, of a block
} sharing;

// A block for each multiprocessor. Outputs have a warp each where rows are short.
static sharing share_out(const hy__gpu_task* task, const hy_fused_linear* p) {
  enum { PER_WORD = 8, SHORT = 8, MOST_WARPS = 10 };  // SHORT: words of a lane
  int places = task->device->multiprocessors, outs = (p->n + places - 1) / places;
  int row = (p->k / PER_WORD + WARP - 1) / WARP;  // words of a lane
  sharing s = {.split = row > SHORT};
  if (s.split) {
    int steps = row;
    row = (steps + MOST_WARPS - 1) / MOST_WARPS;
    s.warps = (steps + row - 1) / row;
    s.own = outs;
  } else {
    s.own = (outs + MOST_WARPS - 1) / MOST_WARPS;
    s.warps = (outs + s.own - 1) / s.own;
  }
  int numbers = row * WARP * PER_WORD, scales = numbers / p->group + (numbers % p->group ? 2 : 0);
  if (scales > p->groups) scales = p->groups;
  int rows = p->gated ? 2 * s.own : s.own;
  s.bytes = (size_t)(s.warps * 4) * (size_t)(rows * row * WARP + rows * ((scales + 3) / 4 * 4));
  return s;
}

static bool takes_shared(const hy__gpu_task* task, const hy_fused_linear* p, hy_dtype x,
                         hy_dtype w) {
  enum { MOST_BYTES = 144 * 1024, MOST_OWN = 16 };
  if (p->m != 1 || w != HY_I4 || x == HY_F32 || !hy__gpu_mma_sync(task)) return false;
  sharing s = share_out(task, p);
  return p->group * p->groups == p->k && (uintptr_t)p->scale % 16 == 0 && s.bytes <= MOST_BYTES &&
         s.bytes <= (size_t)task->device->max_shared && s.own <= MOST_OWN &&
         !(s.split && (p->norm || p->gated));
}

static void run_shared(hy__gpu_task* task, hy_fused_linear* p, hy_dtype x) {
  sharing s = share_out(task, p);
  int outs = s.split ? s.own : s.own * s.warps;
  char options[128];
  snprintf(options, sizeof options,
           "-DT=%s -DDEPTH=%d -DGROUP=%d -DGATED=%d -DNORM=%d -DWARPS=%d -DSPLIT=%d -DOWN=%d",
           hy__gpu_type_name(x), p->k, p->group, p->gated, p->norm != NULL, s.warps, s.split,
           s.own);
  hy__gpu_launch_dependent(task,
                           hy__gpu_kernel(task, "fused_gemv_shared", "fused_gemv_shared", options),
                           hy__gpu_1d((unsigned)((p->n + outs - 1) / outs)),
                           hy__gpu_1d((unsigned)(s.warps * WARP)), s.bytes, HY__GPU_ARGS(p));
}

static void run_any(hy__gpu_task* task, hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  char options[48];
  snprintf(options, sizeof options, "-DT=%s -DW=%s", hy__gpu_type_name(x), hy__gpu_type_name(w));
  hy__gpu_launch(task, hy__gpu_kernel(task, "fused_linear", "fused_linear", options),
                 (hy__gpu_dim3){(unsigned)((p->n + WARPS - 1) / WARPS), (unsigned)p->m, 1},
                 hy__gpu_1d(WARPS * (unsigned)task->device->warp_size), 0, HY__GPU_ARGS(p));
}

static void run_few(hy__gpu_task* task, hy_fused_linear* p, hy_dtype x, hy_dtype w) {
  int unit = unit_of(task, p, x, w);
  if (unit > 0)
    run_int8(task, p, x, unit);
  else if (takes_rows(task, p, x, w))
    run_rows(task, p, x, w);
  else if (takes_shared(task, p, x, w))
    run_shared(task, p, x);
  else if (takes_mma(task, p, x, w))
    (takes_tiles(task, p) ? run_tiles : run_mma)(task, p, w);
  else if (takes_split(task, p, x, w))
    run_split(task, p, x, w);
  else
    run_gemv(task, p, x, w);
}

// FEW rows at a time.
static void run_strips(hy__gpu_task* task, const hy_fused_linear* p, const hy_tensor* t, hy_dtype x,
                       hy_dtype w) {
  enum { MOST_STRIPS = 16 };
  hy_fused_linear strip = *p;
  if (p->m > MOST_STRIPS * FEW || !takes_gemv(task, p, t, x, w)) {
    run_any(task, &strip, x, w);
    return;
  }
  int64_t size = (int64_t)hy_dtype_size(x), out_size = p->wide ? 4 : size;
  for (int row = 0; row < p->m; row += FEW) {
    strip.m = p->m - row < FEW ? p->m - row : FEW;
    strip.x = (const char*)p->x + row * p->x_row * size;
    strip.out = (char*)p->out + row * p->out_row * out_size;
    if (p->residual) strip.residual = (const char*)p->residual + row * p->residual_row * size;
    run_few(task, &strip, x, w);
  }
}

// x, out and the residual as matrices; the others are contiguous whatever their shape.
static int64_t rows_of(const hy_tensor* t) {
  int64_t rows = 1;
  for (int d = 0; d < t->ndim - 1; d++) rows *= t->shape[d];
  return rows;
}

hy_support hy__gpu_fused_linear(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *in = call->in, *out = &call->out[0];
  int64_t m = rows_of(&in[X]), k = in[X].shape[in[X].ndim - 1], rows = in[WEIGHT].shape[0];
  HY__GPU_NEED(m <= 65535 && k <= INT32_MAX / 64 && rows <= INT32_MAX / 64, NO_SHAPE);
  if (!task->stream || hy_tensor_numel(out) == 0) return HY_SUPPORT_YES;
  hy_tensor t[6];
  for (int i = 0; i < 6; i++) {
    t[i] = in[i];
    // Packed numbers are contiguous as they are.
    if (hy__gpu_present(&in[i]) && in[i].layout == HY_LAYOUT_STRIDED)
      t[i] = hy__gpu_contiguous(task, &in[i]);
    if (!hy__gpu_present(&in[i])) t[i].data = NULL;
  }
  const hy_tensor* early[] = {&t[NORM], &t[WEIGHT], &t[SCALE]};
  hy_tensor written = hy__gpu_out_begin(task, out);
  bool gated = call->attrs.fused_linear.gated;
  int64_t n = gated ? rows / 2 : rows;
  int64_t groups = hy__gpu_present(&t[SCALE]) ? t[SCALE].shape[1] : 1;
  hy_fused_linear p = {.x = t[X].data,
                       .norm = t[NORM].data,
                       .weight = t[WEIGHT].data,
                       .scale = t[SCALE].data,
                       .bias = t[BIAS].data,
                       .residual = t[RESIDUAL].data,
                       .out = written.data,
                       .m = (int)m,
                       .n = (int)n,
                       .k = (int)k,
                       .rows = (int)rows,
                       .groups = (int)groups,
                       .group = groups > 0 && k > 0 ? (int)(k / groups) : 1,
                       .gated = gated,
                       .wide = written.dtype != t[X].dtype,
                       .early = hy__gpu_readable_early(task, early, 3),
                       .x_row = k,
                       .out_row = n,
                       .residual_row = n,
                       .eps = call->attrs.fused_linear.eps};
  hy_dtype x = in[X].dtype, w = in[WEIGHT].dtype;
  if (m <= FEW || !hy__gpu_gemm_batch(task, &p, x, w)) run_strips(task, &p, t, x, w);
  hy__gpu_out_end(task, out, &written);
  return HY_SUPPORT_YES;
}
