// Activation checkpointing: forget what a function computed, compute it again on the way back.
#include <string.h>

#include "ops/autograd/grad.h"

static void release_all(hy_array** arrays, int n) {
  for (int i = 0; i < n; i++) {
    hy_array_release(arrays[i]);
    arrays[i] = NULL;
  }
}

// Runs the function with recording on or off; checks that it gave every output.
static hy_status run_function(hy_tape* tape, const hy__checkpoint_step* step, bool recording,
                              hy_array* const* inputs, int n_inputs, hy_array** outputs,
                              int n_outputs) {
  for (int i = 0; i < n_outputs; i++) outputs[i] = NULL;
  bool was = hy_tape_set_recording(tape, recording);
  hy_status status = step->function(tape, step->context, inputs, n_inputs, outputs, n_outputs);
  hy_tape_set_recording(tape, was);
  for (int i = 0; i < n_outputs && status == HY_OK; i++) {
    if (!outputs[i])
      status = hy_fail(HY_INVALID_ARGUMENT, "hy_checkpoint: the function gave no output %d", i);
  }
  if (status != HY_OK) release_all(outputs, n_outputs);
  return status;
}

// Replaces each output by one that has the node as its history; the function may have returned
// an array that others hold.
static hy_status record(hy_tape* tape, const hy__checkpoint_step* step, hy_array* const* inputs,
                        int n_inputs, hy_array** outputs, int n_outputs) {
  hy__node* node;
  HY_TRY(hy__node_new(tape, &hy__grad_checkpoint, inputs, n_inputs, &node));
  hy_status status = HY_OK;
  for (int i = 0; i < n_outputs && status == HY_OK; i++) {
    if (!(HY_FLOATS & HY_DTYPE_BIT(outputs[i]->view.dtype))) continue;
    hy_array* output;
    status = hy_array_detach(&output, outputs[i]);
    if (status != HY_OK) break;
    hy_array_release(outputs[i]);
    outputs[i] = output;
    status = hy__node_attach(node, i, output);
  }
  if (status == HY_OK) {
    for (int i = 0; i < n_inputs; i++) {
      if (inputs[i]) hy__node_save(&node->in[i].saved, inputs[i]);
    }
    node->step.checkpoint = *step;
  }
  hy__node_release(node);
  return status;
}

hy_status hy_checkpoint(hy_tape* tape, hy_checkpoint_function function, void* context,
                        void (*release)(void* context), hy_array* const* inputs, int n_inputs,
                        hy_array** outputs, int n_outputs) {
  hy__checkpoint_step step = {function, n_outputs, context, release};
  hy_status status = HY_OK;
  bool recorded = false;
  if (!tape || !function || (n_inputs > 0 && !inputs) || !outputs)
    status = hy_fail(HY_INVALID_ARGUMENT, "hy_checkpoint: an argument is NULL");
  else if (n_inputs < 0 || n_inputs > HY_MAX_INPUTS || n_outputs < 1 || n_outputs > HY_MAX_OUTPUTS)
    status = hy_fail(HY_INVALID_ARGUMENT,
                     "hy_checkpoint: %d inputs and %d outputs; at most %d and 1 to %d are allowed",
                     n_inputs, n_outputs, HY_MAX_INPUTS, HY_MAX_OUTPUTS);
  if (status == HY_OK) {
    uint64_t skipped = tape->skipped;
    status = run_function(tape, &step, false, inputs, n_inputs, outputs, n_outputs);
    // Nothing in it required a gradient: there will be no backward.
    recorded = tape->recording && tape->skipped != skipped;
    if (status == HY_OK && recorded) {
      status = record(tape, &step, inputs, n_inputs, outputs, n_outputs);
      if (status != HY_OK) release_all(outputs, n_outputs);
    }
  }
  if (release && (status != HY_OK || !recorded)) release(context);
  return status;
}

// y = f(x)                                   dx: run f again, recording, and go back through it
HY__RULE(checkpoint, 0) {
  const hy__checkpoint_step* step = &g->node->step.checkpoint;
  int n_inputs = g->node->n_in, n_roots = 0;
  hy_array *inputs[HY_MAX_INPUTS], *outputs[HY_MAX_OUTPUTS];
  hy_array *roots[HY_MAX_OUTPUTS], *seeds[HY_MAX_OUTPUTS];
  for (int i = 0; i < n_inputs; i++) {
    inputs[i] = g_in(g, i);
    if (inputs[i] && g_wants(g, i)) g->scope.status = hy_array_set_requires_grad(inputs[i], true);
    if (g->scope.status != HY_OK) return;
  }
  uint64_t floor = g->scope.tape->serial;
  g->scope.status =
      run_function(g->scope.tape, step, true, inputs, n_inputs, outputs, step->n_outputs);
  if (g->scope.status != HY_OK) return;
  for (int i = 0; i < step->n_outputs; i++) {
    if (!g->dys[i] || !outputs[i]->slot) continue;
    roots[n_roots] = outputs[i];
    seeds[n_roots++] = g->dys[i];
  }
  g->scope.status = hy__backward_from(g->scope.tape, roots, seeds, n_roots, floor);
  release_all(outputs, step->n_outputs);
  for (int i = 0; i < n_inputs; i++) {
    hy_array* grad = hy_array_grad(inputs[i]);
    if (grad) g_give(g, i, grad);
  }
}
