// What must hold of a call before a kernel sees it, and what its outputs must be.
#include <string.h>

#include "ops/internal.h"
#include "ops/overlap.h"
#include "ops/rules/promote.h"

#define DESCRIBE(t) hy_tensor_describe(t, (char[160]){0}, 160)

static hy_status check_tensor(const hy_call* call, const hy_tensor* t, const char* name) {
  hy_status status = hy_tensor_check(t);
  if (status == HY_OK) return HY_OK;
  return hy_fail(status, "%s: %s: %s", hy_op_name(call->op), name, hy_last_error());
}

// The argument that input i stands for; a list stands for all that are left.
static const hy_argument* input_argument(const hy_op_info* info, int i) {
  return &info->inputs[i < info->n_inputs ? i : info->n_inputs - 1];
}

static hy_status check_inputs(const hy_call* call, const hy_op_info* info) {
  bool has_list = info->n_inputs > 0 && info->inputs[info->n_inputs - 1].kind == HY_ARGUMENT_LIST;
  int least = info->n_inputs - has_list;
  bool too_many = call->n_in > HY_MAX_INPUTS && !hy__joins(call->op);
  if (too_many)
    return hy_fail(HY_INVALID_ARGUMENT, "%s takes at most %d inputs, not %d", info->name,
                   HY_MAX_INPUTS, call->n_in);
  if (call->n_in < least || (!has_list && call->n_in > least))
    return hy_fail(HY_INVALID_ARGUMENT, "%s takes %s%d inputs, not %d", info->name,
                   has_list ? "at least " : "", least, call->n_in);
  if (call->n_in > 0 && !call->in)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the inputs are NULL", info->name);
  for (int i = 0; i < call->n_in; i++) {
    const hy_tensor* t = &call->in[i];
    const hy_argument* argument = input_argument(info, i);
    if (!hy__present(t)) {
      if (argument->kind == HY_ARGUMENT_REQUIRED)
        return hy_fail(HY_INVALID_ARGUMENT, "%s: the input %s is absent", info->name,
                       argument->name);
      continue;
    }
    HY_TRY(check_tensor(call, t, argument->name));
  }
  return HY_OK;
}

hy_status hy_infer(const hy_call* call, hy_tensor* out) {
  if (!call || !out) return hy_fail(HY_INVALID_ARGUMENT, "hy_infer: an argument is NULL");
  const hy__row* row = hy__op_row(call->op);
  if (!row) return hy_fail(HY_NOT_FOUND, "%d is no op", (int)call->op);
  HY_TRY(check_inputs(call, &row->info));
  HY_TRY(row->check_attrs(call));
  for (int i = 0; i < row->info.n_outputs; i++) {
    out[i].data = NULL;
    out[i].layout = HY_LAYOUT_STRIDED;
    out[i].reserved = 0;
  }
  HY_TRY(row->dtype_rule(call, out));
  HY_TRY(row->shape_rule(call, out));
  for (int i = 0; i < row->info.n_outputs; i++) {
    int64_t stride = 1;
    for (int d = out[i].ndim - 1; d >= 0; d--) {
      out[i].stride[d] = stride;
      if (out[i].shape[d] > 1 && __builtin_mul_overflow(stride, out[i].shape[d], &stride))
        return hy__call_fail(call, HY_SHAPE,
                             "the output would have more elements than 64 bits count");
    }
  }
  return HY_OK;
}

static bool has_memory(const hy_tensor* t) {
  return t->data || hy_tensor_numel(t) == 0;
}

static hy_status check_alignment(const hy_call* call, const hy_tensor* t, const char* name) {
  size_t size = hy_dtype_size(t->dtype);
  if (size > 1 && ((uintptr_t)t->data & (size - 1)) != 0 && hy_tensor_numel(t) > 0)
    return hy__call_fail(call, HY_INVALID_ARGUMENT,
                         "the address %p of %s is no multiple of its element's %zu bytes", t->data,
                         name, size);
  return HY_OK;
}

