// Ops on arrays: makes the outputs, runs the call, records it.
#include <string.h>

#include "ops/autograd/internal.h"

// The parts of a call in the making.
typedef struct application {
  const hy_op_info* info;
  const hy__grad_rule* rule;
  hy_tensor in[HY_MAX_INPUTS], out[HY_MAX_OUTPUTS];
  hy_call call;
} application;

static hy_status prepare(application* a, hy_tape* tape, const hy_op_info* info,
                         hy_array* const* inputs, int n_inputs, const hy_attrs* attrs,
                         int n_outputs) {
  const char* name = info->name;
  a->info = info;
  a->rule = hy__op_row(info->op)->grad;
  if (!tape) return hy_fail(HY_INVALID_ARGUMENT, "%s: the tape is NULL", name);
  if (n_inputs < 0 || n_inputs > HY_MAX_INPUTS || (n_inputs > 0 && !inputs))
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %d inputs; at most %d fit in one call", name,
                   inputs ? n_inputs : 0, HY_MAX_INPUTS);
  if (n_outputs != info->n_outputs)
    return hy_fail(HY_INVALID_ARGUMENT, "%s has %d outputs, not %d", name, info->n_outputs,
                   n_outputs);
  a->call.op = info->op;
  a->call.n_in = n_inputs;
  a->call.n_out = n_outputs;
  a->call.reserved = 0;
  a->call.in = a->in;
  a->call.out = a->out;
  if (attrs) {
    a->call.attrs = *attrs;
  } else {
    memset(&a->call.attrs, 0, sizeof a->call.attrs);
  }
  for (int i = 0; i < n_outputs; i++) a->out[i] = hy_tensor_absent();
  for (int i = 0; i < n_inputs; i++) {
    if (inputs[i]) {
      HY_TRY(hy__array_check_on(tape, name, inputs[i]));
      a->in[i] = inputs[i]->view;
    } else {
      a->in[i] = hy_tensor_absent();
    }
  }
  return HY_OK;
}

// What the gradients of the inputs that require one need, all together.
static hy_status gather_needs(const application* a, hy_array* const* inputs, uint32_t* needs) {
  *needs = 0;
  for (int i = 0; i < a->call.n_in; i++) {
    if (!hy_array_requires_grad(inputs[i])) continue;
    int declared = i < a->info->n_inputs ? i : a->info->n_inputs - 1;
    uint32_t need = a->rule->needs[declared];
    if (need & HY__NO_GRADIENT)
      return hy_fail(HY_UNSUPPORTED, "%s has no gradient for its input %s; detach it",
                     a->info->name, a->info->inputs[declared].name);
    *needs |= need;
  }
  return HY_OK;
}

static hy_status record(const application* a, hy_tape* tape, hy_array* const* inputs,
                        hy_array* const* results, uint32_t needs) {
  hy__node* node;
  HY_TRY(hy__node_new(tape, a->rule, inputs, a->call.n_in, &node));
  node->op = a->call.op;
  node->step.attrs = a->call.attrs;
  for (int i = 0; i < a->call.n_in; i++) {
    bool needed = needs & HY__NEED_LIST || (i < 15 && needs & HY__NEED_IN(i));
    if (needed && inputs[i]) hy__node_save(&node->in[i].saved, inputs[i]);
  }
  for (int i = 0; i < a->call.n_out; i++) {
    if (needs & HY__NEED_OUT(i)) hy__node_save(&node->saved_out[i], results[i]);
  }
  hy_status status = hy__node_attach(node, 0, results[0]);
  hy__node_release(node);
  return status;
}

hy_status hy_array_apply_into(hy_tape* tape, hy_op op, hy_array* const* inputs, int n_inputs,
                              const hy_attrs* attrs, hy_array* const* outputs, int n_outputs) {
  const hy_op_info* info = hy_op_describe(op);
  if (!info) return hy_fail(HY_NOT_FOUND, "%d is no op", (int)op);
  application a;
  HY_TRY(prepare(&a, tape, info, inputs, n_inputs, attrs, n_outputs));
  if (!outputs) return hy_fail(HY_INVALID_ARGUMENT, "%s: the outputs are NULL", info->name);
  if (hy__tape_wants(tape, inputs, n_inputs) || hy__tape_wants(tape, outputs, n_outputs))
    return hy_fail(HY_INVALID_ARGUMENT,
                   "%s into an existing array is not recorded, and an argument requires a "
                   "gradient; stop recording or detach it",
                   info->name);
  for (int i = 0; i < n_outputs; i++) {
    if (!outputs[i]) continue;
    HY_TRY(hy__array_check_on(tape, info->name, outputs[i]));
    a.out[i] = outputs[i]->view;
  }
  hy_status status = hy_run(tape->stream, &a.call);
  // A run that failed half way may have written too.
  for (int i = 0; i < n_outputs; i++) hy_array_touch(outputs[i]);
  return status;
}

