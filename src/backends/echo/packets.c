// Packets under construction: operands, and loops over the dimensions that a command does not have.
#include "backends/echo/packets.h"

#include <string.h>

// More than this for one call means that the layout does not suit the hardware.
#define MOST_PACKETS 4096

void hy__echo_begin(hy__echo_batch* batch, hy__echo_stream* stream, hy_op op) {
  batch->stream = stream;
  batch->op = op;
  batch->status = HY_OK;
  batch->total = batch->count = 0;
  if (stream) stream->scratch.used = 0;
}

static void flush(hy__echo_batch* batch) {
  if (batch->status == HY_OK && batch->count)
    batch->status = hy__echo_submit(batch->stream, batch->op, batch->packets, batch->count);
  batch->count = 0;
}

hy_status hy__echo_end(hy__echo_batch* batch) {
  flush(batch);
  return batch->status;
}

// A REPEAT and its command go to the device together.
static hy_support add(hy__echo_batch* batch, const echo_npu_packet* packets, size_t count) {
  batch->total += count;
  if (batch->total > MOST_PACKETS) return HY_SUPPORT_NO_LAYOUT;
  if (!batch->stream || batch->status != HY_OK) return HY_SUPPORT_YES;
  if (batch->count + count > HY__ECHO_BATCH) flush(batch);
  memcpy(batch->packets + batch->count, packets, count * sizeof *packets);
  batch->count += count;
  return HY_SUPPORT_YES;
}

// ---- Operands ----

uint32_t hy__echo_size(uint32_t type) {
  return type == ECHO_NPU_BF16 ? 2 : type == ECHO_NPU_I8 ? 1 : 4;
}

static uint64_t address(hy__echo_batch* batch, const void* pointer) {
  uint64_t at = 0;
  int owner = 0;
  if (!batch->stream || batch->status != HY_OK) return 0;
  echoNpuError error = echoNpuGetAddress(pointer, &owner, &at);
  if (error != ECHO_NPU_SUCCESS)
    batch->status = hy__echo_fail(error, hy__backend_host->op_name(batch->op));
  else if (owner != batch->stream->device->index)
    batch->status = hy__backend_host->fail(
        HY_INVALID_ARGUMENT, "echo: %s: %p is memory of device %d, the stream is of device %d",
        hy__backend_host->op_name(batch->op), pointer, owner, batch->stream->device->index);
  return at;
}

static hy_support view(hy__echo_batch* batch, const hy_tensor* t, uint32_t type,
                       hy__echo_operand* operand) {
  if (t->layout != HY_LAYOUT_STRIDED) return HY_SUPPORT_NO_LAYOUT;
  bool empty = false;
  operand->type = type;
  operand->ndim = t->ndim;
  for (int d = 0; d < t->ndim; d++) {
    operand->shape[d] = t->shape[d];
    operand->stride[d] = t->shape[d] == 1 ? 0 : t->stride[d];
    empty |= t->shape[d] == 0;
    if (operand->stride[d] < 0) return HY_SUPPORT_NO_LAYOUT;
    if (t->shape[d] > ECHO_NPU_MAX_DIM) return HY_SUPPORT_NO_SHAPE;
  }
  operand->at = empty ? 0 : address(batch, t->data);
  return HY_SUPPORT_YES;
}

hy_support hy__echo_number(hy__echo_batch* batch, const hy_tensor* t, hy__echo_operand* operand) {
  switch (t->dtype) {
    case HY_F32: return view(batch, t, ECHO_NPU_F32, operand);
    case HY_BF16: return view(batch, t, ECHO_NPU_BF16, operand);
    case HY_I8: return view(batch, t, ECHO_NPU_I8, operand);
    case HY_I32: return view(batch, t, ECHO_NPU_I32, operand);
    default: return HY_SUPPORT_NO_DTYPE;
  }
}

