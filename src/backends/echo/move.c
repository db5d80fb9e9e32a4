// Moving without arithmetic, by the copy engine: copies, joins, fills, lookups.
#include <string.h>

#include "backends/echo/packets.h"

static bool same_place(const hy__echo_operand* a, const hy__echo_operand* b) {
  if (a->at != b->at) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->stride[d] != b->stride[d]) return false;
  return true;
}

// Whether the vector unit converts exactly as a cast does: to floats, from what f32 holds.
static bool converts(hy_dtype from, hy_dtype to) {
  if (to == HY_F32) return from == HY_BF16 || from == HY_I8 || from == HY_I32;
  return to == HY_BF16 && (from == HY_F32 || from == HY_I8);
}

// copy, clone, cast
hy_support hy__echo_move(hy__echo_batch* batch, const hy_call* call) {
  const hy_tensor *to = &call->out[0], *from = &call->in[0];
  hy__echo_operand out, x;
  // A cast to one type may be stored in another.
  if (call->op == HY_OP_cast && call->attrs.cast.dtype != to->dtype) return HY_SUPPORT_NO_DTYPE;
  if (to->dtype != from->dtype) {
    if (!converts(from->dtype, to->dtype)) return HY_SUPPORT_NO_DTYPE;
    HY__ECHO_NEED(hy__echo_number(batch, to, &out));
    HY__ECHO_NEED(hy__echo_number(batch, from, &x));
    return hy__echo_map(batch, ECHO_NPU_FN_MOVE, 0, 0, &out, &x, NULL);
  }
  HY__ECHO_NEED(hy__echo_words(batch, to, &out));
  HY__ECHO_NEED(hy__echo_words(batch, from, &x));
  x = hy__echo_expand(&x, out.ndim, out.shape);
  if (batch->stream && same_place(&out, &x)) return HY_SUPPORT_YES;
  return hy__echo_copy(batch, &out, &x);
}

// The reference makes the bits of one element, as every type has its own rounding.
hy_support hy__echo_fill_op(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out;
  HY__ECHO_NEED(hy__echo_words(batch, &call->out[0], &out));
  uint32_t word[2] = {0, 0};
  hy_tensor one = {.data = word, .dtype = call->out[0].dtype};
  hy_call single = {.op = HY_OP_fill, .n_out = 1, .out = &one, .attrs = call->attrs};
  if (batch->stream && batch->status == HY_OK) batch->status = hy__backend_host->reference(&single);
  if (call->out[0].dtype != HY_F64 && call->out[0].dtype != HY_I64)
    return hy__echo_fill(batch, &out, word[0]);
  for (int half = 0; half < 2; half++) {
    hy__echo_operand words = hy__echo_select(&out, out.ndim - 1, half);
    HY__ECHO_NEED(hy__echo_fill(batch, &words, word[half]));
  }
  return HY_SUPPORT_YES;
}

// cat, stack
hy_support hy__echo_join(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x;
  HY__ECHO_NEED(hy__echo_words(batch, &call->out[0], &out));
  int dim = (int)call->attrs.dim.dim;
  if (dim < 0) dim += call->out[0].ndim;
  int64_t start = 0;
  for (int i = 0; i < call->n_in; i++) {
    if (call->in[i].dtype != call->out[0].dtype) return HY_SUPPORT_NO_DTYPE;
    HY__ECHO_NEED(hy__echo_words(batch, &call->in[i], &x));
    // cat leaves out empty vectors, whatever the shape of the others.
    if (hy__echo_numel(&x) == 0) continue;
    hy__echo_operand part = call->op == HY_OP_stack
                                ? hy__echo_select(&out, dim, i)
                                : hy__echo_slice(&out, dim, start, x.shape[dim]);
    HY__ECHO_NEED(hy__echo_copy(batch, &part, &x));
    if (call->op == HY_OP_cat) start += x.shape[dim];
  }
  return HY_SUPPORT_YES;
}

// ---- Lookups ----

static uint32_t dims_from(int first, int ndim) {
  return ((1u << ndim) - 1) & ~((1u << first) - 1);
}

// Indices as one contiguous list.
static hy_support index_list(hy__echo_batch* batch, const hy_tensor* t, hy__echo_operand* list,
                             bool* index64) {
  *index64 = t->dtype == HY_I64;
  if (t->dtype != HY_I64 && t->dtype != HY_I32) return HY_SUPPORT_NO_DTYPE;
  hy__echo_operand words;
  HY__ECHO_NEED(hy__echo_words(batch, t, &words));
  return hy__echo_pack_slices(batch, &words, dims_from(0, words.ndim), list);
}

// [count, cols] of what may have more dimensions, which must be one list of rows.
static bool rows_of(const hy__echo_operand* t, int lead, hy__echo_operand* rows) {
  hy__echo_operand slices;
  if (!hy__echo_slices(t, dims_from(lead, t->ndim), &slices)) return false;
  int64_t count = 1, step = 0;
  for (int d = lead - 1; d >= 0; d--) {
    if (slices.shape[d] == 1) continue;
    if (count == 1)
      step = slices.stride[d];
    else if (slices.stride[d] != step * count)
      return false;
    count *= slices.shape[d];
  }
  *rows = (hy__echo_operand){.at = t->at,
                             .type = t->type,
                             .ndim = 2,
                             .shape = {count, slices.shape[lead]},
                             .stride = {step, 1}};
  return step <= ECHO_NPU_MAX_STRIDE;
}

