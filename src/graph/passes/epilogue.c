// Epilogues: a linear layer and the bias added to it become one call, whose kernel adds the bias
// while the products are in registers. A layer and the residual added to it become an addmm, which
// may then be computed on top of the residual.
#include "graph/passes/passes.h"
#include "ops/internal.h"

// A linear layer without a bias whose result only the next reader wants.
static bool is_bare_linear(const hy__graph_node* node, const hy__uses* uses) {
  if (node->as.kind != HY_NODE_CALL || node->named || node->call.op != HY_OP_linear) return false;
  if (node->call.n_in > 2 && node->call.in[2].dtype != HY_NONE) return false;
  const hy__operand* out = hy__output_operand(node, 0);
  return out && out->value >= 0 && uses[out->value].writers == 1 && uses[out->value].readers == 1;
}

// Which input of the add is the layer's result, the other being a bias [N]; -1: neither.
static int bias_add(const hy__graph_node* node, const hy__graph_node* linear) {
  if (node->as.kind != HY_NODE_CALL || node->named || node->call.op != HY_OP_add) return -1;
  const hy_call* call = &node->call;
  const hy_tensor* y = &linear->call.out[0];
  if (hy_scalar_f(call->attrs.alpha.alpha) != 1 || call->out[0].dtype != y->dtype) return -1;
  for (int k = 0; k < 2; k++) {
    const hy__operand *from = hy__output_operand(linear, 0), *to = hy__input_operand(node, k);
    const hy_tensor* bias = &call->in[1 - k];
    if (!to || to->value != from->value || to->captured != from->captured) continue;
    if (hy__same_view(&call->in[k], y) && bias->ndim == 1 && y->ndim > 0 &&
        bias->dtype == y->dtype && bias->shape[0] == y->shape[y->ndim - 1] &&
        hy_tensor_is_contiguous(bias) && hy__same_view(&call->out[0], y))
      return k;
  }
  return -1;
}

// Which input of the add is the layer's result, the other being a residual of its shape; -1:
// neither. Matrices only, as addmm is.
static int residual_add(const hy__graph_node* node, const hy__graph_node* linear) {
  if (node->as.kind != HY_NODE_CALL || node->named || node->call.op != HY_OP_add) return -1;
  const hy_call* call = &node->call;
  const hy_tensor* y = &linear->call.out[0];
  if (hy_scalar_f(call->attrs.alpha.alpha) != 1 || y->ndim != 2 || linear->call.in[0].ndim != 2 ||
      !hy__same_view(&call->out[0], y))
    return -1;
  const hy__operand* from = hy__output_operand(linear, 0);
  for (int k = 0; k < 2; k++) {
    const hy__operand *to = hy__input_operand(node, k), *other = hy__input_operand(node, 1 - k);
    if (!to || !other || to->value != from->value || to->captured != from->captured) continue;
    if (hy__same_view(&call->in[k], y) && hy__same_view(&call->in[1 - k], y)) return k;
  }
  return -1;
}

// The layer may run where the add is.
static bool may_move(const hy_graph* graph, int from, int to) {
  for (int i = from + 1; i < to; i++) {
    if (hy__nodes_depend(graph, graph->nodes[from], graph->nodes[i])) return false;
  }
  return true;
}

static void take_over(const hy_graph* graph, hy__operand* to, const hy__operand* from) {
  to->captured = from->captured;
  to->value = from->value;
  hy__graph_place(graph, to);
}

// Puts `call`, made of what the layer and the add read, in the place of both. `order` says where
// its inputs come from: the layer's by number, 2: what the add reads beside it.
static hy_status join(hy_graph* graph, int linear, int add, int y, hy_call* call,
                      const int order[3]) {
  const hy__graph_node *l = graph->nodes[linear], *a = graph->nodes[add];
  const hy_provider* provider;
  if (hy__graph_check_call(graph, add, call, &provider) != HY_OK || provider != l->provider)
    return HY_UNSUPPORTED;
  hy__graph_node* node = NULL;
  HY_TRY(
      hy__graph_node_create(&(hy_graph_node){.kind = HY_NODE_CALL, .call = call}, provider, &node));
  for (int k = 0; k < 3; k++)
    take_over(graph, hy__input_operand(node, k),
              order[k] == 2 ? hy__input_operand(a, 1 - y) : hy__input_operand(l, order[k]));
  take_over(graph, hy__output_operand(node, 0), hy__output_operand(a, 0));
  hy__graph_node_destroy(graph->nodes[linear]);
  hy__graph_node_destroy(graph->nodes[add]);
  graph->nodes[linear] = NULL;
  graph->nodes[add] = node;
  return HY_OK;
}

static hy_status join_bias(hy_graph* graph, int linear, int add, int y) {
  const hy__graph_node *l = graph->nodes[linear], *a = graph->nodes[add];
  hy_tensor in[3] = {l->call.in[0], l->call.in[1], a->call.in[1 - y]}, out = a->call.out[0];
  hy_call call = {.op = HY_OP_linear, .n_in = 3, .n_out = 1, .in = in, .out = &out};
  return join(graph, linear, add, y, &call, (int[]){0, 1, 2});
}

static hy_status join_residual(hy_graph* graph, int linear, int add, int y) {
  const hy__graph_node *l = graph->nodes[linear], *a = graph->nodes[add];
  hy_tensor in[3] = {a->call.in[1 - y], l->call.in[0]}, out = a->call.out[0];
  HY_TRY(hy_transpose(&in[2], &l->call.in[1], 0, 1));
  hy_call call = {.op = HY_OP_addmm, .n_in = 3, .n_out = 1, .in = in, .out = &out};
  call.attrs.addmm.alpha = call.attrs.addmm.beta = hy_int(1);
  return join(graph, linear, add, y, &call, (int[]){2, 0, 1});
}

hy_status hy__pass_epilogue(hy_graph* graph, int* changes) {
  HY_TRY(hy__fold_norm(graph, changes));
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  hy_status status = HY_OK;
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    if (!graph->nodes[i] || !is_bare_linear(graph->nodes[i], uses)) continue;
    int reader = uses[hy__output_operand(graph->nodes[i], 0)->value].last;
    if (reader <= i || !may_move(graph, i, reader)) continue;
    int bias = bias_add(graph->nodes[reader], graph->nodes[i]);
    int residual = residual_add(graph->nodes[reader], graph->nodes[i]);
    if (bias < 0 && residual < 0) continue;
    status =
        bias >= 0 ? join_bias(graph, i, reader, bias) : join_residual(graph, i, reader, residual);
    *changes += status == HY_OK;
    if (status == HY_UNSUPPORTED) status = HY_OK;
  }
  hy__mfree(uses);
  hy__graph_compact(graph);
  return status == HY_OK ? hy__fold_softmax(graph, changes) : status;
}
