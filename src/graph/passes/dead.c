// Dead code: from the end, a node stays if it writes somebody's memory or what a later one reads,
// or has an effect.
#include "graph/passes/passes.h"

static bool is_needed(const hy__graph_node* node, const bool* wanted) {
  if (hy__node_has_effect(node)) return true;
  for (int k = 0; k < node->n_operands; k++) {
    const hy__operand* o = &node->operands[k];
    if (o->writes && (o->value < 0 || wanted[o->value])) return true;
  }
  return false;
}

hy_status hy__pass_dead(hy_graph* graph, int* changes) {
  bool* wanted = hy__calloc((size_t)graph->n_values + 1, sizeof *wanted);
  if (!wanted) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a pass over a graph");
  for (int i = graph->count - 1; i >= 0; i--) {
    hy__graph_node* node = graph->nodes[i];
    if (!node->named && !is_needed(node, wanted)) {
      hy__graph_node_destroy(node);
      graph->nodes[i] = NULL;
      ++*changes;
      continue;
    }
    for (int k = 0; k < node->n_operands; k++) {
      const hy__operand* o = &node->operands[k];
      if (o->reads && o->value >= 0) wanted[o->value] = true;
    }
  }
  hy__mfree(wanted);
  hy__graph_compact(graph);
  return HY_OK;
}
