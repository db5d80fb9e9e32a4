// Rules that split a product along k: of concatenated inputs (the copy goes away), and of long rows
// (two shorter products instead of one).
#include "graph/search/search.h"

enum { LONG_K = 1024 };

// A layer of matrices.
static bool is_layer(const hy__graph_node* node, const hy__uses* uses) {
  return hy__is_free_call(node, HY_OP_linear, uses, true) && node->call.in[0].ndim == 2 &&
         node->call.out[0].ndim == 2;
}

static void slice_both(const hy__view* v, int64_t first, hy__view parts[2]) {
  parts[0] = hy__view_slice(v, 1, 0, first);
  parts[1] = hy__view_slice(v, 1, first, v->t.shape[1] - first);
}

hy_status hy__rule_split_k(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  hy_status status = HY_OK;
  int count = graph->count;
  for (int i = count - 1; i >= 0 && status == HY_OK; i--) {
    if (!is_layer(graph->nodes[i], uses)) continue;
    hy__view x = hy__view_of(graph->nodes[i], &graph->nodes[i]->call.in[0]);
    hy__view w = hy__view_of(graph->nodes[i], &graph->nodes[i]->call.in[1]), xs[2], ws[2];
    int64_t k = w.t.shape[1];
    if (k < LONG_K) continue;
    slice_both(&x, k / 2 / 64 * 64, xs);
    slice_both(&w, k / 2 / 64 * 64, ws);
    status = hy__split_product(graph, i, xs, ws);
    *changes += status == HY_OK;
    if (status == HY_UNSUPPORTED) status = HY_OK;
  }
  hy__mfree(uses);
  return status;
}

// The cat that made the layer's whole input out of two matrices side by side; -1: none.
static int cat_before(const hy_graph* graph, const hy__uses* uses, int index) {
  hy__view x = hy__view_of(graph->nodes[index], &graph->nodes[index]->call.in[0]);
  if (x.value < 0 || uses[x.value].writers != 1) return -1;
  int writer = uses[x.value].writer;
  const hy__graph_node* cat = graph->nodes[writer];
  if (writer >= index || !hy__is_free_call(cat, HY_OP_cat, uses, false)) return -1;
  const hy_call* call = &cat->call;
  int64_t dim = call->attrs.dim.dim;
  hy__view made = hy__view_of(cat, &call->out[0]);
  if (call->n_in != 2 || (dim != 1 && dim != -1) || !hy__view_is_same(&made, &x)) return -1;
  for (int k = 0; k < 2; k++) {
    hy__view part = hy__view_of(cat, &call->in[k]);
    if (part.t.ndim != 2 || part.t.dtype != x.t.dtype || part.t.shape[1] == 0 ||
        hy__view_changes(graph, &part, writer, index))
      return -1;
  }
  return writer;
}

hy_status hy__rule_cat(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  hy_status status = HY_OK;
  int count = graph->count;
  for (int i = count - 1; i >= 0 && status == HY_OK; i--) {
    if (!is_layer(graph->nodes[i], uses)) continue;
    int writer = cat_before(graph, uses, i);
    if (writer < 0) continue;
    const hy__graph_node* cat = graph->nodes[writer];
    hy__view w = hy__view_of(graph->nodes[i], &graph->nodes[i]->call.in[1]), ws[2];
    const hy__view xs[2] = {hy__view_of(cat, &cat->call.in[0]), hy__view_of(cat, &cat->call.in[1])};
    slice_both(&w, xs[0].t.shape[1], ws);
    status = hy__split_product(graph, i, xs, ws);
    *changes += status == HY_OK;
    if (status == HY_UNSUPPORTED) status = HY_OK;
  }
  hy__mfree(uses);
  return status;
}
