// Indexing whole rows: embedding, index_select, index_put, and the gradient of an embedding.
#include <stdatomic.h>
#include <string.h>

#include "backends/cpu/rows/slices.h"
#include "backends/cpu/runtime/scratch.h"
#include "base/memory.h"

static int64_t index_at(const hy_tensor* index, int64_t i) {
  return index->dtype == HY_I64 ? ((const int64_t*)index->data)[i]
                                : ((const int32_t*)index->data)[i];
}

// Negative indices count from the end where `wrap`.
static hy_status check(const hy_call* call, const hy_tensor* index, int dim, int64_t size,
                       bool wrap) {
  int64_t n = hy_tensor_numel(index);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = index_at(index, i);
    if (at >= size || at < (wrap ? -size : 0))
      return hy__backend_host->fail(
          HY_INDEX, "%s: index %lld is outside dimension %d, which has size %lld",
          hy__backend_host->op_name(call->op), (long long)at, dim, (long long)size);
  }
  return HY_OK;
}

// Row r of the output, which has `count` rows in each of its blocks, is row index[r % count] of the
// same block of the table.
typedef struct pick {
  const hy_tensor* index;
  const char* table;
  char* out;
  int64_t count, table_rows, bytes;  // of a row
} pick;

static void pick_rows(void* context, int64_t first, int64_t last) {
  const pick* p = context;
  for (int64_t r = first; r < last; r++) {
    int64_t row = r / p->count * p->table_rows + index_at(p->index, r % p->count);
    memcpy(p->out + r * p->bytes, p->table + row * p->bytes, (size_t)p->bytes);
  }
}

static hy_status run_pick(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *index = &call->in[1];
  int dim = 0;
  if (call->op == HY_OP_index_select && x->ndim > 0)
    dim = (int)call->attrs.dim.dim + (call->attrs.dim.dim < 0 ? x->ndim : 0);
  int64_t blocks = 1, inner = 1, size = x->ndim > 0 ? x->shape[dim] : 1;
  for (int d = 0; d < dim; d++) blocks *= x->shape[d];
  for (int d = dim + 1; d < x->ndim; d++) inner *= x->shape[d];
  HY_TRY(check(call, index, dim, size, false));
  pick p = {.index = index, .table = x->data, .out = call->out[0].data};
  p.count = hy_tensor_numel(index);
  p.table_rows = size;
  p.bytes = inner * (int64_t)hy_dtype_size(x->dtype);
  hy__each_range(blocks * p.count, p.bytes, pick_rows, &p);
  return HY_OK;
}

// Whether rows are contiguous, however far apart: those of a product that several layers share.
static bool has_rows(const hy_tensor* t) {
  hy_tensor row = *t;
  row.ndim = t->ndim - 1;
  for (int d = 0; d < row.ndim; d++) {
    row.shape[d] = t->shape[d + 1];
    row.stride[d] = t->stride[d + 1];
  }
  return hy_tensor_is_contiguous(&row);
}

typedef struct put {
  const hy_tensor* index;
  const char* values;
  char* out;
  int64_t rows, bytes, step;  // of a row, and from one row of values to the next
} put;

static int64_t put_at(const put* p, int64_t i) {
  int64_t at = index_at(p->index, i);
  return at < 0 ? at + p->rows : at;
}

static void put_rows(void* context, int64_t first, int64_t last) {
  const put* p = context;
  for (int64_t i = first; i < last; i++)
    memcpy(p->out + put_at(p, i) * p->bytes, p->values + i * p->step, (size_t)p->bytes);
}

static bool ascends(const put* p, int64_t count) {
  for (int64_t i = 1; i < count; i++) {
    if (put_at(p, i) <= put_at(p, i - 1)) return false;
  }
  return true;
}

