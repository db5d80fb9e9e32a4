// Reductions of f32, bf16 and f16: sum, mean, prod, max, min, var, argmax, argmin.
//
// The reduced dimensions must be neighbours with one stride. Rows are reduced in spans of a fixed
// length, whose results are combined in double in a fixed order: the result does not depend on the
// threads, and long sums lose little.
#include <math.h>
#include <stdatomic.h>

#include "backends/cpu/rows/slices.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/half.h"
#include "base/math.h"
#include "base/memory.h"

enum { SPAN = 4096, SPLIT = 16 * SPAN, COLUMNS = 4096, ROWS_IN_FLOAT = 256, BUFFER = 512 };

// What is known of elements seen so far.
typedef struct state {
  double value;
  int64_t index;  // of the extreme; -1: none yet
  bool nan;
} state;

typedef struct job {
  const hy__cpu_kernels* kernels;
  hy_op op;
  hy__slices x;
  hy__slices out, at;  // values and indices; absent ones have no type
  double correction;
  int64_t parts;  // of each slice
  state* states;  // one for each part
  int64_t inner;  // columns that are adjacent; 1: slices are rows
  float* blocks;  // of each ROWS_IN_FLOAT rows, what is joined of every column
} job;

static bool is_arg(hy_op op) {
  return op == HY_OP_argmax || op == HY_OP_argmin || op == HY_OP_max_dim || op == HY_OP_min_dim;
}

static bool wants_most(hy_op op) {
  return op == HY_OP_max || op == HY_OP_argmax || op == HY_OP_max_dim;
}

static bool wants_least(hy_op op) {
  return op == HY_OP_min || op == HY_OP_argmin || op == HY_OP_min_dim;
}

static state start(hy_op op) {
  double value = op == HY_OP_prod ? 1 : wants_most(op) ? -INFINITY : wants_least(op) ? INFINITY : 0;
  return (state){value, -1, false};
}

// ---- rows ----

// Elements of a span as a row that kernels take.
static const void* span_of(const job* j, const char* base, int64_t i, int64_t n, float* buffer,
                           hy_dtype* dtype) {
  const char* at = base + i * j->x.step * j->x.size;
  *dtype = j->x.t->dtype;
  if (hy__slices_are_rows(&j->x)) return at;
  j->kernels->gemm.widen(n, at, j->x.step, *dtype, buffer);
  *dtype = HY_F32;
  return buffer;
}

static float element(const void* row, hy_dtype dtype, int64_t i) {
  return hy__load1((const char*)row + i * (dtype == HY_F32 ? 4 : 2), dtype);
}

// The first element that is `value`, or NaN where that is NaN.
static int64_t find(const void* row, hy_dtype dtype, int64_t n, float value) {
  for (int64_t i = 0; i < n; i++) {
    float x = element(row, dtype, i);
    if (x == value || (x != x && value != value)) return i;
  }
  return -1;
}

// NaN beats every number, and the first of equals the others.
static void join_extreme(const job* j, state* s, const void* row, hy_dtype dtype, int64_t first,
                         int64_t n) {
  const hy__rows* rows = j->kernels->rows;
  if (s->nan) return;
  float value =
      wants_most(j->op) ? rows->max_or_nan(n, row, dtype) : rows->min_or_nan(n, row, dtype);
  if (value != value) {
    *s = (state){NAN, first + find(row, dtype, n, NAN), true};
    return;
  }
  bool beats = wants_most(j->op) ? (double)value > s->value : (double)value < s->value;
  if (!beats && s->index >= 0) return;
  s->value = (double)value;
  s->index = is_arg(j->op) ? first + find(row, dtype, n, value) : first;
}

static void reduce_part(const job* j, const char* base, int64_t first, int64_t last, double centre,
                        state* s) {
  const hy__rows* rows = j->kernels->rows;
  float buffer[SPAN];
  for (int64_t i = first; i < last; i += SPAN) {
    int64_t n = last - i < SPAN ? last - i : SPAN;
    hy_dtype dtype;
    const void* row = span_of(j, base, i, n, buffer, &dtype);
    switch (j->op) {
      case HY_OP_sum:
      case HY_OP_mean: s->value += (double)rows->sum(n, row, dtype); break;
      case HY_OP_prod: s->value *= (double)rows->product(n, row, dtype); break;
      case HY_OP_var: s->value += (double)rows->sum_sq_dev(n, row, dtype, (float)centre); break;
      default: join_extreme(j, s, row, dtype, i, n);
    }
  }
}

