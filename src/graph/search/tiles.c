// Tile choices: the variants of a kernel that its provider offers for a node of a graph.
//
// Nodes of the same work are run by the same variant: a model's layers are alike, and what suits
// one of them suits all.
#include <string.h>

#include "graph/search/search.h"

int32_t hy__node_variants(const hy_graph* graph, const hy__graph_node* node) {
  bool computes = node->as.kind == HY_NODE_CALL || node->as.kind == HY_NODE_CHAIN;
  if (!computes || !node->provider || !node->provider->variants) return 1;
  return node->provider->variants(graph->device->handle, &node->as);
}

static bool same_tensors(const hy_tensor* a, int n_a, const hy_tensor* b, int n_b) {
  if (n_a != n_b) return false;
  for (int i = 0; i < n_a; i++) {
    if (a[i].dtype != b[i].dtype || (a[i].dtype != HY_NONE && !hy__same_view(&a[i], &b[i])))
      return false;
  }
  return true;
}

static bool same_calls(const hy_call* a, const hy_call* b) {
  return a->op == b->op && hy__same_attrs(a, b) && same_tensors(a->in, a->n_in, b->in, b->n_in) &&
         same_tensors(a->out, a->n_out, b->out, b->n_out);
}

static bool same_steps(const hy_chain_step* a, const hy_chain_step* b) {
  const hy_call x = {.op = a->op, .attrs = a->attrs}, y = {.op = b->op, .attrs = b->attrs};
  return a->op == b->op && a->n_in == b->n_in && a->out == b->out && a->dtype == b->dtype &&
         memcmp(a->in, b->in, sizeof a->in) == 0 && hy__same_attrs(&x, &y);
}

static bool same_chains(const hy_chain* a, const hy_chain* b) {
  for (int i = 0; i < a->n_steps && a->n_steps == b->n_steps; i++) {
    if (!same_steps(&a->steps[i], &b->steps[i])) return false;
  }
  return a->n_steps == b->n_steps && same_tensors(a->in, a->n_in, b->in, b->n_in) &&
         same_tensors(a->out, a->n_out, b->out, b->n_out);
}

static bool same_work(const hy__graph_node* a, const hy__graph_node* b) {
  if (a->as.kind != b->as.kind || a->provider != b->provider) return false;
  if (a->as.kind == HY_NODE_CALL) return same_calls(&a->call, &b->call);
  return a->as.kind == HY_NODE_CHAIN && same_chains(&a->chain, &b->chain);
}

int hy__node_like(const hy_graph* graph, int index) {
  int first = 0;
  while (first < index && !same_work(graph->nodes[first], graph->nodes[index])) first++;
  return first;
}

hy_status hy__tiles_apply(hy_graph* graph, const hy__tile* tiles, int n) {
  for (int i = 0; i < n; i++) {
    if (tiles[i].node >= graph->count ||
        tiles[i].variant >= hy__node_variants(graph, graph->nodes[tiles[i].node]))
      return hy_fail(HY_UNSUPPORTED, "node %d of a graph has no variant %d", (int)tiles[i].node,
                     (int)tiles[i].variant);
    for (int k = tiles[i].node; k < graph->count; k++) {
      if (same_work(graph->nodes[tiles[i].node], graph->nodes[k]))
        graph->nodes[k]->variant = tiles[i].variant;
    }
  }
  if (n > 0) hy__graph_drop_handle(graph);
  return HY_OK;
}

hy_status hy__decision_apply(const hy__decision* d, hy_graph* graph, int* rule_changes,
                             hy_graph_report* report) {
  HY_TRY(hy__graph_rewrite(graph, d->rules, d->passes, rule_changes, report));
  return hy__tiles_apply(graph, d->tiles, d->n_tiles);
}