static hy_status check_output(const hy_call* call, const hy_op_info* info, int i,
                              const hy_tensor* expected) {
  const hy_tensor* t = &call->out[i];
  const char* name = info->outputs[i].name;
  HY_TRY(check_tensor(call, t, name));
  bool fits = t->ndim == expected->ndim;
  for (int d = 0; fits && d < t->ndim; d++) fits = t->shape[d] == expected->shape[d];
  if (!fits)
    return hy__call_fail(call, HY_SHAPE, "the output %s must be %s", name, DESCRIBE(expected));
  bool may_cast = info->alias == HY_ALIAS_ANY && expected->layout == HY_LAYOUT_STRIDED;
  if (t->dtype != expected->dtype && !(may_cast && hy__can_cast(expected->dtype, t->dtype)))
    return hy__call_fail(call, HY_DTYPE, "the output %s must be %s", name, DESCRIBE(expected));
  if (t->layout != expected->layout)
    return hy__call_fail(call, HY_LAYOUT, "the output %s must be %s", name,
                         hy_layout_name(expected->layout));
  if (!has_memory(t)) return hy__call_fail(call, HY_INVALID_ARGUMENT, "%s has no memory", name);
  if (hy__tensor_overlaps_itself(t))
    return hy__call_fail(call, HY_OVERLAP,
                         "elements of the output %s share memory with one another", name);
  return HY_OK;
}

// The addresses a view can touch; most pairs of tensors are told apart by these alone.
typedef struct span {
  intptr_t first, last;
} span;

static span span_of(const hy_tensor* t) {
  int64_t first, last;
  hy_tensor_extent(t, &first, &last);
  return (span){(intptr_t)t->data + first, (intptr_t)t->data + last};
}

static bool overlap(const hy_tensor* a, span a_span, const hy_tensor* b) {
  if (!hy__present(b)) return false;
  span b_span = span_of(b);
  return a_span.first < b_span.last && b_span.first < a_span.last && hy__tensors_overlap(a, b);
}

// An output may share memory with an input only as the op's row says, and with another output
// never.
static hy_status check_aliases(const hy_call* call, const hy_op_info* info) {
  for (int o = 0; o < call->n_out; o++) {
    const hy_tensor* out = &call->out[o];
    if (!hy__present(out)) continue;
    span out_span = span_of(out);
    for (int i = 0; i < call->n_in; i++) {
      const hy_tensor* in = &call->in[i];
      if (!overlap(out, out_span, in)) continue;
      bool allowed = info->alias == HY_ALIAS_ANY || (info->alias == HY_ALIAS_SLOT && i == o);
      if (!allowed || !hy__tensor_is_same_view(out, in))
        return hy__call_fail(call, HY_OVERLAP, "the output %s overlaps the input %s%s",
                             info->outputs[o].name, input_argument(info, i)->name,
                             allowed ? "; in place means the very same view" : "");
    }
    for (int i = 0; i < o; i++) {
      if (overlap(out, out_span, &call->out[i]))
        return hy__call_fail(call, HY_OVERLAP, "the outputs %s and %s overlap",
                             info->outputs[i].name, info->outputs[o].name);
    }
  }
  return HY_OK;
}

hy_status hy__check_call(const hy_call* call) {
  hy_tensor expected[HY_MAX_OUTPUTS];
  HY_TRY(hy_infer(call, expected));
  return hy__check_inferred(call, expected);
}

hy_status hy__check_inferred(const hy_call* call, const hy_tensor* expected) {
  const hy_op_info* info = hy_op_describe(call->op);
  if (call->n_out != info->n_outputs)
    return hy_fail(HY_INVALID_ARGUMENT, "%s has %d outputs, not %d", info->name, info->n_outputs,
                   call->n_out);
  if (!call->out) return hy_fail(HY_INVALID_ARGUMENT, "%s: the outputs are NULL", info->name);
  for (int i = 0; i < call->n_in; i++) {
    if (hy__present(&call->in[i]) && !has_memory(&call->in[i]))
      return hy__call_fail(call, HY_INVALID_ARGUMENT, "%s has no memory",
                           input_argument(info, i)->name);
  }
  for (int i = 0; i < call->n_out; i++) {
    if (hy__present(&call->out[i])) {
      HY_TRY(check_output(call, info, i, &expected[i]));
    } else if (info->outputs[i].kind == HY_ARGUMENT_REQUIRED) {
      return hy_fail(HY_INVALID_ARGUMENT, "%s: the output %s is absent", info->name,
                     info->outputs[i].name);
    }
  }
  HY_TRY(check_aliases(call, info));
  for (int i = 0; i < call->n_in; i++)
    HY_TRY(check_alignment(call, &call->in[i], input_argument(info, i)->name));
  for (int i = 0; i < call->n_out; i++)
    HY_TRY(check_alignment(call, &call->out[i], info->outputs[i].name));
  return HY_OK;
}
