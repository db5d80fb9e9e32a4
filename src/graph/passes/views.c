// View elimination: who reads a copy of contiguous memory reads what was copied.
#include "graph/passes/passes.h"
#include "ops/internal.h"

// A call that only moves bytes into a value of its own.
static bool is_copy(const hy__graph_node* node, const hy__uses* uses) {
  if (node->as.kind != HY_NODE_CALL || node->named) return false;
  const hy_call* call = &node->call;
  if (call->op != HY_OP_copy && call->op != HY_OP_clone && call->op != HY_OP_cast) return false;
  if (!hy_tensor_is_contiguous(&call->in[0]) || !hy_tensor_is_contiguous(&call->out[0]) ||
      call->in[0].dtype != call->out[0].dtype ||
      hy_tensor_numel(&call->in[0]) != hy_tensor_numel(&call->out[0]))
    return false;
  const hy__operand* out = hy__output_operand(node, 0);
  return out && hy__input_operand(node, 0) && out->value >= 0 && uses[out->value].writers == 1;
}

// The source keeps its contents from the copy to the reader, which does not write it either.
static bool source_stays(const hy_graph* graph, const hy__operand* source, int first, int last) {
  for (int i = first + 1; i <= last; i++) {
    if (hy__node_writes(graph, graph->nodes[i], source)) return false;
  }
  return true;
}

hy_status hy__pass_views(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  for (int i = 0; i < graph->count; i++) {
    if (!is_copy(graph->nodes[i], uses)) continue;
    const hy__operand* source = hy__input_operand(graph->nodes[i], 0);
    const hy__operand* copy = hy__output_operand(graph->nodes[i], 0);
    for (int j = i + 1; j < graph->count && j <= uses[copy->value].last; j++) {
      for (int k = 0; k < graph->nodes[j]->n_operands; k++) {
        hy__operand* o = &graph->nodes[j]->operands[k];
        bool inside = o->value == copy->value && o->reads && !o->writes &&
                      o->captured + o->first >= copy->captured &&
                      o->captured + o->last <= copy->captured + copy->last;
        if (!inside || !source_stays(graph, source, i, j)) continue;
        o->captured = source->captured + (o->captured - copy->captured);
        o->value = source->value;
        hy__graph_place(graph, o);
        graph->nodes[j]->stale = graph->stale = true;
        if (o->value >= 0 && uses[o->value].last < j) uses[o->value].last = j;
        ++*changes;
      }
    }
  }
  hy__mfree(uses);
  return HY_OK;
}