hy_support hy__echo_float(hy__echo_batch* batch, const hy_tensor* t, hy__echo_operand* operand) {
  if (t->dtype != HY_F32 && t->dtype != HY_BF16) return HY_SUPPORT_NO_DTYPE;
  return hy__echo_number(batch, t, operand);
}

hy_support hy__echo_words(hy__echo_batch* batch, const hy_tensor* t, hy__echo_operand* operand) {
  switch (t->dtype) {
    case HY_I8:
    case HY_U8:
    case HY_BOOL:
    case HY_F8E4M3:
    case HY_F8E5M2: return view(batch, t, ECHO_NPU_I8, operand);
    case HY_I16:
    case HY_F16:
    case HY_BF16: return view(batch, t, ECHO_NPU_BF16, operand);
    case HY_F32:
    case HY_I32: return view(batch, t, ECHO_NPU_I32, operand);
    case HY_F64:
    case HY_I64: {
      HY__ECHO_NEED(view(batch, t, ECHO_NPU_I32, operand));
      for (int d = 0; d < t->ndim; d++) operand->stride[d] *= 2;
      operand->shape[operand->ndim] = 2;
      operand->stride[operand->ndim++] = 1;
      return HY_SUPPORT_YES;
    }
    default: return HY_SUPPORT_NO_DTYPE;
  }
}

static void make_contiguous(hy__echo_operand* operand) {
  int64_t step = 1;
  for (int d = operand->ndim - 1; d >= 0; d--) {
    operand->stride[d] = step;
    step *= operand->shape[d];
  }
}

hy__echo_operand hy__echo_temporary(hy__echo_batch* batch, uint32_t type, int ndim,
                                    const int64_t* shape) {
  hy__echo_operand operand = {.type = type, .ndim = ndim};
  for (int d = 0; d < ndim; d++) operand.shape[d] = shape[d];
  make_contiguous(&operand);
  void* memory = NULL;
  if (batch->stream && batch->status == HY_OK)
    batch->status = hy__echo_scratch_take(
        batch->stream, (size_t)hy__echo_numel(&operand) * hy__echo_size(type), &memory);
  if (memory) operand.at = address(batch, memory);
  return operand;
}

int64_t hy__echo_numel(const hy__echo_operand* operand) {
  int64_t n = 1;
  for (int d = 0; d < operand->ndim; d++) n *= operand->shape[d];
  return n;
}

hy__echo_operand hy__echo_expand(const hy__echo_operand* operand, int ndim, const int64_t* shape) {
  hy__echo_operand wide = {.at = operand->at, .type = operand->type, .ndim = ndim};
  int missing = ndim - operand->ndim;
  for (int d = 0; d < ndim; d++) {
    bool repeats = d < missing || operand->shape[d - missing] == 1;
    wide.shape[d] = shape[d];
    wide.stride[d] = repeats ? 0 : operand->stride[d - missing];
  }
  return wide;
}

hy__echo_operand hy__echo_select(const hy__echo_operand* operand, int dim, int64_t index) {
  hy__echo_operand rest = *operand;
  rest.at += (uint64_t)(index * operand->stride[dim]) * hy__echo_size(operand->type);
  rest.ndim--;
  for (int d = dim; d < rest.ndim; d++) {
    rest.shape[d] = rest.shape[d + 1];
    rest.stride[d] = rest.stride[d + 1];
  }
  return rest;
}

hy__echo_operand hy__echo_slice(const hy__echo_operand* operand, int dim, int64_t start,
                                int64_t count) {
  hy__echo_operand part = *operand;
  part.at += (uint64_t)(start * operand->stride[dim]) * hy__echo_size(operand->type);
  part.shape[dim] = count;
  return part;
}

