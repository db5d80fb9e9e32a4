// Tasks: asking and running a backend's families, calls of plain ops within an op, and the tensors
// between them.
#include "backends/common/task.h"

#include <string.h>

#define NO_ATTRS ((hy_attrs){.words = {0}})

// ---- A provider's supports and run ----

// What no family can do anything about.
static hy_support gate(const hy__task* task, const hy_tensor* t) {
  if (!hy__present(t)) return HY_SUPPORT_YES;
  hy_support answer = task->rules->gate(task->device, t);
  if (answer != HY_SUPPORT_YES || hy_tensor_numel(t) == 0) return answer;
  for (int d = 0; d < t->ndim; d++)
    if (t->stride[d] < 0 && t->shape[d] > 1) return HY_SUPPORT_NO_LAYOUT;
  return HY_SUPPORT_YES;
}

hy_support hy__task_ask(hy__task* task, const hy_call* call) {
  if (call->op <= HY_OP_NONE || call->op >= HY_OP_END || !task->rules->families[call->op])
    return HY_SUPPORT_NO_OP;
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const hy_tensor* t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    hy_support answer = gate(task, t);
    if (answer != HY_SUPPORT_YES) return answer;
  }
  hy_support answer = task->rules->families[call->op](task, call);
  return answer == HY_SUPPORT_YES ? task->answer : answer;
}

hy_status hy__task_run(hy__task* task, const hy_call* call) {
  __atomic_store_n(&task->stream->last_op, call->op, __ATOMIC_RELAXED);
  hy__vendor_arena_reset(&task->stream->arena);
  int before, error = hy__vendor_try_enter(task->device, &before);
  if (error) {
    hy__vendor_leave(task->device, before);
    return task->device->vendor->fail(error, hy__backend_host->op_name(call->op));
  }
  hy_support answer = hy__task_ask(task, call);
  if (task->rules->release) task->rules->release(task);
  hy__vendor_leave(task->device, before);
  if (task->status == HY_OK && answer != HY_SUPPORT_YES)
    return hy__backend_host->fail(HY_INTERNAL, "%s: %s was supported and is not", task->rules->name,
                                  hy__backend_host->op_name(call->op));
  return task->status;
}

// ---- Tensors ----

bool hy__same_types(const hy_call* call) {
  hy_dtype dtype = HY_NONE;
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const hy_tensor* t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    if (t->dtype == HY_NONE) continue;
    if (dtype != HY_NONE && t->dtype != dtype) return false;
    dtype = t->dtype;
  }
  return true;
}

int64_t hy__wrapped_dim(int64_t dim, int ndim) {
  return dim < 0 ? dim + (ndim > 0 ? ndim : 1) : dim;
}

static hy_tensor contiguous_view(void* data, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor t = {.data = data, .dtype = dtype, .ndim = ndim};
  int64_t stride = 1;
  for (int d = ndim - 1; d >= 0; d--) {
    t.shape[d] = shape[d];
    t.stride[d] = stride;
    stride *= shape[d];
  }
  return t;
}

hy_tensor hy__view(const hy_tensor* t, int ndim, const int64_t* shape) {
  return contiguous_view(t->data, t->dtype, ndim, shape);
}

hy_tensor hy__permuted(const hy_tensor* t, const int* dims) {
  hy_tensor view = *t;
  for (int d = 0; d < t->ndim; d++) {
    view.shape[d] = t->shape[dims[d]];
    view.stride[d] = t->stride[dims[d]];
  }
  return view;
}

hy_tensor hy__transposed(const hy_tensor* t) {
  hy_tensor view = *t;
  int a = t->ndim - 2, b = t->ndim - 1;
  view.shape[a] = t->shape[b];
  view.shape[b] = t->shape[a];
  view.stride[a] = t->stride[b];
  view.stride[b] = t->stride[a];
  return view;
}

hy_tensor hy__slice(const hy_tensor* t, int dim, int64_t start, int64_t size) {
  hy_tensor view = *t;
  view.shape[dim] = size;
  if (t->data)
    view.data = (char*)t->data + start * t->stride[dim] * (int64_t)hy_dtype_size(t->dtype);
  return view;
}

