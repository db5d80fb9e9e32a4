// In place: an elementwise output takes over the memory of an input that nobody reads again.
#include "graph/passes/passes.h"
#include "ops/internal.h"

// Whether output 0 of the node may be exactly on input k.
static bool may_alias(const hy__graph_node* node, int k) {
  if (node->as.kind == HY_NODE_CHAIN) return true;
  if (node->as.kind != HY_NODE_CALL || node->call.n_out != 1) return false;
  hy_alias alias = hy_op_describe(node->call.op)->alias;
  return alias == HY_ALIAS_ANY || (alias == HY_ALIAS_SLOT && k == 0);
}

static bool fills(const hy_graph* graph, const hy__operand* o) {
  return o->captured == graph->values[o->value].captured && o->first == 0;
}

// The node writes `out` and nothing of the rest of it; `in` dies there, read in that one view.
static bool fits(const hy_graph* graph, const hy__uses* uses, int index, const hy__operand* in,
                 const hy_tensor* x, const hy__operand* out, const hy_tensor* y) {
  if (!in || !out || in->value < 0 || out->value < 0 || in->value == out->value) return false;
  if (!hy__same_view(x, y) || !hy_tensor_is_contiguous(x)) return false;
  if (!fills(graph, in) || !fills(graph, out)) return false;
  if (graph->values[out->value].bytes > graph->values[in->value].bytes) return false;
  if (uses[in->value].last != index || uses[out->value].first != index) return false;
  const hy__graph_node* node = graph->nodes[index];
  for (int k = 0; k < node->n_operands; k++) {
    const hy__operand* o = &node->operands[k];
    if (o != in && o->value == in->value) return false;
  }
  return true;
}

static void take_over(hy_graph* graph, hy__uses* uses, int from, int to) {
  for (int i = uses[from].first; i <= uses[from].last; i++) {
    for (int k = 0; k < graph->nodes[i]->n_operands; k++) {
      hy__operand* o = &graph->nodes[i]->operands[k];
      if (o->value != from) continue;
      o->captured = graph->values[to].captured + (o->captured - graph->values[from].captured);
      o->value = to;
      hy__graph_place(graph, o);
      graph->nodes[i]->stale = graph->stale = true;
    }
  }
  uses[to].last = uses[from].last;
  uses[to].writers += uses[from].writers;
  uses[to].readers += uses[from].readers;
}

// Whether its provider still runs the node as it is now.
static bool still_runs(const hy_graph* graph, const hy__graph_node* node) {
  const hy_provider* provider;
  if (node->as.kind == HY_NODE_CHAIN)
    return node->provider->supports_chain(graph->device->handle, node->as.chain) == HY_SUPPORT_YES;
  return hy__graph_check_call(graph, 0, &node->call, &provider) == HY_OK &&
         provider == node->provider;
}

static bool try_node(hy_graph* graph, hy__uses* uses, int index) {
  hy__graph_node* node = graph->nodes[index];
  bool chain = node->as.kind == HY_NODE_CHAIN;
  if (!chain && node->as.kind != HY_NODE_CALL) return false;
  const hy_tensor* in = chain ? node->chain.in : node->call.in;
  const hy_tensor* out = chain ? node->chain.out : node->call.out;
  int n_in = chain ? node->chain.n_in : node->call.n_in;
  for (int k = 0; k < n_in; k++) {
    hy__operand *a = hy__tensor_operand(node, &in[k]), *b = hy__tensor_operand(node, &out[0]);
    if (!may_alias(node, k) || !fits(graph, uses, index, a, &in[k], b, &out[0])) continue;
    // Asked of this node alone, then of all who name the value.
    hy__operand before = *b;
    b->captured = a->captured;
    b->value = a->value;
    hy__graph_place(graph, b);
    bool runs = still_runs(graph, node);
    *b = before;
    hy__graph_place(graph, b);
    if (!runs) continue;
    take_over(graph, uses, b->value, a->value);
    return true;
  }
  return false;
}

hy_status hy__pass_in_place(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  for (int i = 0; i < graph->count; i++) *changes += try_node(graph, uses, i);
  hy__mfree(uses);
  return HY_OK;
}