// The dimensions outside `mask`, then those in it.
static hy__echo_operand reorder(const hy__echo_operand* operand, uint32_t mask, int* kept) {
  hy__echo_operand moved = {.at = operand->at, .type = operand->type};
  for (int in_mask = 0; in_mask < 2; in_mask++) {
    for (int d = 0; d < operand->ndim; d++) {
      if ((int)(mask >> d & 1) != in_mask) continue;
      moved.shape[moved.ndim] = operand->shape[d];
      moved.stride[moved.ndim++] = operand->stride[d];
    }
    if (!in_mask) *kept = moved.ndim;
  }
  return moved;
}

bool hy__echo_slices(const hy__echo_operand* operand, uint32_t mask, hy__echo_operand* slices) {
  int kept;
  *slices = reorder(operand, mask, &kept);
  int64_t length = 1;
  for (int d = slices->ndim - 1; d >= kept; d--) {
    if (slices->shape[d] != 1 && slices->stride[d] != length) return false;
    length *= slices->shape[d];
  }
  slices->ndim = kept + 1;
  slices->shape[kept] = length;
  slices->stride[kept] = 1;
  return true;
}

hy_support hy__echo_pack_slices(hy__echo_batch* batch, const hy__echo_operand* operand,
                                uint32_t mask, hy__echo_operand* slices) {
  if (hy__echo_slices(operand, mask, slices)) return HY_SUPPORT_YES;
  int kept;
  hy__echo_operand moved = reorder(operand, mask, &kept);
  hy__echo_operand packed = hy__echo_temporary(batch, moved.type, moved.ndim, moved.shape);
  HY__ECHO_NEED(hy__echo_copy(batch, &packed, &moved));
  uint32_t last = ((1u << (moved.ndim - kept)) - 1) << kept;
  hy__echo_slices(&packed, last, slices);
  return HY_SUPPORT_YES;
}

// ---- Loops ----

enum { SRC1, SRC2, DST };

// Loops around a command, outermost first, with the steps of its three operands in elements.
typedef struct loops {
  int n;
  int64_t count[HY_MAX_DIMS + 1], step[3][HY_MAX_DIMS + 1];
} loops;

// The first `ndim` dimensions of operands of one shape: those of size 1 left out, in the order in
// of dst in memory, joined where that is the same walk for all. An operand may be NULL.
static loops loops_over(int ndim, const hy__echo_operand* dst, const hy__echo_operand* x,
                        const hy__echo_operand* y) {
  loops l = {.n = 0};
  for (int d = 0; d < ndim; d++) {
    if (dst->shape[d] == 1) continue;
    int64_t step[3] = {x ? x->stride[d] : 0, y ? y->stride[d] : 0, dst->stride[d]};
    int at = l.n++;
    for (; at > 0 && l.step[DST][at - 1] < step[DST]; at--) {
      l.count[at] = l.count[at - 1];
      for (int k = 0; k < 3; k++) l.step[k][at] = l.step[k][at - 1];
    }
    l.count[at] = dst->shape[d];
    for (int k = 0; k < 3; k++) l.step[k][at] = step[k];
  }
  int n = 0;
  for (int d = 0; d < l.n; d++) {
    bool joins = n > 0 && l.count[n - 1] * l.count[d] <= ECHO_NPU_MAX_DIM;
    for (int k = 0; k < 3 && joins; k++) joins = l.step[k][n - 1] == l.step[k][d] * l.count[d];
    int to = joins ? n - 1 : n++;
    l.count[to] = joins ? l.count[to] * l.count[d] : l.count[d];
    for (int k = 0; k < 3; k++) l.step[k][to] = l.step[k][d];
  }
  l.n = n;
  return l;
}

typedef struct loop {
  int64_t count, step[3];
} loop;

// Takes the innermost loop off, for the command to do itself.
static loop peel(loops* l) {
  if (l->n == 0) return (loop){1, {0, 0, 0}};
  int d = --l->n;
  return (loop){l->count[d], {l->step[SRC1][d], l->step[SRC2][d], l->step[DST][d]}};
}