hy_tensor hy__widened(const hy_tensor* src, const hy_tensor* dst) {
  hy_tensor wide = *src;
  wide.ndim = dst->ndim;
  for (int d = 0; d < dst->ndim; d++) {
    int from = d - (dst->ndim - src->ndim);
    bool repeats = from < 0 || (src->shape[from] == 1 && dst->shape[d] != 1);
    wide.shape[d] = dst->shape[d];
    wide.stride[d] = repeats ? 0 : src->stride[from];
  }
  return wide;
}

hy_tensor hy__task_temporary(hy__task* task, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor t = contiguous_view(NULL, dtype, ndim, shape);
  if (!task->stream || task->status != HY_OK) return t;
  const hy__vendor* vendor = task->device->vendor;
  int error = 0;
  t.data = hy__vendor_arena_take(vendor, &task->stream->arena, hy_tensor_bytes(&t) + 1, &error);
  if (error) task->status = vendor->fail(error, "memory for a temporary tensor");
  return t;
}

// ---- Calls ----

void hy__task_call(hy__task* task, hy_op op, int n_in, const hy_tensor* in, hy_tensor* out,
                   hy_attrs attrs) {
  if (task->status != HY_OK || task->answer != HY_SUPPORT_YES || hy_tensor_numel(out) == 0) return;
  hy_call call = {.op = op, .n_in = n_in, .n_out = 1, .in = in, .out = out, .attrs = attrs};
  hy_support answer = hy__task_ask(task, &call);
  if (task->answer == HY_SUPPORT_YES) task->answer = answer;
}

void hy__task_unary(hy__task* task, hy_op op, const hy_tensor* x, const hy_tensor* out) {
  hy_tensor to = *out;
  hy__task_call(task, op, 1, x, &to, NO_ATTRS);
}

void hy__task_binary_to(hy__task* task, hy_op op, const hy_tensor* a, const hy_tensor* b,
                        const hy_tensor* out) {
  const hy_tensor in[] = {*a, *b};
  hy_tensor to = *out;
  hy_attrs attrs = NO_ATTRS;
  if (op == HY_OP_add || op == HY_OP_sub) attrs.alpha.alpha = hy_int(1);
  hy__task_call(task, op, 2, in, &to, attrs);
}

void hy__task_where(hy__task* task, const hy_tensor* condition, const hy_tensor* a,
                    const hy_tensor* b, const hy_tensor* out) {
  const hy_tensor in[] = {*condition, *a, *b};
  hy_tensor to = *out;
  hy__task_call(task, HY_OP_where, 3, in, &to, NO_ATTRS);
}

void hy__task_sort(hy__task* task, const hy_tensor* x, const hy_tensor* sorted,
                   const hy_tensor* ids) {
  if (task->status != HY_OK || task->answer != HY_SUPPORT_YES) return;
  hy_tensor out[] = {*sorted, *ids};
  hy_call call = {.op = HY_OP_sort,
                  .n_in = 1,
                  .n_out = 2,
                  .in = x,
                  .out = out,
                  .attrs = {.sort = {x->ndim - 1, true}}};
  hy_support answer = hy__task_ask(task, &call);
  if (task->answer == HY_SUPPORT_YES) task->answer = answer;
}

void hy__task_copy(hy__task* task, const hy_tensor* dst, const hy_tensor* src) {
  hy_tensor to = *dst, from = hy__widened(src, dst);
  bool same = dst->dtype == src->dtype;
  hy__task_call(task, same ? HY_OP_copy : HY_OP_cast, 1, &from, &to,
                same ? NO_ATTRS : (hy_attrs){.cast = {dst->dtype}});
}

static hy_scalar number_for(const hy_tensor* t, double value) {
  return hy_dtype_is_int(t->dtype) ? hy_int((int64_t)value) : hy_float(value);
}

void hy__task_fill(hy__task* task, const hy_tensor* t, hy_scalar value) {
  hy_tensor to = *t;
  hy__task_call(task, HY_OP_fill, 0, NULL, &to, (hy_attrs){.value = {value}});
}

