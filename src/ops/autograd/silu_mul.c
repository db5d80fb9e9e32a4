// silu(gate) * up, the gate of a gated MLP. As two calls it would keep three tensors for the
// backward, of which one follows from another: here silu(gate) is computed again.
#include "ops/autograd/grad.h"

// silu(a) b                                  da = silu'(a) (dy b), db = dy silu(a)
//
// db first: a graph makes both in one kernel.
HY__RULE(silu_mul, 0) {
  hy_array *a = g_in(g, 0), *b = g_in(g, 1);
  if (g_wants(g, 1)) g_give(g, 1, g_mul(g, g->dy, g_unary(g, HY_OP_silu, a)));
  if (g_wants(g, 0)) g_give(g, 0, g_binary(g, HY_OP_silu_backward, g_mul(g, g->dy, b), a));
}

static hy_status record(hy_tape* tape, hy_array* out, hy_array* const* inputs) {
  hy__node* node;
  HY_TRY(hy__node_new(tape, &hy__grad_silu_mul, inputs, 2, &node));
  hy__node_save(&node->in[0].saved, inputs[0]);
  if (node->in[0].slot) hy__node_save(&node->in[1].saved, inputs[1]);
  hy_status status = hy__node_attach(node, 0, out);
  hy__node_release(node);
  return status;
}

hy_status hy_array_silu_mul(hy_tape* tape, hy_array** out, hy_array* gate, hy_array* up) {
  if (!tape || !out || !gate || !up)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_array_silu_mul: an argument is NULL");
  hy_array* inputs[] = {gate, up};
  for (int i = 0; i < 2; i++) HY_TRY(hy__array_check_on(tape, "hy_array_silu_mul", inputs[i]));
  bool recorded = hy__tape_wants(tape, inputs, 2);
  bool was = hy_tape_set_recording(tape, false);
  hy_scope s;
  hy_scope_begin(&s, tape);
  hy_array* product = hy_s_mul(&s, hy_s_silu(&s, gate), up);
  hy_tape_set_recording(tape, was);
  if (recorded) HY_SCOPE_TRY(&s, record(tape, product, inputs));
  *out = hy_scope_give(&s, product);
  return hy_scope_end(&s);
}