static void join(hy_op op, state* s, const state* more) {
  if (op == HY_OP_prod) {
    s->value *= more->value;
  } else if (!wants_most(op) && !wants_least(op)) {
    s->value += more->value;
  } else if (!s->nan && more->index >= 0) {
    bool beats = wants_most(op) ? more->value > s->value : more->value < s->value;
    if (more->nan || beats || s->index < 0) *s = *more;
  }
}

static void store(const job* j, int64_t slice, const state* s) {
  double value = s->value, n = (double)j->x.n;
  if (j->op == HY_OP_mean) value /= n;
  if (j->op == HY_OP_var) value /= fmax(0, n - j->correction);
  if (j->out.t->dtype != HY_NONE)
    hy__store1(hy__slice_at(&j->out, slice), j->out.t->dtype, (float)value);
  if (j->at.t->dtype != HY_NONE) *(int64_t*)hy__slice_at(&j->at, slice) = s->index;
}

static int64_t part_begin(const job* j, int64_t part) {
  int64_t length = (j->x.n / SPAN / j->parts + 1) * SPAN, begin = part * length;
  return begin < j->x.n ? begin : j->x.n;
}

// A variance needs the mean first, and takes the whole slice.
static void reduce_slices(void* context, int64_t first, int64_t last) {
  const job* j = context;
  for (int64_t i = first; i < last; i++) {
    int64_t slice = i / j->parts, part = i % j->parts;
    const char* base = hy__slice_at(&j->x, slice);
    state s = start(j->op);
    double centre = 0;
    if (j->op == HY_OP_var) {
      job mean = *j;
      mean.op = HY_OP_sum;
      reduce_part(&mean, base, 0, j->x.n, 0, &s);
      centre = s.value / (double)j->x.n;
      s.value = 0;
    }
    reduce_part(j, base, part_begin(j, part), part_begin(j, part + 1), centre, &s);
    if (j->parts == 1)
      store(j, slice, &s);
    else
      j->states[i] = s;
  }
}

static hy_status run_rows(const hy_call* call, job* j) {
  bool splits = j->x.count < 16 && j->x.n > SPLIT && j->op != HY_OP_var;
  j->parts = splits ? 64 : 1;
  if (splits && !(j->states = hy__malloc((size_t)(j->x.count * j->parts) * sizeof *j->states)))
    return hy__cpu_no_memory(call);
  hy__each_range(j->x.count * j->parts, j->x.n / j->parts, reduce_slices, j);
  for (int64_t slice = 0; splits && slice < j->x.count; slice++) {
    state s = start(j->op);
    for (int64_t part = 0; part < j->parts; part++)
      join(j->op, &s, &j->states[slice * j->parts + part]);
    store(j, slice, &s);
  }
  hy__mfree(j->states);
  return HY_OK;
}

// ---- columns ----

static bool sums(hy_op op) {
  return op == HY_OP_sum || op == HY_OP_mean;
}

static void join_row(const job* j, int64_t n, float* block, const char* row) {
  const hy__rows* rows = j->kernels->rows;
  hy_dtype dtype = j->x.t->dtype;
  if (sums(j->op) && dtype != HY_F16) {
    rows->add_into(n, row, dtype, block);
    return;
  }
  hy__map* map = (sums(j->op)         ? rows->add
                  : wants_most(j->op) ? rows->maximum
                                      : rows->minimum)[HY__ROW_F32];
  const void* in[2];
  float buffer[BUFFER];
  for (int64_t c = 0; c < n; c += BUFFER) {
    int64_t count = n - c < BUFFER ? n - c : BUFFER;
    j->kernels->gemm.widen(count, row + c * j->x.size, 1, dtype, buffer);
    in[0] = block + c;
    in[1] = buffer;
    map(count, in, 1, 0, block + c, false);
  }
}

// A block is up to ROWS_IN_FLOAT rows of up to COLUMNS columns: read in memory order, and what is
// combined stays in L1.
static void reduce_block(void* context, int64_t i) {
  const job* j = context;
  int64_t wide = ceil_div(j->inner, COLUMNS), high = ceil_div(j->x.n, ROWS_IN_FLOAT);
  int64_t column = i % wide * COLUMNS, row = i / wide % high * ROWS_IN_FLOAT,
          outer = i / wide / high;
  int64_t n = j->inner - column < COLUMNS ? j->inner - column : COLUMNS;
  const char* base = hy__slice_at(&j->x, outer * j->inner + column);
  float *block = j->blocks + i / wide * j->inner + column, initial = (float)start(j->op).value;
  for (int64_t c = 0; c < n; c++) block[c] = initial;
  for (int64_t r = row; r < j->x.n && r < row + ROWS_IN_FLOAT; r++)
    join_row(j, n, block, base + r * j->x.step * j->x.size);
}