void hy__task_masked_fill(hy__task* task, const hy_tensor* t, const hy_tensor* mask, double value) {
  const hy_tensor in[] = {*t, *mask};
  hy_tensor to = *t;
  hy__task_call(task, HY_OP_masked_fill, 2, in, &to, (hy_attrs){.value = {number_for(t, value)}});
}

void hy__task_scale(hy__task* task, const hy_tensor* t, double factor) {
  hy_tensor to = *t;
  hy__task_call(task, HY_OP_mul_scalar, 1, t, &to, (hy_attrs){.value = {number_for(t, factor)}});
}

void hy__task_shift(hy__task* task, const hy_tensor* t, double term) {
  hy_tensor to = *t;
  hy__task_call(task, HY_OP_add_scalar, 1, t, &to,
                (hy_attrs){.value_alpha = {number_for(t, term), hy_int(1)}});
}

void hy__task_clamp(hy__task* task, const hy_tensor* x, hy_scalar low, hy_scalar high,
                    const hy_tensor* out) {
  hy_tensor to = *out;
  hy__task_call(task, HY_OP_clamp, 1, x, &to, (hy_attrs){.clamp = {low, high}});
}

// ---- New tensors ----

hy_tensor hy__task_filled(hy__task* task, hy_dtype dtype, int ndim, const int64_t* shape,
                          double value) {
  hy_tensor t = hy__task_temporary(task, dtype, ndim, shape);
  hy__task_fill(task, &t, number_for(&t, value));
  return t;
}

hy_tensor hy__task_range(hy__task* task, hy_dtype dtype, int64_t n) {
  hy_tensor t = hy__task_temporary(task, task->rules->index, 1, &n);
  hy__task_call(task, HY_OP_arange, 0, NULL, &t, (hy_attrs){.arange = {hy_int(0), hy_int(1)}});
  return hy__task_as(task, &t, dtype);
}

hy_tensor hy__task_as(hy__task* task, const hy_tensor* t, hy_dtype dtype) {
  if (t->dtype == dtype) return *t;
  hy_tensor copy = hy__task_temporary(task, dtype, t->ndim, t->shape);
  hy__task_copy(task, &copy, t);
  return copy;
}

hy_tensor hy__task_index(hy__task* task, const hy_tensor* t) {
  bool before = task->whole;
  task->whole = true;
  hy_tensor index = hy__task_as(task, t, task->rules->index);
  task->whole = before;
  return index;
}

hy_tensor hy__task_contiguous(hy__task* task, const hy_tensor* t, hy_dtype dtype) {
  if (t->dtype == dtype && hy_tensor_is_contiguous(t))
    return contiguous_view(t->data, t->dtype, t->ndim, t->shape);
  hy_tensor copy = hy__task_temporary(task, dtype, t->ndim, t->shape);
  hy__task_copy(task, &copy, t);
  return copy;
}

// A new tensor of the shape that both broadcast to, which they do.
static hy_tensor broadcast(hy__task* task, hy_dtype dtype, const hy_tensor* a, const hy_tensor* b) {
  int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < ndim; d++) {
    int da = d - (ndim - a->ndim), db = d - (ndim - b->ndim);
    int64_t na = da < 0 ? 1 : a->shape[da], nb = db < 0 ? 1 : b->shape[db];
    shape[d] = na == 1 ? nb : na;
  }
  return hy__task_temporary(task, dtype, ndim, shape);
}

hy_tensor hy__task_binary(hy__task* task, hy_op op, const hy_tensor* a, const hy_tensor* b) {
  hy_tensor out = broadcast(task, a->dtype, a, b);
  hy__task_binary_to(task, op, a, b, &out);
  return out;
}

hy_tensor hy__task_compare(hy__task* task, hy_op op, const hy_tensor* a, const hy_tensor* b) {
  hy_tensor out = broadcast(task, HY_BOOL, a, b);
  hy__task_binary_to(task, op, a, b, &out);
  return out;
}

