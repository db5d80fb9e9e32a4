// Who reads and writes what: the questions that passes ask of a graph.
#include "graph/passes/passes.h"

hy__uses* hy__graph_uses(const hy_graph* graph) {
  hy__uses* uses = hy__calloc((size_t)graph->n_values + 1, sizeof *uses);
  if (!uses) {
    hy_fail(HY_OUT_OF_MEMORY, "no host memory to look at a graph");
    return NULL;
  }
  for (int v = 0; v < graph->n_values; v++) uses[v] = (hy__uses){.first = 0, .last = -1};
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; graph->nodes[i] && k < graph->nodes[i]->n_operands; k++) {
      const hy__operand* o = &graph->nodes[i]->operands[k];
      if (o->value < 0) continue;
      hy__uses* u = &uses[o->value];
      if (u->first > u->last) u->first = i;
      u->last = i;
      u->readers += o->reads;
      u->writers += o->writes;
      if (o->writes) u->writer = i;
    }
  }
  return uses;
}

bool hy__operands_meet(const hy_graph* graph, const hy__operand* a, const hy__operand* b) {
  (void)graph;
  if (a->value != b->value) return false;  // values are apart, and apart from others' memory
  return a->captured + a->first < b->captured + b->last &&
         b->captured + b->first < a->captured + a->last;
}

bool hy__node_has_effect(const hy__graph_node* node) {
  return node->as.kind == HY_NODE_LAUNCH || node->as.kind == HY_NODE_COLLECTIVE;
}

// Nothing passes it: where a compiled kernel writes is not known, nor what ranks do with memory
// that they share before and behind a barrier.
static bool is_fence(const hy__graph_node* node) {
  return node->as.kind == HY_NODE_LAUNCH ||
         (node->as.kind == HY_NODE_COLLECTIVE && node->collective.kind == HY_COLLECTIVE_BARRIER);
}

bool hy__node_writes(const hy_graph* graph, const hy__graph_node* node, const hy__operand* o) {
  if (is_fence(node)) return true;
  for (int k = 0; k < node->n_operands; k++) {
    if (node->operands[k].writes && hy__operands_meet(graph, &node->operands[k], o)) return true;
  }
  return false;
}

bool hy__nodes_depend(const hy_graph* graph, const hy__graph_node* before,
                      const hy__graph_node* after) {
  if (is_fence(before) || is_fence(after)) return true;
  // Ranks make their collectives in one order, whatever else differs between their graphs.
  if (before->as.kind == HY_NODE_COLLECTIVE && after->as.kind == HY_NODE_COLLECTIVE) return true;
  for (int k = 0; k < before->n_operands; k++) {
    for (int j = 0; j < after->n_operands; j++) {
      const hy__operand *a = &before->operands[k], *b = &after->operands[j];
      if ((a->writes || b->writes) && hy__operands_meet(graph, a, b)) return true;
    }
  }
  return false;
}

hy__operand* hy__tensor_operand(const hy__graph_node* node, const hy_tensor* t) {
  for (int k = 0; k < node->n_operands; k++) {
    if (node->operands[k].now == &t->data) return &node->operands[k];
  }
  return NULL;
}

hy__operand* hy__input_operand(const hy__graph_node* node, int k) {
  return hy__tensor_operand(node, &node->call.in[k]);
}

hy__operand* hy__output_operand(const hy__graph_node* node, int k) {
  return hy__tensor_operand(node, &node->call.out[k]);
}

bool hy__same_view(const hy_tensor* a, const hy_tensor* b) {
  if (a->dtype != b->dtype || a->layout != b->layout || a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++) {
    if (a->shape[d] != b->shape[d]) return false;
    if (a->shape[d] != 1 && a->stride[d] != b->stride[d]) return false;
  }
  return true;
}

void hy__graph_compact(hy_graph* graph) {
  int n = 0;
  for (int i = 0; i < graph->count; i++) {
    if (graph->nodes[i]) graph->nodes[n++] = graph->nodes[i];
  }
  if (n != graph->count) hy__graph_drop_handle(graph);
  graph->count = n;
}