static bool fits(int64_t count, const int64_t step[3]) {
  return count <= ECHO_NPU_MAX_DIM && step[0] <= ECHO_NPU_MAX_STRIDE &&
         step[1] <= ECHO_NPU_MAX_STRIDE && step[2] <= ECHO_NPU_MAX_STRIDE;
}

// Writes the command for every turn of the loops: two by REPEAT, the rest here. `size` holds the
// bytes of an element of each operand; 0 for one that the command does not use.
static hy_support emit(hy__echo_batch* batch, echo_npu_packet command, const uint32_t size[3],
                       loops* l) {
  loop inner = peel(l), outer = peel(l);
  if (!fits(inner.count, inner.step) || !fits(outer.count, outer.step)) return HY_SUPPORT_NO_LAYOUT;
  echo_npu_packet pair[2] = {{.opcode = ECHO_NPU_OP_REPEAT}};
  pair[0].param[ECHO_NPU_P_OUTER] = (uint32_t)outer.count;
  pair[0].param[ECHO_NPU_P_INNER] = (uint32_t)inner.count;
  for (int k = 0; k < 3; k++) {
    pair[0].param[ECHO_NPU_P_OUTER + 1 + k] = size[k] ? (uint32_t)outer.step[k] : 0;
    pair[0].param[ECHO_NPU_P_INNER + 1 + k] = size[k] ? (uint32_t)inner.step[k] : 0;
  }
  int64_t turns = 1;
  for (int d = 0; d < l->n; d++) {
    turns *= l->count[d];
    if (turns > MOST_PACKETS) return HY_SUPPORT_NO_LAYOUT;
  }
  bool once = outer.count == 1 && inner.count == 1;
  for (int64_t turn = 0; turn < turns; turn++) {
    int64_t rest = turn, offset[3] = {0, 0, 0};
    for (int d = l->n - 1; d >= 0; d--) {
      for (int k = 0; k < 3; k++) offset[k] += rest % l->count[d] * l->step[k][d];
      rest /= l->count[d];
    }
    pair[1] = command;
    pair[1].src1 += (uint64_t)offset[SRC1] * size[SRC1];
    pair[1].src2 += (uint64_t)offset[SRC2] * size[SRC2];
    pair[1].dst += (uint64_t)offset[DST] * size[DST];
    HY__ECHO_NEED(add(batch, once ? pair + 1 : pair, once ? 1 : 2));
  }
  return HY_SUPPORT_YES;
}

// ---- Copies ----

// Takes rows and columns off the loops, as far as the hardware accepts them as disjoint.
static hy_support two_dims(loops* l, loop* rows, loop* cols) {
  *cols = peel(l);
  *rows = (loop){1, {0, 0, 0}};
  if (l->n > 0) {
    int64_t r = l->step[DST][l->n - 1], c = cols->step[DST];
    bool disjoint =
        cols->count == 1 || r >= (cols->count - 1) * c + 1 || c >= (l->count[l->n - 1] - 1) * r + 1;
    if (disjoint) *rows = peel(l);
  }
  return fits(rows->count, rows->step) && fits(cols->count, cols->step) ? HY_SUPPORT_YES
                                                                        : HY_SUPPORT_NO_LAYOUT;
}

hy_support hy__echo_copy(hy__echo_batch* batch, const hy__echo_operand* dst,
                         const hy__echo_operand* src) {
  if (hy__echo_numel(dst) == 0) return HY_SUPPORT_YES;
  loops l = loops_over(dst->ndim, dst, src, NULL);
  loop rows, cols;
  HY__ECHO_NEED(two_dims(&l, &rows, &cols));
  uint32_t size = hy__echo_size(dst->type);
  echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_COPY,
      .flags = dst->type << ECHO_NPU_FLAG_T1_SHIFT | dst->type << ECHO_NPU_FLAG_TD_SHIFT,
      .src1 = src->at,
      .dst = dst->at,
      .param = {(uint32_t)rows.count, (uint32_t)cols.count, (uint32_t)rows.step[SRC1],
                (uint32_t)cols.step[SRC1], (uint32_t)rows.step[DST], (uint32_t)cols.step[DST]}};
  return emit(batch, p, (uint32_t[]){size, 0, size}, &l);
}