// Ops that create from nothing write arrays that exist.
static hy_status create_into(hy_tape* tape, const hy_op_info* info, const hy_attrs* attrs,
                             hy_array** const* outputs) {
  hy_array* existing[HY_MAX_OUTPUTS];
  for (int i = 0; i < info->n_outputs; i++) {
    existing[i] = outputs[i] ? *outputs[i] : NULL;
    if (!existing[i])
      return hy_fail(HY_INVALID_ARGUMENT,
                     "%s writes an array that exists: make it with hy_array_empty", info->name);
  }
  return hy_array_apply_into(tape, info->op, NULL, 0, attrs, existing, info->n_outputs);
}

// cat and stack of more inputs than a call holds: groups are joined, then what came of them along
// the same dimension. Each is recorded as any other call.
static hy_status join_groups(hy_tape* tape, hy_op op, hy_array* const* inputs, int n,
                             const hy_attrs* attrs, hy_array** out) {
  int n_groups = (n + HY_MAX_INPUTS - 1) / HY_MAX_INPUTS;
  hy_array** groups = hy__calloc((size_t)n_groups, sizeof *groups);
  if (!groups) return hy_fail(HY_OUT_OF_MEMORY, "no host memory to join %d arrays", n);
  hy_status status = HY_OK;
  for (int i = 0; i < n_groups && status == HY_OK; i++) {
    int first = i * HY_MAX_INPUTS, left = n - first;
    hy_array** one = &groups[i];
    status = hy_array_apply(tape, op, inputs + first, left < HY_MAX_INPUTS ? left : HY_MAX_INPUTS,
                            attrs, &one, 1);
  }
  if (status == HY_OK) status = hy_array_apply(tape, HY_OP_cat, groups, n_groups, attrs, &out, 1);
  for (int i = 0; i < n_groups; i++) hy_array_release(groups[i]);
  hy__mfree(groups);
  return status;
}

// Attention's results are laid out as what they belong to is, heads beside tokens or apart from
// them, so that neither they nor their gradients are copied on the way to a linear layer.
static void set_layout(hy_tensor* out, hy_op op, int i, const hy_tensor* in) {
  bool forward = op == HY_OP_sdpa && i == 0;
  if (!forward && op != HY_OP_sdpa_backward) return;
  const hy_tensor* like = forward ? in : &in[1 + i];  // q; q, k, v
  int order[HY_MAX_DIMS], n = out->ndim;
  for (int d = 0; d < n; d++) {
    if (like->stride[d] == 0 && like->shape[d] > 1) return;
    int at = d;
    for (; at > 0 && like->stride[order[at - 1]] < like->stride[d]; at--) order[at] = order[at - 1];
    order[at] = d;
  }
  int64_t stride = 1;
  for (int k = n - 1; k >= 0; stride *= out->shape[order[k--]]) out->stride[order[k]] = stride;
}

hy_status hy_array_apply(hy_tape* tape, hy_op op, hy_array* const* inputs, int n_inputs,
                         const hy_attrs* attrs, hy_array** const* outputs, int n_outputs) {
  const hy_op_info* info = hy_op_describe(op);
  if (!info) return hy_fail(HY_NOT_FOUND, "%d is no op", (int)op);
  if (hy__joins(op) && n_inputs > HY_MAX_INPUTS && inputs && attrs && n_outputs == 1 && outputs &&
      outputs[0]) {
    *outputs[0] = NULL;
    return join_groups(tape, op, inputs, n_inputs, attrs, outputs[0]);
  }
  bool creates = info->n_inputs == 0;
  for (int i = 0; outputs && i < n_outputs && !creates; i++) {
    if (outputs[i]) *outputs[i] = NULL;
  }
  application a;
  HY_TRY(prepare(&a, tape, info, inputs, n_inputs, attrs, n_outputs));
  if (!outputs) return hy_fail(HY_INVALID_ARGUMENT, "%s: the outputs are NULL", info->name);
  if (creates) return create_into(tape, info, attrs, outputs);

  hy_tensor inferred[HY_MAX_OUTPUTS];
  HY_TRY(hy_infer(&a.call, inferred));
  uint32_t needs = 0;
  bool recorded = a.rule->run && HY_FLOATS & HY_DTYPE_BIT(inferred[0].dtype) &&
                  hy__tape_wants(tape, inputs, n_inputs);
  if (recorded) HY_TRY(gather_needs(&a, inputs, &needs));

  hy_array* results[HY_MAX_OUTPUTS] = {NULL};
  hy_status status = HY_OK;
  for (int i = 0; i < n_outputs && status == HY_OK; i++) {
    bool computed =
        outputs[i] || info->outputs[i].kind == HY_ARGUMENT_REQUIRED || needs & HY__NEED_OUT(i);
    if (!computed) continue;
    status = hy__array_new(tape->stream, &results[i], &inferred[i]);
    if (status != HY_OK) break;
    set_layout(&results[i]->view, op, i, a.in);
    a.out[i] = results[i]->view;
  }
  if (status == HY_OK) status = hy__run_inferred(tape->stream, &a.call, inferred);
  if (status == HY_OK && recorded) status = record(&a, tape, inputs, results, needs);
  for (int i = 0; i < n_outputs; i++) {
    if (status == HY_OK && outputs[i]) {
      *outputs[i] = results[i];
    } else {
      hy_array_release(results[i]);
    }
  }
  return status;
}