// In order, since the last of equal indices is what stays, unless they ascend: a prompt's tokens in
// a cache.
static hy_status run_put(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *values = &call->in[1], *index = &call->in[2];
  int64_t rows = x->shape[0], count = hy_tensor_numel(index);
  HY_TRY(check(call, index, 0, rows, true));
  put p = {.index = index, .values = values->data, .out = call->out[0].data, .rows = rows};
  p.step = p.bytes = (int64_t)hy_tensor_bytes(x) / rows;
  if (!hy_tensor_is_contiguous(values))
    p.step = values->stride[0] * (int64_t)hy_dtype_size(values->dtype);
  if (p.out != x->data) memcpy(p.out, x->data, hy_tensor_bytes(x));
  if (ascends(&p, count))
    hy__each_range(count, p.bytes, put_rows, &p);
  else
    put_rows(&p, 0, count);
  return HY_OK;
}

// ---- the gradient of an embedding ----

// For each row of the table the first id that names it, and for each id the next one of its row.
typedef struct grads {
  const hy__cpu_kernels* kernels;
  hy__slices dy, out;
  const int64_t *first, *next;
  atomic_bool no_memory;
} grads;

static void sum_slopes(void* context, int64_t begin, int64_t end) {
  grads* s = context;
  int64_t n = s->out.n;
  float* row = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)n * 2 * sizeof *row);
  if (!row) {
    atomic_store(&s->no_memory, true);
    return;
  }
  for (int64_t r = begin; r < end; r++) {
    float* out = hy__slice_target(&s->out, r, row);
    memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t i = s->first[r]; i >= 0; i = s->next[i]) {
      const void* in[2] = {out, hy__slice_read(s->kernels, &s->dy, i, row + n)};
      s->kernels->rows->add[HY__ROW_F32](n, in, 1, 0, out, false);
    }
    hy__slice_write(s->kernels, &s->out, r, out);
  }
}

static hy_status run_slopes(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *ids = &call->in[1], *out = &call->out[0];
  int64_t rows = out->shape[0], n = hy_tensor_numel(ids);
  HY_TRY(check(call, ids, 0, rows, false));
  int64_t* first = hy__malloc((size_t)(rows + n) * sizeof *first);
  if (!first) return hy__cpu_no_memory(call);
  int64_t* next = first + rows;
  for (int64_t r = 0; r < rows; r++) first[r] = -1;
  for (int64_t i = n - 1; i >= 0; i--) {
    int64_t id = index_at(ids, i);
    if (id == call->attrs.rows.padding_index) continue;
    next[i] = first[id];
    first[id] = i;
  }
  grads s = {.kernels = kernels, .first = first, .next = next};
  hy__slices_init(&s.dy, dy, dy->ndim - 1, 1);
  hy__slices_init(&s.out, out, 1, 1);
  hy__each_range(rows, s.out.n, sum_slopes, &s);
  hy__mfree(first);
  return atomic_load(&s.no_memory) ? hy__cpu_no_memory(call) : HY_OK;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  if (call->op == HY_OP_embedding_backward) return run_slopes(kernels, call);
  return call->op == HY_OP_index_put ? run_put(call) : run_pick(call);
}

static hy_support supports_put(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *values = &call->in[1];
  if (call->attrs.accumulate.accumulate) return HY_SUPPORT_NO_ATTRIBUTE;
  if (call->n_in != 3 || call->in[2].dtype == HY_NONE || x->shape[0] == 0)
    return HY_SUPPORT_NO_SHAPE;
  int64_t row = hy_tensor_numel(x) / x->shape[0];
  int64_t count = hy_tensor_numel(&call->in[2]);
  if (hy_tensor_numel(values) != row * count) return HY_SUPPORT_NO_SHAPE;
  if (hy_tensor_is_contiguous(values)) return HY_SUPPORT_YES;
  return values->shape[0] == count && has_rows(values) ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

static hy_support supports(const hy_call* call) {
  for (int i = 0; i < call->n_in; i++) {
    if (call->in[i].dtype == HY_NONE) return HY_SUPPORT_NO_SHAPE;  // an absent index
    bool put = call->op == HY_OP_index_put && i == 1;
    if (!put && !hy_tensor_is_contiguous(&call->in[i])) return HY_SUPPORT_NO_LAYOUT;
  }
  if (!hy_tensor_is_contiguous(&call->out[0])) return HY_SUPPORT_NO_LAYOUT;
  return call->op == HY_OP_index_put ? supports_put(call) : HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_index = {supports, run};