hy_support hy__echo_fill(hy__echo_batch* batch, const hy__echo_operand* dst, uint32_t pattern) {
  if (hy__echo_numel(dst) == 0) return HY_SUPPORT_YES;
  loops l = loops_over(dst->ndim, dst, NULL, NULL);
  loop rows, cols;
  HY__ECHO_NEED(two_dims(&l, &rows, &cols));
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_FILL,
                       .flags = dst->type << ECHO_NPU_FLAG_TD_SHIFT,
                       .dst = dst->at,
                       .param = {(uint32_t)rows.count, (uint32_t)cols.count, 0, 0,
                                 (uint32_t)rows.step[DST], (uint32_t)cols.step[DST], pattern}};
  return emit(batch, p, (uint32_t[]){0, 0, hy__echo_size(dst->type)}, &l);
}

static uint32_t bits(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return word;
}

hy__echo_operand hy__echo_constant(hy__echo_batch* batch, float value) {
  hy__echo_operand c = hy__echo_temporary(batch, ECHO_NPU_F32, 0, NULL);
  hy__echo_fill(batch, &c, bits(value));
  return c;
}

static uint32_t index_size(bool index64) {
  return index64 ? 8 : 4;
}

hy_support hy__echo_gather(hy__echo_batch* batch, const hy__echo_operand* out,
                           const hy__echo_operand* table, const hy__echo_operand* index,
                           bool index64) {
  int64_t outer = out->shape[0], rows = out->shape[1], cols = out->shape[2];
  if (rows > ECHO_NPU_MAX_DIM || cols > ECHO_NPU_MAX_DIM) return HY_SUPPORT_NO_SHAPE;
  loops l = {.n = 1, .count = {outer}, .step = {{table->stride[0]}, {0}, {out->stride[0]}}};
  uint32_t size = hy__echo_size(out->type);
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_GATHER,
                       .flags = out->type << ECHO_NPU_FLAG_T1_SHIFT |
                                out->type << ECHO_NPU_FLAG_TD_SHIFT |
                                (index64 ? ECHO_NPU_FLAG_INDEX64 : 0),
                       .src1 = table->at,
                       .src2 = index->at,
                       .dst = out->at,
                       .param = {(uint32_t)rows, (uint32_t)cols, (uint32_t)table->stride[1], 0,
                                 (uint32_t)out->stride[1], (uint32_t)table->shape[1]}};
  return emit(batch, p, (uint32_t[]){size, index_size(index64), size}, &l);
}

hy_support hy__echo_scatter_add(hy__echo_batch* batch, const hy__echo_operand* table,
                                const hy__echo_operand* x, const hy__echo_operand* index,
                                bool index64) {
  loops l = {.n = 0};
  echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_SCATTER_ADD,
      .flags = x->type << ECHO_NPU_FLAG_T1_SHIFT | table->type << ECHO_NPU_FLAG_TD_SHIFT |
               (index64 ? ECHO_NPU_FLAG_INDEX64 : 0),
      .src1 = x->at,
      .src2 = index->at,
      .dst = table->at,
      .param = {(uint32_t)x->shape[0], (uint32_t)x->shape[1], (uint32_t)x->stride[0], 0,
                (uint32_t)table->stride[0], (uint32_t)table->shape[0]}};
  return emit(batch, p, (uint32_t[]){4, index_size(index64), 4}, &l);
}

// ---- Vector commands ----