static hy__echo_operand with_outer(const hy__echo_operand* rows) {
  return (hy__echo_operand){.at = rows->at,
                            .type = rows->type,
                            .ndim = 3,
                            .shape = {1, rows->shape[0], rows->shape[1]},
                            .stride = {0, rows->stride[0], 1}};
}

hy_support hy__echo_embedding(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, table, index, rows;
  bool index64;
  HY__ECHO_NEED(hy__echo_words(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_words(batch, &call->in[0], &table));
  if (call->out[0].dtype != call->in[0].dtype) return HY_SUPPORT_NO_DTYPE;
  // Where the table is empty and the ids are not, the fallback finds the words for it.
  bool nothing = hy__echo_numel(&out) == 0;
  if (nothing && hy_tensor_numel(&call->in[1]) > 0) return HY_SUPPORT_NO_SHAPE;
  if (nothing) return HY_SUPPORT_YES;
  HY__ECHO_NEED(index_list(batch, &call->in[1], &index, &index64));
  hy__echo_operand flat;
  if (!rows_of(&out, call->in[1].ndim, &flat) || !rows_of(&table, 1, &rows))
    return HY_SUPPORT_NO_LAYOUT;
  if (flat.shape[0] > ECHO_NPU_MAX_DIM) return HY_SUPPORT_NO_SHAPE;
  hy__echo_operand to = with_outer(&flat), from = with_outer(&rows);
  return hy__echo_gather(batch, &to, &from, &index, index64);
}

// Rows of the padding index are added up like the others and cleared at the end.
hy_support hy__echo_embedding_backward(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand table, dy, index, rows;
  bool index64;
  if (call->out[0].dtype != HY_F32 || call->in[0].dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &table));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &dy));
  HY__ECHO_NEED(index_list(batch, &call->in[1], &index, &index64));
  if (hy__echo_numel(&table) == 0 && hy__echo_numel(&dy) > 0) return HY_SUPPORT_NO_SHAPE;
  HY__ECHO_NEED(hy__echo_fill(batch, &table, 0));
  if (hy__echo_numel(&dy) == 0) return HY_SUPPORT_YES;
  hy__echo_operand flat;
  if (!rows_of(&dy, call->in[1].ndim, &flat) || !rows_of(&table, 1, &rows) ||
      (rows.shape[0] > 1 && rows.stride[0] < rows.shape[1]))
    return HY_SUPPORT_NO_LAYOUT;
  if (flat.shape[0] > ECHO_NPU_MAX_DIM) return HY_SUPPORT_NO_SHAPE;
  HY__ECHO_NEED(hy__echo_scatter_add(batch, &rows, &flat, &index, index64));
  int64_t padding = call->attrs.rows.padding_index;
  if (padding < 0 || padding >= rows.shape[0]) return HY_SUPPORT_YES;
  hy__echo_operand cleared = hy__echo_select(&rows, 0, padding);
  return hy__echo_fill(batch, &cleared, 0);
}

// x as [outer, n, inner] around the dimension; outer and inner must each be one walk.
static bool around(const hy__echo_operand* t, int dim, hy__echo_operand* three) {
  hy__echo_operand slices, outer;
  if (!hy__echo_slices(t, dims_from(dim + 1, t->ndim), &slices)) return false;
  hy__echo_operand lead = slices;
  lead.ndim = dim;
  if (!rows_of(&lead, dim, &outer)) return false;
  *three = (hy__echo_operand){.at = t->at,
                              .type = t->type,
                              .ndim = 3,
                              .shape = {outer.shape[0], slices.shape[dim], slices.shape[dim + 1]},
                              .stride = {outer.stride[0], slices.stride[dim], 1}};
  return slices.stride[dim] <= ECHO_NPU_MAX_STRIDE;
}

hy_support hy__echo_index_select(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x, index, to, from;
  bool index64;
  if (call->out[0].dtype != call->in[0].dtype) return HY_SUPPORT_NO_DTYPE;
  HY__ECHO_NEED(hy__echo_words(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_words(batch, &call->in[0], &x));
  // A single element is a vector to index_select.
  if (call->in[0].ndim == 0) return HY_SUPPORT_NO_SHAPE;
  if (hy__echo_numel(&out) == 0 || hy__echo_numel(&x) == 0) return HY_SUPPORT_NO_SHAPE;
  HY__ECHO_NEED(index_list(batch, &call->in[1], &index, &index64));
  int dim = (int)call->attrs.dim.dim;
  if (dim < 0) dim += call->in[0].ndim;
  if (!around(&out, dim, &to) || !around(&x, dim, &from)) return HY_SUPPORT_NO_LAYOUT;
  if (to.shape[1] > 1 && to.stride[1] < to.shape[2]) return HY_SUPPORT_NO_LAYOUT;
  return hy__echo_gather(batch, &to, &from, &index, index64);
}
