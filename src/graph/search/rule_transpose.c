// Transpose absorption: a product reads a matrix in place, with its strides, instead of a
// contiguous copy of it.
#include "graph/search/search.h"
#include "ops/internal.h"

static bool is_product(const hy__graph_node* node) {
  if (!node || node->as.kind != HY_NODE_CALL || node->named) return false;
  switch (node->call.op) {
    case HY_OP_mm:
    case HY_OP_bmm:
    case HY_OP_addmm:
    case HY_OP_linear: return true;
    default: return false;
  }
}

// A copy that only changes strides.
static bool is_rearranged(const hy__graph_node* node, const hy__uses* uses) {
  return (hy__is_free_call(node, HY_OP_clone, uses, false) ||
          hy__is_free_call(node, HY_OP_copy, uses, false)) &&
         node->call.in[0].dtype == node->call.out[0].dtype &&
         node->call.in[0].ndim == node->call.out[0].ndim &&
         !hy_tensor_is_contiguous(&node->call.in[0]);
}

// The reader with the source in place of its copy.
static hy_status read_source(hy_graph* graph, int reader, int k, const hy__view* source) {
  hy__graph_node *node = graph->nodes[reader], *fresh = NULL;
  hy__view in[HY_MAX_INPUTS], out = hy__view_of(node, &node->call.out[0]);
  for (int j = 0; j < node->call.n_in; j++)
    in[j] = j == k ? *source : hy__view_of(node, &node->call.in[j]);
  HY_TRY(hy__view_call(graph, node->call.op, &node->call.attrs, in, node->call.n_in, &out, &fresh));
  graph->nodes[reader] = fresh;
  hy__graph_node_destroy(node);
  return HY_OK;
}

hy_status hy__rule_transpose(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  hy_status status = HY_OK;
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    if (!is_rearranged(graph->nodes[i], uses)) continue;
    hy__view source = hy__view_of(graph->nodes[i], &graph->nodes[i]->call.in[0]);
    hy__view copy = hy__view_of(graph->nodes[i], &graph->nodes[i]->call.out[0]);
    for (int r = i + 1; r <= uses[copy.value].last && status == HY_OK; r++) {
      for (int k = 0; is_product(graph->nodes[r]) && k < graph->nodes[r]->call.n_in; k++) {
        hy__view read = hy__view_of(graph->nodes[r], &graph->nodes[r]->call.in[k]);
        if (!hy__view_is_same(&read, &copy) || hy__view_changes(graph, &source, i, r)) continue;
        hy_status answer = read_source(graph, r, k, &source);
        *changes += answer == HY_OK;
        if (answer != HY_UNSUPPORTED) status = answer;
        if (status != HY_OK) break;
      }
    }
  }
  hy__mfree(uses);
  return status;
}