static hy_support vector(hy__echo_batch* batch, uint32_t function, uint32_t flags, float alpha,
                         uint32_t beta, const hy__echo_operand* dst, const hy__echo_operand* x,
                         const hy__echo_operand* y, int64_t cols, const loop* rows, loops* l) {
  if (!fits(rows->count, rows->step) || cols > ECHO_NPU_MAX_DIM) return HY_SUPPORT_NO_LAYOUT;
  echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_VECTOR,
      .flags = flags | function << ECHO_NPU_FLAG_FN_SHIFT | x->type << ECHO_NPU_FLAG_T1_SHIFT |
               (y ? y->type : 0) << ECHO_NPU_FLAG_T2_SHIFT | dst->type << ECHO_NPU_FLAG_TD_SHIFT,
      .src1 = x->at,
      .src2 = y ? y->at : 0,
      .dst = dst->at,
      .param = {(uint32_t)rows->count, (uint32_t)cols, (uint32_t)rows->step[SRC1],
                y ? (uint32_t)rows->step[SRC2] : 0, (uint32_t)rows->step[DST], bits(alpha), beta}};
  return emit(batch, p,
              (uint32_t[]){hy__echo_size(x->type), y ? hy__echo_size(y->type) : 0,
                           hy__echo_size(dst->type)},
              l);
}

// Columns are consecutive in x and dst, and in y or one for the row; where no dimension is like
// that, every element is a row.
static hy_support map(hy__echo_batch* batch, uint32_t function, uint32_t flags, float alpha,
                      float beta, const hy__echo_operand* dst, const hy__echo_operand* x,
                      const hy__echo_operand* y) {
  if (hy__echo_numel(dst) == 0) return HY_SUPPORT_YES;
  hy__echo_operand wide_x = hy__echo_expand(x, dst->ndim, dst->shape), wide_y;
  if (y) wide_y = hy__echo_expand(y, dst->ndim, dst->shape);
  const hy__echo_operand *first = &wide_x, *second = y ? &wide_y : NULL;
  loops l = loops_over(dst->ndim, dst, first, second);
  if (l.n > 0 && y && l.step[SRC1][l.n - 1] == 0 && l.step[SRC2][l.n - 1] == 1) {
    first = &wide_y;
    second = &wide_x;
    flags |= ECHO_NPU_FLAG_SWAP;
    l = loops_over(dst->ndim, dst, first, second);
  }
  int64_t cols = 1;
  if (l.n > 0 && l.step[DST][l.n - 1] == 1 && l.step[SRC1][l.n - 1] == 1 &&
      (!y || l.step[SRC2][l.n - 1] <= 1)) {
    loop columns = peel(&l);
    cols = columns.count;
    if (y && columns.step[SRC2] == 0) flags |= ECHO_NPU_FLAG_SRC2_BCAST;
  }
  loop rows = peel(&l);
  return vector(batch, function, flags, alpha, bits(beta), dst, first, second, cols, &rows, &l);
}

hy_support hy__echo_map(hy__echo_batch* batch, uint32_t function, float alpha, float beta,
                        const hy__echo_operand* dst, const hy__echo_operand* x,
                        const hy__echo_operand* y) {
  return map(batch, function, 0, alpha, beta, dst, x, y);
}

hy_support hy__echo_map_number(hy__echo_batch* batch, uint32_t function, float immediate,
                               bool swapped, const hy__echo_operand* dst,
                               const hy__echo_operand* x) {
  uint32_t flags = ECHO_NPU_FLAG_SRC2_IMM | (swapped ? ECHO_NPU_FLAG_SWAP : 0);
  return map(batch, function, flags, immediate, 0, dst, x, NULL);
}