hy_tensor hy__task_compare_to(hy__task* task, hy_op op, const hy_tensor* a, double value) {
  hy_tensor out = hy__task_temporary(task, HY_BOOL, a->ndim, a->shape);
  hy__task_call(task, op, 1, a, &out, (hy_attrs){.value = {number_for(a, value)}});
  return out;
}

hy_tensor hy__task_not(hy__task* task, const hy_tensor* t) {
  hy_tensor out = hy__task_temporary(task, HY_BOOL, t->ndim, t->shape);
  hy__task_unary(task, HY_OP_logical_not, t, &out);
  return out;
}

hy_tensor hy__task_softmax(hy__task* task, hy_op op, const hy_tensor* t) {
  hy_tensor out = hy__task_temporary(task, t->dtype, t->ndim, t->shape);
  hy__task_call(task, op, 1, t, &out, (hy_attrs){.dim = {t->ndim - 1}});
  return out;
}

hy_tensor hy__task_bmm(hy__task* task, const hy_tensor* a, const hy_tensor* b) {
  const hy_tensor in[] = {*a, *b};
  hy_tensor out = hy__task_temporary(task, a->dtype, 3,
                                     (const int64_t[]){a->shape[0], a->shape[1], b->shape[2]});
  hy__task_call(task, HY_OP_bmm, 2, in, &out, NO_ATTRS);
  return out;
}

static hy_tensor reduced(hy__task* task, hy_op op, const hy_tensor* t, int dim) {
  int64_t shape[HY_MAX_DIMS];
  memcpy(shape, t->shape, sizeof shape);
  shape[dim] = 1;
  hy_tensor out = hy__task_temporary(task, t->dtype, t->ndim, shape);
  hy__task_call(task, op, 1, t, &out, (hy_attrs){.reduce = {hy_one_dim(dim), true}});
  return out;
}

hy_tensor hy__task_row_sum(hy__task* task, const hy_tensor* t) {
  return reduced(task, HY_OP_sum, t, t->ndim - 1);
}

hy_tensor hy__task_row_max(hy__task* task, const hy_tensor* t) {
  return reduced(task, HY_OP_max, t, t->ndim - 1);
}

hy_tensor hy__task_column_sum(hy__task* task, const hy_tensor* t) {
  return reduced(task, HY_OP_sum, t, 0);
}

// ---- Indices ----

// A graph has nobody to tell; its indices are clamped all the same.
void hy__task_check(hy__task* task, const hy_tensor* bad) {
  hy_tensor answer = {.dtype = HY_BOOL};
  char* place = NULL;
  if (hy_tensor_numel(bad) == 0 || (task->stream && task->stream->capturing)) return;
  if (task->stream && task->status == HY_OK)
    task->status = hy__vendor_check_place(task->stream, task->op, &place);
  answer.data = place;
  hy__task_call(task, HY_OP_any, 1, bad, &answer, (hy_attrs){.reduce = {.keepdim = false}});
}

hy_tensor hy__task_indices(hy__task* task, const hy_tensor* index, int64_t size, bool wraps) {
  hy_tensor own = hy__task_contiguous(task, index, task->rules->index);
  if (hy_tensor_numel(&own) == 0 || task->trusts) return own;
  if (wraps) {
    // x + size where x < 0
    hy_tensor below = hy__task_compare_to(task, HY_OP_lt_scalar, &own, 0);
    hy_tensor up = hy__task_temporary(task, own.dtype, own.ndim, own.shape);
    hy_tensor wrapped = hy__task_temporary(task, own.dtype, own.ndim, own.shape);
    hy__task_copy(task, &up, &own);
    hy__task_shift(task, &up, (double)size);
    hy__task_where(task, &below, &up, &own, &wrapped);
    own = wrapped;
  }
  hy_tensor inside = hy__task_temporary(task, own.dtype, own.ndim, own.shape);
  hy__task_clamp(task, &own, hy_int(0), hy_int(size - 1), &inside);
  hy_tensor bad = hy__task_compare(task, HY_OP_ne, &inside, &own);
  hy__task_check(task, &bad);
  return inside;
}
