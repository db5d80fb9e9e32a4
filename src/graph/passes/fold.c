// Constant folding: a call without inputs, or of constants only, is run once, now.
#include "graph/passes/passes.h"
#include "ops/internal.h"

enum { LARGEST = 1 << 20 };  // bytes that are worth keeping instead of computing

static bool is_constant(const hy_graph* graph, const hy__operand* o) {
  return o->value < 0 && hy__graph_is_constant(graph, o->captured + o->first);
}

// One output, alone in its value.
static hy__operand* foldable(const hy_graph* graph, const hy__graph_node* node,
                             const hy__uses* uses) {
  if (node->as.kind != HY_NODE_CALL || node->named || node->call.n_out != 1) return NULL;
  hy__operand* out = hy__output_operand(node, 0);
  if (!out || out->value < 0 || uses[out->value].writers != 1) return NULL;
  if (graph->values[out->value].bytes > LARGEST) return NULL;
  for (int k = 0; k < node->n_operands; k++) {
    if (node->operands[k].reads && !is_constant(graph, &node->operands[k])) return NULL;
  }
  return out;
}

static hy_status fold(hy_graph* graph, int index, int value) {
  hy__value* v = &graph->values[value];
  void* memory;
  hy_stream* stream;
  HY_TRY(hy__graph_stream(graph, &stream));
  HY_TRY(hy__graph_add_constant(graph, v->captured, v->bytes, &memory));
  v->local = false;
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; graph->nodes[i] && k < graph->nodes[i]->n_operands; k++) {
      hy__operand* o = &graph->nodes[i]->operands[k];
      if (o->value != value) continue;
      o->value = -1;
      hy__graph_place(graph, o);
      graph->nodes[i]->stale = graph->stale = true;
    }
  }
  hy__graph_node* node = graph->nodes[index];
  if (!node) return HY_OK;
  for (int k = 0; k < node->n_operands; k++) hy__graph_place(graph, &node->operands[k]);
  HY_TRY(hy__run_by(stream, &node->call, node->provider, node->variant, NULL));
  HY_TRY(hy_stream_sync(stream));
  hy__graph_node_destroy(node);
  graph->nodes[index] = NULL;
  return HY_OK;
}

hy_status hy__pass_fold(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  hy_status status = HY_OK;
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    const hy__operand* out = foldable(graph, graph->nodes[i], uses);
    if (!out) continue;
    status = fold(graph, i, out->value);
    *changes += status == HY_OK;
  }
  hy__mfree(uses);
  hy__graph_compact(graph);
  return status;
}