// Strips first .. last - 1 of what the blocks hold, joined in double.
static void join_blocks(void* context, int64_t first, int64_t last) {
  const job* j = context;
  int64_t high = ceil_div(j->x.n, ROWS_IN_FLOAT);
  for (int64_t i = first; i < last; i++) {
    const float* block = j->blocks + i / j->inner * high * j->inner + i % j->inner;
    state s = start(j->op);
    for (int64_t b = 0; b < high; b++) {
      double x = (double)block[b * j->inner];
      bool beats = wants_most(j->op) ? x > s.value : x < s.value;
      s.value = sums(j->op) ? s.value + x : x != x || beats ? x : s.value;
    }
    store(j, i, &s);
  }
}

static hy_status run_columns(const hy_call* call, job* j) {
  int64_t outer = j->x.count / j->inner, high = ceil_div(j->x.n, ROWS_IN_FLOAT);
  j->blocks = hy__malloc((size_t)(outer * high * j->inner) * sizeof *j->blocks);
  if (!j->blocks) return hy__cpu_no_memory(call);
  hy__pool_run(reduce_block, j, outer * high * ceil_div(j->inner, COLUMNS));
  hy__each_range(j->x.count, high, join_blocks, j);
  hy__mfree(j->blocks);
  return HY_OK;
}

// How many of the last dimensions' elements are adjacent.
static int64_t columns_of(const hy_tensor* t, int first, int dims) {
  int64_t inner = 1;
  for (int d = t->ndim - 1; d >= first + dims; d--) {
    if (t->shape[d] != 1 && t->stride[d] != inner) return 1;
    inner *= t->shape[d];
  }
  return inner;
}

// ---- calls ----

static bool describe(const hy_call* call, job* j) {
  const hy_tensor* x = &call->in[0];
  const hy_dims* dims = &call->attrs.reduce.dims;  // the first field of both kinds
  static const hy_tensor none;
  uint32_t mask = dims->n == 0 ? (1u << x->ndim) - 1 : 0;
  // A scalar has one element and dimensions 0 and -1 all the same.
  for (int64_t i = 0; i < dims->n && x->ndim > 0; i++)
    mask |= 1u << (dims->dim[i] < 0 ? dims->dim[i] + x->ndim : dims->dim[i]);
  int first = 0, count = 0;
  while (first < x->ndim && !(mask >> first & 1)) first++;
  while (first + count < x->ndim && mask >> (first + count) & 1) count++;
  if (mask >> (first + count)) return false;
  bool only_index = call->op == HY_OP_argmax || call->op == HY_OP_argmin;
  bool both = call->op == HY_OP_max_dim || call->op == HY_OP_min_dim;
  *j = (job){.op = call->op};
  if (call->op == HY_OP_var) j->correction = call->attrs.var.correction;
  hy__slices_init(&j->out, only_index ? &none : &call->out[0], 0, 0);
  hy__slices_init(&j->at, only_index ? &call->out[0] : both ? &call->out[1] : &none, 0, 0);
  j->inner = 1;
  if (!hy__slices_init(&j->x, x, first, count)) return false;
  bool joins = !is_arg(call->op) && call->op != HY_OP_prod && call->op != HY_OP_var;
  if (joins && j->x.step != 1 && j->x.n > 1) j->inner = columns_of(x, first, count);
  return true;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j;
  describe(call, &j);
  j.kernels = kernels;
  return j.inner == 1 ? run_rows(call, &j) : run_columns(call, &j);
}

static hy_support supports(const hy_call* call) {
  job j;
  bool has_value = call->op != HY_OP_argmax && call->op != HY_OP_argmin;
  if (has_value && call->out[0].dtype != call->in[0].dtype) return HY_SUPPORT_NO_DTYPE;
  if (hy_tensor_numel(&call->in[0]) == 0) return HY_SUPPORT_NO_SHAPE;
  return describe(call, &j) ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

const hy__cpu_family hy__cpu_reduce = {supports, run};