hy_support hy__echo_rows(hy__echo_batch* batch, const hy__echo_row_function* f,
                         const hy__echo_operand* dst, const hy__echo_operand* x,
                         const hy__echo_operand* y) {
  int lead = x->ndim - 1;
  hy__echo_operand wide;
  if (y) wide = hy__echo_expand(y, x->ndim, x->shape);
  if (x->shape[lead] > 1 && y && wide.stride[lead] != 1) return HY_SUPPORT_NO_LAYOUT;
  // A causal count goes by row: the rows of a matrix are one command, never joined with others.
  bool causal = f->flags & ECHO_NPU_FLAG_CAUSAL;
  loops l = loops_over(causal ? lead - 1 : lead, dst, x, y ? &wide : NULL);
  loop rows =
      causal ? (loop){x->shape[lead - 1],
                      {x->stride[lead - 1], y ? wide.stride[lead - 1] : 0, dst->stride[lead - 1]}}
             : peel(&l);
  // ROPE takes half of a row as its columns.
  bool halves = f->function == ECHO_NPU_FN_ROPE || f->function == ECHO_NPU_FN_ROPE_BWD;
  int64_t cols = halves ? x->shape[lead] / 2 : x->shape[lead];
  uint32_t beta = causal ? f->causal : bits(f->beta);
  return vector(batch, f->function, f->flags, f->alpha, beta, dst, x, y ? &wide : NULL, cols, &rows,
                &l);
}

// ---- Matrix products ----

typedef struct matrix {
  int64_t rows, cols, row_step, col_step;
} matrix;

static matrix matrix_of(const hy__echo_operand* t) {
  int d = t->ndim - 2;
  return (matrix){t->shape[d], t->shape[d + 1], t->stride[d], t->stride[d + 1]};
}

static matrix transposed(matrix m) {
  return (matrix){m.cols, m.rows, m.col_step, m.row_step};
}

// The stride between rows of a matrix as it is or transposed; false where neither has consecutive
// columns.
static bool leading(const matrix* m, int64_t* stride, bool* transpose) {
  *transpose = !(m->col_step == 1 || m->cols == 1);
  *stride = *transpose ? m->col_step : m->row_step;
  return (!*transpose || m->row_step == 1 || m->rows == 1) && *stride <= ECHO_NPU_MAX_STRIDE;
}

hy_support hy__echo_matmul(hy__echo_batch* batch, bool accumulate, const hy__echo_operand* c,
                           const hy__echo_operand* a, const hy__echo_operand* b) {
  matrix mc = matrix_of(c), ma = matrix_of(a), mb = matrix_of(b);
  // Of a result that is transposed, the transpose is computed: b^T a^T.
  if (mc.cols > 1 && mc.col_step != 1) {
    if (mc.rows > 1 && mc.row_step != 1) return HY_SUPPORT_NO_LAYOUT;
    const hy__echo_operand* other = a;
    a = b;
    b = other;
    matrix was = ma;
    mc = transposed(mc);
    ma = transposed(mb);
    mb = transposed(was);
  }
  int64_t lda, ldb;
  bool trans_a, trans_b;
  if (!leading(&ma, &lda, &trans_a) || !leading(&mb, &ldb, &trans_b) ||
      mc.row_step > ECHO_NPU_MAX_STRIDE || ma.cols > ECHO_NPU_MAX_DIM)
    return HY_SUPPORT_NO_LAYOUT;
  loops l = loops_over(c->ndim - 2, c, a, b);
  echo_npu_packet p = {
      .opcode = ECHO_NPU_OP_MATMUL,
      .flags = a->type << ECHO_NPU_FLAG_T1_SHIFT | b->type << ECHO_NPU_FLAG_T2_SHIFT |
               c->type << ECHO_NPU_FLAG_TD_SHIFT | (trans_a ? ECHO_NPU_FLAG_TRANS_A : 0) |
               (trans_b ? ECHO_NPU_FLAG_TRANS_B : 0) | (accumulate ? ECHO_NPU_FLAG_ACCUMULATE : 0),
      .src1 = a->at,
      .src2 = b->at,
      .dst = c->at,
      .param = {(uint32_t)mc.rows, (uint32_t)mc.cols, (uint32_t)lda, (uint32_t)ldb,
                (uint32_t)mc.row_step, (uint32_t)ma.cols}};
  return emit(batch, p,
              (uint32_t[]){hy__echo_size(a->type), hy__echo_size(b->type), hy__echo_size(c->type)},
              &l);
}
